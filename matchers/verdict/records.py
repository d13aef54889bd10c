"""Verdicts on single records, for what a pair does not show: what a run leaves, or what it does a second time."""

from __future__ import annotations

from dataclasses import replace

from matchers.status import Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.last_contents import judge_contents
from matchers.verdict.recomputed import judge_mismatches
from matchers.verdict.slots import SlotVerdict

__all__ = ["Place", "judge_records"]

Place = tuple[str, int]
"""The side, `a` or `b`, and a record of it."""


def judge_records(case: Case, found: Judgement) -> Judgement:
    """Judge single records; claim the pairs of those that have a partner, unless they are red already."""
    pairing, verdicts = case.pairing, found.verdicts
    contents, mismatches = judge_contents(case, found), judge_mismatches(*case.copies, pairing)
    of_records = {(m.side, m.mismatch.row): m.verdict for m in mismatches if m.red} | contents.verdicts
    of_pairs: dict[int, SlotVerdict] = {}
    for (side, row), verdict in of_records.items():
        pair = int((pairing.of_a if side == "a" else pairing.of_b)[row])
        if pair >= 0 and not Status(verdicts.status[pair]).red:
            of_pairs[pair] = verdict
    verdicts = verdicts.entered(of_pairs)
    return replace(found, verdicts=verdicts, contents=contents, mismatches=mismatches, of_records=of_records)
