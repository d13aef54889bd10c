"""The text report: one screen that a person can read, or paste to colleagues, without the logs at hand."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TextIO

import numpy as np

from matchers.comparison import Comparison
from matchers.explain import explain
from matchers.op_log import OpLog, Phase
from matchers.pairing import Method
from matchers.status import Role, Status
from numtui.report import ReportOptions
from numtui.terminal import safe_text

__all__ = ["write_text"]

_MAX_CAUSES = 5
_MAX_BEGINNINGS = 3
_MAX_PROBLEMS = 3
_MAX_RULE_NOTES = 6
_MAX_KEY = 100
_WIDTH = 118
"""Longer sentences and lists are wrapped; keys and paths are never broken."""
_UNSURE = 0.5
"""Pairs below this confidence are mentioned: a wrong pair is a false red row."""

_MEANING = {
    Status.PENDING: "not compared yet",
    Status.EQUAL: "the bits are the same",
    Status.SAME_PRINT: "every printed number is the same",
    Status.CLOSE: "different, within tolerance",
    Status.SHARDED: "different shards of one tensor, not judged",
    Status.UNFINISHED: "collectives logged before they had finished, not judged",
    Status.RECOMPUTE: "run again in the backward pass (checkpointing) on one side only",
    Status.IGNORED: "ignored by a rule",
    Status.ONLY_A: "no partner in b",
    Status.ONLY_B: "no partner in a",
    Status.SHAPE: "shape or dtype differ",
    Status.DIVERGED: "different beyond tolerance",
    Status.NAN: "NaN, or infinity on one side only",
}
_RED, _BOLD, _DIM, _OFF = "\x1b[31m", "\x1b[1m", "\x1b[2m", "\x1b[0m"


def write_text(c: Comparison, out: TextIO, options: ReportOptions) -> None:
    """Write the report of `c`: counts, first causes, and everything that makes the result less certain."""
    paint = _Paint(options.color)
    out.writelines(f"{line}\n" for line in _lines(c, options, paint))


class _Paint:
    """Wraps text in ANSI colours, or leaves it alone."""

    def __init__(self, color: bool) -> None:
        self._color = color

    def __call__(self, code: str, text: str) -> str:
        return f"{code}{text}{_OFF}" if self._color else text


def _lines(c: Comparison, options: ReportOptions, paint: _Paint) -> Iterator[str]:
    yield from _sides(c, options, paint)
    yield ""
    yield from _result(c, paint)
    for section in (
        _causes(c, paint),
        _beginnings(c),
        _policy(c),
        _certainty(c),
        _excluded(c),
        _log_problems(c),
        _rules(c, options),
    ):
        lines = list(section)
        if lines:
            yield ""
            yield paint(_BOLD, lines[0])
            yield from lines[1:]


def _sides(c: Comparison, options: ReportOptions, paint: _Paint) -> Iterator[str]:
    names = [safe_text(n, 40) for n in options.names]
    yield paint(_BOLD, f"numtui: {names[0]} <-> {names[1]}")
    width = max(map(len, names))
    for side, name, log in (("a", names[0], c.a), ("b", names[1], c.b)):
        yield f"  {side}  {name:<{width}}  {len(log):>9,} operations  {safe_text(log.path)}"


def _result(c: Comparison, paint: _Paint) -> Iterator[str]:
    red = int(np.count_nonzero(c.red))
    if red:
        causes = int(np.count_nonzero(c.cause))
        told = f"{red:,} of {_count(len(c), 'row')} {'is' if red == 1 else 'are'} red, {_count(causes, 'first cause')}"
        yield paint(_RED, told)
    elif len(c) == 0:
        yield "Nothing to compare: both logs are empty."
    else:
        yield f"Nothing is red in {_count(len(c), 'row')}."
    for status in sorted(Status, key=lambda s: (not s.red, s)):
        if n := c.counts[status]:
            line = f"  {n:>9,}  {status.label:<11} {_MEANING[status]}"
            yield paint(_RED, line) if status.red else line


def _causes(c: Comparison, paint: _Paint) -> Iterator[str]:
    rows = np.flatnonzero(c.cause)
    title = "First causes"
    if len(rows) == 0:
        rows, title = np.flatnonzero(c.red), "Red rows"
    if len(rows) == 0:
        return
    yield title
    for number, row in enumerate(rows[:_MAX_CAUSES].tolist(), 1):
        yield f"  {number}. {paint(_RED, _row_keys(c, row))}"
        yield f"     {_facts(c, row)}"
        yield from _wrapped(explain(c, row).headline, "     ", "     ")
    if len(rows) > _MAX_CAUSES:
        yield f"  ... and {len(rows) - _MAX_CAUSES:,} more"


def _beginnings(c: Comparison) -> Iterator[str]:
    """Operations that make other bits of equal ones, within the tolerance: where rounding or a small mistake begins."""
    rows = np.flatnonzero((c.status == Status.CLOSE) & c.inputs_equal)
    if len(rows) == 0:
        return
    yield f"Differences begin, within the tolerance, in {_count(len(rows), 'row')} whose inputs are equal to the bit"
    for row in rows[:_MAX_BEGINNINGS].tolist():
        yield f"  {_row_keys(c, row)}"
        yield f"     {_facts(c, row)}"
    if len(rows) > _MAX_BEGINNINGS:
        yield f"  ... and {len(rows) - _MAX_BEGINNINGS:,} more"


def _row_keys(c: Comparison, row: int) -> str:
    a, b = c.members(row)
    sides = [" + ".join(safe_text(log.keys[r], _MAX_KEY) for r in side) for log, side in ((c.a, a), (c.b, b))]
    if not a or not b:
        return f"{sides[0] or sides[1]}  (only in {'a' if a else 'b'})"
    return sides[0] if sides[0] == sides[1] else f"{sides[0]} <-> {sides[1]}"


def _facts(c: Comparison, row: int) -> str:
    """Status, error, phase, shape and place of a row, as far as the logs say."""
    parts = [Status(c.status[row]).label]
    if c.role[row] != Role.NONE:
        parts.append(Role(c.role[row]).label)
    if not np.isnan(c.error[row]):
        sign = ">=" if c.bound[row] else "~" if 0 < c.error[row] < np.inf else ""
        parts.append(f"error {sign}{c.error[row]:.1e}")
    log, record = (c.a, int(c.row_a[row])) if c.row_a[row] >= 0 else (c.b, int(c.row_b[row]))
    parts.append(Phase(log.phase[record]).label)
    parts += [safe_text(t, 60) for t in (log.shape_text(record), log.dtype_text(record)) if t]
    if place := log.location_text(record):
        parts.append(safe_text(place, _MAX_KEY))
    lines = [
        f"{side} line {log.line[r]}"
        for side, log, r in (("a", c.a, int(c.row_a[row])), ("b", c.b, int(c.row_b[row])))
        if r >= 0
    ]
    return f"{', '.join(parts)} ({', '.join(lines)})"


def _policy(c: Comparison) -> Iterator[str]:
    """Another dtype throughout is one fact about the runs, not one per row."""
    if c.policy:
        yield "Another dtype policy: judged at the coarser precision"
        yield from (f"  {safe_text(a, 40)} in a is {safe_text(b, 40)} in b" for a, b in c.policy)


def _certainty(c: Comparison) -> Iterator[str]:
    """The pair that is most likely to be wrong, when some are doubtful."""
    p = c.pairing
    unsure = np.flatnonzero((p.confidence < _UNSURE) & (p.method > Method.TEMPLATE))
    if len(unsure) == 0:
        return
    worst = int(unsure[np.argmin(p.confidence[unsure])])
    doubt = f"{safe_text(c.a.keys[int(p.lead_a[worst])], _MAX_KEY)} <-> "
    doubt += safe_text(c.b.keys[int(p.lead_b[worst])], _MAX_KEY)
    yield f"Uncertain pairs: {len(unsure):,} of {len(p):,} have a confidence below {_UNSURE}"
    yield f"  least certain: {doubt} ({Method(p.method[worst]).label}, {p.confidence[worst]:.2f})"
    if (rival := int(p.runner_up[worst])) >= 0:
        yield f"  runner-up:     {safe_text(c.b.keys[rival], _MAX_KEY)} ({p.runner_up_score[worst]:.2f})"


def _excluded(c: Comparison) -> Iterator[str]:
    """Operations that the captures left out: nothing is known about them on either side."""
    a, b = dict.fromkeys(c.a.header.excluded), dict.fromkeys(c.b.header.excluded)
    if not a and not b:
        return
    yield "Not captured"
    for what, ops in (
        ("both", [o for o in a if o in b]),
        ("only a", [o for o in a if o not in b]),
        ("only b", [o for o in b if o not in a]),
    ):
        if ops:
            yield from _wrapped(", ".join(ops), f"  {what + ':':<8}", " " * 10)


def _log_problems(c: Comparison) -> Iterator[str]:
    told = [line for log in (c.a, c.b) for line in _problems_of(log)]
    if told:
        yield "Trouble with the logs"
        yield from told


def _problems_of(log: OpLog) -> Iterator[str]:
    path = safe_text(log.path)
    declared = log.header.declared
    if log.complete is False:
        missing = (
            f"{len(log):,} of {declared:,} operations are there"
            if declared is not None and declared > len(log)
            else "operations are missing at its end"
        )
        why = f": {safe_text(log.header.incomplete, 200)}" if log.header.incomplete else ""
        yield f"  {path}: the log is cut off, {missing}{why}"
    elif declared is not None and declared != len(log):
        yield f"  {path}: the header promises {_count(declared, 'operation')}, there are {len(log):,}"
    for problem in log.problems[:_MAX_PROBLEMS]:
        yield f"  {path}:{problem.line}: {safe_text(problem.message, 200)}"
    if log.problem_count > _MAX_PROBLEMS:
        yield f"  {path}: {log.problem_count:,} spots in all that could not be read"


def _rules(c: Comparison, options: ReportOptions) -> Iterator[str]:
    broken, usage = c.rules.problems, c.usage
    if options.rules_path is None or not (usage or broken):
        return
    notes = [f"{p.path}:{p.line}:{p.column}: {p.message}" for p in broken]
    notes += [u.problem for u in usage if u.problem]
    dead = sum(not u.matched for u in usage)
    told = f"Rules: {_count(len(usage), 'rule')} from {safe_text(options.rules_path)}"
    told += f", {dead} of them used nowhere" if dead else ""
    told += f", {len(broken)} broken" if broken else ""
    yield told
    yield from (f"  {safe_text(n, 300)}" for n in notes[:_MAX_RULE_NOTES])
    if len(notes) > _MAX_RULE_NOTES:
        yield f"  ... and {len(notes) - _MAX_RULE_NOTES} more"


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    """A sentence or a list in lines of `_WIDTH`, with what stands before the first and before the others."""
    return textwrap.wrap(
        safe_text(text, 600),
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _count(n: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2 rows`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
