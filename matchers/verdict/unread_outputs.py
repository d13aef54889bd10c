"""Further outputs that nobody reads, such as the work space of a CTC loss, part of which is never initialised.

A difference in such an output has no effect on the run. The same holds where every operation that reads it returns
bitwise equal results.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Int32
from matchers.logs.columns import Ragged
from matchers.logs.op_log import NO_DIGEST, OpLog, Phase
from matchers.status import Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.reason import Reason

__all__ = ["without_unread"]


def without_unread(case: Case, judged: Judgement) -> Judgement:
    """Claim pairs of which only unread outputs differ: CLOSE with an unknown error.

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
    sides = (
        _Outputs(a, case.flow.a, pairing.of_a, verdicts.status),
        _Outputs(b, case.flow.b, pairing.of_b, verdicts.status),
    )
    unread = {}
    for k in found:
        i, j = int(pairing.lead_a[k]), int(pairing.lead_b[k])
        x, y = a.digests[i], b.digests[j]
        known = len(x) == len(y) and NO_DIGEST not in x and NO_DIGEST not in y
        if not known or x[0] != y[0] or a.texts("Mutated").raw(i) != b.texts("Mutated").raw(j):
            continue
        differing = np.flatnonzero(x != y).tolist()
        if all(side.unread(row, n) for n in differing for side, row in zip(sides, (i, j), strict=True)):
            unread[k] = replace(verdicts.slots[k], status=Status.CLOSE, reason=Reason.UNREAD_OUTPUT)
    which, slots = np.array(list(unread), np.int64), {**verdicts.slots, **unread}
    return judged.claimed(which, Status.CLOSE, Reason.UNREAD_OUTPUT, slots=slots, error=np.nan, bound=False)


class _Outputs:
    """The consumers of the outputs of one log."""

    def __init__(self, log: OpLog, flow: Ragged, of: Int32, status: NDArray[np.int8]) -> None:
        self._log, self._flow = log, flow
        self._order = np.argsort(flow.value, kind="stable")
        self._makers = flow.value[self._order]
        equal = np.append(status == Status.EQUAL, False)
        self._equal = equal[of]

    def unread(self, row: int, n: int) -> bool:
        """True if no record reads output n of a forward row, or all that do are paired and bitwise equal."""
        log = self._log
        if log.phase[row] != Phase.FORWARD:
            return False
        start, end = np.searchsorted(self._makers, (row, row + 1))
        for entry in self._order[start:end].tolist():
            reader = int(self._flow.row[entry])
            place, digests = entry - int(self._flow.start[reader]), log.input_digests[reader]
            reads_it = place >= len(digests) or digests[place] in (NO_DIGEST, log.digests[row][n])
            if reads_it and not self._equal[reader]:
                return False
        return True
