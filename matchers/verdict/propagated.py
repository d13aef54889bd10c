"""State propagated along the data flow: error, norm change, red upstream."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from matchers.arrays import Int32
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog
from matchers.ops.laws import law_of
from matchers.verdict.tolerance import EPSILON, UNKNOWN_SCORES, rounding

__all__ = ["PropagatedError", "LogSide"]


@dataclass(frozen=True, slots=True)
class PropagatedError:
    """State of each pair's output, by pair.

    Attributes:
        errors: the relative error that it propagates.
        norms: the relative change of its norm.
        blocked: it is red or downstream of a red pair, so its error explains nothing.
        whole: it makes different whole numbers on the two sides.
    """

    errors: list[float]
    norms: list[float]
    blocked: list[bool]
    whole: list[bool]


class LogSide:
    """One log: the producers of each record, and the errors of its unpaired records.

    Unpaired records count as correct: they propagate the largest error of their inputs and add their own rounding.

    Args:
        of: the pair of each record, -1 for none.
        propagated: the state of the pairs, which the caller fills in meanwhile.
        dtypes: of the other log. One that it never uses is no reason to round so coarsely.
        coarsest: see `matchers.verdict.tolerance.rounding`.
    """

    def __init__(
        self,
        log: OpLog,
        of: Int32,
        flow: Ragged,
        propagated: PropagatedError,
        dtypes: Collection[str],
        coarsest: float = 0.0,
    ) -> None:
        self._log, self._propagated, self._coarsest = log, propagated, coarsest
        self._dtypes = dtypes
        self._instead = max((name for name in dtypes if name in EPSILON), key=lambda name: EPSILON[name], default="")
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
        """The producer of each input, -1 for none."""
        return self._makers[self._start[record] : self._start[record + 1]]

    def values(self, record: int) -> list[float]:
        """The norm of each input."""
        values: list[float] = self._log.inputs.value[self._start[record] : self._start[record + 1]].tolist()
        return values

    def results(self, record: int) -> list[float]:
        """The norm of each output."""
        values: list[float] = self._log.outputs[record].tolist()
        return values

    def digests(self, record: int) -> list[int]:
        """The digest of each input."""
        start = self._digest_start
        digests: list[int] = self._digests[start[record] : start[record + 1]].tolist()
        return digests

    def catch_up(self, record: int) -> None:
        """Process the unpaired records before a record."""
        while self._next < len(self._alone) and self._alone[self._next] < record:
            self._take(self._alone[self._next])
            self._next += 1

    def _take(self, record: int) -> None:
        makers = [m for m in self.makers(record) if m >= 0]
        clean = [m for m in makers if not self.is_blocked(m)]
        error = max(map(self.error_of, clean), default=0.0)
        law = law_of(self._log, record)
        dtype = self._log.dtype_text(record)
        dtype = dtype if dtype in self._dtypes else self._instead
        # a collective moves data, or adds a term per rank: the fixed tolerance has room for that
        moved = law.moves or law.communicates
        own = 0.0 if moved else rounding(dtype, law.by_element, self._log.ours, self._coarsest)
        self._errors[record] = error + own
        self._norms[record] = max(map(self.norm_of, clean), default=0.0)
        if len(clean) < len(makers):
            self._blocked.add(record)

    def is_alone(self, record: int) -> bool:
        """True if only this side has the record."""
        return record >= 0 and self.pair_of[record] < 0

    def is_blocked(self, record: int) -> bool:
        """True if the record is red, or downstream of a red one."""
        pair = self.pair_of[record]
        return self._propagated.blocked[pair] if pair >= 0 else record in self._blocked

    def error_of(self, record: int) -> float:
        """The propagated error of the record's output."""
        pair = self.pair_of[record]
        return self._propagated.errors[pair] if pair >= 0 else self._errors.get(record, 0.0)

    def decided(self, record: int) -> bool:
        """True if the record made different whole numbers on the two sides."""
        pair = self.pair_of[record]
        return pair >= 0 and self._propagated.whole[pair]

    def norm_of(self, record: int) -> float:
        """The propagated norm change of the record's output."""
        pair = self.pair_of[record]
        return self._propagated.norms[pair] if pair >= 0 else self._norms.get(record, 0.0)

    def magnitude(self, record: int) -> float:
        """The largest number in the record's output, or a default if the log does not give it."""
        largest = float(self._log.stats[3, record])
        return abs(largest) if math.isfinite(largest) else UNKNOWN_SCORES
