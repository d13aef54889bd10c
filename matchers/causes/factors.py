"""First causes that scale the loss, or a part of it, as gradients that are red are scaled.

Gradients of a part of the loss are off by a factor, and one number on the way from the loss to them is multiplied by
just that: by an operation of one run alone, or by another number in each run. Where micro-batches divide a batch, a
term may equal the whole by that very factor, and such numbers are not judged: nothing red leads from one to the other.
So may the gradients of a batch that ranks divide, until they average them: then the totals are off by the factor.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from matchers.arrays import Bool, Float64, Int64, marked, one_of
from matchers.causes.causes import BY_SIZE, Causes
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.dataflow import downstream, upstream
from matchers.ops.laws import rows_where
from matchers.ops.shapes import numel
from matchers.rows import Rows
from matchers.status import Status
from matchers.verdict.loss_scale import ratio_of_totals
from matchers.verdict.reason import Reason
from matchers.verdict.tolerance import EPSILON

__all__ = ["blame_factors"]

_SAME, _LEAST = 1e-3, 1e-2
"""Largest deviation of two factors that are one, of float32 and finer; least deviation of a factor from 1."""


def blame_factors(found: Causes) -> Causes:
    """Blame what scales the loss in place of gradients that it scales; the rows between are not judged."""
    c = found.c
    _blame_scaled_totals(found)
    scaled = found.cause & c.red & (c.pair >= 0) & (c.phase == Phase.BACKWARD) & one_of(c.reason, BY_SIZE)
    rows = np.flatnonzero(scaled)
    if not len(rows):
        return found
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = _norms(c.a, c.row_a[rows]) / _norms(c.b, c.row_b[rows])
    number = c.by_row(lambda log: numel(log)[log.shape] == 1)
    gain, between = _gains(c, number), np.zeros(len(c), bool)
    for row, times in zip(rows.tolist(), factor.tolist(), strict=True):
        limit = max(_SAME, 4 * EPSILON.get(c.a.dtype_text(int(c.row_a[row])), 0.0))
        exact = times > 0 and abs(1 - min(times, 1 / times) - c.error[row]) <= limit
        if not exact or abs(times - 1) < max(_LEAST, limit):
            continue  # not all of its elements are off by one factor
        end = marked([row], len(c))
        before = upstream(c.edges, end, number | end) & number
        like = np.flatnonzero(before & (np.abs(gain / times - 1) <= limit))
        if len(like):
            found.acquit(row, for_=int(like[0]))
            between |= before & downstream(c.edges, marked(like[:1], len(c)), number)
    coincide = between & (c.verdict == Status.EQUAL)
    if not coincide.any():
        return found
    verdict, reason = c.verdict.copy(), c.reason.copy()
    verdict[coincide], reason[coincide] = Status.NOT_JUDGED, Reason.MICRO_BATCH_TERM
    return replace(found, c=replace(c, verdict=verdict, reason=reason))


def _blame_scaled_totals(found: Causes) -> None:
    """Blame what one run alone scales the loss by, if all gradients are off by that, in place of what follows from it.

    In place of a mean over ranks, which data parallel training takes by itself.
    """
    c = found.c
    passes = one_of(c.phase, (Phase.FORWARD, Phase.BACKWARD))
    later = found.cause & (c.phase != Phase.FORWARD)
    if not (later & (c.pair < 0)).any() or (c.red & (c.pair >= 0) & passes).any():
        return
    times = ratio_of_totals(c.a, c.b)
    if abs(times - 1) < _LEAST:
        return
    number = c.by_row(lambda log: numel(log)[log.shape] == 1) & (c.pair < 0) & passes
    like = np.flatnonzero(np.abs(_gains(c, number) / times - 1) <= _SAME)
    if len(like):
        follows = later & (c.reached(marked(like, len(c)).astype(np.uint64)) != 0)
        for row in np.flatnonzero(follows).tolist():
            found.acquit(row, for_=int(like[0]))


def _gains(c: Rows, number: Bool) -> Float64:
    """float64[r]: by how much more a multiplies a number than b, which multiplies it by 1 where a alone does, or less.

    NaN for all other rows.
    """
    scales = number & c.by_row(lambda log: rows_where(log, lambda law: law.scales))
    gain = np.where(scales, 1.0, np.nan)
    for log, of, sign in ((c.a, c.row_a, 1), (c.b, c.row_b, -1)):
        at = np.flatnonzero(scales & (of >= 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            gain[at] *= (_norms(log, of[at]) / log.inputs.first(of[at])) ** sign
    return gain


def _norms(log: OpLog, rows: Int64) -> Float64:
    return log.outputs.first(rows)
