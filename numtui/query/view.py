"""The listed rows of a comparison: filter, order, folded stretches, and steps from row to row.

Pure functions from columns to columns. A million rows take milliseconds, because nothing works row by row; the screen
requests only the lines that it shows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from matchers.arrays import Bool, Float64, Int32
from matchers.comparison import Comparison
from matchers.coverage.cover import Cover
from matchers.regions.find import Kind
from matchers.status import LabelledEnum, Status
from numtui.query.fields import STATUS_WORDS
from numtui.query.query import NO_QUERY, Query
from numtui.text.glyphs import WITHOUT_ERROR

__all__ = [
    "FOLD_MIN",
    "FOLD_WORDS",
    "Filter",
    "StatusGroup",
    "Order",
    "View",
    "build_view",
    "foldable",
    "same_file",
    "sorted_rows",
    "step",
    "step_error",
    "uncompared",
    "with_error",
]

FOLD_MIN = 3
"""Shortest stretch that folds: replacing two lines by one saves too little."""

FOLD_WORDS = {Kind.COVERED: "reached in another way", Kind.NOT_UNDERSTOOD: "not understood"}
"""The regions that fold, and what the line says of their rows."""


class StatusGroup(IntEnum):
    """The six groups of the status filter, in the order of the keys `1` to `6`."""

    RED = 0
    CLOSE = 1
    EQUAL = 2
    ONLY_A = 3
    ONLY_B = 4
    OTHER = 5

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", " ")


ALL_GROUPS = frozenset(StatusGroup)

_GROUP_OF = np.array(
    [next(g for g in StatusGroup if s in STATUS_WORDS[g.name.lower().replace("_", "-")]) for s in Status], np.int8
)


@dataclass(frozen=True, slots=True)
class Filter:
    """Filter of rows: the status groups switched on, and a query."""

    groups: frozenset[StatusGroup] = ALL_GROUPS
    query: Query = NO_QUERY

    def __bool__(self) -> bool:
        """True when something may be hidden."""
        return self.groups != ALL_GROUPS or bool(self.query)

    def toggled(self, group: StatusGroup) -> Filter:
        return Filter(self.groups ^ {group}, self.query)

    def mask(self, c: Comparison, queried: Bool | None = None) -> Bool:
        """bool[r]: rows that pass; `queried` is `query.mask(c)` if already computed."""
        shown = np.array([g in self.groups for g in StatusGroup], bool)
        passing = shown[_GROUP_OF[c.status]]
        if not self.query:
            return passing
        return passing & (self.query.mask(c) if queried is None else queried)


class Order(LabelledEnum):
    """Sort order of the list; ties keep dispatch order."""

    DISPATCH = 0
    ERROR = 1
    CONFIDENCE = 2

    @property
    def next(self) -> Order:
        return Order((self + 1) % len(Order))


def sorted_rows(c: Comparison, order: Order) -> Int32:
    """int32[r]: all rows sorted: largest errors or least certain pairs first; rows without a value last."""
    if order is Order.DISPATCH:
        return np.arange(len(c), dtype=np.int32)
    if order is Order.ERROR:
        # Zero errors sort with the unknown ones: neither needs a look.
        key = np.where(_telling(c), -c.error, np.nan)
    else:
        key = np.append(c.pairing.confidence.astype(np.float64), np.nan)[c.pair]
    known = np.flatnonzero(~np.isnan(key))
    first = known[np.argsort(key[known], kind="stable")]
    return np.concatenate((first, np.flatnonzero(np.isnan(key)))).astype(np.int32)


@dataclass(frozen=True)
class View:
    """The lines of the list; v lines.

    Attributes:
        row: int32[v], the row of the comparison on each line; the first one of a folded stretch. Ascending in
            dispatch order.
        fold: int32[v], number of rows of a folded stretch, 0 for a plain row.
        stretch: int32[v] of `foldable`, what the rows of a folded stretch are.
        passing: bool[r], the listed rows, folded ones included.
        order: sort order of the lines.
        explained: bool[r], rows that do not matter, because what is assumed explains them; None for none.
    """

    comparison: Comparison
    row: Int32
    fold: Int32
    stretch: Int32
    passing: Bool
    order: Order = Order.DISPATCH
    explained: Bool | None = None

    def __len__(self) -> int:
        return len(self.row)

    def line_of(self, row: int) -> int:
        """Return the line of a row; for a hidden row the line of the nearest. 0 in an empty view."""
        if not len(self.row):
            return 0
        if self.order is not Order.DISPATCH:
            line = int(self._lines[row]) if 0 <= row < len(self._lines) else -1
            return line if line >= 0 else int(np.argmin(np.abs(self.row - row)))
        before = max(int(np.searchsorted(self.row, row, side="right")) - 1, 0)
        after = min(before + 1, len(self.row) - 1)
        if self.row[before] == row or self.fold[before] or row <= self.row[before]:
            return before
        return before if row - self.row[before] <= self.row[after] - row else after

    @cached_property
    def _lines(self) -> Int32:
        """int32[r]: line of each row, -1 for rows without their own."""
        lines = np.full(len(self.comparison), -1, np.int32)
        lines[self.row] = np.arange(len(self.row), dtype=np.int32)
        return lines

    def places(self, rows: Int32) -> Int32:
        """Return sort keys of passing rows: ascending from line to line, also within a folded one."""
        return rows if self.order is Order.DISPATCH else self._lines[rows]

    def listed(self, rows: Int32) -> Int32:
        """Return the passing ones of `rows`, in list order."""
        rows = rows[self.passing[rows]]
        return rows if self.order is Order.DISPATCH else self.row[np.sort(self._lines[rows])]

    def row_at(self, line: int) -> int:
        """Return the row on a line, -1 in an empty view."""
        return int(self.row[min(max(line, 0), len(self.row) - 1)]) if len(self.row) else -1

    def folded(self, line: int) -> Int32:
        """Return the rows that a line stands for."""
        end = self.row[line + 1] if line + 1 < len(self) else len(self.comparison)
        rows = np.arange(self.row[line], end, dtype=np.int32)
        return rows[self.passing[rows]]

    @cached_property
    def reds(self) -> Int32:
        """The passing red rows, in list order."""
        return self.listed(_where(self.comparison.red))

    @cached_property
    def causes(self) -> Int32:
        """The passing first causes, in list order."""
        return self.listed(_where(self.comparison.cause))

    @cached_property
    def stops(self) -> Int32:
        """The passing red rows and first causes, in list order."""
        return self.listed(_where(self.comparison.red | self.comparison.cause))

    @cached_property
    def _matters(self) -> Bool:
        """bool[v]: red lines and first causes."""
        c = self.comparison
        matters = (c.red | c.cause)[self.row]
        return matters if self.explained is None else matters & ~self.explained[self.row]

    def map(self, height: int) -> Bool:
        """bool[height]: the stretches with a red line or a first cause, the whole view scaled to `height` lines."""
        if height <= 0 or not len(self):
            return np.zeros(max(height, 0), bool)
        start = np.arange(height, dtype=np.int64) * len(self) // height
        # With fewer lines than height some stretches are empty; reduceat then returns the line at the start.
        return np.asarray(np.logical_or.reduceat(self._matters, start), bool)


def foldable(c: Comparison) -> Int32:
    """int32[r]: the stretch to which a row may fold: 0 of equal rows, `k + 1` of region `k`, -1 for none.

    Only regions fold whose rows are no findings: their results agree, or their layout is not understood.
    """
    stretch = np.where((c.status == Status.EQUAL) | (c.status == Status.SAME_PRINT), 0, -1).astype(np.int32)
    if not c.single and c.flow is not None:
        region = c.by_row(lambda log: c.regions.of_a if log is c.a else c.regions.of_b)
        quiet = np.append(np.isin(c.regions.kind, list(FOLD_WORDS)), False)[region] & ~c.red
        stretch[quiet] = region[quiet] + 1
    stretch[c.cause] = -1
    return stretch


def build_view(
    c: Comparison,
    wanted: Filter,
    *,
    folded: bool = False,
    cursor: int = -1,
    opened: Bool | None = None,
    order: Order = Order.DISPATCH,
    queried: Bool | None = None,
    ranked: Int32 | None = None,
) -> View:
    """Build the list of lines to show.

    Args:
        folded: fold stretches of equal rows and of regions into one line each, in dispatch order only. The row under
            the cursor and first causes are never folded.
        opened: bool[r], rows that are always listed: unfolded by hand, or jumped to.
        queried, ranked: `wanted.query.mask(c)` and `sorted_rows(c, order)` if already computed.
    """
    passing = wanted.mask(c, queried)
    if opened is not None:
        passing |= opened
    if order is not Order.DISPATCH:
        every = sorted_rows(c, order) if ranked is None else ranked
        return _unfolded(c, every[passing[every]], passing, order)
    rows = _where(passing)
    if not folded:
        return _unfolded(c, rows, passing, order)
    stretch = foldable(c)
    if opened is not None:
        stretch[opened] = -1
    if 0 <= cursor < len(c):
        stretch[cursor] = -1
    stretch = stretch[rows]
    start = np.flatnonzero(np.diff(stretch, prepend=np.int32(-2)))
    length = np.diff(start, append=len(rows))
    folds = (stretch[start] >= 0) & (length >= FOLD_MIN)
    fold = np.repeat(folds, length) * np.repeat(length, length)
    keep = fold == 0
    keep[start] = True
    return View(c, rows[keep], fold[keep].astype(np.int32), stretch[keep], passing)


def _unfolded(c: Comparison, rows: Int32, passing: Bool, order: Order) -> View:
    return View(c, rows, np.zeros(len(rows), np.int32), np.full(len(rows), -1, np.int32), passing, order)


def step(view: View, rows: Int32, at: int, by: int) -> int | None:
    """Return the row of `rows` (in list order) `by` places after or before row `at`, or the last one in that direction.

    None when there is none.
    """
    places = view.places(rows)
    here = view.places(np.array([at], np.int32))[0] if 0 <= at < len(view.comparison) else -1
    if here < 0 <= at:
        # The row itself is hidden: start from the nearest line.
        here = view.line_of(at)
    if by > 0:
        first = int(np.searchsorted(places, here, side="right"))
        return int(rows[min(first + by, len(rows)) - 1]) if first < len(rows) else None
    last = int(np.searchsorted(places, here, side="left"))
    return int(rows[max(last + by, 0)]) if last > 0 and by < 0 else None


def uncompared(c: Comparison) -> Int32:
    """Return the rows that were neither compared nor covered by others; none before the comparison, and of one log."""
    return _where((c.coverage.cover == Cover.UNCOVERED) & (not c.single and not c.counts[Status.PENDING]))


def same_file(c: Comparison) -> bool:
    """Return True for a log beside itself."""
    return not c.single and os.path.abspath(c.a.path) == os.path.abspath(c.b.path)


def with_error(view: View) -> Int32:
    """Return the passing rows with an error, in dispatch order."""
    return _where(view.passing & _telling(view.comparison))


def _telling(c: Comparison) -> Bool:
    """bool[r]: rows with an error that says something."""
    with np.errstate(invalid="ignore"):
        return (c.error > 0) & ~np.isin(c.status, list(WITHOUT_ERROR))


def step_error(error: Float64, rows: Int32, at: int, by: int) -> int | None:
    """Return the row of `rows` (ascending) whose error ranks `by` places above (`by` > 0) or below that of row `at`.

    Of equal errors, the one dispatched first ranks higher. From a row without an error both directions start at the
    largest. None when there are fewer. Nothing is sorted: a million rows take less than a frame.
    """
    if not len(rows):
        return None
    mine, place = error[rows], int(np.searchsorted(rows, at))
    if at < 0 or place == len(rows) or rows[place] != at:
        return int(rows[np.argmax(mine)])
    larger = (mine > mine[place]) | ((mine == mine[place]) & (rows < at))
    if by < 0:
        larger = ~larger
        larger[place] = False
    rows, mine = rows[larger], mine[larger]
    if (wanted := abs(by)) > len(rows):
        return None
    if by > 0:
        size = np.partition(mine, wanted - 1)[wanted - 1]
        return int(rows[mine == size][np.count_nonzero(mine < size) - wanted])
    size = np.partition(mine, -wanted)[-wanted]
    return int(rows[mine == size][wanted - 1 - np.count_nonzero(mine > size)])


def _where(mask: Bool) -> Int32:
    return np.flatnonzero(mask).astype(np.int32)
