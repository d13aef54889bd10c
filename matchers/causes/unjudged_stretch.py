"""First causes among operations that cannot be judged by themselves.

Between two results that whole tensors show, ranks compute with shards and partial sums. If the first of these results
agrees and the second is red, the cause is in the stretch between them. Within it the most telling operation is named:
one that only one run has, and has only here; one that reads another tensor that no operation made; or else the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from matchers.arrays import Bool, Int64, marked, one_of
from matchers.causes.causes import JUMP, Causes
from matchers.causes.unpaired_branches import Branches, like, rounds
from matchers.logs.columns import Ragged
from matchers.logs.op_log import NO_DIGEST, OpLog, Phase
from matchers.ops.dataflow import upstream
from matchers.ops.laws import in_place, rows_where
from matchers.ops.shapes import numel
from matchers.rows import Stretch
from matchers.status import AGREE, Status

__all__ = ["Stretches"]

_ENOUGH: Final = 64
"""Fewest elements of a result whose agreement says something about what it was computed from; a loss agrees easily."""
_SAME_SIZE: Final = 0.01
"""Largest relative difference of the norms of a tensor and another of its size."""


class Stretches:
    """The search for first causes behind red pairs that read parts."""

    def __init__(self, found: Causes, flow: Ragged, of_runs: Sequence[Ragged], branches: Branches, red: Bool) -> None:
        """The search.

        Args:
            flow, of_runs: between rows, as `Rows.edges`: of both runs together, and of each by itself.
            red: bool[r], rows whose consequences are known to be red.
        """
        self._found, self._c, self._flow, self._of_runs, self._branches = found, found.c, flow, of_runs, branches
        self._ended = red.copy()
        """bool[r], rows behind which everything is explained: red ones, and stretches with a cause."""

    def follow(self, rows: Int64) -> Bool:
        """bool[r]: of some red pairs, those that another one explains, or a first cause found here."""
        c, explained = self._c, np.zeros(len(self._c), bool)
        for row in rows.tolist():
            error, proven = float(c.error[row]), row in c.slots and c.slots[row].itself
            # another shape or dtype has no size: what is within the tolerance is no part of it
            small = error / JUMP if math.isfinite(error) else float(c.tolerance[row])
            stretch, makers = self._upstream(row, small)
            received = np.nan_to_num(c.error[makers[self._agrees[makers]]]).max(initial=0.0)
            if self._ended[makers].any() or (received > small and math.isfinite(error) and not proven):
                explained[row] = True
            elif not proven:
                first = self._telling(stretch)
                if first < 0 and c.verdict[row] != Status.SHAPE:
                    first = self._first(stretch)
                if first >= 0:
                    self._found.cause[first] = explained[row] = True
                    if c.pair[first] >= 0 and c.verdict[first] < Status.SHAPE:
                        self._found.stretches[first] = Stretch(row, len(stretch), self._reads_other(first))
                self._ended[stretch] = True
        return explained

    def _upstream(self, row: int, small: float) -> tuple[Int64, Int64]:
        """The stretch that leads to a pair, and the rows that made what it or the pair reads.

        No error leads over what an agreeing result reads, nor over what another phase keeps where its results agree;
        an optimizer's operations on parts are not to blame.
        """
        flow, end = self._flow, marked([row], len(self._c))
        shows = self._tells & (self._c.error <= small)
        led = self._open & ~self._harmless & self._c.may_lead_to(row)
        for of_run in self._of_runs:
            led &= ~upstream(of_run, shows, shows | self._open)
        inside = upstream(flow, end, end | led)
        behind = self._open & upstream(flow, inside & self._harmless & self._open, self._open)
        stretch = inside & led
        makers = np.unique(flow.value[(end | stretch | behind)[flow.row] & (flow.value != row)])
        return np.flatnonzero(stretch & ~end & ~self._c.of_other_ranks), makers

    @cached_property
    def _agrees(self) -> Bool:
        return one_of(self._c.verdict, AGREE)

    @cached_property
    def _open(self) -> Bool:
        return ~(self._agrees | (self._c.verdict >= Status.SHAPE))

    @cached_property
    def _harmless(self) -> Bool:
        """bool[r]: the optimizer's operations on parts, a whole that none of them exceeds, and gradients it keeps."""
        c = self._c
        optimizer = (c.verdict == Status.SHARDED) & (c.phase == Phase.OPTIMIZER)
        keeps = optimizer & c.by_row(_writes_parameters)
        return optimizer | marked(self._flow.value[keeps[self._flow.row]], len(c))

    @cached_property
    def _tells(self) -> Bool:
        """bool[r]: rows that agree, of which that says something."""
        c = self._c
        with np.errstate(invalid="ignore"):
            varied = c.by_row(lambda log: (numel(log)[log.shape] >= _ENOUGH) & (log.stats[2] < log.stats[3]))
        return self._agrees & ~(c.bound & (c.error > 0)) & rounds(c) & varied

    def _telling(self, stretch: Int64) -> int:
        """The first operation that only one run has, and only here, or that reads another tensor; -1 for none."""
        alone = self._c.pair < 0
        found = (r for r in stretch.tolist() if (self._branches.is_odd(r) if alone[r] else self._reads_other(r) >= 0))
        return next(found, -1)

    def _first(self, stretch: Int64) -> int:
        """The first operation of the stretch that computes something, a pair if there is any; -1 for none."""
        computes = stretch[~self._c.by_row(_passes_on)[stretch]]
        pairs = computes[self._c.pair[computes] >= 0]
        return next(iter((pairs if len(pairs) else computes).tolist()), -1)

    def _reads_other(self, row: int) -> int:
        """The place of an input that no operation made and that differs, unlike in other layers; -1 for none."""
        *kind, layer = like(self._c, row)
        likes = [other for other in self._parts.get(tuple(kind), ()) if like(self._c, other)[3] != layer]
        for place, (same, alike) in self._given(row).items():
            others = [given[place][0] for other in likes if place in (given := self._given(other))]
            if not same and (any(others) if others else alike):
                return place
        return -1

    @cached_property
    def _parts(self) -> dict[tuple[object, ...], list[int]]:
        """The unjudged pairs by module in the layer, op and phase."""
        out: dict[tuple[object, ...], list[int]] = {}
        for row in np.flatnonzero(self._c.parts & (self._c.pair >= 0)).tolist():
            out.setdefault(like(self._c, row)[:3], []).append(row)
        return out

    def _given(self, row: int) -> dict[int, tuple[bool, bool]]:
        """By place, whether an input that no operation made is bitwise equal, and whether its norm is nearly so."""
        c = self._c
        assert c.flow is not None
        i, j = int(c.row_a[row]), int(c.row_b[row])
        made, out = zip(c.flow.a[i].tolist(), c.flow.b[j].tolist(), strict=False), {}
        read = zip(made, c.a.input_digests[i], c.b.input_digests[j], c.a.inputs[i], c.b.inputs[j], strict=False)
        for k, (makers, one, other, x, y) in enumerate(read):
            if max(makers) < 0 and NO_DIGEST not in (one, other):
                out[k] = bool(one == other), bool(abs(x - y) <= _SAME_SIZE * max(abs(x), abs(y)))
        return out


def _passes_on(log: OpLog) -> Bool:
    """bool[n]: operations that move numbers and change none."""
    return rows_where(log, lambda law: law.passes_elements or law.communicates)


def _writes_parameters(log: OpLog) -> Bool:
    writes = marked(log.texts("Parameter").rows, len(log))
    return writes & in_place(log)
