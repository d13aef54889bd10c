"""Weights gathered from shards, compared with the unsharded weights of the other run.

Where the batch is divided, no result that a rank computes from its share of it can be judged. The weights can: a
gathered weight is the whole weight.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from matchers.arrays import Bool, Float64, Int64
from matchers.logs.columns import repeated
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import DataFlow
from matchers.ops.run_info import divided_batch
from matchers.ops.shards import ShardInfo, Shards, other_parts
from matchers.pairing.pairing import Pairing
from matchers.status import Status
from matchers.verdict.judge import Verdicts
from matchers.verdict.relative_error import relative
from matchers.verdict.slots import SlotVerdict
from matchers.verdict.tolerance import default_tolerance

__all__ = ["without_parts"]


def without_parts(a: OpLog, b: OpLog, shards: Shards, pairing: Pairing, verdicts: Verdicts, flow: DataFlow) -> Verdicts:
    """The verdicts, but SHARDED where the two sides hold different shards; where the batch is divided, such pairs are
    judged by the weights that they read.
    """
    i, j = pairing.lead_a.astype(np.int64), pairing.lead_b.astype(np.int64)
    status, error, bound = verdicts.status.copy(), verdicts.error.copy(), verdicts.bound.copy()
    limit, slots = verdicts.limit.copy(), dict(verdicts.slots)
    parts = np.isin(status, (Status.DIVERGED, Status.SHAPE)) & other_parts(shards.a, shards.b, i, j)
    status[parts], error[parts], bound[parts] = Status.SHARDED, np.nan, False
    divided = divided_batch(a.header.run, b.header.run)
    if divided is not None and divided.by_all:
        k = np.flatnonzero(status == Status.SHARDED)
        off, place, tolerance = _other_weights(a, b, shards, i[k], j[k], flow)
        k, off, place, tolerance = k[off > 0], off[off > 0], place[off > 0], tolerance[off > 0]
        status[k], error[k], bound[k], limit[k] = Status.DIVERGED, off, True, tolerance
        for pair, which, by, most in zip(k.tolist(), place.tolist(), off.tolist(), tolerance.tolist(), strict=True):
            slots[pair] = SlotVerdict(f"input {which}", Status.DIVERGED, by, True, most, read=True)
    return replace(verdicts, status=status, error=error, bound=bound, limit=limit, slots=slots)


def _other_weights(
    a: OpLog, b: OpLog, shards: Shards, i: Int64, j: Int64, flow: DataFlow
) -> tuple[Float64, Int64, Float64]:
    """(error, input, tolerance) per pair (i[k], j[k]): a lower bound of a weight's difference, from its norms, and the
    input that is this weight; error 0 and input -1 where no weight differs.
    """
    error, place = np.zeros(len(i)), np.full(len(i), -1)
    tolerance = np.maximum(*(_tolerance(log)[log.dtype[rows]] for log, rows in ((a, i), (b, j))))
    pairs = np.flatnonzero((a.inputs.count[i] == b.inputs.count[j]) & (a.inputs.count[i] > 0))
    count = a.inputs.count[i[pairs]]
    owner, which = repeated(pairs, count)
    at_a, at_b = a.inputs.start[i[owner]] + which, b.inputs.start[j[owner]] + which
    maker_a, maker_b = flow.a.value[at_a], flow.b.value[at_b]
    gathered = ((maker_a < 0) & _gathered(shards.b, maker_b)) | (_gathered(shards.a, maker_a) & (maker_b < 0))
    difference = np.nan_to_num(relative(a.inputs.value[at_a], b.inputs.value[at_b]), nan=0.0)
    found = np.flatnonzero(gathered & (difference > tolerance[owner]))
    found = found[np.argsort(difference[found])]  # the largest is written last
    error[owner[found]], place[owner[found]] = difference[found], which[found]
    return error, place, tolerance


def _gathered(shards: ShardInfo, maker: Int64) -> Bool:
    """The records that exist and hold a whole tensor."""
    return (maker >= 0) & (shards.share[maker] == 1) & ~shards.partial[maker]


def _tolerance(log: OpLog) -> Float64:
    return np.array([*map(default_tolerance, log.dtypes), default_tolerance("float32")])
