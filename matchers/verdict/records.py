"""Verdicts on single records, for what a pair does not show: what a run leaves, or what it does a second time."""

from __future__ import annotations

from collections.abc import Container, Mapping

import numpy as np
from numpy.typing import NDArray

from matchers.pairing.pairing import Pairing
from matchers.status import Role, Status
from matchers.verdict.judge import Verdicts
from matchers.verdict.slots import SlotVerdict

__all__ = ["Place", "on_pairs", "unpaired_roles"]

Place = tuple[str, int]
"""The side, `a` or `b`, and a record of it."""


def on_pairs(verdicts: Verdicts, pairing: Pairing, told: Mapping[Place, SlotVerdict]) -> Verdicts:
    """The verdicts on pairs, with those on records that have a partner, where the pair is not red already."""
    found: dict[int, SlotVerdict] = {}
    for (side, row), verdict in told.items():
        pair = int((pairing.of_a if side == "a" else pairing.of_b)[row])
        if pair >= 0 and not Status(verdicts.status[pair]).red:
            found[pair] = verdict
    return verdicts.entered(found)


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
