"""Results that depend on how the batch is divided into micro-batches, and cannot be judged.

A term of each micro-batch (a mean loss, the factor of its gradient) has no whole. Batch norm and dropout compute from
one micro-batch what they would compute otherwise from the whole batch, so everything that follows differs by design.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Int32, marked
from matchers.logs.columns import Ragged
from matchers.ops.dataflow import downstream
from matchers.status import Status
from matchers.verdict.case import Case, Judgement
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
    differs = np.isin(verdicts.status, (Status.DIVERGED, Status.SHAPE))
    differs[[k for k, slot in verdicts.slots.items() if slot.scalars is not None]] = False
    judged = judged.claimed(differs & terms, Status.NOT_JUDGED, Reason.MICRO_BATCH_TERM)
    unjudged = differs & by_part & ~terms
    begins = by_part & (verdicts.status > Status.CLOSE)
    if begins.any():
        passes = verdicts.status != Status.EQUAL
        for of, makers in ((pairing.of_a, case.flow.a), (pairing.of_b, case.flow.b)):
            unjudged |= differs & ~terms & _downstream(begins, passes, of, makers)
    return judged.claimed(unjudged, Status.NOT_JUDGED, Reason.BATCH_STATISTICS)


def terms_of_micro_batches(case: Case) -> Bool:
    """bool[p]: a result is a term of each micro-batch, of which nothing tells the whole."""
    terms = np.zeros(len(case.pairing), bool)
    for log, lead in ((case.a, case.pairing.lead_a), (case.b, case.pairing.lead_b)):
        if log.folding is not None:
            terms |= log.folding.terms[lead]
    return terms


def _downstream(begins: Bool, passes: Bool, of: Int32, flow: Ragged) -> Bool:
    """bool[p]: the pair reads a result of these pairs, over pairs that pass differences on and unpaired records."""
    reached = downstream(flow, np.append(begins, False)[of], np.append(passes, True)[of])
    return marked(of[reached & (of >= 0)], len(begins))
