"""Character plot of the error of every row over its place in the step.

Logarithmic upwards, dispatch order to the right: forward, backward, optimizer. A terminal cell holds eight points with
braille dots, one in plain ASCII. Works on whole arrays: a million rows take tens of milliseconds, and moving the cursor
redraws nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int64
from matchers.comparison import Comparison
from matchers.logs.op_log import Phase
from matchers.status import Status
from numtui.text.lines import Line

__all__ = ["ASCII", "AXIS", "BRAILLE", "MARGIN", "Plot", "Signs"]

AXIS = 7
"""Cells of the labels on the left."""

MARGIN = 4
"""Lines besides the plot itself: infinities, equal rows, axis, phases."""

Chars = NDArray[np.str_]

_ROLES = ("", "dim", "close", "red", "cause", "alone", "chosen")
_PLAIN, _DIM, _CLOSE, _RED, _CAUSE, _ALONE, _CHOSEN = range(len(_ROLES))

_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
"""The bits of a braille character, by line and column of the dot."""


@dataclass(frozen=True, slots=True)
class Signs:
    """Characters of the plot. `dots`: lines and columns of points in a cell."""

    dots: tuple[int, int]
    cause: str
    limit: str
    bar: str
    axis: str
    corner: str
    tick: str
    cursor: str
    only_a: str
    only_b: str
    equal: str
    infinite: str


BRAILLE = Signs((4, 2), "●", "┄", "│", "─", "└", "┤", "▲", "◀", "▶", "·", "∞")
ASCII = Signs((1, 1), "@", "-", "|", "-", "+", "+", "^", "<", ">", ".", "!")


class Plot:
    """Plot of the rows from `first` to `last` (exclusive) in `width` × `height` cells without axis and margin.

    Args:
        passing: bool[r], the rows to draw.
    """

    def __init__(
        self, c: Comparison, passing: Bool, first: int, last: int, width: int, height: int, signs: Signs = BRAILLE
    ) -> None:
        self.comparison = c
        self.first, self.last = first, last
        self.width, self.height = max(width, 1), max(height, 1)
        self._signs = signs
        self._rows = first + np.flatnonzero(passing[first:last])
        self._error = c.error[self._rows]

    def prepare(self) -> None:
        """Compute now everything that is slow for many rows."""
        _ = self.scale, self.worst, self._cells

    # -- positions of rows

    def column(self, row: int) -> int:
        """Return the column of a row, possibly outside the plot."""
        return (row - self.first) * self.width // max(self.last - self.first, 1)

    def _place(self, rows: Int64, columns: int) -> Int64:
        return np.asarray((rows - self.first) * columns // max(self.last - self.first, 1))

    @cached_property
    def scale(self) -> tuple[int, int]:
        """Exponents of ten at bottom and top; over all rows, so that zooming keeps them."""
        c = self.comparison
        with np.errstate(invalid="ignore"):
            known = np.concatenate([x[(x > 0) & np.isfinite(x)] for x in (c.error, c.tolerance)])
        if not len(known):
            return -8, 0
        low, high = int(np.floor(np.log10(known.min()))), int(np.ceil(np.log10(known.max())))
        return low, max(high, low + 1)

    def _level(self, size: Float64, levels: int) -> Int64:
        """Return the line for each size, counted from the top of `levels` lines."""
        low, high = self.scale
        up = (np.log10(size) - low) / (high - low) * levels
        return levels - 1 - np.clip(up.astype(np.int64), 0, levels - 1)

    @cached_property
    def worst(self) -> dict[int, int]:
        """The worst row of each column: a first cause, else the largest error."""
        c, rows = self.comparison, self._rows
        weight = np.where(c.cause[rows], np.inf, np.nan_to_num(self._error, nan=-1.0, posinf=1e300))
        seen = weight > 0
        rows, weight = rows[seen], weight[seen]
        column = self._place(rows, self.width)
        order = np.lexsort((-rows, weight, column))
        last = np.flatnonzero(np.diff(column[order], append=-1))
        return dict(zip(column[order][last].tolist(), rows[order][last].tolist(), strict=True))

    def beside(self, row: int, by: int) -> int:
        """Return the worst row of the next non-empty column to the right (`by` 1) or left (-1), else `row`."""
        columns = np.array(sorted(self.worst))
        at = self.column(row)
        beyond = columns[columns > at] if by > 0 else columns[columns < at][::-1]
        return self.worst[int(beyond[min(abs(by), len(beyond)) - 1])] if len(beyond) else row

    # -- drawing

    def lines(self, cursor: int) -> list[Line]:
        """Draw the plot with its axes; `cursor` is the marked row."""
        s = self._signs
        chars, roles = self._cells[0].copy(), self._cells[1].copy()
        x = self.column(cursor)
        if 0 <= x < self.width:
            roles[self._line_of(cursor), x] = _CHOSEN
        labels = self._labels()
        out = [[(label, "dim"), *_pieces(chars[y], roles[y])] for y, label in enumerate(labels)]
        axis = np.full(self.width, s.axis)
        if 0 <= x < self.width:
            axis[x] = s.cursor
        out.append([(" " * (AXIS - 1) + s.corner, "dim"), ("".join(axis), "dim")])
        out.append([(" " * AXIS, ""), (self._parts(), "dim")])
        return out

    def _line_of(self, row: int) -> int:
        """Return the line of a row: the first is for infinities, the last for rows without an error."""
        error = float(self.comparison.error[row])
        if np.isinf(error):
            return 0
        if not error > 0:
            return self.height + 1
        return 1 + int(self._level(np.array([error]), self.height)[0])

    @cached_property
    def _cells(self) -> tuple[Chars, NDArray[np.int8]]:
        """Characters and roles of all cells: a line for infinities, the plot, a line for rows without an error."""
        chars = np.full((self.height + 2, self.width), " ")
        roles = np.full(chars.shape, _PLAIN, np.int8)
        for start, _, _ in self._segments[1:]:
            chars[1:-1, start] = self._signs.bar
            roles[1:-1, start] = _DIM
        self._draw_limit(chars, roles)
        self._draw_points(chars[1:-1], roles[1:-1])
        self._draw_edges(chars, roles)
        return chars, roles

    def _draw_limit(self, chars: Chars, roles: NDArray[np.int8]) -> None:
        """Draw the tolerance: the mean of each column, on the logarithmic scale."""
        limit = self.comparison.tolerance[self._rows]
        with np.errstate(invalid="ignore"):
            known = limit > 0
        column = self._place(self._rows[known], self.width)
        count = np.bincount(column, minlength=self.width)
        total = np.bincount(column, np.log10(limit[known]), minlength=self.width)
        has = np.flatnonzero(count)
        y = 1 + self._level(10.0 ** (total[has] / count[has]), self.height)
        chars[y, has], roles[y, has] = self._signs.limit, _DIM

    def _draw_points(self, chars: Chars, roles: NDArray[np.int8]) -> None:
        c, (tall, wide) = self.comparison, self._signs.dots
        with np.errstate(invalid="ignore"):
            seen = (self._error > 0) & np.isfinite(self._error)
        rows = self._rows[seen]
        x = self._place(rows, self.width * wide)
        y = self._level(self._error[seen], self.height * tall)
        cell = y // tall, x // wide
        roles[cell] = _DIM
        # Worst last, because a cell has one colour.
        for role, which in ((_CLOSE, c.status[rows] == Status.CLOSE), (_RED, c.red[rows])):
            roles[y[which] // tall, x[which] // wide] = role
        if self._signs is BRAILLE:
            dots = np.zeros((self.height * tall, self.width * wide), np.int64)
            dots[y, x] = 1
            code = (dots.reshape(self.height, tall, self.width, wide) * _DOTS[None, :, None, :]).sum(axis=(1, 3))
            drawn = code > 0
            chars[drawn] = np.array([chr(0x2800 + k) for k in code[drawn].tolist()], chars.dtype)
        else:
            chars[cell] = np.array([" ", ".", "+", "#"])[roles[cell]]

    def _draw_edges(self, chars: Chars, roles: NDArray[np.int8]) -> None:
        """Draw first causes, infinities, and below the plot the rows without an error."""
        c, s, rows = self.comparison, self._signs, self._rows
        column = self._place(rows, self.width)
        for status, sign, role in (
            (self._error == 0, s.equal, _DIM),
            (c.status[rows] == Status.ONLY_A, s.only_a, _ALONE),
            (c.status[rows] == Status.ONLY_B, s.only_b, _ALONE),
        ):
            chars[-1, column[status]], roles[-1, column[status]] = sign, role
        infinite = column[np.isinf(self._error)]
        chars[0, infinite], roles[0, infinite] = s.infinite, _RED
        for row in rows[c.cause[rows]].tolist():
            y, x = self._line_of(row), self.column(row)
            chars[y, x], roles[y, x] = s.cause, _CAUSE

    def _labels(self) -> list[str]:
        """Return the label on the left of each line."""
        s, (low, high) = self._signs, self.scale
        labels = [" " * (AXIS - 1) + s.bar] * (self.height + 2)
        last = -2
        for power in range(high, low - 1, -1):
            y = 1 + int(self._level(np.array([10.0**power]), self.height)[0])
            if y - last >= 2:
                labels[y] = f"1e{power:+03d}".rjust(AXIS - 1) + s.tick
                last = y
        if np.isinf(self._error).any():
            labels[0] = s.infinite.rjust(AXIS - 1) + s.bar
        labels[-1] = "0".rjust(AXIS - 1) + s.bar
        return labels

    @cached_property
    def _segments(self) -> list[tuple[int, int, str]]:
        """(first column, end column, name) of each phase."""
        c = self.comparison
        rows = np.arange(self.first, self.last)
        if not len(rows):
            return []
        a, b = c.row_a[rows], c.row_b[rows]
        # The extra entry serves record -1.
        phase = np.where(a >= 0, np.append(c.a.phase, 0)[a], np.append(c.b.phase, 0)[b]).astype(np.int64)
        code = self._place(rows, self.width) * len(Phase) + phase
        count = np.bincount(code, minlength=self.width * len(Phase)).reshape(self.width, len(Phase))
        column = np.flatnonzero(count.any(axis=1))
        # The majority phase around each column: a few operations of another phase do not split it.
        around = np.ones(max(self.width // 30, 1) | 1)
        count = np.apply_along_axis(np.convolve, 0, count, around, "same")
        most = count[column].argmax(axis=1)
        start = np.flatnonzero(np.diff(most, prepend=-1))
        edges = [*column[start].tolist(), self.width]
        names = [Phase(phase).label for phase in most[start].tolist()]
        return [(x, end, name) for (x, end), name in zip(pairwise(edges), names, strict=True)]

    def _parts(self) -> str:
        """Return the phase names, each where it begins, as far as there is room."""
        text = ""
        for start, end, name in self._segments:
            if end - start >= 4 and start >= len(text):
                text = text.ljust(start) + name[: end - start - 1] + " "
        return text


def _pieces(chars: Chars, roles: NDArray[np.int8]) -> Line:
    """Join neighbouring cells of one role into pieces."""
    edges = [0, *(np.flatnonzero(np.diff(roles)) + 1).tolist(), len(roles)]
    return [("".join(chars[i:j]), _ROLES[roles[i]]) for i, j in pairwise(edges)]
