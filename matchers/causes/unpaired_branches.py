"""Branches of operations that only one run has: where in them a difference begins.

A red row that reads such a branch names its last operation. More telling is one whose like in other layers has a
partner, or else the first on the way that reads a result which the other run has, too. What another phase keeps for it,
such as a forward pass, is no part of a branch where the results of that stretch agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import cached_property

import numpy as np

from matchers.arrays import Bool, marked
from matchers.logs.columns import Ragged
from matchers.logs.op_log import Phase
from matchers.ops.dataflow import upstream
from matchers.ops.laws import law_of, rows_where
from matchers.ops.module_path import canonical, template
from matchers.rows import Rows
from matchers.verdict.tolerance import EPSILON

__all__ = ["Branches", "like", "rounds"]


class Branches:
    """The unpaired operations of both logs, by row."""

    def __init__(self, c: Rows, flow: Ragged) -> None:
        """`flow`: between rows, as `Rows.edges`."""
        self._c = c
        self._flow = flow
        # copies that activation checkpointing computes again branch off nothing
        self._rows = np.flatnonzero((c.pair < 0) & ~c.by_row(lambda log: log.recompute))
        self._number = np.append(np.full(len(c), -1), -1)
        self._number[self._rows] = np.arange(len(self._rows))

    def start(self, *ends: int) -> int:
        """The row with which the branches that end in some unpaired rows begin to differ.

        What a backward pass begins with follows from the loss, which no operation reads: from what the same run alone
        does at that line to make it.
        """
        row = self._start(*ends)
        log, record = self._c.shown(row)
        if log.phase[record] != Phase.BACKWARD or log.location[record] < 0:
            return row
        of_a = self._of_a(row)
        at_line = (log.module == log.module[record]) & (log.location == log.location[record])
        rows = (self._c.at_a if of_a else self._c.at_b)[at_line]
        rows = rows[(self._number[rows] >= 0) & self._last[rows] & (self._c.phase[rows] == Phase.FORWARD)]
        return self._start(int(rows[0])) if len(rows) else row

    def _start(self, *ends: int) -> int:
        branches = [self._branch(end) for end in ends]
        theirs = {*ends, *self._leading_only({*ends}.union(*branches))}
        found = [row for branch in branches for row in branch if row in theirs]
        # of what prepares a step a log has only what the step reads: the other run may have it, too
        found = [row for row in found if not self._prepares(row)] or found
        odd = [row for row in found if self.is_odd(row)]
        if odd:  # whole numbers and masks are prepared, perhaps for nothing, until an operation combines them
            return next((row for row in odd if self._rounds(row)), odd[-1])
        alone = self._c.pair < 0
        first = (row for row in found if (~alone[self._flow[row]]).any() and self._of_a(row) == self._of_a(ends[0]))
        return next(first, ends[0])

    def is_odd(self, row: int) -> bool:
        """True for an unpaired operation with inputs that moves nothing, and whose like in other layers is paired."""
        log, record = self._c.shown(row)
        law = law_of(log, record)
        if self._c.of_other_ranks[row] or law.moves or law.communicates or not len(log.inputs[record]):
            return False
        kind = like(self._c, row)
        # a mask prepares; outside of layers nothing tells which is odd
        return len(self._places[self._of_a(row), kind[:3]]) == 1 and (bool(kind[3]) or self._rounds(row))

    def _prepares(self, row: int) -> bool:
        log, record = self._c.shown(row)
        return bool(log.phase[record] == Phase.PREPARE)

    def _of_a(self, row: int) -> bool:
        return bool(self._c.row_a[row] >= 0)

    def _rounds(self, row: int) -> bool:
        log, record = self._c.shown(row)
        return log.dtype_text(record) in EPSILON

    @cached_property
    def _among(self) -> Ragged:
        """The data flow among the unpaired rows, by their numbers."""
        reader, maker = self._number[self._flow.row], self._number[self._flow.value]
        inside = (reader >= 0) & (maker >= 0)
        return Ragged.distinct(reader[inside], maker[inside], len(self._rows))

    def _branch(self, end: int) -> list[int]:
        """The unpaired rows that lead to one over unpaired ones, itself included; none where a log tells no makers."""
        if self._number[end] < 0 or not self._c.shown(end)[0].tells.makers:
            return [end]
        among = self._c.may_lead_to(end)[self._rows]
        return self._rows[upstream(self._among, self._number[[end]], among) & among].tolist()

    @cached_property
    def _last(self) -> Bool:
        """bool[r]: rows of which no operation reads the numbers."""
        blind = self._c.by_row(lambda log: rows_where(log, lambda law: law.blind))
        return ~marked(self._flow.value[~blind[self._flow.row]], len(self._c))

    def _leading_only(self, branches: AbstractSet[int]) -> Iterator[int]:
        """Yield the rows of branches that no unpaired operation of others reads, too: no mask of all layers.

        Nor do operations of others whose results agree read what is made of it: no table that a mask is made of.
        """
        elsewhere = set[int]()
        for row in sorted(branches, reverse=True):
            log, record = self._c.shown(row)
            readers = self._rows[self._among.row[self._among.value == self._number[row]]].tolist()
            others = [
                reader
                for reader in readers
                if reader not in branches and log.phase[self._c.shown(reader)[1]] == log.phase[record]
            ]
            if self._c.covered[others].any() or not elsewhere.isdisjoint(readers):
                elsewhere.add(row)
            elif not others:
                yield row

    @cached_property
    def _places(self) -> dict[tuple[bool, tuple[str, str, int]], set[str]]:
        """The layers of unpaired operations, by whether a has them, and by module in the layer, op and phase."""
        out: dict[tuple[bool, tuple[str, str, int]], set[str]] = {}
        for row in np.flatnonzero(self._c.pair < 0).tolist():
            kind = like(self._c, row)
            out.setdefault((self._of_a(row), kind[:3]), set()).add(kind[3])
        return out


def like(c: Rows, row: int) -> tuple[str, str, int, str]:
    """The module within its layer, op, phase, and the layer."""
    log, record = c.shown(row)
    split = template(canonical(log.module_name(record)))
    return split.pattern, log.op_name(record), int(log.phase[record]), split.place


def rounds(c: Rows) -> Bool:
    """bool[r]: rows whose results round."""
    return c.by_row(lambda log: np.array([name in EPSILON for name in log.dtypes] + [False])[log.dtype])
