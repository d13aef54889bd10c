"""Weights gathered from shards, compared with the unsharded weights of the other run.

Where the batch is divided, no result that a rank computes from its share of it can be judged. The weights can: a
gathered weight is the whole weight.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Float64, Int64
from matchers.logs.columns import repeated
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import DataFlow
from matchers.ops.shards import ShardInfo, Shards
from matchers.pairing.pairing import Pairing
from matchers.status import Status
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative
from matchers.verdict.slots import SlotVerdict
from matchers.verdict.tolerance import default_tolerance

__all__ = ["other_weights"]


def other_weights(
    a: OpLog, b: OpLog, shards: Shards, pairing: Pairing, pairs: Int64, flow: DataFlow
) -> dict[int, SlotVerdict]:
    """Verdicts on the pairs among `pairs` that read a gathered weight and another weight."""
    i, j = pairing.lead_a[pairs].astype(np.int64), pairing.lead_b[pairs].astype(np.int64)
    off, place, tolerance = _other_weights(a, b, shards, i, j, flow)
    slots = {}
    for n in np.flatnonzero(off > 0).tolist():
        name, limit = f"input {place[n]}", float(tolerance[n])
        slots[int(pairs[n])] = SlotVerdict(
            name, Status.DIVERGED, Reason.OTHER_WEIGHT, float(off[n]), True, limit, read=True
        )
    return slots


def _other_weights(
    a: OpLog, b: OpLog, shards: Shards, i: Int64, j: Int64, flow: DataFlow
) -> tuple[Float64, Int64, Float64]:
    """(error, input, tolerance) per pair (i[k], j[k]): a lower bound of a weight's difference, from its norms, and the
    input that is this weight; error 0 and input -1 where no weight differs.
    """
    error, place = np.zeros(len(i)), np.full(len(i), -1)
    tolerance = np.maximum(*(_tolerance(log)[log.dtype[rows]] for log, rows in ((a, i), (b, j))))
    # the optimizer reads shards
    known = (a.inputs.count[i] == b.inputs.count[j]) & (a.inputs.count[i] > 0) & ~a.updates[i]
    pairs = np.flatnonzero(known)
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
