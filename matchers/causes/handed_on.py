"""Acquit pairs that only hand on values: views, splits, clones and casts make no error.

Unless such a pair reads equal bits, so that its arguments differ, what made its input is the first cause in its place,
though it may agree in print or within its tolerance. Where that is equal or unknown, the first operation that reads the
result is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, columns
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import DataFlow
from matchers.ops.laws import copies, law_of
from matchers.pairing.pairing import Pairing
from matchers.status import Role, Status
from matchers.verdict.judge import Verdicts

__all__ = ["Causes", "acquit_copies"]

_MAX_COPIES = 16
"""Views, splits, clones and casts in a row that are followed."""


@columns
class Causes:
    """The first causes: bool[p] by pair, bool[n_a] and bool[n_b] by unpaired record."""

    pair: Bool
    a: Bool
    b: Bool


def acquit_copies(
    a: OpLog, b: OpLog, pairing: Pairing, verdicts: Verdicts, flow: DataFlow, role: NDArray[np.int8], causes: Causes
) -> None:
    """Replace the first causes that cannot make an error; writes to `role` and `causes`."""
    values = causes.pair & (verdicts.status == Status.DIVERGED) & ~pairing.grouped & ~verdicts.inputs_equal
    blamed = np.flatnonzero(values)
    if not len(blamed):
        return
    blamed = blamed[copies(a)[pairing.lead_a[blamed]] & copies(b)[pairing.lead_b[blamed]]]
    search = _Search(a, b, pairing, verdicts.status, flow.a, flow.b, copies(a))
    for k in blamed.tolist():
        x, y = search.makers(k)
        of_a, of_b = (int(of[r]) if r >= 0 else -1 for r, of in ((x, pairing.of_a), (y, pairing.of_b)))
        if (x >= 0 and of_a < 0) or (y >= 0 and of_b < 0):
            causes.a[x] |= x >= 0 and of_a < 0
            causes.b[y] |= y >= 0 and of_b < 0
            causes.pair[k], role[k] = False, Role.RECEIVER
        elif of_a >= 0 and of_a == of_b and verdicts.status[of_a] in (Status.SAME_PRINT, Status.CLOSE):
            causes.pair[of_a] = True
            causes.pair[k], role[k] = False, Role.RECEIVER
        elif (reader := search.reader(k)) >= 0:
            causes.pair[reader], role[reader] = True, Role.UNKNOWN
            causes.pair[k], role[k] = False, Role.UNKNOWN


@columns
class _Search:
    """Looks for what is to blame in the place of a pair that cannot make an error.

    `copies`: bool[n_a], the records of a that only hand on values.
    """

    a: OpLog
    b: OpLog
    pairing: Pairing
    status: NDArray[np.int8]
    flow_a: Ragged
    flow_b: Ragged
    copies: Bool

    def makers(self, k: int) -> tuple[int, int]:
        """The records of a and b that made the input of a pair, over other such pairs; -1 for none."""
        of_a, of_b = self.pairing.of_a, self.pairing.of_b
        for _ in range(_MAX_COPIES):
            i, j = int(self.pairing.lead_a[k]), int(self.pairing.lead_b[k])
            found = []
            for log, flow, record in ((self.a, self.flow_a, i), (self.b, self.flow_b, j)):
                made, at = flow[record], law_of(log, record).passes_on or 0
                found.append(int(made[min(at, len(made) - 1)]) if len(made) else -1)
            x, y = found
            if x < 0 or y < 0 or of_a[x] < 0 or of_a[x] != of_b[y] or not self.copies[x]:
                return x, y
            k = int(of_a[x])
        return -1, -1

    def reader(self, k: int) -> int:
        """The first red pair downstream that can make an error, -1 for none."""
        left = [int(self.pairing.lead_a[k])]
        for _ in range(_MAX_COPIES):
            if not left:
                break
            record = left.pop(0)
            for reading in np.unique(self.flow_a.row[self.flow_a.value == record]).tolist():
                pair = int(self.pairing.of_a[reading])
                if pair >= 0 and self.status[pair] >= Status.SHAPE:
                    if not self.copies[reading]:
                        return pair
                    left.append(reading)
        return -1
