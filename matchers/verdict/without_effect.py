"""Differences without an effect on the run: in outputs that nobody reads, and in shapes of another form.

Part of the work space of a CTC loss is never initialised, and nobody reads it. Attention that repeats heads itself has
other shapes on the way to the same results.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from matchers.arrays import Bool, Int64
from matchers.logs.columns import Ragged
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import NO_DIGEST, OpLog, Phase
from matchers.ops.dataflow import values_read
from matchers.ops.values import further
from matchers.regions.find import find_regions
from matchers.status import Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.reason import Reason

__all__ = ["without_other_forms", "without_unread"]


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
        known = len(x) == len(y) and NO_DIGEST not in x and NO_DIGEST not in y
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


def without_other_forms(case: Case, judged: Judgement) -> Judgement:
    """Claim pairs of other shapes in a region whose results agree: NOT_JUDGED, for they are not judged by themselves.

    One run alone has an operation in it; another dtype is no other form.
    """
    a, b, i, j, pairing, verdicts = case.a, case.b, case.i, case.j, case.pairing, judged.verdicts
    dtype_a, dtype_b, _ = shared_ids(a.dtypes, b.dtypes)
    other = (verdicts.status == Status.SHAPE) & (dtype_a[a.dtype[i]] == dtype_b[b.dtype[j]]) & ~a.updates[i]
    other &= _read(case.flow.a, i) & _read(case.flow.b, j)
    if not other.any():
        return judged
    regions = find_regions(a, b, pairing, verdicts.status, case.flow)
    alone = np.concatenate((regions.of_a[pairing.of_a < 0], regions.of_b[pairing.of_b < 0]))
    other &= regions.covered("a")[i] & regions.covered("b")[j] & np.isin(regions.of_a[i], alone)
    slots = {k: slot for k, slot in verdicts.slots.items() if not other[k]}
    return judged.claimed(other, Status.NOT_JUDGED, Reason.OTHER_FORM, slots=slots)


def _read(flow: Ragged, records: Int64) -> Bool:
    """bool: an operation reads the results of each of some records."""
    return np.bincount(flow.value[flow.value >= 0], minlength=len(flow))[records] > 0
