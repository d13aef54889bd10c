"""The comparison of two logs: the one object that the screen, the reports and the exit code read.

`compare(a, b, rules)` pairs the operations, judges every pair and finds the first causes. The result is frozen
columns, one row per line of the screen: the operations of a in the order they were dispatched, with those that only
b has in their place between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from matchers.op_log import FloatArray, IntArray, OpLog
from matchers.pairing import Pairing
from matchers.status import Role, Status

__all__ = ["Comparison", "Progress"]

Progress = Callable[[str, float], None]
"""Called with what is being done and the fraction of it (0 to 1). May raise to cancel."""


@dataclass(frozen=True)
class Comparison:
    """r rows; see the module's docstring.

    Attributes:
        row_a, row_b: int32[r], the record shown on each side (the lead of a group), -1 when there is none.
        pair: int32[r], index into `pairing`, -1 for a row that only one side has.
        status: int8[r] of `Status`.
        error: float64[r], relative error; NaN when there is nothing to compare; inf for NaN/Inf on one side only.
        bound: bool[r], the error is only a lower bound (two norms that agree do not bound the error).
        tolerance: float64[r], the relative error up to which the row counts as close; NaN when not judged.
        role: int8[r] of `Role`, NONE for rows that are not red.
        cause: bool[r], the row is a first cause (also a row that only one side has can be one).
        original: int32[r], for a recomputed copy the row of this comparison that shows the original; else -1.
        at_a, at_b: int32[n_a], int32[n_b], the row that shows each record (members of a group: the pair's row).
    """

    a: OpLog
    b: OpLog
    pairing: Pairing
    row_a: IntArray
    row_b: IntArray
    pair: IntArray
    status: NDArray[np.int8]
    error: FloatArray
    bound: NDArray[np.bool_]
    tolerance: FloatArray
    role: NDArray[np.int8]
    cause: NDArray[np.bool_]
    original: IntArray
    at_a: IntArray
    at_b: IntArray

    def __len__(self) -> int:
        return len(self.row_a)

    @cached_property
    def red(self) -> NDArray[np.bool_]:
        """bool[r]: the rows that are red."""
        return np.asarray(self.status >= Status.SHAPE)

    @cached_property
    def counts(self) -> dict[Status, int]:
        """Rows per status, zeros included."""
        n = np.bincount(self.status, minlength=len(Status))
        return {s: int(n[s]) for s in Status}

    def count(self, role: Role) -> int:
        return int(np.count_nonzero(self.role == role))

    def side(self, name: str) -> tuple[OpLog, IntArray]:
        """The log of side `a` or `b` and the record that each row shows of it."""
        return (self.a, self.row_a) if name == "a" else (self.b, self.row_b)

    def members(self, row: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The records of a and of b that a row stands for."""
        if self.pair[row] >= 0:
            return self.pairing.members(int(self.pair[row]))
        a, b = int(self.row_a[row]), int(self.row_b[row])
        return ((a,) if a >= 0 else ()), ((b,) if b >= 0 else ())
