"""Two runs of many ranks: compared rank by rank on this machine, on a Dask cluster, or in parts that are merged."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from matchers.errors import InputError, LogError
from matchers.runs.run import Run, find_logs, find_runs
from numtui.cli.arguments import requested_for
from numtui.cli.explore import configured
from numtui.cli.output import ExitCode, complain_briefly, complain_of_reader, deliver
from numtui.cli.overview import has_screen
from numtui.inputs import default_names, other_layouts
from numtui.own_packages import start_worker
from numtui.report.options import FAIL_ON, Target
from numtui.terminal.progress import ProgressLine
from numtui.terminal.tty import wants_color

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from matchers.comparison import Progress
    from matchers.runs.diff.summary import RankSummary
    from numtui.cli.rank_task import RankTask
    from numtui.report.runs.model import RunsReport

__all__ = ["are_runs", "explore_runs", "report_runs", "write_runs"]

_DASK_SECONDS = 30
"""Within which a cluster answers."""
_DASK_RETRIES = 2
"""Times that a rank is tried again on another worker."""


def are_runs(args: argparse.Namespace) -> bool:
    """True if both arguments are folders of runs whose ranks are partners, several of them, and no rank was chosen."""
    if args.b is None or args.rank is not None or args.merged or not (os.path.isdir(args.a) and os.path.isdir(args.b)):
        return False
    several = False
    with suppress(OSError, ValueError):
        logs = [find_logs(Path(path), stage=args.stage) for path in (args.a, args.b)]
        several = any(len({log.rank for log in found}) > 1 for found in logs)
    return several and other_layouts(args.a, args.b, args.step, args.stage) is None


@dataclass(frozen=True, slots=True)
class _Options:
    """How to compare the ranks of two runs."""

    args: argparse.Namespace
    allow: Path | None
    rules: Path | None

    @property
    def criteria(self) -> tuple[str, ...]:
        """The arguments on which verdicts depend."""
        told: list[str] = []
        for option in ("rules", "expect", "rtol", "noise", "step", "stage"):
            value = getattr(self.args, option, None)
            told += [] if value is None else [f"--{option}", str(value)]
        told += ["--floor"] if getattr(self.args, "floor", None) else []
        return (*told, *(["--auto-rules"] if self.args.auto_rules else []))


def compare_runs(args: argparse.Namespace, fail_on: Sequence[str] = FAIL_ON, allow: Path | None = None) -> RunsReport:
    """Compare all ranks of two runs.

    Raises:
        UserError: the runs cannot be found, or the rules or known differences cannot be read.
    """
    a, b = find_runs(args.a, args.b, step=args.step, stage=args.stage)
    return _report_on(args, a, b, sorted({*a.paths, *b.paths}), fail_on, allow)


def _report_on(
    args: argparse.Namespace, a: Run, b: Run, ranks: Sequence[int], fail_on: Sequence[str], allow: Path | None
) -> RunsReport:
    """Compare some ranks."""
    from matchers.runs.diff.comparison import RunComparison
    from numtui.cli.rule_files import rule_files
    from numtui.report.runs.model import RunsReport

    names = default_names(args.a, args.b)
    named = getattr(args, "name_a", None) or names[0], getattr(args, "name_b", None) or names[1]
    rules = rule_files(requested_for(_without_noise(args), "", "", None, named))
    broken = _refuse_broken(rules.applied, allow)
    options = _Options(args, allow, rules.applied)
    with ProgressLine() as progress:
        summaries = dict(sorted(_summaries(options, a, b, named, ranks, progress)))
    return RunsReport(
        RunComparison(named, summaries, broken), (args.a, args.b), options.criteria, tuple(dict.fromkeys(fail_on))
    )


def _refuse_broken(rules: Path | None, allow: Path | None) -> tuple[str, ...]:
    """Read both files here once, as each rank would say the same of them; return, and say, what rules are broken."""
    broken: tuple[str, ...] = ()
    if rules is not None:
        from numtui.cli.comparing import load_rules

        broken = tuple(map(str, load_rules(rules).problems))
        complain_briefly(broken, "{} more rules need a look".format)
    if allow is not None:
        from numtui.report.known_differences import load_allow_list

        load_allow_list(allow)
    return broken


def _without_noise(args: argparse.Namespace) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(args), "noise": None})


def _summaries(
    options: _Options, a: Run, b: Run, names: tuple[str, str], ranks: Sequence[int], progress: Progress
) -> Iterator[tuple[int, RankSummary]]:
    """Yield the summaries of all ranks, in the order in which they come."""
    from matchers.runs.diff.summarise import absent, equal_by_footers

    tasks: list[RankTask] = []
    for at, rank in enumerate(ranks):
        progress(f"footers of rank {rank}", at / len(ranks))
        paths = a.paths.get(rank, ""), b.paths.get(rank, "")
        if not all(paths):
            yield rank, absent(rank, *paths, f"only {names[bool(paths[1])]} has a log of it")
            continue
        equal = None if options.args.read_all else equal_by_footers(rank, *paths)
        if equal is not None:
            yield rank, equal
        else:
            tasks.append(_task(options, rank, paths, names))
    yield from _compared(options, tasks, progress)


def _task(options: _Options, rank: int, paths: tuple[str, str], names: tuple[str, str]) -> RankTask:
    from numtui.cli.rank_task import RankTask

    request = requested_for(options.args, *paths, rank, names)
    return RankTask(rank, replace(request, cache=None), request.cache is not None, options.rules, options.allow)


def _compared(options: _Options, tasks: Sequence[RankTask], progress: Progress) -> Iterator[tuple[int, RankSummary]]:
    """Yield the summaries of ranks whose logs have to be read."""
    if not tasks:
        return
    from matchers.runs.diff.execute import in_executor, in_processes
    from numtui.cli.rank_task import failed, summarise

    begin = monotonic()
    with ExitStack() as stack:
        if options.args.dask is not None:
            results = in_executor(summarise, tasks, stack.enter_context(_dask(options.args.dask)))
        else:
            workers = options.args.workers or len(os.sched_getaffinity(0))
            results = in_processes(summarise, tasks, workers, start_worker)
        stack.callback(results.close)
        progress(f"0 of {len(tasks):,} ranks", 0.0)
        for done, (task, result) in enumerate(results, 1):
            left = (monotonic() - begin) / done * (len(tasks) - done)
            progress(f"{done:,} of {len(tasks):,} ranks compared, {left:.0f} s left", done / len(tasks))
            yield task.rank, failed(task, _why(result)) if isinstance(result, Exception) else result


def _why(error: Exception) -> str:
    """Return why a rank has no summary."""
    from concurrent.futures import BrokenExecutor

    if isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker":
        return "the process that compared it was killed; too little memory? fewer --workers need less"
    return f"internal error: {type(error).__name__}: {str(error)[:200]} (this is a bug)"


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError:
        raise InputError("--dask needs the package distributed: pip install 'numtui[dask]'") from None
    try:
        client = Client(address, timeout=_DASK_SECONDS)
    except (OSError, ValueError) as error:
        raise InputError(f"--dask {address}: no cluster answers there ({error})") from None
    with client:
        yield client.get_executor(retries=_DASK_RETRIES)


def report_runs(
    args: argparse.Namespace,
    targets: Sequence[Target],
    fail_on: tuple[str, ...],
    allow: Path | None,
    report_rank: Callable[..., int],
) -> int:
    """Compare two runs and write the reports, or the file of a part; return the exit code.

    Args:
        report_rank: writes the reports on the two logs of one rank.

    Raises:
        UserError: as `compare_runs`, or a report cannot be written.
    """
    complain_of_reader()
    if args.shard is not None:
        return _write_part(args, allow)
    page = next((path for form, path in targets if form == "html" and path is not None), None)
    if args.pages and page is None:
        raise InputError("--pages writes pages beside that of -o FILE.html, and no such file is given")
    made = compare_runs(args, fail_on, allow)
    if args.pages and page is not None:
        _refuse_nothing(made)
        a, b = find_runs(args.a, args.b, step=args.step, stage=args.stage)
        made = replace(made, pages={rank: f"{page.stem}.rank_{rank}.html" for rank in made.typical})
        for rank, name in made.pages.items():
            request = requested_for(args, a.paths[rank], b.paths[rank], rank, made.comparison.names)
            target = Target("html", page.with_name(name))
            report_rank(request, [target], fail_on=fail_on, allow=allow, overview=page.name)
    return write_runs(made, targets, color=not args.no_color)


def _write_part(args: argparse.Namespace, allow: Path | None) -> int:
    from matchers.runs.diff.part_file import Part, render_part

    if args.output is None or args.also or args.format is not None:
        raise InputError("--shard writes a part for numtui merge to -o FILE, and no other report")
    a, b = find_runs(args.a, args.b, step=args.step, stage=args.stage)
    ranks = tuple(sorted({*a.paths, *b.paths}))
    made = _report_on(args, a, b, args.shard.ranks(ranks), FAIL_ON, allow)
    part = Part(
        runs=made.runs,
        names=made.comparison.names,
        shard=args.shard,
        ranks=ranks,
        criteria=made.criteria,
        broken_rules=made.comparison.broken_rules,
        summaries=tuple(made.comparison.summaries.values()),
    )
    deliver(lambda out: print(render_part(part), end="", file=out), args.output)
    return ExitCode.SAME


def write_runs(report: RunsReport, targets: Sequence[Target], *, color: bool) -> int:
    """Write the reports; return the exit code.

    Raises:
        LogError: no log could be read.
    """
    from numtui.report.write import write

    _refuse_nothing(report)
    for form, path in targets:
        colored = path is None and wants_color(sys.stdout, no_color=not color)
        deliver(partial(write, report, form=form, color=colored), path)
    # red ranks are told by the report
    told = [f for f in report.failures if f.condition != "diverged" or report.fail_on != FAIL_ON]
    complain_briefly([f"fails on {f.condition}: {f.text}" for f in told], "{} more reasons".format)
    return ExitCode.RED if report.failures else ExitCode.SAME


def _refuse_nothing(report: RunsReport) -> None:
    """Raise a LogError if no rank could be compared because of the logs."""
    failed = [summary.why for summary in report.comparison.summaries.values() if not summary.read]
    if len(failed) == len(report.comparison.summaries):
        raise LogError(f"nothing was compared: {failed[0]}" + (f", and {len(failed) - 1:,} more" if failed[1:] else ""))


def explore_runs(args: argparse.Namespace) -> int:
    """Compare two runs, and open the overview of their ranks; without a terminal, print the text report.

    Raises:
        UserError: as `report_runs`.
    """
    if not has_screen():
        return write_runs(compare_runs(args), [Target("text")], color=not args.no_color)
    # as the explorer does, which opens from here
    args = argparse.Namespace(**{**vars(args), "auto_rules": args.rules is None})
    report = compare_runs(args)
    _refuse_nothing(report)
    names = report.comparison.names

    def noise(rank: int) -> str | None:
        return requested_for(args, "", "", rank, names).noise_path

    from numtui.cli.ranks_screen import show_ranks

    request = configured(requested_for(_without_noise(args), "", "", None, names))
    code = show_ranks(report.comparison, request, noise)
    return code or (ExitCode.RED if report.failures else ExitCode.SAME)
