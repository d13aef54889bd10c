"""The pairs of a matching, as columns.

A pair is usually one operation of a and one of b. It can be a group (a collective and its wait against one in-place
collective, a fused product against three): then every member row points to the pair, and the values of the two *lead*
rows are compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Int32, Int64, columns
from matchers.status import LabelledEnum

__all__ = ["SURE", "Method", "Pairing"]

SURE = 0.9
"""Confidence from which on nearly every pair is right (.997, `python -m benchmarks.calibration`)."""


class Method(LabelledEnum):
    """Origin of a pair, in descending order of authority."""

    NONE = 0
    OVERRIDE = 1
    TEMPLATE = 2
    EXACT = 3
    ALIGNED = 4
    VALUES = 5
    DATAFLOW = 6
    RELAXED = 7
    PARTS = 8


@columns
class Pairing:
    """p pairs between n_a rows of a and n_b rows of b.

    Attributes:
        of_a, of_b: int64[n_a], int64[n_b], the pair of each row, -1 if unpaired.
        lead_a, lead_b: int64[p], the rows whose values are compared.
        method: int8[p] of `Method`.
        confidence: float32[p] in [0, 1].
        runner_up: int32[p], the second-best row of b for `lead_a`, -1 without an alternative.
        runner_up_score: float32[p], its confidence (0 without an alternative).
        grouped: bool[p], the pair has more than one row on a side.
        assembled: bool[p], different operations of one side together form the pair, so that the sides do not list the
            same inputs. (One operation of several micro-batches reads what that of a whole batch reads.)
    """

    of_a: Int64
    of_b: Int64
    lead_a: Int64
    lead_b: Int64
    method: NDArray[np.int8]
    confidence: NDArray[np.float32]
    runner_up: Int32
    runner_up_score: NDArray[np.float32]
    grouped: Bool
    assembled: Bool

    @classmethod
    def none(cls, n_a: int, n_b: int) -> Pairing:
        """An empty pairing of n_a and n_b rows."""
        kinds = np.int64, np.int64, np.int8, np.float32, np.int32, np.float32, np.bool_, np.bool_
        columns: tuple[Any, ...] = tuple(np.zeros(0, kind) for kind in kinds)
        return cls(np.full(n_a, -1), np.full(n_b, -1), *columns)

    def __len__(self) -> int:
        return len(self.lead_a)

    def members(self, pair: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Rows of a and rows of b in one pair, in order."""
        if not self.grouped[pair]:
            return (int(self.lead_a[pair]),), (int(self.lead_b[pair]),)
        return (
            tuple(np.flatnonzero(self.of_a == pair).tolist()),
            tuple(np.flatnonzero(self.of_b == pair).tolist()),
        )

    @property
    def partner_of_a(self) -> Int64:
        """int64[n_a]: the lead row of b paired with each row of a, -1 if unpaired."""
        out = np.full(len(self.of_a), -1)
        has = self.of_a >= 0
        out[has] = self.lead_b[self.of_a[has]]
        return out
