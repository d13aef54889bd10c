"""What records hand on to those that read them: errors, changes of norms, and whether a red row is behind them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from matchers.arrays import Int32
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog
from matchers.verdict.tolerance import UNKNOWN_SCORES, elementwise, rounding

__all__ = ["PropagatedError", "LogSide"]


@dataclass(frozen=True, slots=True)
class PropagatedError:
    """Per pair: the error that it hands on, the change of its norm, whether it is red and explains nothing, and whether
    it makes other whole numbers on the two sides.
    """

    errors: list[float]
    norms: list[float]
    blocked: list[bool]
    whole: list[bool]


class LogSide:
    """One log: who made what, and the errors of records that only this side has.

    These are taken to be right: they hand on the largest error of their inputs, and add their own rounding.

    Args:
        of: the pair of each record, -1 for none.
        handed: what the pairs hand on; it grows while this reads it.
        coarsest: see `matchers.verdict.tolerance.rounding`.
    """

    def __init__(self, log: OpLog, of: Int32, flow: Ragged, handed: PropagatedError, coarsest: float = 0.0) -> None:
        self._log, self._handed, self._coarsest = log, handed, coarsest
        self.pair_of: list[int] = of.tolist()
        self._start: list[int] = flow.start.tolist()
        self._makers: list[int] = flow.value.tolist()
        self._digests, self._digest_start = log.input_digests.value, log.input_digests.start.tolist()
        self._alone: list[int] = np.flatnonzero(of < 0).tolist()
        self._next = 0
        self._errors: dict[int, float] = {}
        self._norms: dict[int, float] = {}
        self._blocked: set[int] = set()

    def makers(self, record: int) -> list[int]:
        """The record that made each input, -1 where none did."""
        return self._makers[self._start[record] : self._start[record + 1]]

    def values(self, record: int) -> list[float]:
        """The norm of each input."""
        values: list[float] = self._log.inputs.value[self._start[record] : self._start[record + 1]].tolist()
        return values

    def digests(self, record: int) -> list[int]:
        """The digest of each input."""
        start = self._digest_start
        digests: list[int] = self._digests[start[record] : start[record + 1]].tolist()
        return digests

    def catch_up(self, record: int) -> None:
        """Take in the lone records before a record."""
        while self._next < len(self._alone) and self._alone[self._next] < record:
            self._take(self._alone[self._next])
            self._next += 1

    def _take(self, record: int) -> None:
        makers = [m for m in self.makers(record) if m >= 0]
        clean = [m for m in makers if not self.is_blocked(m)]
        error = max(map(self.error_of, clean), default=0.0)
        by_element = elementwise(self._log.op_name(record))
        own = rounding(self._log.dtype_text(record), by_element, self._log.ours, self._coarsest)
        self._errors[record] = error + own
        self._norms[record] = max(map(self.norm_of, clean), default=0.0)
        if len(clean) < len(makers):
            self._blocked.add(record)

    def is_alone(self, record: int) -> bool:
        """Whether only this side has the record."""
        return record >= 0 and self.pair_of[record] < 0

    def is_blocked(self, record: int) -> bool:
        """Whether the record is red, or a consequence of one that is."""
        pair = self.pair_of[record]
        return self._handed.blocked[pair] if pair >= 0 else record in self._blocked

    def error_of(self, record: int) -> float:
        """The error that the record hands on."""
        pair = self.pair_of[record]
        return self._handed.errors[pair] if pair >= 0 else self._errors.get(record, 0.0)

    def decided(self, record: int) -> bool:
        """Whether the record made other whole numbers."""
        pair = self.pair_of[record]
        return pair >= 0 and self._handed.whole[pair]

    def norm_of(self, record: int) -> float:
        """The change of a norm that it hands on."""
        pair = self.pair_of[record]
        return self._handed.norms[pair] if pair >= 0 else self._norms.get(record, 0.0)

    def magnitude(self, record: int) -> float:
        """The largest number of what a record made, where the log says it."""
        largest = float(self._log.stats[3, record])
        return abs(largest) if math.isfinite(largest) else UNKNOWN_SCORES
