"""First causes within the tolerance of merged layouts: an operation of one run alone behind which the error jumps.

Where other kernels differ everywhere, a factor in one block may stay within the tolerance for some blocks. If a region
holds an operation that computes and has no counterpart in the other run, and the error grows in it by far more than in
what it reads, that operation is the cause of the red rows that follow, unless theirs is a larger one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int64
from matchers.causes.consequences import reached
from matchers.causes.unpaired_branches import Branches, Side
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import DataFlow
from matchers.ops.laws import rows_where
from matchers.ops.run_info import MERGED_RANKS
from matchers.regions.find import find_regions
from matchers.rows import Rows
from matchers.status import AGREE, Role
from matchers.verdict.reason import Reason
from matchers.verdict.tolerance import EPSILON

__all__ = ["blame_inserted"]

_JUMP: Final = 8.0
"""Least factor by which the error behind a region exceeds that of all it reads."""
_GROWTH: Final = 32.0
"""Factor by which an error may grow until it is red; by more it is another one."""
_BY_SIZE: Final = (Reason.BEYOND_TOLERANCE, Reason.MORE_THAN_ROUNDING, Reason.SYSTEMATIC, Reason.ONLY_ONE_RUN)
"""Reasons for which an earlier operation may be the cause: the row itself proves nothing."""
_MAX: Final = 63
"""Operations that are followed, the earliest ones: each takes one bit of a 64-bit word."""


def blame_inserted(c: Rows) -> Rows:
    """The rows with such operations as first causes in place of those that follow from them."""
    later = c.cause & ~c.inputs_equal & np.isin(c.reason, _BY_SIZE)
    merged = any(MERGED_RANKS in log.header.run for log in (c.a, c.b))
    if c.flow is None or not merged or not later.any():
        return c
    status, error = np.zeros(len(c.pairing), np.int8), np.full(len(c.pairing), np.nan)
    paired = c.pair >= 0
    status[c.pair[paired]], error[c.pair[paired]] = c.status[paired], c.error[paired]
    found = [(row, shows) for row, shows in _jumps(c, c.flow, status, error) if row < np.flatnonzero(later)[-1]][:_MAX]
    if not found:
        return c
    start = np.zeros(len(c), np.uint64)
    for n, (row, _) in enumerate(found):
        start[row] |= np.uint64(1 << n)
    bits = reached(c, start)
    cause, role = c.cause.copy(), c.role.copy()
    for row in np.flatnonzero(later & (bits != 0)).tolist():
        size = 0.0 if c.pair[row] < 0 else float(c.error[row])
        from_here = [
            begin
            for n, (begin, shows) in enumerate(found)
            if int(bits[row]) >> n & 1 and begin != row and size <= _GROWTH * shows
        ]
        if from_here:
            cause[row], role[row] = False, Role.RECEIVER if c.red[row] else role[row]
            cause[from_here[0]] = True
    return replace(c, cause=cause, role=role)


def _jumps(c: Rows, flow: DataFlow, status: NDArray[np.int8], error: Float64) -> Iterator[tuple[int, float]]:
    """Yield rows of such operations with the error behind them, in screen order."""
    regions = find_regions(c.a, c.b, c.pairing, status, flow)
    alone = [
        np.flatnonzero((of < 0) & (region >= 0) & _computing(log))
        for log, of, region in ((c.a, c.pairing.of_a, regions.of_a), (c.b, c.pairing.of_b, regions.of_b))
    ]
    sides = (
        Side("a", c.a, c.pairing.of_a.astype(np.int64), flow.a),
        Side("b", c.b, c.pairing.of_b.astype(np.int64), flow.b),
    )
    branches = Branches(*sides)
    inside = regions.of_a[alone[0]], regions.of_b[alone[1]]
    found = []
    for side, at in enumerate((c.at_a, c.at_b)):
        single = ~np.isin(inside[side], inside[1 - side])
        # the first of each region
        which, first = np.unique(inside[side][single], return_index=True)
        records = alone[side][single][first].tolist()
        found += [
            (int(at[record]), region)
            for record, region in zip(records, which.tolist(), strict=True)
            if branches.is_odd("ab"[side], record)
        ]
    for row, region in sorted(found):
        behind = regions.outputs[region]
        behind = behind[np.isfinite(error[behind])]
        if len(behind) and np.isin(status[regions.inputs[region]], AGREE).all():
            shows = int(behind[error[behind].argmax()])
            if error[shows] > _JUMP * _received(c, flow, error, regions.inputs[region], shows):
                yield row, float(error[shows])


def _received(c: Rows, flow: DataFlow, error: Float64, inputs: Int64, shows: int) -> float:
    """The largest error of what a region reads, and of what the pair that shows its error reads beside it."""
    makers = flow.a[int(c.pairing.lead_a[shows])]
    beside = c.pairing.of_a[makers[makers >= 0]]
    return float(np.nan_to_num(error[np.concatenate((inputs, beside[beside >= 0]))]).max(initial=0.0))


def _computing(log: OpLog) -> Bool:
    """bool[n]: records that make other numbers of those that they read."""
    computes = rows_where(log, lambda law: not (law.passes_elements or law.communicates or law.constant or law.moves))
    rounds = np.array([name in EPSILON for name in log.dtypes] + [False])[log.dtype]
    return np.asarray(computes & rounds & (log.inputs.count > 0) & ~log.recompute)
