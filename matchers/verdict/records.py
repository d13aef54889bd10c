"""Verdicts on single records, for what a pair does not show: what a run leaves, or what it does a second time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from matchers.ops.recomputation import Mismatch
from matchers.pairing.pairing import Pairing
from matchers.status import Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.coarser import judge_casts
from matchers.verdict.last_contents import judge_contents
from matchers.verdict.reason import Reason
from matchers.verdict.slots import SlotVerdict

__all__ = ["Place", "RecomputeMismatch", "judge_records"]

Place = tuple[str, int]
"""The side, `a` or `b`, and a record of it."""


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
        name, reason = self.mismatch.name or "the recomputed copy", Reason.RECOMPUTED_OTHERWISE
        return SlotVerdict(name, Status.DIVERGED, reason, self.mismatch.error, True, 0.0)


def judge_records(case: Case, found: Judgement) -> Judgement:
    """Judge single records; claim the pairs of those that have a partner, unless they are red already."""
    pairing, verdicts = case.pairing, found.verdicts
    contents, mismatches = judge_contents(case, found), _judge_mismatches(*case.copies, pairing)
    of_records = {(m.side, m.mismatch.row): m.verdict for m in mismatches if m.red} | contents.verdicts
    of_records = judge_casts(case, found) | of_records
    told = dict(found.of_records) | of_records
    of_pairs: dict[int, SlotVerdict] = {}
    for (side, row), verdict in of_records.items():
        pair = int((pairing.of_a if side == "a" else pairing.of_b)[row])
        if pair >= 0 and not Status(verdicts.status[pair]).red:
            of_pairs[pair] = verdict
    verdicts = verdicts.entered(of_pairs)
    return replace(found, verdicts=verdicts, contents=contents, mismatches=mismatches, of_records=told)


def _judge_mismatches(a: Sequence[Mismatch], b: Sequence[Mismatch], pairing: Pairing) -> tuple[RecomputeMismatch, ...]:
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
