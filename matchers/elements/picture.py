"""Picture of the differences of two tensors: how far each element is, a histogram, and a grid over two dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from matchers.arrays import Int64
from matchers.tensor import Tensor

__all__ = ["LARGEST", "NOT_FINITE", "Grid", "Picture"]

NOT_FINITE: Final = int(np.iinfo(np.int64).max)
LARGEST: Final = 1 << 26
"""Elements of the largest tensor of which a picture is made."""
_DIGITS: Final = 9
_DECADES: Final = np.array([10**k for k in range(_DIGITS)])


@dataclass(frozen=True, eq=False)
class Grid:
    """A tensor over two of its dimensions, as cells that hold the farthest of their elements.

    Attributes:
        digits: int8[rows, columns], 0 where all are equal, else the number of decimal digits of the steps, at most 9;
            10 where an element is not finite.
        row_starts, column_starts: first index of the slices of each row and column.
    """

    digits: Any
    row_starts: Int64
    column_starts: Int64


class Picture:
    """The differences of two tensors of one dtype and shape; of one tensor, the elements that are not finite.

    Attributes:
        steps: int64, of the tensors' shape: 0 for equal bits, else the steps between neighbouring floats (or whole
            numbers), at least 1; `NOT_FINITE` where one side alone is NaN or infinite.
    """

    def __init__(self, a: Tensor, b: Tensor | None = None) -> None:
        self.a, self.b = a, b
        self.steps = _steps(a, b)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.steps.shape)

    @cached_property
    def many(self) -> int:
        """Number of elements that differ, or of those that are not finite."""
        return int(np.count_nonzero(self.steps))

    @cached_property
    def largest(self) -> tuple[int, ...]:
        """Index of the largest difference."""
        if not self.steps.size:
            return ()
        return tuple(int(k) for k in np.unravel_index(int(self.steps.argmax()), self.steps.shape))

    @cached_property
    def histogram(self) -> list[tuple[str, int]]:
        """Counts of elements: equal, 1–9 steps apart, 10–99, …, not finite; without those that are zero."""
        counts = np.bincount(_digits(self.steps).ravel(), minlength=_DIGITS + 2).tolist()
        names = ["equal", "1–9", *(f"10^{k}–" for k in range(1, _DIGITS)), "not finite"]
        return [(name, many) for name, many in zip(names, counts, strict=True) if many]

    @property
    def planes(self) -> list[tuple[int, int]]:
        """The pairs of dimensions over which there are grids, the last two first; a vector has one row."""
        n = len(self.shape)
        if n < 2:
            return [(-1, n - 1)]
        pairs = [(i, j) for j in range(n - 1, 0, -1) for i in range(j - 1, -1, -1)]
        return [pair for pair in pairs if self.shape[pair[0]] > 1 or self.shape[pair[1]] > 1] or pairs[:1]

    def grid(self, plane: tuple[int, int], rows: int, columns: int) -> Grid:
        """Return the grid over two dimensions in at most so many rows and columns."""
        flat = self._over(plane)
        starts = [_starts(size, most) for size, most in zip(flat.shape, (rows, columns), strict=True)]
        if not flat.size:
            return Grid(np.zeros((0, 0), np.int8), *starts)
        cells = np.maximum.reduceat(np.maximum.reduceat(flat, starts[0], axis=0), starts[1], axis=1)
        return Grid(_digits(cells), *starts)

    def within(self, plane: tuple[int, int], grid: Grid, cell: tuple[int, int]) -> tuple[int, ...]:
        """Return the index of the farthest element of a cell."""
        spans = [
            slice(int(starts[k]), int(starts[k + 1]) if k + 1 < len(starts) else None)
            for k, starts in zip(cell, (grid.row_starts, grid.column_starts), strict=True)
        ]
        at = tuple(spans[plane.index(dim)] if dim in plane else slice(None) for dim in range(len(self.shape)))
        part = self.steps[at]
        found = np.unravel_index(int(part.argmax()), part.shape)
        return tuple(int(k) + (part_of.start or 0) for k, part_of in zip(found, at, strict=True))

    def cell_of(self, plane: tuple[int, int], grid: Grid, index: tuple[int, ...]) -> tuple[int, int]:
        """Return the cell of an element."""
        places = [0 if dim < 0 else index[dim] for dim in plane]
        starts = (grid.row_starts, grid.column_starts)
        row, column = (int(np.searchsorted(s, at, "right")) - 1 for s, at in zip(starts, places, strict=True))
        return row, column

    def element(self, index: tuple[int, ...]) -> list[tuple[str, str]]:
        """Return value and bits (hexadecimal) of an element on each side."""
        sides = [self.a] if self.b is None else [self.a, self.b]
        return [_element(side, index) for side in sides]

    def _over(self, plane: tuple[int, int]) -> Int64:
        """Return the largest steps over two dimensions, int64[rows, columns]."""
        if plane[0] < 0:
            return self.steps.reshape(1, -1)
        others = tuple(dim for dim in range(self.steps.ndim) if dim not in plane)
        if not self.steps.size:
            return np.zeros((0, 0), np.int64)
        found: Int64 = self.steps.max(axis=others) if others else self.steps
        return found


def _element(tensor: Tensor, index: tuple[int, ...]) -> tuple[str, str]:
    value = (tensor.bits if tensor.values is None else tensor.values)[index]
    return str(value), f"{int(tensor.bits[index]):0{2 * tensor.bits.dtype.itemsize}x}"


def _steps(a: Tensor, b: Tensor | None) -> Int64:
    if b is None:
        finite = np.isfinite(a.values) if a.is_float and a.values is not None else np.ones(a.bits.shape, bool)
        return np.where(finite, 0, NOT_FINITE)
    if a.values is not None and b.values is not None and a.values.dtype.kind in "iub":
        apart = np.abs(a.values.astype(np.int64) - b.values.astype(np.int64))
    else:
        apart = np.abs(a.ordered - b.ordered)
    steps = np.where(a.bits == b.bits, 0, np.maximum(apart, 1))
    if a.is_float and a.values is not None and b.values is not None:
        odd = ~(np.isfinite(a.values) & np.isfinite(b.values)) & (steps > 0)
        steps[odd] = NOT_FINITE
    return steps


def _digits(steps: Int64) -> Any:
    found = np.minimum(np.searchsorted(_DECADES, steps, "right"), _DIGITS).astype(np.int8)
    return np.where(steps == NOT_FINITE, np.int8(_DIGITS + 1), found)


def _starts(size: int, most: int) -> Int64:
    return np.unique(np.linspace(0, size, max(min(size, most), 1), endpoint=False).astype(np.int64))
