"""Red rows that a change of the rules removes, and the earliest first cause before and after it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from matchers.arrays import Int32
from matchers.comparison import Comparison

__all__ = ["RecordPair", "RedRows", "record_pair_of"]

RecordPair = tuple[int, int]
"""The records of a and of b in a row (-1: none): they identify a row across changes of the pairing."""


def record_pair_of(c: Comparison, row: int) -> RecordPair:
    """Return the records of a row; (-1, -1) for no row."""
    return (int(c.row_a[row]), int(c.row_b[row])) if 0 <= row < len(c) else (-1, -1)


@dataclass(frozen=True, slots=True)
class RedRows:
    """Effect of a change on the red rows.

    Rows merge and split with the pairing, so they are named by their records.

    Attributes:
        removed: the records of rows that stop being red, int32[2, n], in the order of the rows.
        cause_before, cause_after: the earliest first cause; (-1, -1) without one.
    """

    removed: Int32
    cause_before: RecordPair
    cause_after: RecordPair

    @classmethod
    def unchanged(cls) -> RedRows:
        """Return the effect of no change."""
        return cls(np.empty((2, 0), np.int32), (-1, -1), (-1, -1))

    @classmethod
    def between(cls, old: Comparison, new: Comparison) -> RedRows:
        """Compare the red rows of the same logs under two rule sets."""
        rows = np.flatnonzero(old.red)
        records = np.stack((old.row_a[rows], old.row_b[rows])).astype(np.int32)
        still = np.zeros(len(rows), np.bool_)
        for record, at in zip(records, (new.at_a, new.at_b), strict=True):
            there = record >= 0
            still[there] |= new.red[at[record[there]]]
        before, after = (record_pair_of(c, int(np.argmax(c.cause)) if c.cause.any() else -1) for c in (old, new))
        return cls(records[:, ~still], before, after)

    @property
    def cause_moved(self) -> bool:
        """True if the earliest first cause is another operation."""
        return not any(one == other >= 0 for one, other in zip(self.cause_before, self.cause_after, strict=True))
