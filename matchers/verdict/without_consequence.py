"""Differences that leave nothing: red pairs in regions whose results agree.

A mask of other constants hides the same scores, a softmax in blocks has other maxima, a loss in chunks other terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Int64, marked, one_of
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.dataflow import Readers, upstream
from matchers.pairing.pairing import Method
from matchers.regions.find import OPEN, find_regions
from matchers.status import AGREE, Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.judge import Verdicts
from matchers.verdict.loss_scale import EXACT, sizes_of_totals
from matchers.verdict.other_forms import hiding, left_of_form
from matchers.verdict.reason import Reason
from matchers.verdict.tolerance import EPSILON, default_tolerance

__all__ = ["without_consequence"]

_STAYS = (
    Reason.COARSER_DTYPE,
    Reason.LAST_CONTENT,
    Reason.NAN_IN_BOTH,
    Reason.NOT_BITWISE,
    Reason.OTHER_DTYPE,
    Reason.OTHER_START,
    Reason.OTHER_WEIGHT,
    Reason.RECOMPUTED_OTHERWISE,
)
"""Reasons that are no matter of form."""


def without_consequence(case: Case, judged: Judgement) -> Judgement:
    """Claim red pairs, NOT_JUDGED, in regions whose results agree: the runs compute alike, otherwise.

    To the bit, unless the user expects rounding. Not where both runs have the same operations in a module, or read what
    another makes otherwise: they were given something else, if not a multiple of the same. A difference that is nearly
    all there in the results is none of form, however small, such as another eps, nor is the norm of gradients that are
    all off by it. What stays red elsewhere, also in the backward pass, has a cause of its own. A user's rule says which
    operations are partners, whatever they lead to.
    """
    pairing, verdicts = case.pairing, judged.verdicts
    red = verdicts.status >= Status.SHAPE
    # what a graft overwrites agrees whatever it was
    grafted = any(log.header.run.get("grafts") for log in (case.a, case.b))
    if grafted or not red.any():
        return judged
    kept = [_kept(log, readers) for log, readers in ((case.a, case.flow.readers_a), (case.b, case.flow.readers_b))]
    other = red & ~one_of(verdicts.reason, _STAYS) & (pairing.method != Method.OVERRIDE)
    other &= ~(kept[0][case.i] | kept[1][case.j])
    formed = (verdicts.status == Status.SHAPE) | (verdicts.reason == Reason.ARGUMENTS) | _in_other_form(case)
    formed[other] |= _multiples(case, np.flatnonzero(other))
    other &= formed
    other &= ~sizes_of_totals(case.a, case.b, pairing, other)
    while other.any():  # what is none of form is red, and so are the results of what leads to it
        found = other & _leaves_nothing(case, verdicts, other, kept)
        if (found == other).all():
            break
        other = found
    slots = {k: slot for k, slot in verdicts.slots.items() if not other[k]}
    return judged.claimed(other, Status.NOT_JUDGED, Reason.OTHER_FORM, slots=slots)


def _leaves_nothing(case: Case, verdicts: Verdicts, other: Bool, kept: Sequence[Bool]) -> Bool:
    """bool[p]: of some red pairs, if they are not judged, those that lead to results of their region, which agree.

    Args:
        kept: by run, bool[n], see `_kept`.
    """
    pairing, flow = case.pairing, case.flow
    status = np.where(other, np.int8(Status.NOT_JUDGED), verdicts.status)
    regions = find_regions(case.a, case.b, pairing, status, flow)
    found = other & regions.covered("a")[case.i]
    if not found.any():
        return found
    hides, region = hiding(case, status, verdicts.status >= Status.SHAPE), regions.of_a[case.i]
    # what a backward pass makes of forward results beside gradients tells little of them, nor does what hides a
    # difference that shows behind it, or a norm in which a mask of large numbers leaves nothing of them
    norm, phase, largest = case.a.outputs.first(case.i), np.zeros(len(regions), np.int8), np.zeros(len(regions))
    phase[region[found]] = case.a.phase[case.i[found]]
    np.fmax.at(largest, region[found], norm[found])
    of, shown = regions.outputs.row, regions.outputs.value
    tells = (_part(case.a.phase[case.i[shown]]) == _part(phase[of])) & one_of(status, AGREE)[shown]
    tells &= (status[shown] == Status.EQUAL) | ~(hides[shown] | (norm[shown] * EPSILON["float32"] > largest[of]))
    of, shown = of[tells], shown[tells]
    left, least = np.zeros(len(regions)), np.full(len(regions), np.inf)
    np.fmax.at(left, of, verdicts.error[shown])
    np.fmin.at(least, region[found], verdicts.error[found])
    if not case.expectation.explains:
        left[of[~one_of(status, (Status.EQUAL, Status.SAME_PRINT))[shown]]] = np.inf
    # a lower bound does not tell that nothing is left of another argument: a mask may have nearly all of a norm
    bounded = marked(of[verdicts.bound[shown] & (verdicts.error[shown] > 0)], len(regions))
    bounded &= marked(region[found & (verdicts.reason == Reason.ARGUMENTS)], len(regions))
    found[found] = ~((left > left_of_form(case, least)) | bounded)[region[found]]
    told = np.append(marked(shown, len(status)), False)
    for log, records, of_pairs, data, ends in (
        (case.a, case.i, pairing.of_a, flow.a, kept[0]),
        (case.b, case.j, pairing.of_b, flow.b, kept[1]),
    ):
        open_ = np.append(OPEN[status], True)[of_pairs]
        near = marked(data.value[(data.value >= 0) & told[of_pairs[data.row]]], len(log))
        through = open_ | np.append(hides, False)[of_pairs]
        found &= upstream(data, near & through, through)[records]
        # nor to an end that is not judged; a gradient that one run alone makes, and hands to no optimizer, is none, and
        # of a forward result none is that a later phase makes
        lost, later = open_ & ends, ~one_of(log.phase, (Phase.PREPARE, Phase.FORWARD))
        if log.updates.any():
            lost &= (of_pairs >= 0) | (log.phase != Phase.BACKWARD)
        found &= ~upstream(data, lost & ~later, open_)[records]
        found &= ~(later & upstream(data, lost, open_))[records]
    return found


def _part(phase: NDArray[np.int8]) -> NDArray[np.int8]:
    """The same phases, but what is prepared for a forward pass, perhaps within it, belongs to it."""
    return np.where(phase == Phase.PREPARE, np.int8(Phase.FORWARD), phase)


def _in_other_form(case: Case) -> Bool:
    """bool[p]: pairs in modules of which one run alone has operations, but those that read one of another module."""
    found, given = np.zeros(len(case.i), bool), np.zeros(len(case.i), bool)
    for log, of, lead, flow in (
        (case.a, case.pairing.of_a, case.i, case.flow.a),
        (case.b, case.pairing.of_b, case.j, case.flow.b),
    ):
        alone, module = of < 0, log.module
        found |= marked(module[alone], len(log.modules))[module[lead]]
        made = np.flatnonzero(np.append(alone, False)[flow.value])
        maker, reader = flow.value[made], flow.row[made]
        given |= marked(reader[module[maker] != module[reader]], len(log))[lead] & (log.phase[lead] == Phase.FORWARD)
    return found & ~given


def _multiples(case: Case, which: Int64) -> Bool:
    """bool[k]: the numbers of these pairs are those of the other run times a factor, which another operation has, too.

    They read what one run alone makes, as of a gradient of a mean that one run divides earlier; or they are gradients,
    and the factor is that of the numbers of ranks: of a mean over the part of a rank, and of one over all.
    """
    found = np.zeros(len(which), bool)
    for log, of, flow, records in (
        (case.a, case.pairing.of_a, case.flow.a, case.i),
        (case.b, case.pairing.of_b, case.flow.b, case.j),
    ):
        found |= marked(flow.row[np.append(of < 0, False)[flow.value]], len(log))[records[which]]
    i, j = case.i[which], case.j[which]
    x, y = (
        np.concatenate((log.outputs.first(rows)[None], log.stats[1:, rows])) for log, rows in ((case.a, i), (case.b, j))
    )
    ranks = math.log(max(len(case.a.members), 1) / max(len(case.b.members), 1))
    with np.errstate(all="ignore"):
        factor = x[1] / y[1]
        off = np.abs(x / y / factor - 1)
        of_ranks = np.abs(np.abs(np.log(np.abs(factor))) - abs(ranks)) < EXACT
    found |= of_ranks & (ranks != 0) & (case.a.phase[i] == Phase.BACKWARD)
    return found & (np.fmax.reduce(off) <= default_tolerance("float32"))


def _kept(log: OpLog, readers: Readers) -> Bool:
    """bool[n]: records that write to a tensor by name, such as a state, or whose results neither an operation nor
    Python reads.
    """
    kept = readers.none[:-1].copy()
    kept[log.texts("Read").rows] = False
    kept[log.texts("Parameter").rows] = True
    return kept
