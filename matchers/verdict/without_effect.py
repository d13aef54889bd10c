"""Differences without an effect on the run, in outputs that nobody reads.

Part of the work space of a CTC loss is never initialised, and nobody reads it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from matchers.arrays import Bool
from matchers.logs.columns import Ragged
from matchers.logs.op_log import NO_DIGEST, OpLog, Phase
from matchers.ops.dataflow import values_read
from matchers.ops.values import further
from matchers.status import Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.reason import Reason

__all__ = ["without_unread"]


def without_unread(case: Case, judged: Judgement) -> Judgement:
    """Claim pairs of which only outputs differ that nobody reads, or readers with bitwise equal results: CLOSE.

    The error is unknown.
    Outputs of the backward pass are gradients, which autograd may hand to a parameter unrecorded: they count as read.
    """
    a, b, pairing, verdicts = case.a, case.b, case.pairing, judged.verdicts
    found = [
        k
        for k, slot in verdicts.slots.items()
        if slot.name.startswith("output ")
        and slot.status.red
        and slot.reason != Reason.NAN_IN_BOTH  # a result takes it
        and verdicts.status[k] == slot.status
    ]
    if not found:
        return judged
    equal = np.append(verdicts.status == Status.EQUAL, False)
    sides = (a, case.flow.a, equal[pairing.of_a]), (b, case.flow.b, equal[pairing.of_b])
    unread = {}
    for k in found:
        i, j = int(pairing.lead_a[k]), int(pairing.lead_b[k])
        x, y = a.digests[i], b.digests[j]
        known = len(x) == len(y) > 0 and NO_DIGEST not in x and NO_DIGEST not in y
        if not known or x[0] != y[0] or a.texts("Mutated").raw(i) != b.texts("Mutated").raw(j):
            continue
        differing = np.flatnonzero(x != y).tolist()
        if all(_is_unread(*side, row, n) for n in differing for side, row in zip(sides, (i, j), strict=True)):
            unread[k] = replace(verdicts.slots[k], status=Status.CLOSE, reason=Reason.UNREAD_OUTPUT)
    which, slots = np.array(list(unread), np.int64), {**verdicts.slots, **unread}
    return judged.claimed(which, Status.CLOSE, Reason.UNREAD_OUTPUT, slots=slots, error=np.nan, bound=False)


def _is_unread(log: OpLog, flow: Ragged, equal: Bool, record: int, n: int) -> bool:
    """True if no record reads output n of a forward record, or all that do are paired and bitwise equal."""
    values, read = further(log), values_read(log)
    mine = [len(log) + v for v in values.of(record) if values.slot[v] == n]
    readers = flow.row[(flow.value == record) & ((read < 0) | np.isin(read, mine))]
    return bool(log.phase[record] == Phase.FORWARD and equal[readers].all())
