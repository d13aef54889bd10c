"""Results that depend on how the batch is divided into micro-batches, and cannot be judged.

A term of each micro-batch (a mean loss, the factor of its gradient) has no whole. Batch norm and dropout compute from
one micro-batch what they would compute otherwise from the whole batch, so everything that follows differs by design.
"""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Int32
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import DataFlow
from matchers.pairing.pairing import Pairing
from matchers.status import Status
from matchers.verdict.judge import Verdicts
from matchers.verdict.reason import Reason

__all__ = ["without_terms"]


def without_terms(a: OpLog, b: OpLog, pairing: Pairing, verdicts: Verdicts, flow: DataFlow) -> Verdicts:
    """The verdicts, but NOT_JUDGED where micro-batches of another size explain a difference."""
    if a.folding is None and b.folding is None:
        return verdicts
    terms, by_part = np.zeros((2, len(pairing)), bool)
    for log, lead in ((a, pairing.lead_a), (b, pairing.lead_b)):
        if log.folding is not None:
            terms |= log.folding.terms[lead]
            by_part |= log.folding.by_part[lead]
    differs = np.isin(verdicts.status, (Status.DIVERGED, Status.SHAPE))
    differs[[k for k, slot in verdicts.slots.items() if slot.scalars is not None]] = False
    verdicts, before = verdicts.claimed(differs & terms, Status.NOT_JUDGED, Reason.MICRO_BATCH_TERM), verdicts
    unjudged = differs & by_part & ~terms
    begins = by_part & (before.status > Status.CLOSE)
    if begins.any():
        passes = before.status != Status.EQUAL
        for of, makers in ((pairing.of_a, flow.a), (pairing.of_b, flow.b)):
            unjudged |= differs & ~terms & _downstream(begins, passes, of, makers)
    return verdicts.claimed(unjudged, Status.NOT_JUDGED, Reason.BATCH_STATISTICS)


def _downstream(begins: Bool, passes: Bool, of: Int32, flow: Ragged) -> Bool:
    """bool[p]: the pair reads a result of these pairs, over pairs that pass differences on and unpaired records."""
    reached = np.append(begins, False)[of].tolist()
    through = np.append(passes, True)[of].tolist()
    known = flow.value >= 0
    # in dispatch order, so that one pass follows chains of any length
    for row, made in zip(flow.row[known].tolist(), flow.value[known].tolist(), strict=True):
        if reached[made] and through[row]:
            reached[row] = True
    out = np.zeros(len(begins), bool)
    out[of[np.array(reached, bool) & (of >= 0)]] = True
    return out
