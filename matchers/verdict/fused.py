"""Judge an operation of one run against its parts in the other by statistics of the parts put together.

L1 norms of parts add up, squares of L2 norms too; minimum and maximum are those of all. These numbers do not tell in
which order the parts lie, so the error is a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from matchers.arrays import Float64
from matchers.laws.law import Form
from matchers.laws.register import law
from matchers.logs.op_log import OpLog
from matchers.ops.shapes import dimensions, side_by_side
from matchers.pairing.pairing import Method
from matchers.status import Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative
from matchers.verdict.tolerance import EXTREMES

__all__ = ["BY_PARTS", "are_parts", "folded", "judge_fused"]

BY_PARTS = (Method.PARTS, Method.OVERRIDE, Method.TEMPLATE)
"""Methods whose groups may be an operation and its parts; a collective and its wait are none."""


def are_parts(a: OpLog, b: OpLog, rows_a: Sequence[int], rows_b: Sequence[int]) -> bool:
    """True if the results of several rows of one log, side by side, have the shape of a row of the other."""
    if min(len(rows_a), len(rows_b)) != 1 or len(rows_a) == len(rows_b):
        return False
    (log, rows), (other, (whole,)) = ((b, rows_b), (a, rows_a)) if len(rows_a) == 1 else ((a, rows_a), (b, rows_b))
    names = {log.op_name(row) for row in rows} | {other.op_name(whole)}
    dtypes = {log.dtype_text(row) for row in rows} | {other.dtype_text(whole)}
    if len(names) > 1 or len(dtypes) > 1:
        return False
    shapes, shape = [dimensions(log.shape_text(row)) for row in rows], dimensions(other.shape_text(whole))
    return shape in side_by_side(shapes) or _norms(names, [shape, *shapes])


def _norms(names: AbstractSet[str], shapes: Sequence[tuple[int, ...]]) -> bool:
    """True if the results are norms, of which the squares add up."""
    return all(law(name).form is Form.NORM for name in names) and not any(shapes)


def folded(log: OpLog, rows: Sequence[int]) -> Float64:
    """float64[6] of the rows' first outputs side by side: L1, L2, Min, Max, and the numbers of NaN and Inf (-1: not
    counted). Norms give the norm of what they measure together.
    """
    at = list(rows)
    l1, stats, counts = log.outputs.first(np.array(at)), log.stats[:, at], log.counts[1:3, at]
    if _norms({log.op_name(row) for row in rows}, [dimensions(log.shape_text(row)) for row in rows]):
        l1, stats = np.sqrt([(l1**2).sum()]), np.sqrt((stats**2).sum(axis=1, keepdims=True))
    low, high = np.fmin.reduce(stats[2]), np.fmax.reduce(stats[3])
    counted = np.where((counts >= 0).all(axis=1), counts.sum(axis=1), -1)
    return np.array([l1.sum(), np.sqrt((stats[1] ** 2).sum()), low, high, *counted])


def judge_fused(case: Case, judged: Judgement) -> Judgement:
    """Judge operations and their parts by the statistics of the parts together."""
    a, b, pairing, verdicts = case.a, judged.b, case.pairing, judged.verdicts
    groups = []
    for k in np.flatnonzero(pairing.grouped & np.isin(pairing.method, BY_PARTS)).tolist():
        members = pairing.members(k)
        if are_parts(a, b, *members):
            groups.append((k, *members))
    if not groups:
        return judged
    found = [
        _verdict(folded(a, rows_a), folded(b, rows_b), float(verdicts.tolerance[k])) for k, rows_a, rows_b in groups
    ]
    which = np.array([k for k, _, _ in groups])
    status, reason, error, limit = map(np.array, zip(*found, strict=True))
    slots = {k: slot for k, slot in verdicts.slots.items() if k not in which}
    bound = np.isfinite(error)
    return judged.claimed(which, status, reason, slots=slots, error=error, bound=bound, limit=limit)


def _verdict(x: Float64, y: Float64, tolerance: float) -> tuple[Status, Reason, float, float]:
    """(status, reason, error, limit) of two tensors by their statistics, see `folded`."""
    counted = (x[4:] >= 0) & (y[4:] >= 0)
    if (counted & ((x[4:] != y[4:]) | ((x[4:] > 0) & np.array([True, False])))).any():
        return Status.NAN, Reason.NON_FINITE, np.inf, tolerance
    if not np.isfinite(np.concatenate((x[:4], y[:4]))).all():
        if np.array_equal(x[:4], y[:4]):
            return Status.CLOSE, Reason.INFINITE_NORM, np.nan, tolerance
        return Status.NAN, Reason.NON_FINITE, np.nan, tolerance
    norms = float(relative(x[:2], y[:2]).max())
    extremes = float(relative(x[2:4], y[2:4], np.full(2, np.abs([*x[2:4], *y[2:4]]).max())).max())
    by_extremes = extremes > norms and norms <= tolerance
    far = norms > tolerance or extremes > EXTREMES * tolerance
    error, limit = max(norms, extremes), EXTREMES * tolerance if by_extremes else tolerance
    if far:
        return Status.DIVERGED, Reason.BEYOND_TOLERANCE, error, limit
    if error:
        return Status.CLOSE, Reason.WITHIN_TOLERANCE, error, limit
    return Status.SAME_PRINT, Reason.SAME_NUMBERS, error, limit
