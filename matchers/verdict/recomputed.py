"""Judge the recomputed copies that do not repeat their originals, in one run or in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matchers.ops.recomputation import Mismatch
from matchers.pairing.pairing import Pairing
from matchers.status import Status
from matchers.verdict.reason import Reason
from matchers.verdict.slots import SlotVerdict

__all__ = ["COPY", "RecomputeMismatch", "judge_mismatches"]

COPY = "the recomputed copy"
"""Name of what a verdict on a copy is about."""


@dataclass(frozen=True, slots=True)
class RecomputeMismatch:
    """A recompute mismatch of one side, `a` or `b`.

    Attributes:
        alike: its partner in the other run is a mismatch for the same reason.
    """

    side: str
    mismatch: Mismatch
    alike: bool = False

    @property
    def stays(self) -> bool:
        """True unless a later operation provably undoes it."""
        return self.mismatch.undone < 0

    @property
    def red(self) -> bool:
        return self.stays and not self.alike

    @property
    def verdict(self) -> SlotVerdict:
        """The verdict on the copy, red where it is."""
        name, reason = self.mismatch.name or COPY, Reason.RECOMPUTED_OTHERWISE
        return SlotVerdict(name, Status.DIVERGED, reason, self.mismatch.error, True, 0.0)


def judge_mismatches(a: Sequence[Mismatch], b: Sequence[Mismatch], pairing: Pairing) -> tuple[RecomputeMismatch, ...]:
    """The mismatches of both runs, those of a first."""
    if not (a or b):
        return ()
    pairs_a, pairs_b = ([int(of[m.row]) for m in found] for found, of in ((a, pairing.of_a), (b, pairing.of_b)))
    both = {(k, m.reason) for k, m in zip(pairs_a, a, strict=True)} & {
        (k, m.reason) for k, m in zip(pairs_b, b, strict=True) if k >= 0
    }
    return tuple(
        RecomputeMismatch(side, m, alike=(k, m.reason) in both)
        for side, found, pairs in (("a", a, pairs_a), ("b", b, pairs_b))
        for k, m in zip(pairs, found, strict=True)
    )
