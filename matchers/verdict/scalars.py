"""Scalar arguments, recovered from what an operation read and returned.

A log has no scalars. But a factor shows in the norm of the result. And adding a scalar keeps the order of elements,
even where it rounds, so that the extremes of the result come from those of the input. Both tell the scalar to the
precision of a rounding: in a shard as in the whole tensor. Where the intervals of the two runs have no number in
common, the runs used different scalars, whatever else differs.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Float64, Int64, columns, distinct
from matchers.laws.law import Form
from matchers.logs.op_log import OpLog
from matchers.ops.laws import rows_where
from matchers.ops.shapes import numel
from matchers.ops.shards import Shards
from matchers.ops.values import results, written
from matchers.pairing.pairing import Pairing
from matchers.verdict.slots import SlotVerdict
from matchers.verdict.tolerance import PRINT_RESOLUTION, own_tolerance, scalar_rounding

__all__ = ["ScalarDifference", "different_scalars", "of_micro_batches", "other_scalars"]

_TERMS = (Form.ADD, Form.SUBTRACT)
"""Forms of operations with a scalar term."""
_SAME = 1e-3
"""Relative precision to which a ratio of scalars is one of layout."""


@columns
class ScalarDifference:
    """Pairs k whose operations used other scalars: those of a and of b (a factor without its sign), and the relative
    error that they make.
    """

    k: Int64
    a: Float64
    b: Float64
    error: Float64


def other_scalars(a: OpLog, b: OpLog, shards: Shards, pairing: Pairing, k: Int64) -> dict[int, SlotVerdict]:
    """Verdicts on the pairs among `k` whose operations used other scalars."""
    i, j = pairing.lead_a[k], pairing.lead_b[k]
    shares = distinct(np.concatenate((shards.a.share, shards.b.share)))
    # a mean over ranks divides by their number
    by_layout = distinct(np.concatenate((shares, 1 / shares)))
    return _verdicts(a, k, i, different_scalars(a, b, i, j, by_layout[by_layout != 1]))


def of_micro_batches(a: OpLog, b: OpLog, pairing: Pairing, k: Int64, loss_scale: float) -> dict[int, SlotVerdict]:
    """The same for pairs of several micro-batches, whose results may be terms that cannot be judged.

    A scalar is compared where all micro-batches of a run have the same: others are computed from the batch.

    Args:
        loss_scale: the factor of a's losses against b's.
    """
    i, j = pairing.lead_a[k], pairing.lead_b[k]
    ratios = np.array([a.batches / b.batches, loss_scale])
    by_layout = np.concatenate((ratios, 1 / ratios))
    found = different_scalars(a.written, b.written, i, j, by_layout)
    same = np.array([_constant(a, int(i[n])) and _constant(b, int(j[n])) for n in found.k.tolist()], bool)
    return _verdicts(a, k, i, ScalarDifference(found.k[same], found.a[same], found.b[same], found.error[same]))


def _constant(log: OpLog, lead: int) -> bool:
    """True if all micro-batches that a record stands for used one scalar."""
    parts = np.flatnonzero(log.joined == lead)
    return not len(different_scalars(log.written, log.written, parts, np.full(len(parts), lead), np.ones(0)).k)


def _verdicts(a: OpLog, k: Int64, i: Int64, found: ScalarDifference) -> dict[int, SlotVerdict]:
    slots: dict[int, SlotVerdict] = {}
    for n, x, y, error in zip(found.k.tolist(), found.a.tolist(), found.b.tolist(), found.error.tolist(), strict=True):
        limit = own_tolerance(a.dtype_text(int(i[n])) or "float32", by_element=True)
        if error > limit:
            slots[int(k[n])] = SlotVerdict.of_scalars(x, y, error, limit)
    return slots


def different_scalars(a: OpLog, b: OpLog, i: Int64, j: Int64, by_layout: Float64) -> ScalarDifference:
    """Compare the scalars of the pairs (i[k], j[k]).

    Args:
        by_layout: ratios of factors that the layout of the runs explains.
    """
    term = rows_where(a, lambda law: law.form in _TERMS, i)
    inverse = rows_where(a, lambda law: law.form in (Form.SUBTRACT, Form.DIVIDE), i)
    known = term | rows_where(a, lambda law: law.scales, i)
    low_a, high_a = _interval(a, i, term, known)
    low_b, high_b = _interval(b, j, term, known & ~np.isnan(low_a))
    with np.errstate(invalid="ignore"):
        apart = (low_a <= high_a) & (low_b <= high_b) & ((high_a < low_b) | (high_b < low_a))
    k = np.flatnonzero(apart)
    x, y = (low_a[k] + high_a[k]) / 2, (low_b[k] + high_b[k]) / 2
    sign = np.where(inverse[k], -1.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        x, y = (np.where(term[k], sign * value, value**sign) for value in (x, y))
        drift = ~term[k] & (np.abs((x / y)[:, None] / by_layout - 1) < _SAME).any(axis=1)
        size = a.stats[1][i[k]] / np.sqrt(numel(a)[a.shape[i[k]]])
        for n in np.flatnonzero(np.isnan(size)).tolist():  # of the tensor in a list that a term changes most
            size[n] = min((x.l2 / np.sqrt(x.numel) for x in written(a, int(i[k[n]])).values()), default=np.nan)
        error = np.abs(x - y) / np.where(term[k], size, np.maximum(np.abs(x), np.abs(y)))
    keep = ~drift & np.isfinite(error)
    return ScalarDifference(k[keep], x[keep], y[keep], error[keep])


def _interval(log: OpLog, rows: Int64, term: Bool, known: Bool) -> tuple[Float64, Float64]:
    """The least and the largest scalar that turns what a row reads into what it returns, or changes in place."""
    low, high = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    slack = np.array([_slack(log, name) for name in (*log.dtypes, "")])
    one = known & (log.inputs.count[rows] == 1) & (log.outputs.count[rows] == 1)

    k = np.flatnonzero(one & ~term)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = log.outputs.first(rows[k]) / log.inputs.first(rows[k])
        off = slack[log.dtype[rows[k]]] * factor
        low[k], high[k] = factor - off, factor + off

    # a term from both extremes, where the log has those of the input
    maker = np.where(log.producers.count[rows] == 1, log.producers.first(rows, -1), -1)
    one &= term & (maker >= 0)
    one[one] = (
        (log.outputs.count[maker[one]] == 1)
        & (log.outputs.first(maker[one]) == log.inputs.first(rows[one]))
        & (log.dtype[maker[one]] == log.dtype[rows[one]])
    )
    k = np.flatnonzero(one)
    x, y = log.stats[2:4, maker[k]], log.stats[2:4, rows[k]]
    with np.errstate(invalid="ignore"):
        width = slack[log.dtype[rows[k]]] * (np.abs(x) + np.abs(y))
        low[k], high[k] = np.max(y - x - width, axis=0), np.min(y - x + width, axis=0)

    for n in np.flatnonzero(known & (log.outputs.count[rows] == 0) & (log.inputs.count[rows] > 0)).tolist():
        low[n], high[n] = (_term_in_place if term[n] else _factor_in_place)(log, int(rows[n]))
    return low, high


def _slack(log: OpLog, dtype: str) -> float:
    """The relative rounding of a scalar operation, and of what the log prints of it."""
    return scalar_rounding(dtype) + (0.0 if log.tells.exact else PRINT_RESOLUTION)


def _factor_in_place(log: OpLog, row: int) -> tuple[float, float]:
    """The size of the factor by which an operation scaled all its inputs, from the norm of the first; NaN for none."""
    changed = written(log, row)
    first = changed.get(0)
    if first is None or len(changed) != len(log.inputs[row]) or not log.inputs[row][0] > 0:
        return np.nan, np.nan
    factor = first.l1 / float(log.inputs[row][0])
    off = factor * _slack(log, first.dtype)
    return factor - off, factor + off


def _term_in_place(log: OpLog, row: int) -> tuple[float, float]:
    """The term that an operation added to all its inputs, from their extremes before and after; NaN for none."""
    changed, low, high = written(log, row), -np.inf, np.inf
    if len(changed) != len(log.inputs[row]):
        return np.nan, np.nan
    for slot, (maker, l1) in enumerate(zip(log.producers[row].tolist(), log.inputs[row].tolist(), strict=True)):
        x = [made for made in results(log, maker) if made.l1 == l1] if maker >= 0 else []
        y = changed.get(slot)
        if len(x) != 1 or y is None or x[0].dtype != y.dtype:
            continue
        slack = _slack(log, y.dtype)
        for before, after in ((x[0].min, y.min), (x[0].max, y.max)):
            width = slack * (abs(before) + abs(after))
            low, high = max(low, after - before - width), min(high, after - before + width)
    return (low, high) if np.isfinite(low) else (np.nan, np.nan)
