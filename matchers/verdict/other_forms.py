"""Pairs whose shapes differ because one run computes in another form, such as attention that repeats heads itself.

Between results that both runs have, another form has other operations and other shapes. Where everything that reads the
results agrees, on both sides, the form makes no difference; what lies between is then not judged by itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Int32
from matchers.logs.columns import Ragged
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import OpLog
from matchers.status import AGREE, Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.reason import Reason

__all__ = ["without_other_forms"]

_FURTHEST = 64
"""Most operations of another form between a result and what reads it."""


def without_other_forms(case: Case, judged: Judgement) -> Judgement:
    """Claim pairs of other shapes of which all that is computed agrees: NOT_JUDGED.

    One run alone has an operation among those that lead there; another dtype is no other form.
    """
    a, b, i, j, pairing, verdicts = case.a, case.b, case.i, case.j, case.pairing, judged.verdicts
    dtype_a, dtype_b, _ = shared_ids(a.dtypes, b.dtypes)
    same_dtype = dtype_a[a.dtype[i]] == dtype_b[b.dtype[j]]
    found = np.flatnonzero((verdicts.status == Status.SHAPE) & same_dtype & ~a.updates[i])
    if not len(found):
        return judged
    sides = (_Side(a, case.flow.a, pairing.of_a, verdicts.status), _Side(b, case.flow.b, pairing.of_b, verdicts.status))
    other = np.zeros(len(pairing), bool)
    for k in found.tolist():
        ways = [side.way(row) for side, row in zip(sides, (int(i[k]), int(j[k])), strict=True)]
        if all(ways) and any(side.alone(way) for side, way in zip(sides, ways, strict=True)):
            other[k] = True
    slots = {k: slot for k, slot in verdicts.slots.items() if not other[k]}
    return judged.claimed(other, Status.NOT_JUDGED, Reason.OTHER_FORM, slots=slots)


class _Side:
    """The readers of one log's results."""

    def __init__(self, log: OpLog, flow: Ragged, of: Int32, status: NDArray[np.int8]) -> None:
        known = flow.value >= 0
        order = np.argsort(flow.value[known], kind="stable")
        self._makers, self._readers = flow.value[known][order], flow.row[known][order]
        told = np.append(status, Status.PENDING)[of]
        self._agrees: Bool = np.isin(told, AGREE)
        self._unpaired: Bool = of < 0
        self._between: Bool = (self._unpaired | (told == Status.SHAPE)) & ~log.updates

    def way(self, row: int) -> list[int]:
        """A record and those between it and what agrees; empty if it is not read, or leads to anything else."""
        way, left = [row], [row]
        while left:
            at = left.pop()
            start, end = np.searchsorted(self._makers, (at, at + 1))
            if start == end or len(way) > _FURTHEST:
                return []
            for reader in self._readers[start:end].tolist():
                if self._agrees[reader] or reader in way:
                    continue
                if not self._between[reader]:
                    return []
                way.append(reader)
                left.append(reader)
        return way

    def alone(self, rows: list[int]) -> bool:
        """True if this run alone has one of some records."""
        return bool(self._unpaired[rows].any())
