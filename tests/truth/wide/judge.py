"""The tool's verdict on a pair of the wide suite, against the oracle's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from matchers.comparison import Comparison
from matchers.runs.check import check_run
from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.summarise import equal_by_footers, summary_of
from matchers.runs.layouts.read import layouts_differ
from matchers.runs.run import find_run, find_runs
from numtui.cli.comparing import compare_logs
from numtui.inputs import DEFAULT_RULES, OpenRequest, resolve_logs
from numtui.report.model import Report
from numtui.report.options import ReportOptions
from numtui.report.runs.model import RunsReport
from tests.truth.captures import side_by_side
from tests.truth.judge import Found, Outcome, as_failed, judged_as
from tests.truth.wide.captures import values_of
from tests.truth.wide.oracle import differing, precision
from tests.truth.wide.subject import Case, Run, load

__all__ = ["Answer", "answers", "needed", "reference"]


@dataclass(frozen=True)
class Answer:
    """What was said about a pair, and what is true.

    Attributes:
        outcome: `unknown` where nothing is red and not everything was compared; else as of `tests.truth.judge`.
        beyond: values of either run that the oracle finds beyond the limit, and the largest multiple of it.
        findings: of `numtui check` on the healthy run alone.
    """

    case: Case
    found: Found
    beyond: tuple[int, float]
    findings: tuple[str, ...]

    @property
    def outcome(self) -> str:
        if self.found.outcome != Outcome.RIGHT and self.found.failed == ("not-compared",):
            return "unknown"
        return self.found.outcome.value

    @property
    def sound(self) -> bool:
        """True if the pair is what it is meant to be: healthy, or with a bug that shows."""
        return bool(self.beyond[0]) == bool(self.case.bug)


def reference(run: Run) -> Run:
    """The float64 run of the first form."""
    forms = load(run.subject).FORMS
    return Run(subject=run.subject, form=forms[0], seed=run.seed, dtype="float64")


def needed(chosen: Sequence[Case]) -> list[Run]:
    """All runs that judging takes."""
    runs = [run for case in chosen for run in (case.a, case.b, _healthy(case.b))]
    return list(dict.fromkeys([*runs, *(reference(run) for run in runs)]))


def _healthy(run: Run) -> Run:
    return replace(run, bug="", size=0.0, every=False, only=-1)


def answers(chosen: Sequence[Case], folder: Path, *, processes: int = 2) -> list[Answer]:
    """Judge all cases, side by side."""
    return side_by_side(_answer, chosen, folder, processes)


def _answer(case: Case, folder: Path) -> Answer:
    truth = values_of(reference(case.a), folder)
    beyond = [
        each
        for run in (case.a, case.b)
        for rank in range(run.ranks)
        for each in differing(values_of(run, folder, rank), truth, precision(run))
    ]
    found = _found(case, folder)
    alone = () if case.bug else _findings(folder / case.b.folder)
    return Answer(case, found, (len(beyond), max((off for _, off in beyond), default=0.0)), alone)


def _found(case: Case, folder: Path) -> Found:
    """The verdict of `numtui diff`; of runs that are compared rank by rank, on the rank where it says it began."""
    folders = [str(folder / run.folder) for run in (case.a, case.b)]
    runs = find_runs(folders[0], folders[1])
    if min(len(run.paths) for run in runs) == 1 or layouts_differ(*runs):
        paths = resolve_logs(*folders)
        return judged_as(case, _compared(case, folder, paths))
    pairs = {rank: (runs[0].paths[rank], runs[1].paths[rank]) for rank in runs[0].paths}
    compared = {rank: _compared(case, folder, paths) for rank, paths in pairs.items()}
    failures = {
        rank: [(f.condition, f.text) for f in Report(c, ReportOptions()).failures] for rank, c in compared.items()
    }
    summaries = {
        rank: equal_by_footers(rank, *pairs[rank]) or summary_of(c, rank, pairs[rank], failures=failures[rank])
        for rank, c in compared.items()
    }
    report = RunsReport(RunComparison(("a", "b"), summaries), (folders[0], folders[1]))
    origins = report.comparison.traced.origins
    rank = min(origins[0].events) if origins else 0
    found = judged_as(case, compared[rank], origins[0].event.row if origins and report.comparison.red else -1)
    failed = tuple(dict.fromkeys(failure.condition for failure in report.failures))
    return as_failed(found, failed, f"rank {rank} of {report.result}; {found.said}")


def _compared(case: Case, folder: Path, paths: tuple[str, str]) -> Comparison:
    """The comparison that `numtui diff` makes; another order is expected where the healthy forms have other bits."""
    healthy = [values_of(run, folder) for run in (case.a, _healthy(case.b))]
    exact = all((healthy[0][name] == value).all() for name, value in healthy[1].items())
    lower = {precision(run) for run in (case.a, case.b)} != {case.a.dtype}
    request = OpenRequest(
        path_a=paths[0],
        path_b=paths[1],
        name_a="a",
        name_b="b",
        rules_path=DEFAULT_RULES,
        expect=None if exact else "low-precision" if lower else "reduction-order",
    )
    return compare_logs(request, None)


@lru_cache(maxsize=4096)
def _findings(path: Path) -> tuple[str, ...]:
    return tuple(finding.text for finding in check_run(find_run(str(path))).findings)
