"""Differences that leave nothing: all red pairs lie in regions whose results agree.

A mask of other constants hides the same scores, a softmax in blocks has other maxima, a loss in chunks other terms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Int64, marked
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.dataflow import Readers, downstream
from matchers.pairing.pairing import Method
from matchers.regions.find import find_regions
from matchers.status import AGREE, Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.other_forms import left_of_form
from matchers.verdict.reason import Reason
from matchers.verdict.tolerance import default_tolerance

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
    """Claim all red pairs, NOT_JUDGED, if they lie in regions whose results agree: the runs compute alike, otherwise.

    To the bit, unless the user expects rounding. Not where both runs have the same operations in a module, or read what
    another makes otherwise: they were given something else, if not a multiple of the same. A difference that is nearly
    all there in the results is none of form, however small, such as another eps; and where any pair stays red, what
    differs may belong to it. A user's rule says which operations are partners, whatever they lead to.
    """
    a, b, pairing, verdicts = case.a, case.b, case.pairing, judged.verdicts
    red = np.flatnonzero(verdicts.status >= Status.SHAPE)
    stays = np.isin(verdicts.reason[red], _STAYS) | (pairing.method[red] == Method.OVERRIDE)
    kept = stays.any() or bool(judged.red_records)
    if not len(red) or kept:
        return judged
    sides = [
        (log, records[red], of, flow, _kept(log, readers))
        for log, records, of, flow, readers in (
            (a, case.i, pairing.of_a, case.flow.a, case.flow.readers_a),
            (b, case.j, pairing.of_b, case.flow.b, case.flow.readers_b),
        )
    ]
    if any(ends[rows].any() for _, rows, _, _, ends in sides):
        return judged
    status = verdicts.status.copy()
    status[red] = Status.NOT_JUDGED
    regions = find_regions(a, b, pairing, status, case.flow)
    region = regions.of_a[case.i[red]]
    formed = (verdicts.status[red] == Status.SHAPE) | (verdicts.reason[red] == Reason.ARGUMENTS)
    formed |= _in_other_form(case)[red] | _multiples(case, red)
    if not (formed & regions.covered("a")[case.i[red]]).all() or any(_is_lost(*side, status) for side in sides):
        return judged
    of, shown = regions.outputs.row, regions.outputs.value
    left, least = np.zeros(len(regions)), np.full(len(regions), np.inf)
    np.fmax.at(left, of, verdicts.error[shown])
    np.fmin.at(least, region, verdicts.error[red])
    # a lower bound does not tell that nothing is left of another argument: a mask may have nearly all of a norm
    bounded = of[verdicts.bound[shown] & (verdicts.error[shown] > 0)]
    if np.isin(region[verdicts.reason[red] == Reason.ARGUMENTS], bounded).any():
        return judged
    if not case.expectation.explains:
        left[of[~np.isin(status, (Status.EQUAL, Status.SAME_PRINT))[shown]]] = np.inf
    if (left > left_of_form(case, least))[region].any():
        return judged
    slots = {k: slot for k, slot in verdicts.slots.items() if verdicts.status[k] < Status.SHAPE}
    return judged.claimed(red, Status.NOT_JUDGED, Reason.OTHER_FORM, slots=slots)


def _in_other_form(case: Case) -> Bool:
    """bool[p]: pairs in modules of which one run alone has operations, but those that read one of another module."""
    found, given = np.zeros(len(case.i), bool), np.zeros(len(case.i), bool)
    for log, of, lead, flow in (
        (case.a, case.pairing.of_a, case.i, case.flow.a),
        (case.b, case.pairing.of_b, case.j, case.flow.b),
    ):
        alone, module = of < 0, log.module
        found |= marked(module[alone], len(log.modules))[module[lead]]
        entered = (flow.value >= 0) & alone[flow.value] & (module[flow.value] != module[flow.row])
        given |= marked(flow.row[entered], len(log))[lead] & (log.phase[lead] == Phase.FORWARD)
    return found & ~given


def _multiples(case: Case, which: Int64) -> Bool:
    """bool[k]: these pairs read what one run alone makes, and their numbers are those of the other run times a factor.

    As of a gradient of a mean that one run divides earlier.
    """
    a, b, i, j = case.a, case.b, case.i[which], case.j[which]
    x, y = (np.concatenate((log.outputs.first(rows)[None], log.stats[1:, rows])) for log, rows in ((a, i), (b, j)))
    with np.errstate(all="ignore"):
        off = np.abs(x / y / (x[1] / y[1]) - 1)
    given = [
        marked(flow.row[(flow.value >= 0) & (of < 0)[flow.value]], len(log))[rows]
        for log, of, flow, rows in ((a, case.pairing.of_a, case.flow.a, i), (b, case.pairing.of_b, case.flow.b, j))
    ]
    return np.asarray((np.fmax.reduce(off) <= default_tolerance("float32")) & (given[0] | given[1]))


def _kept(log: OpLog, readers: Readers) -> Bool:
    """bool[n]: records that write to a tensor by name, such as a state, or whose results neither an operation nor
    Python reads.
    """
    kept = readers.none[:-1].copy()
    kept[log.texts("Read").rows] = False
    kept[log.texts("Parameter").rows] = True
    return kept


def _is_lost(log: OpLog, red: Int64, of: NDArray[np.int32], flow: Ragged, kept: Bool, status: NDArray[np.int8]) -> bool:
    """True if what some records make leads to an end (`kept`) that is not judged.

    A gradient that one run alone makes, and hands to no optimizer, is none.
    """
    open_ = ~np.append(np.isin(status, AGREE), False)[of]
    ends = open_ & kept
    if log.updates.any():
        ends &= (of >= 0) | (log.phase != Phase.BACKWARD)
    return bool((ends & downstream(flow, marked(red, len(log)), open_)).any())
