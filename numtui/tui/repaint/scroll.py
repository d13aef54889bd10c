"""Lines that are on the screen already, a few lines further up or down: the terminal moves them by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from numtui.tui.repaint.cells import Cells, changes

__all__ = ["Scroll", "scroll_between"]

_MAX_SCROLL = 3
"""Lines that a list is moved by when the cursor steps over its edge."""
_EDGE = 3
"""Cells at the left that may stay where they are: the map of the run, beside a list that moves."""
_MIN_GAIN = 200
"""Cells less to be written for which it is worth the while."""


@dataclass(frozen=True, slots=True)
class Scroll:
    """The lines from `first` to `last` go up by `by` lines, or down where that is negative; blank ones follow them."""

    first: int
    last: int
    by: int

    @property
    def codes(self) -> str:
        """What makes a terminal do it; the cursor is somewhere afterwards."""
        edge, step = (self.last, "\x1bD") if self.by > 0 else (self.first, "\x1bM")
        return f"\x1b[{self.first + 1};{self.last + 1}r\x1b[{edge + 1}H{step * abs(self.by)}\x1b[r"

    def of(self, lines: Sequence[Cells]) -> list[Cells]:
        """The screen afterwards."""
        moved = [lines[y] for y in range(self.first, self.last + 1)]
        blank: list[Cells] = [[(" ", None)] * len(moved[0]) for _ in range(abs(self.by))]
        moved = [*moved[self.by :], *blank] if self.by > 0 else [*blank, *moved[: self.by]]
        return [*lines[: self.first], *moved, *lines[self.last + 1 :]]


def scroll_between(before: Sequence[Cells], after: Sequence[Cells]) -> Scroll | None:
    """The scroll that leaves least to be written; None where none is worth the while. All lines are of one length."""
    if _to_write(before, after) < _MIN_GAIN:
        return None
    found = [
        scroll for by in range(-_MAX_SCROLL, _MAX_SCROLL + 1) if by and (scroll := _by(before, after, by)) is not None
    ]
    least = min(found, key=lambda scroll: _to_write(scroll.of(before), after), default=None)
    if least is None or _to_write(before, after) - _to_write(least.of(before), after) < _MIN_GAIN:
        return None
    return least


def _by(before: Sequence[Cells], after: Sequence[Cells], by: int) -> Scroll | None:
    """From the first to the last line that this scroll would bring to its place, and was not there."""
    moved = [
        y
        for y in range(max(-by, 0), len(after) - max(by, 0))
        if after[y] is not before[y] and after[y][_EDGE:] == before[y + by][_EDGE:] != before[y][_EDGE:]
    ]
    return Scroll(min(moved[0], moved[0] + by), max(moved[-1], moved[-1] + by), by) if moved else None


def _to_write(before: Sequence[Cells], after: Sequence[Cells]) -> int:
    return sum(len(changes(old, new)) for old, new in zip(before, after, strict=True) if old is not new)
