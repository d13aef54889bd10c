"""Pairs on the way to the same result in another form, which no two runs need to have alike.

Attention that repeats heads itself has other shapes, an adapter that is scaled first other numbers, a loss by chunks
both; what leaves them agrees.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, marked
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.dataflow import downstream, upstream
from matchers.ops.laws import rows_where
from matchers.regions.find import OPEN, find_regions
from matchers.status import AGREE, Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.reason import Reason

__all__ = ["without_other_forms"]

_SURE = 0.9
"""Confidence from which on nearly every pair is right (.997, `python -m benchmarks.calibration`)."""


def without_other_forms(case: Case, judged: Judgement) -> Judgement:
    """Claim red pairs inside a region whose results agree, where one run alone has an operation: NOT_JUDGED.

    Or where a pair is in doubt. What differs although its inputs have equal bits is no other form, nor is a result by
    itself: what nothing reads, or a gradient that is clipped or applied.
    """
    a, b, i, j, pairing, verdicts = case.a, case.b, case.i, case.j, case.pairing, judged.verdicts
    folded = a.batches > 1 or b.batches > 1  # norms of micro-batches hide what leaves a region
    doubt = (pairing.confidence < _SURE) & (not folded)
    repeats = verdicts.inputs_equal & (a.inputs.count[i] > 0) & ~doubt
    other = (verdicts.status >= Status.SHAPE) & ~repeats & ~a.updates[i] & ~judged.parts
    doubt &= other
    other &= ~(case.flow.readers_a.none[i] | case.flow.readers_b.none[j])
    other &= doubt | ~(_is_applied(a, case.flow.a)[i] | _is_applied(b, case.flow.b)[j])
    if other.any():
        beside = doubt | (other & (verdicts.status == Status.SHAPE))
        # where most of all differs, it is no matter of form
        by_form = not folded and 2 * other.sum() <= len(other)
        other &= _inside(case, other, beside, verdicts.status == Status.NOT_JUDGED) if by_form else beside
    if not other.any():
        return judged
    # what agrees, as a mask whose infinite values hide the rest, and is read by what does not
    red = np.append((verdicts.status >= Status.SHAPE) & ~other, False)
    hides = np.zeros(len(i) + 1, bool)
    for flow, of in ((case.flow.a, pairing.of_a), (case.flow.b, pairing.of_b)):
        hides[of[flow.value[red[of[flow.row]] & (flow.value >= 0)]]] = True
    hides = hides[:-1] & np.isin(verdicts.status, AGREE[1:])
    status = np.where(other | hides, np.int8(Status.NOT_JUDGED), verdicts.status)
    regions = find_regions(a, b, pairing, status, case.flow)
    formed = np.concatenate((regions.of_a[pairing.of_a < 0], regions.of_b[pairing.of_b < 0], regions.of_a[i[doubt]]))
    other &= regions.covered("a")[i] & regions.covered("b")[j] & np.isin(regions.of_a[i], formed)
    if not other.any():
        return judged
    agrees = np.isin(status, AGREE)
    for log, flow, of, at in ((a, case.flow.a, pairing.of_a, i), (b, case.flow.b, pairing.of_b, j)):
        seen = np.append(agrees, False)[of] & ~rows_where(log, lambda law: law.blind)
        is_open = np.append(OPEN[status], True)[of]
        near = marked(flow.value[(flow.value >= 0) & seen[flow.row]], len(log))
        other &= upstream(flow, near & is_open, is_open)[at]
    slots = {k: slot for k, slot in verdicts.slots.items() if not other[k]}
    return judged.claimed(other, Status.NOT_JUDGED, Reason.OTHER_FORM, slots=slots)


def _inside(case: Case, among: Bool, doubt: Bool, unjudged: Bool) -> Bool:
    """bool[p]: of some pairs, those in doubt, and those that lie between such or operations of one run on both sides.

    Or between pairs that are not judged.

    Constants begin: they say in which form.

    Args:
        among: bool[p], the pairs.
        doubt, unjudged: bool[p], pairs in doubt; that are not judged.
    """
    a, b, pairing = case.a, case.b, case.pairing
    after, before = (doubt | (a.inputs.count[case.i] == 0)) & among, doubt & among
    sides = (a, case.flow.a, pairing.of_a), (b, case.flow.b, pairing.of_b)
    for found, follow in ((after, downstream), (before, upstream)):
        beside = []  # by run, the pairs that read, or are read by, operations of one run
        for log, flow, of in sides:
            alone = np.append(unjudged, True)[of] & ~log.recompute
            known = flow.value >= 0
            ends = (flow.value[known], flow.row[known])[:: 1 if follow is downstream else -1]
            beside.append((marked(ends[1][alone[ends[0]]], len(log)), np.append(among, False)[of]))
        many = -1
        while many != (many := int(found.sum())):
            for (_, flow, of), (near, inside) in zip(sides, beside, strict=True):
                reached = follow(flow, (near | np.append(found, False)[of]) & inside, inside)
                found[of[reached & inside]] = True
    return after & before


def _is_applied(log: OpLog, flow: Ragged) -> Bool:
    """bool[n]: the result of a record is a gradient that is clipped or applied."""
    made = flow.value >= 0
    maker, reader = flow.value[made], flow.row[made]
    last = np.isin(log.phase, (Phase.GRADIENTS, Phase.OPTIMIZER))
    return marked(maker[last[reader] & ~last[maker]], len(log))
