"""Verdicts on single records, for what a pair does not show: what a run leaves, or what it does a second time."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from matchers.pairing.pairing import Pairing
from matchers.status import Role, Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.last_contents import judge_contents
from matchers.verdict.recomputed import judge_mismatches
from matchers.verdict.slots import SlotVerdict

__all__ = ["Place", "judge_records", "unpaired_roles"]

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


def unpaired_roles(
    pairing: Pairing, told: Mapping[Place, SlotVerdict], given: Container[Place]
) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """int8[n_a], int8[n_b]: the roles of red records without a partner by what is told of them alone.

    RECEIVER for those in `given`, which others explain; ORIGIN for the others; NONE for all that are not red.
    """
    roles = {"a": np.zeros(len(pairing.of_a), np.int8), "b": np.zeros(len(pairing.of_b), np.int8)}
    for side, row in told:
        if (pairing.of_a if side == "a" else pairing.of_b)[row] < 0:
            roles[side][row] = Role.RECEIVER if (side, row) in given else Role.ORIGIN
    return roles["a"], roles["b"]
