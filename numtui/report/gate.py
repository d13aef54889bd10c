"""Gate for CI: the conditions on which a comparison fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from matchers.arrays import Bool, marked
from matchers.comparison import Comparison
from matchers.ops.run_info import contradictions
from matchers.status import Status
from matchers.verdict.comparability import Severity
from numtui.report.evidence_basis import log_trouble, why_nothing
from numtui.report.options import FAIL_ON, ReportOptions
from numtui.text.counts import plural

__all__ = ["NOT_COMPARED", "Allowed", "Failure", "GatedRows", "failing_rows", "fails", "failures_of"]

NOT_COMPARED: Final = "not-compared"
_MAX_PARTS: Final = 3


@dataclass(frozen=True, slots=True)
class Failure:
    """A condition (see `numtui.report.options.CONDITIONS`) that is met, with its details."""

    condition: str
    text: str


@dataclass(frozen=True, slots=True)
class Allowed:
    """Rows that an `AllowList` allows: `rows` is bool[r]; `stale` names the unused entries with their place."""

    rows: Bool
    stale: tuple[str, ...] = ()


class GatedRows:
    """A comparison and what it fails on: all that reports of single rows need."""

    def __init__(self, comparison: Comparison, options: ReportOptions) -> None:
        self.comparison = comparison
        self.options = options

    @cached_property
    def allowed(self) -> Allowed:
        """Rows that the list of known differences allows."""
        c, known = self.comparison, self.options.allow
        return Allowed(np.zeros(len(c), bool)) if known is None else known.apply(c)

    @cached_property
    def failures(self) -> tuple[Failure, ...]:
        """Failures of the comparison; empty when it passes."""
        return failures_of(self.comparison, self.options.fail_on, self.allowed)

    @cached_property
    def failing(self) -> Bool:
        """bool[r]: failing rows."""
        return failing_rows(self.comparison, self.options.fail_on, self.allowed)


def failures_of(c: Comparison, fail_on: Sequence[str], allowed: Allowed) -> tuple[Failure, ...]:
    """Return all failures of a comparison, in the order of `fail_on`; it fails in any case if nothing was compared."""
    if c.nothing_compared and NOT_COMPARED not in fail_on:
        fail_on = (*fail_on, NOT_COMPARED)
    return tuple(Failure(name, text) for name in fail_on for text in _FAILURES[name](c, allowed))


def fails(c: Comparison) -> bool:
    """Return whether a comparison fails on the conditions that hold by default; not while it is still being read."""
    if c.single or c.counts[Status.PENDING]:
        return bool(c.red.any())
    return bool(failures_of(c, FAIL_ON, Allowed(np.zeros(len(c), bool))))


def failing_rows(c: Comparison, fail_on: Sequence[str], allowed: Allowed) -> Bool:
    """bool[r]: rows on which a comparison fails."""
    found = np.zeros(len(c), bool)
    for name in fail_on:
        if name in _ROWS:
            found |= _ROWS[name](c, allowed)
    return found


def _diverged(c: Comparison, allowed: Allowed) -> Bool:
    """Red rows and their first causes; a first cause can be an operation of one side only."""
    red = c.red & ~allowed.rows
    return np.asarray(red | _origin(c, allowed)) if red.any() else np.asarray(red)


def _origin(c: Comparison, allowed: Allowed) -> Bool:
    return np.asarray(c.cause & ~allowed.rows)


def _unmatched(c: Comparison, allowed: Allowed) -> Bool:
    alone = np.isin(c.status, (Status.ONLY_A, Status.ONLY_B))
    return np.asarray(alone & ~allowed.rows)


def _first_difference(c: Comparison, allowed: Allowed) -> Bool:
    found = np.zeros(len(c), bool)
    if c.first_difference is not None:
        found[c.first_difference.row] = True
    return np.asarray(found & ~allowed.rows)


def _recomputed(c: Comparison, allowed: Allowed) -> Bool:
    rows = [row for row, found in c.mismatch_at.items() if found.stays]
    found = marked(rows, len(c))
    return np.asarray(found & ~allowed.rows)


_ROWS: Final[dict[str, Callable[[Comparison, Allowed], Bool]]] = {
    "diverged": _diverged,
    "origin": _origin,
    "unmatched": _unmatched,
    "first-difference": _first_difference,
    "recompute-mismatch": _recomputed,
}


def _red_rows(c: Comparison, allowed: Allowed) -> Iterator[str]:
    if n := int(np.count_nonzero(c.red & ~allowed.rows)):
        yield f"{plural(n, 'row')} {'is' if n == 1 else 'are'} red"


def _contradictions(c: Comparison, _allowed: Allowed) -> Iterator[str]:
    for side, log in c.logs:
        if found := contradictions(log.header.run):
            more = f", and {len(found) - 1:,} more" if len(found) > 1 else ""
            yield f"the ranks of {side} contradict each other: {found[0]}{more}"


def _causes(c: Comparison, allowed: Allowed) -> Iterator[str]:
    rows = _origin(c, allowed)
    # Rows of one place in the program count as one cause.
    found = [[row for row in starts if rows[row]] for starts in c.consequences.starts]
    if n := sum(bool(starts) for starts in found):
        ignored = sum(bool((c.status[starts] == Status.IGNORED).any()) for starts in found if starts)
        of_them = "" if n == 1 else f"{ignored} of them "
        yield plural(n, "first cause") + (f", {of_them}ignored by a rule" if ignored else "")


def _alone(c: Comparison, allowed: Allowed) -> Iterator[str]:
    if n := int(np.count_nonzero(_unmatched(c, allowed))):
        yield f"{plural(n, 'operation')} {'is' if n == 1 else 'are'} unpaired"


def _begins(c: Comparison, allowed: Allowed) -> Iterator[str]:
    from matchers.explain.first_difference import first_difference_note, first_difference_reasons

    if _first_difference(c, allowed).any():
        yield "; ".join((first_difference_note(c), *first_difference_reasons(c)))


def _stale(c: Comparison, allowed: Allowed) -> Iterator[str]:
    yield from map(str, c.rules.problems)
    yield from (used.problem for used in c.usage if used.problem and c.rules.rules[used.rule].enabled)
    yield from allowed.stale


def _incomplete(c: Comparison, _allowed: Allowed) -> Iterator[str]:
    for log in (c.a, c.b):
        yield from (f"{log.path}: {text}" for text in log_trouble(log))
        if log.problem_count:
            yield f"{log.path}: {plural(log.problem_count, 'unreadable spot')}"


def _not_compared(c: Comparison, allowed: Allowed) -> Iterator[str]:
    known = c.coverage
    if known.nothing:
        yield f"nothing was compared: {why_nothing(c)}"
        return
    if known.parts and allowed.rows.any():
        known = c.coverage_but(allowed.rows)
    for part in known.parts[:_MAX_PARTS]:
        yield f"{part} {part.why}{f': {part.helps}' if part.helps else ''}"
    if (more := len(known.parts) - _MAX_PARTS) > 0:
        yield f"{plural(more, 'more part')} {'was' if more == 1 else 'were'} not compared"
    for side, log in c.logs:
        if log.problem_count:
            yield f"{plural(log.problem_count, 'region')} of {side} could not be understood"


def _not_comparable(c: Comparison, _allowed: Allowed) -> Iterator[str]:
    yield from (note.text for note in c.comparability.notes if note.severity == Severity.FATAL)


def _mismatches(c: Comparison, allowed: Allowed) -> Iterator[str]:
    if n := int(np.count_nonzero(_recomputed(c, allowed))):
        yield (
            f"{plural(n, 'recomputed copy', 'recomputed copies')} {'differs' if n == 1 else 'differ'} "
            f"from {'its original' if n == 1 else 'their originals'}"
        )


_FAILURES: Final[dict[str, Callable[[Comparison, Allowed], Iterator[str]]]] = {
    "diverged": _red_rows,
    "contradiction": _contradictions,
    "origin": _causes,
    "unmatched": _alone,
    "first-difference": _begins,
    "stale-rule": _stale,
    "incomplete": _incomplete,
    NOT_COMPARED: _not_compared,
    "not-comparable": _not_comparable,
    "recompute-mismatch": _mismatches,
}
