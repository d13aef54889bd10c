"""What a comparison fails on: the conditions that a merge is held up for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from matchers.arrays import Bool
from matchers.status import Status
from numtui.report.words import count

if TYPE_CHECKING:
    from numtui.report.model import Report

__all__ = ["Failure", "failing_rows", "failures_of"]


@dataclass(frozen=True, slots=True)
class Failure:
    """A condition (see `numtui.report.CONDITIONS`) that holds, and in what way."""

    condition: str
    text: str


def failures_of(r: Report) -> tuple[Failure, ...]:
    """Everything that the comparison fails on, in the order of the conditions that were asked for."""
    return tuple(Failure(name, text) for name in r.options.fail_on for text in _FAILURES[name](r))


def failing_rows(r: Report) -> Bool:
    """bool[r]: the rows that the comparison fails on."""
    found = np.zeros(len(r.comparison), bool)
    for name in r.options.fail_on:
        if name in _ROWS:
            found |= _ROWS[name](r)
    return found


def _diverged(r: Report) -> Bool:
    """The red rows, and the first causes that they follow from: one of these can be an operation of one side only."""
    red = r.comparison.red & ~r.allowed.rows
    return np.asarray(red | _origin(r)) if red.any() else np.asarray(red)


def _origin(r: Report) -> Bool:
    return np.asarray(r.comparison.cause & ~r.allowed.rows)


def _unmatched(r: Report) -> Bool:
    alone = np.isin(r.comparison.status, (Status.ONLY_A, Status.ONLY_B))
    return np.asarray(alone & ~r.allowed.rows)


_ROWS: Final[dict[str, Callable[[Report], Bool]]] = {
    "diverged": _diverged,
    "origin": _origin,
    "unmatched": _unmatched,
}


def _red_rows(r: Report) -> Iterator[str]:
    if n := int(np.count_nonzero(r.comparison.red & ~r.allowed.rows)):
        yield f"{count(n, 'row')} {'is' if n == 1 else 'are'} red"


def _causes(r: Report) -> Iterator[str]:
    rows = _origin(r)
    # Rows of one place in the program are one cause.
    found = [[row for row in starts if rows[row]] for starts in r.comparison.consequences.starts]
    if n := sum(bool(starts) for starts in found):
        ignored = sum(bool((r.comparison.status[starts] == Status.IGNORED).any()) for starts in found if starts)
        of_them = "" if n == 1 else f"{ignored} of them "
        yield count(n, "first cause") + (f", {of_them}ignored by a rule" if ignored else "")


def _alone(r: Report) -> Iterator[str]:
    if n := int(np.count_nonzero(_unmatched(r))):
        yield f"{count(n, 'operation')} {'has' if n == 1 else 'have'} no partner"


def _stale(r: Report) -> Iterator[str]:
    yield from r.broken_rules
    yield from (used.problem for used in r.rules if used.problem)
    yield from r.stale_allowances


def _incomplete(r: Report) -> Iterator[str]:
    for log in r.logs:
        yield from (f"{log.path}: {text}" for text in log.trouble)
        if log.problem_count:
            yield f"{log.path}: {count(log.problem_count, 'spot')} could not be read"


def _not_comparable(r: Report) -> Iterator[str]:
    yield from (note.text for note in r.notes if note.weight == "fatal")


_FAILURES: Final[dict[str, Callable[[Report], Iterator[str]]]] = {
    "diverged": _red_rows,
    "origin": _causes,
    "unmatched": _alone,
    "stale-rule": _stale,
    "incomplete": _incomplete,
    "not-comparable": _not_comparable,
}
