"""Pairs on the way to the same result in another form, which no two runs need to have alike.

Attention that repeats heads itself has other shapes, an adapter that is scaled first other numbers, a loss by chunks
both; what leaves them agrees.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int64, marked, one_of
from matchers.graph import between
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog, Phase, once_per_pair
from matchers.ops.arguments import tensors_read
from matchers.ops.dataflow import WHOLE, downstream, read_by_shape, upstream, values_read
from matchers.ops.laws import copies
from matchers.ops.overwritten import overwritten
from matchers.pairing.pairing import SURE
from matchers.regions.find import OPEN, find_regions
from matchers.status import AGREE, Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.digests import shared_inputs
from matchers.verdict.reason import Reason
from matchers.verdict.tolerance import EPSILON, MOST_ALLOWED

__all__ = ["hiding", "left_of_form", "without_other_forms"]

_LEFT = 1e-2
"""Largest error that may be left of a difference of form, as a share of it."""


def without_other_forms(case: Case, judged: Judgement) -> Judgement:
    """Claim red pairs inside a region whose results agree, where one run alone has an operation: NOT_JUDGED.

    Or where a pair is in doubt. What differs although its inputs have equal bits is no other form, nor is a result by
    itself: what nothing reads, or a gradient that is clipped or applied.
    """
    a, b, i, j, pairing, verdicts = case.a, case.b, case.i, case.j, case.pairing, judged.verdicts
    folded = a.batches > 1 or b.batches > 1  # norms of micro-batches hide what leaves a region
    doubt = (pairing.confidence < SURE) & (not folded)
    repeats = verdicts.inputs_equal & (a.inputs.count[i] > 0) & ~doubt
    other = (verdicts.status >= Status.SHAPE) & ~repeats & ~a.updates[i] & ~judged.parts
    doubt &= other
    # as far as sketches tell, one value with an error: another form has other values
    other &= doubt | verdicts.bound | ~(verdicts.error <= MOST_ALLOWED)
    # a copy that is only sent to another rank is no result
    other &= ~(case.flow.readers_a.none[i] | case.flow.readers_b.none[j]) | (copies(a)[i] & copies(b)[j])
    other &= doubt | ~(_is_applied(a, case.flow.a)[i] | _is_applied(b, case.flow.b)[j])
    noise = case.expectation.noise
    if noise is not None and not noise.perturbed:  # a repeat has the same dtypes, and results agree within its noise
        other &= verdicts.reason != Reason.OTHER_DTYPE
    if other.any():
        # parts that do not make the whole are none: blocks of keys, each with a softmax of its own
        beside = doubt | (other & ((verdicts.status == Status.SHAPE) | pairing.assembled))
        if folded:
            other &= beside | _rearranged(a, b, i, j, verdicts.error) | _made_of(case, other & beside)
        # only what lies in such a region as a whole is worth a walk
        regions = find_regions(a, b, pairing, np.where(other, np.int8(Status.NOT_JUDGED), verdicts.status), case.flow)
        other &= regions.covered("a")[i] & regions.covered("b")[j]
        other[other] = ~_given_otherwise(case, i[other], j[other])
    if not folded and other.any():
        other &= _inside(case, other, beside, verdicts.status == Status.NOT_JUDGED)
    if not other.any():
        return judged
    hides = hiding(case, verdicts.status, (verdicts.status >= Status.SHAPE) & ~other)
    status = np.where(other | hides, np.int8(Status.NOT_JUDGED), verdicts.status)
    regions = find_regions(a, b, pairing, status, case.flow)
    formed = np.concatenate((regions.of_a[pairing.of_a < 0], regions.of_b[pairing.of_b < 0], regions.of_a[i[doubt]]))
    other &= regions.covered("a")[i] & regions.covered("b")[j] & np.isin(regions.of_a[i], formed)
    other &= _shown(case, status, list(verdicts.slots))
    left = np.zeros(len(regions))
    np.fmax.at(left, regions.outputs.row, np.where(one_of(status, AGREE), verdicts.error, 0)[regions.outputs.value])
    other[other] = ~(left[regions.of_a[i[other]]] > left_of_form(case, verdicts.error[other]))
    if not other.any():
        return judged
    slots = {k: slot for k, slot in verdicts.slots.items() if not other[k]}
    return judged.claimed(other, Status.NOT_JUDGED, Reason.OTHER_FORM, slots=slots)


def hiding(case: Case, status: NDArray[np.int8], red: Bool) -> Bool:
    """bool[p]: pairs that agree, though not to the bit, and that red ones read in their phase: as a mask whose infinite
    values hide the rest.
    """
    red, may = np.append(red, False), np.append(one_of(status, AGREE[1:]), False)
    hides = np.zeros(len(status), bool)
    for log, flow, of in ((case.a, case.flow.a, case.pairing.of_a), (case.b, case.flow.b, case.pairing.of_b)):
        maker, reader = between([(flow.start, flow.value, np.arange(len(log)))], may[of], red[of])
        hides[of[maker[log.phase[reader] == log.phase[maker]]]] = True
    return hides


def _made_of(case: Case, beside: Bool) -> Bool:
    """bool[p]: pairs that read one of some pairs, and of which one run has no more than operations of its own: what a
    block of keys gives is added up later.
    """
    reads, alone = np.ones(len(beside), bool), np.zeros(len(beside), bool)
    for log, flow, of, at in (
        (case.a, case.flow.a, case.pairing.of_a, case.i),
        (case.b, case.flow.b, case.pairing.of_b, case.j),
    ):
        known = flow.value >= 0
        maker, reader = flow.value[known], flow.row[known]
        reads &= marked(reader[np.append(beside, False)[of[maker]]], len(log))[at]
        alone |= (marked(maker, len(log)) & ~marked(maker[of[reader] >= 0], len(log)))[at]
    return reads & alone


def _rearranged(a: OpLog, b: OpLog, i: Int64, j: Int64, error: Float64) -> Bool:
    """bool[p]: results with the norms and extremes of the other run, but for what may be left of a form, though their
    elements differ: positions, or keys of ranks side by side, in another order.
    """
    shaped = (a.shape[i] >= 0) & (b.shape[j] >= 0)
    x, y = (np.stack((log.outputs.first(rows), *log.stats[1:4, rows])) for log, rows in ((a, i), (b, j)))
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.abs(x - y) / np.maximum(np.abs(x), np.abs(y))
    return np.asarray(shaped & ((x == y) | (off <= _LEFT * error / 8)).all(axis=0) & (error > _LEFT))


def left_of_form(case: Case, error: Float64) -> Float64:
    """Largest error of the results of a region that may be left of differences in it, which are none of the form."""
    rounds = 2 * max((EPSILON[name] for name in {*case.a.dtypes, *case.b.dtypes} & EPSILON.keys()), default=0.0)
    return np.maximum(_LEFT * error, np.minimum(rounds, error / 16))


def _shown(case: Case, status: NDArray[np.int8], further: list[int]) -> Bool:
    """bool[p]: pairs that lead, in both runs, to one that agrees, over what is not judged; a copy that is only sent, in
    the other run.

    What reads another output than the one that differs, or a shape, or what a graft wrote over it, tells nothing of it.

    Args:
        further: pairs of which another output than the first decides.
    """
    found, agrees, sent = np.ones(len(status), bool), one_of(status, AGREE), np.zeros(len(status), bool)
    of_first = np.append(~marked(further, len(status)), False)
    for log, flow, readers, of, at in (
        (case.b, case.flow.b, case.flow.readers_b, case.pairing.of_b, case.j),
        (case.a, case.flow.a, case.flow.readers_a, case.pairing.of_a, case.i),
    ):
        if found.any():
            is_open = np.append(OPEN[status], True)[of]
            tells = (flow.value >= 0) & np.append(agrees, False)[of[flow.row]] & ~read_by_shape(log)
            tells &= ~(of_first[of[flow.value]] & (values_read(log) >= len(log))) & ~overwritten(log)
            near = marked(flow.value[tells], len(log))
            unread = readers.none[at] & copies(log)[at] & ~sent
            found &= upstream(flow, near & is_open, is_open)[at] | unread
            sent |= unread
    return found


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


def _given_otherwise(case: Case, i: Int64, j: Int64) -> Bool:
    """bool[p]: pairs that read other whole numbers, of one shape, which a run was given: tokens, places, labels."""
    a, b, found = case.a, case.b, np.zeros(len(i), bool)
    k, place, at_a, at_b = shared_inputs(a, b, i, j)
    given = (case.flow.a.value[at_a] < 0) | (case.flow.b.value[at_b] < 0)
    given &= a.inputs.value[at_a] != b.inputs.value[at_b]
    for pair, of in zip(k[given].tolist(), place[given].tolist(), strict=True):
        one, other = (tensors_read(log, int(rows[pair]))[of : of + 1] for log, rows in ((a, i), (b, j)))
        found[pair] |= one == other and one[0][0].startswith(WHOLE) if one else False
    return found


@once_per_pair
def _is_applied(log: OpLog, flow: Ragged) -> Bool:
    """bool[n]: the result of a record is a gradient that is clipped or applied."""
    made = flow.value >= 0
    maker, reader = flow.value[made], flow.row[made]
    last = one_of(log.phase, (Phase.GRADIENTS, Phase.OPTIMIZER))
    return marked(maker[last[reader] & ~last[maker]], len(log))
