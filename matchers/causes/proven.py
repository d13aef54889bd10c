"""First causes where a layout is not merged: only what the values of the two logs prove by themselves.

Ranks then compute for each other what neither log shows, so that healthy runs differ, too. Two things are proof all the
same: an operation that read equal bits and returned other values, and one that only one run has, between a result of
both and a pair that reads this result in the other run. All else that differs, unless it follows from these, is not
judged.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Int64, columns
from matchers.causes.red_inputs import marked, marked_at
from matchers.logs.columns import Ragged, repeated
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import DataFlow, downstream
from matchers.ops.laws import rows_where
from matchers.pairing.pairing import Pairing
from matchers.rows import Origins
from matchers.status import AGREE, Role, Status
from matchers.verdict.judge import Verdicts
from matchers.verdict.reason import Reason

__all__ = ["Proven", "proven"]


@columns
class Proven:
    """The differences that are proven, with their consequences.

    Attributes:
        verdicts: of all pairs, NOT_JUDGED where a difference proves nothing.
        origins: the first causes, and what follows from them.
        follows_a, follows_b: bool[n_a], bool[n_b], the record is a first cause or downstream of one.
    """

    verdicts: Verdicts
    origins: Origins
    follows_a: Bool
    follows_b: Bool

    def holds(self, side: str, record: int) -> bool:
        """True if a record of a side is a first cause, or downstream of one."""
        return bool((self.follows_a if side == "a" else self.follows_b)[record])


def proven(a: OpLog, b: OpLog, pairing: Pairing, verdicts: Verdicts, flow: DataFlow) -> Proven:
    """Keep of the red pairs the proven first causes and their consequences."""
    red = verdicts.status >= Status.SHAPE
    cause = red & verdicts.inputs_equal & (verdicts.status != Status.SHAPE) & ~pairing.grouped
    of_a, of_b = pairing.of_a.astype(np.int64), pairing.of_b.astype(np.int64)
    alone_a, alone_b = _inserted(a, b, pairing, verdicts.status, flow, cause)
    reached_a, reached_b = alone_a | marked_at(cause, of_a), alone_b | marked_at(cause, of_b)
    every_a, every_b = np.ones(len(a), bool), np.ones(len(b), bool)
    while True:
        reached_a, reached_b = downstream(flow.a, reached_a, every_a), downstream(flow.b, reached_b, every_b)
        pairs = marked(of_a[reached_a & (of_a >= 0)], len(red)) | marked(of_b[reached_b & (of_b >= 0)], len(red))
        new_a, new_b = (marked_at(pairs & red, of) for of in (of_a, of_b))
        if not ((new_a & ~reached_a).any() or (new_b & ~reached_b).any()):
            break
        reached_a, reached_b = reached_a | new_a, reached_b | new_b
    for alone, flow_of, reached in ((alone_a, flow.a, reached_a), (alone_b, flow.b, reached_b)):
        alone[flow_of.row[marked_at(reached, flow_of.value)]] = False  # it follows from another one
    unproven = red & ~pairs
    slots = {k: slot for k, slot in verdicts.slots.items() if not unproven[k]}
    role = np.where(red & pairs, np.int8(Role.RECEIVER), np.int8(Role.NONE))
    role[cause] = Role.ORIGIN
    role_a, role_b = (np.where(alone, np.int8(Role.ORIGIN), np.int8(Role.NONE)) for alone in (alone_a, alone_b))
    return Proven(
        verdicts.claimed(unproven, Status.NOT_JUDGED, Reason.UNKNOWN_LAYOUT, slots=slots),
        Origins(role, cause, role_a, role_b, alone_a, alone_b),
        reached_a,
        reached_b,
    )


def _inserted(
    a: OpLog, b: OpLog, pairing: Pairing, status: NDArray[np.int8], flow: DataFlow, cause: Bool
) -> tuple[Bool, Bool]:
    """The operations of one run between a result of both that agrees and a red pair that reads it in the other run."""
    readers = np.flatnonzero((status == Status.DIVERGED) & ~cause & ~pairing.grouped)
    i, j = pairing.lead_a[readers].astype(np.int64), pairing.lead_b[readers].astype(np.int64)
    owner, place = repeated(np.arange(len(readers)), np.minimum(flow.a.count[i], flow.b.count[j]))
    maker_a = flow.a.value[flow.a.start[i[owner]] + place]
    maker_b = flow.b.value[flow.b.start[j[owner]] + place]
    agrees = np.isin(status, AGREE)

    def inserted(log: OpLog, own: Ragged, maker: Int64, of: Int64, their: Int64, of_theirs: Int64) -> Bool:
        computes = rows_where(log, lambda law: not (law.passes_elements or law.communicates or law.constant))
        asked = (maker >= 0) & (their >= 0)
        maker, pair = maker[asked], of_theirs[their[asked]]
        asked = (of[maker] < 0) & computes[maker] & marked_at(agrees, pair)
        maker, pair = maker[asked], pair[asked]
        place, record = repeated(np.arange(len(maker)), own.count[maker])
        read = own.value[own.start[maker[place]] + record]
        found = (read >= 0) & (of[np.maximum(read, 0)] == pair[place])
        return marked(maker[place[found]], len(log))

    of_a, of_b = pairing.of_a.astype(np.int64), pairing.of_b.astype(np.int64)
    return (
        inserted(a, flow.a, maker_a, of_a, maker_b, of_b),
        inserted(b, flow.b, maker_b, of_b, maker_a, of_a),
    )
