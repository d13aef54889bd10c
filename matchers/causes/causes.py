"""The first causes of a comparison while they are sought."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Int64, columns
from matchers.rows import Rows, Stretch
from matchers.status import Role
from matchers.verdict.reason import Reason

__all__ = ["BY_SIZE", "JUMP", "MOST", "Causes"]


MOST = 63
"""Candidates that are followed, the earliest ones: each takes one bit of a 64-bit word."""
JUMP = 8.0
"""Least factor by which an error exceeds that of all it came from, where a cause lies in between."""
BY_SIZE = (Reason.BEYOND_TOLERANCE, Reason.MORE_THAN_ROUNDING, Reason.SYSTEMATIC, Reason.ONLY_ONE_RUN)
"""Reasons for which an earlier operation may be the cause: the row itself proves nothing."""


@columns
class Causes:
    """The first causes so far; each search writes to them.

    Attributes:
        c: the rows, without causes.
        role: int8[r] of `Role`.
        cause: bool[r], the row is a first cause.
        stretches, likes: as of `Rows`.
    """

    c: Rows
    role: NDArray[np.int8]
    cause: Bool
    stretches: dict[int, Stretch] = field(default_factory=dict)
    likes: dict[int, int] = field(default_factory=dict)

    @classmethod
    def none(cls, c: Rows) -> Causes:
        return cls(c, np.zeros(len(c), np.int8), np.zeros(len(c), bool))

    def rows(self) -> Rows:
        """The rows with what was found."""
        return self.c.completed(Rows, role=self.role, cause=self.cause, stretches=self.stretches, likes=self.likes)

    def acquit(self, rows: Int64 | int, *, for_: Int64 | int | None = None) -> None:
        """Make consequences of some first causes; `for_`: what is one in their place."""
        self.cause[rows] = False
        self.role[rows] = np.where(self.c.red[rows], np.int8(Role.RECEIVER), self.role[rows])
        if for_ is not None:
            self.cause[for_] = True

    def follow_from(
        self, later: Bool, begins: list[tuple[int, int]], explains: Callable[[int, list[tuple[int, int]]], bool]
    ) -> None:
        """Replace the first causes in `later` that follow from candidates, each by the first of those.

        Args:
            begins: the candidates in order, and the row that shows the error of each.
            explains: the candidates upstream of a row may be the cause of it.
        """
        begins = begins[:MOST]
        if not begins or not later.any():
            return
        start = np.zeros(len(self.c), np.uint64)
        for n, ends in enumerate(begins):
            start[list(ends)] |= np.uint64(1 << n)
        bits = self.c.reached(start)
        for row in np.flatnonzero(later & (bits != 0)).tolist():
            from_here = [ends for n, ends in enumerate(begins) if int(bits[row]) >> n & 1 and row not in ends]
            if from_here and explains(row, from_here):
                self.acquit(row, for_=from_here[0][0])
