"""Results that depend on how the batch is divided into micro-batches, and cannot be judged.

A term of each micro-batch (a mean loss, the factor of its gradient) has no whole. Batch norm and dropout compute from
one micro-batch what they would compute otherwise from the whole batch, and so does the largest element of a tensor, by
which float8 is scaled: everything that follows differs by design.
What such a term is computed from may be judged all the same: whole numbers that a run was given, such as targets, add
up exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Int64, marked, one_of
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog
from matchers.ops.arguments import tensors_read
from matchers.ops.dataflow import WHOLE, decided_by_floats, downstream, whole_numbers
from matchers.ops.shapes import numel
from matchers.status import AGREE, Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.digests import shared_inputs
from matchers.verdict.reason import Reason

__all__ = ["terms_of_micro_batches", "without_terms"]


def without_terms(case: Case, judged: Judgement) -> Judgement:
    """Claim pairs whose difference micro-batches of another size explain: NOT_JUDGED."""
    a, b, pairing, verdicts = case.a, case.b, case.pairing, judged.verdicts
    if a.folding is None and b.folding is None:
        return judged
    terms, by_part = terms_of_micro_batches(case), np.zeros(len(pairing), bool)
    for log, lead in ((a, pairing.lead_a), (b, pairing.lead_b)):
        if log.folding is not None:
            by_part |= log.folding.by_part[lead]
    differs = one_of(verdicts.status, (Status.DIVERGED, Status.SHAPE))
    differs[[k for k, slot in verdicts.slots.items() if slot.scalars is not None]] = False
    given = _given_otherwise(case, np.flatnonzero(differs & terms), verdicts.status)
    judged = judged.claimed(differs & terms & ~by_part & ~given, Status.NOT_JUDGED, Reason.MICRO_BATCH_TERM)
    judged = judged.claimed(given, Status.DIVERGED, Reason.OTHER_DATA, error=np.nan, bound=False)
    unjudged = differs & by_part & ~given
    begins = by_part & (verdicts.status > Status.CLOSE)
    if begins.any():
        passes = verdicts.status != Status.EQUAL
        for of, makers in ((pairing.of_a, case.flow.a), (pairing.of_b, case.flow.b)):
            unjudged |= differs & ~terms & _downstream(begins, passes, of, makers)
    return judged.claimed(unjudged, Status.NOT_JUDGED, Reason.BATCH_STATISTICS)


def _given_otherwise(case: Case, k: Int64, status: NDArray[np.int8]) -> Bool:
    """bool[p]: of some pairs k, those that were given other whole numbers, though all else that they read agrees.

    Micro-batches that are all given the same have it once.
    """
    a, b = case.a, case.b
    at, place, at_a, at_b = shared_inputs(a, b, case.i[k], case.j[k])
    given = _given(a, case.flow.a)[at_a] & _given(b, case.flow.b)[at_b]
    x, y, pair = a.inputs.value[at_a], b.inputs.value[at_b], case.made_by(at_a, at_b)
    agrees = (pair >= 0) & one_of(status, AGREE)[pair]
    found = marked(k[at[given & (x != y) & (x * a.batches != y * b.batches)]], len(case.pairing))
    found[k[at[~given & ~agrees]]] = False
    for row in np.flatnonzero(found).tolist():
        others = place[given & (x != y) & (k[at] == row)].tolist()
        reads = [tensors_read(log, int(rows[row])) for log, rows in ((a, case.i), (b, case.j))]
        found[row] = all(of[n][0].startswith(WHOLE) for of in reads for n in others if n < len(of))
    return found


def _given(log: OpLog, flow: Ragged) -> Bool:
    """bool, of all inputs: no operation made it, or one that computes with nothing but whole numbers, of several."""
    prepared = whole_numbers(log) & ~decided_by_floats(log) & (numel(log)[log.shape] > 1)
    return np.append(prepared, True)[flow.value]


def terms_of_micro_batches(case: Case) -> Bool:
    """bool[p]: a result is a term of each micro-batch, of which nothing tells the whole."""
    terms = np.zeros(len(case.pairing), bool)
    for log, lead in ((case.a, case.pairing.lead_a), (case.b, case.pairing.lead_b)):
        if log.folding is not None:
            terms |= log.folding.terms[lead]
    return terms


def _downstream(begins: Bool, passes: Bool, of: Int64, flow: Ragged) -> Bool:
    """bool[p]: the pair reads a result of these pairs, over pairs that pass differences on and unpaired records."""
    reached = downstream(flow, np.append(begins, False)[of], np.append(passes, True)[of])
    return marked(of[reached & (of >= 0)], len(begins))
