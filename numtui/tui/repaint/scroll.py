"""Scroll lines already on the screen with the terminal's own scroll region."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from numtui.tui.repaint.cells import Cells, changes

__all__ = ["Scroll", "scroll_between"]

_MAX_SCROLL = 3
"""Lines that a list scrolls when the cursor steps over its edge."""
_EDGE = 2
"""Cells on the right that may stay: the map of the run, beside a scrolling list."""
_MAX_BETWEEN = 3
"""Lines that change between lines that scroll: those that the cursor leaves and enters."""
_MIN_GAIN = 200
"""Minimum number of saved cells for a scroll."""


@dataclass(frozen=True, slots=True)
class Scroll:
    """Scroll of the lines `first` to `last` up by `by` lines (down if negative); blank ones follow."""

    first: int
    last: int
    by: int

    @property
    def codes(self) -> str:
        """Return the escape codes of the scroll; the cursor position is undefined afterwards."""
        edge, step = (self.last, "\x1bD") if self.by > 0 else (self.first, "\x1bM")
        return f"\x1b[{self.first + 1};{self.last + 1}r\x1b[{edge + 1}H{step * abs(self.by)}\x1b[r"

    def of(self, lines: Sequence[Cells]) -> list[Cells]:
        """Return the screen after the scroll."""
        moved = [lines[y] for y in range(self.first, self.last + 1)]
        blank: list[Cells] = [[(" ", None)] * len(moved[0]) for _ in range(abs(self.by))]
        moved = [*moved[self.by :], *blank] if self.by > 0 else [*blank, *moved[: self.by]]
        return [*lines[: self.first], *moved, *lines[self.last + 1 :]]


def scroll_between(before: Sequence[Cells], after: Sequence[Cells]) -> Scroll | None:
    """Return the scroll that leaves least to write, None where none pays. All lines have one length."""
    if _to_write(before, after) < _MIN_GAIN:
        return None
    found = [scroll for by in range(-_MAX_SCROLL, _MAX_SCROLL + 1) if by for scroll in _by(before, after, by)]
    least = min(found, key=lambda scroll: _to_write(scroll.of(before), after), default=None)
    if least is None or _to_write(before, after) - _to_write(least.of(before), after) < _MIN_GAIN:
        return None
    return least


def _by(before: Sequence[Cells], after: Sequence[Cells], by: int) -> Iterator[Scroll]:
    """Yield the scrolls of stretches of lines that each brings to their new places, but for few between them."""
    moved = [
        y
        for y in range(max(-by, 0), len(after) - max(by, 0))
        if after[y] is not before[y] and after[y][:-_EDGE] == before[y + by][:-_EDGE] != before[y][:-_EDGE]
    ]
    starts = [i for i, y in enumerate(moved) if not i or y - moved[i - 1] > _MAX_BETWEEN]
    for first, end in pairwise([*starts, len(moved)]):
        yield Scroll(min(moved[first], moved[first] + by), max(moved[end - 1], moved[end - 1] + by), by)


def _to_write(before: Sequence[Cells], after: Sequence[Cells]) -> int:
    return sum(len(changes(old, new)) for old, new in zip(before, after, strict=True) if old is not new)
