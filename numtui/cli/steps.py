"""Two runs with several captured steps: each is compared, and the first that differs is reported or opened."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from matchers.errors import InputError
from matchers.runs.run import find_logs
from numtui.cli.arguments import requested
from numtui.cli.output import complain
from numtui.cli.ranks import are_runs, compare_runs
from numtui.report.options import FAIL_ON
from numtui.terminal.progress import ProgressLine
from numtui.text.safe import safe_text, write_lines

if TYPE_CHECKING:
    from matchers.runs.diff.summary import RankSummary

__all__ = ["at_first_difference"]

_MAX_TEXT = 300


@dataclass(frozen=True, slots=True)
class _Step:
    """The comparison of one step.

    Attributes:
        fails: by a condition that fails the comparison.
        differs: however little.
        text: what came out, in one line.
    """

    number: int
    fails: bool
    differs: bool
    text: str


def at_first_difference(
    args: argparse.Namespace, out: TextIO | None, fail_on: Sequence[str] = FAIL_ON, allow: Path | None = None
) -> argparse.Namespace:
    """Return the arguments with the first step that differs, if both runs have several steps and none was chosen.

    Args:
        out: where the line of each step is written; None for standard error.

    Raises:
        UserError: as `requested` and `compare_runs`.
    """
    numbers, odd = _captured(args)
    if len(numbers) < 2:
        return args
    steps: list[_Step] = []
    for number in numbers:
        with ProgressLine() as progress:
            progress(f"step {number}", len(steps) / len(numbers))
            steps.append(_compared(_of(args, number), fail_on, allow))
    differ, fail = (next((step for step in steps if chosen(step)), None) for chosen in (_differs, _fails))
    first = fail or differ or steps[-1]
    named = "fail" if fail is not None and differ is not fail else "differ"
    told = f"First to {named}: step {first.number}" if differ else f"All agree; the report is of step {first.number}"
    width = len(str(numbers[-1]))
    lines = [f"step {step.number:>{width}}  {step.text}" for step in steps]
    if odd:
        lines.append(f"only in one run: step {', '.join(map(str, odd))}")
    if out is None:
        for line in (*lines, told):
            complain(line)
    else:
        write_lines(iter([*lines, told, ""]), out)
        out.flush()
    return _of(args, first.number)


def _fails(step: _Step) -> bool:
    return step.fails


def _differs(step: _Step) -> bool:
    return step.differs or step.fails


def _of(args: argparse.Namespace, step: int) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(args), "step": step})


def _captured(args: argparse.Namespace) -> tuple[list[int], list[int]]:
    """Return the steps that both runs have folders of, and those of one alone; none if there is nothing to choose."""
    if args.step is not None or getattr(args, "shard", None) is not None:
        return [], []
    steps = []
    for path in (args.a, args.b):
        if path is None or not os.path.isdir(path):
            return [], []
        with suppress(OSError, ValueError, InputError):  # said later, by who reads the logs
            steps.append({log.step for log in find_logs(Path(path), stage=args.stage) if log.step is not None})
    if len(steps) < 2:
        return [], []
    return sorted(steps[0] & steps[1]), sorted(steps[0] ^ steps[1])


def _compared(args: argparse.Namespace, fail_on: Sequence[str], allow: Path | None) -> _Step:
    if are_runs(args):
        report = compare_runs(args, fail_on, allow)
        return _Step(args.step, bool(report.failures), bool(report.comparison.traced.origins), report.result)
    from matchers.runs.diff.summarise import equal_by_footers
    from numtui.cli.rank_task import RankTask, summarise
    from numtui.cli.rule_files import rule_files

    request = requested(args)
    paths = request.path_a, request.path_b
    summary = None if request.merges_ranks or getattr(args, "read_all", False) else equal_by_footers(0, *paths)
    if summary is None:
        rules = rule_files(request).applied
        task = RankTask(0, replace(request, cache=None), request.cache is not None, rules, allow)
        summary = summarise(task)
    fails = [text for name, text in summary.failures if name in fail_on]
    if "incomplete" in fail_on:
        fails += [*summary.troubles, *([] if summary.read else [summary.why])]
    return _Step(args.step, bool(fails), summary.difference is not None or bool(summary.red), _words(summary, fails))


def _words(summary: RankSummary, fails: Sequence[str]) -> str:
    from numtui.report.runs.words import event_place

    if summary.red:
        cause = summary.causes[0] if summary.causes else summary.difference
        place = f", first cause {event_place(cause)}" if cause is not None else ""
        return f"{summary.red:,} of {summary.rows:,} rows red{place}"
    if fails:
        return safe_text(fails[0], _MAX_TEXT)
    if summary.difference is not None:
        return f"within tolerance, first difference {event_place(summary.difference)}"
    return f"{summary.compared:,} operations agree"
