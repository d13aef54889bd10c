"""First causes within the tolerance: where an error begins that is red only later.

In bfloat16 a mistake may stay within the tolerance for many layers, until an operation of a finer dtype shows it. Two
runs of the same kernels show where it begins by their bits: at an operation that read equal ones and returned others,
unlike all others of its kind, or at one that only one run has, if an operation reads its result beside nothing else
that differs. Where other kernels differ everywhere, as in merged layouts, it begins in a region that holds an operation
without counterpart, if the error grows there by far more than in what it reads. Either is the cause of the red rows
that follow, unless their error is a larger one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import numpy as np

from matchers.arrays import Bool, marked, one_of
from matchers.causes.causes import BY_SIZE, JUMP, MOST, Causes
from matchers.causes.first_difference import Equality, Kind, differences
from matchers.causes.unpaired_branches import Branches, rounds
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import fed_by
from matchers.ops.laws import rows_where
from matchers.rows import Rows
from matchers.status import AGREE, Status
from matchers.verdict.reason import Reason

__all__ = ["blame_beginnings", "blame_inserted"]

_GROWTH: Final = 32.0
"""Factor by which an error may grow until it is red; by more it is another one."""


def blame_beginnings(found: Causes) -> None:
    """Blame rows within the tolerance where an error begins in two runs of the same kernels."""
    c = found.c
    later = found.cause & ~c.inputs_equal & (c.status != Status.IGNORED) & (c.reason != Reason.ARGUMENTS)
    if not later.any() or not len(c.a.digests.value) or not len(c.b.digests.value):
        return
    reads_unpaired = marked(c.edges.row[(c.pair < 0)[c.edges.value]], len(c))
    begins = (c.status == Status.CLOSE) & (c.error > 0) & (c.inputs_equal | reads_unpaired)
    begins[np.flatnonzero(later)[-1] :] = False
    if begins.any():
        found.follow_from(later, list(islice(_beginnings(c, begins), MOST)), _no_larger(c))


def blame_inserted(found: Causes) -> None:
    """Blame operations of one run alone behind which the error jumps, between merged layouts."""
    c = found.c
    later = found.cause & ~c.inputs_equal & one_of(c.reason, BY_SIZE)
    if later.any() and c.merged:
        last = np.flatnonzero(later)[-1]
        found.follow_from(later, [ends for ends in _jumps(c) if ends[0] < last], _no_larger(c))


def _no_larger(c: Rows) -> Callable[[int, list[tuple[int, int]]], bool]:
    """A test that a first cause is no larger than what may grow of the errors that its candidates show."""

    def explains(row: int, begins: list[tuple[int, int]]) -> bool:
        return _error(c, row) <= _GROWTH * max(float(c.error[shows]) for _, shows in begins)

    return explains


def _error(c: Rows, row: int) -> float:
    """The error of a row; of an operation that only one run has, the largest that it leads to over such operations."""
    if c.pair[row] >= 0:
        return float(c.error[row])
    behind = fed_by(c.edges, [row], c.pair < 0)
    return float(np.nan_to_num(c.error[behind], nan=0.0).max(initial=0.0))


def _beginnings(c: Rows, among: Bool) -> Iterator[tuple[int, int]]:
    """The rows where an error begins, and those that show it first."""
    branches = Branches(c, c.edges)
    for found in differences(c, Equality(c), among):
        if found.kind == Kind.UNPAIRED:
            rows = (int(at[r]) for r, at in zip(found.makers, (c.at_a, c.at_b), strict=True) if r >= 0)
            yield branches.start(*(row for row in rows if c.pair[row] < 0)), found.reader
        elif found.kind in (Kind.OPERATION, Kind.DRAW, Kind.ENTERS) and not found.others_differ:
            yield found.row, found.row


def _jumps(c: Rows) -> Iterator[tuple[int, int]]:
    """Yield the rows of operations of one run alone behind which the error jumps, and those that show it."""
    regions, branches = c.regions, Branches(c, c.edges)
    region = np.where(c.row_a >= 0, np.append(regions.of_a, -1)[c.row_a], np.append(regions.of_b, -1)[c.row_b])
    alone = (c.pair < 0) & (region >= 0) & c.by_row(_computes) & rounds(c)
    of_a = c.row_a >= 0
    single = alone & ~np.where(of_a, np.isin(region, region[alone & ~of_a]), np.isin(region, region[alone & of_a]))
    rows = np.flatnonzero(single)
    of_pair = np.append(c.row_of_pair, -1)
    for row in np.sort(rows[np.unique(region[rows], return_index=True)[1]]).tolist():
        read, behind = (of_pair[pairs[region[row]]] for pairs in (regions.inputs, regions.outputs))
        behind = behind[np.isfinite(c.error[behind])]
        if len(behind) and one_of(c.verdict[read], AGREE).all() and branches.is_odd(row):
            shows = int(behind[c.error[behind].argmax()])
            beside = c.edges[shows]
            received = np.nan_to_num(c.error[np.concatenate((read, beside[c.pair[beside] >= 0]))]).max(initial=0.0)
            if c.error[shows] > JUMP * received:
                yield row, shows


def _computes(log: OpLog) -> Bool:
    """bool[n]: records that make other numbers of those that they read."""
    computes = rows_where(log, lambda law: not (law.passes_elements or law.communicates or law.constant or law.moves))
    return computes & (log.inputs.count > 0) & ~log.recompute
