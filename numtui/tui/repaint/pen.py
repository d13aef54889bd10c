"""Writing pieces of text all over a screen in few bytes.

The pen knows where the cursor is and how it writes: it moves on by as many cells as need be, keeps its style until
another one is needed, and erases long blanks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.style import Style

from numtui.tui.repaint.cells import Cell, Cells, changes, shows_on_blank

if TYPE_CHECKING:
    from rich.color import ColorSystem
    from rich.console import Console

__all__ = ["Pen", "Run", "drawn", "runs_between"]

_GAP = 4
"""Cells that agree between two that do not: so few cost no more to send again than to jump over."""


@dataclass(frozen=True, slots=True)
class Run:
    """Text in one style, and the cell where it begins."""

    x: int
    y: int
    text: str
    style: Style | None


def runs_between(x: int, y: int, before: Cells | None, after: Cells) -> Iterator[Run]:
    """What turns a stretch of line `y`, which begins at cell `x`, into another one of the same length.

    Args:
        before: how it was; None: nobody knows.
    """
    changed: Sequence[int] = range(len(after)) if before is None else changes(before, after)
    start = end = 0
    look: _Look = (None, True)
    for at in changed:
        if start < end and at - end <= _GAP and (longer := _look_with(look, after[end : at + 1])) is not None:
            look = longer
        else:
            if start < end:
                yield Run(x + start, y, _text(after[start:end]), look[0])
            start, look = at, (after[at][1], after[at] == _BLANK)
        end = at + 1
    if start < end:
        yield Run(x + start, y, _text(after[start:end]), look[0])


_BLANK: Cell = (" ", None)
_Look = tuple["Style | None", bool]
"""The style of some cells, and whether all of them are plain blanks, which look the same in most styles."""


def _look_with(look: _Look, cells: Cells) -> _Look | None:
    """Of some cells and those behind them; None where they cannot be written in one style."""
    style, blank = look
    for text, other in cells:
        if (text, other) == _BLANK:
            if style is not None and shows_on_blank(style):
                return None
        elif blank and not (other is not None and shows_on_blank(other)):
            style, blank = other, False
        elif blank or (style is not other and style != other):
            return None
    return style, blank


def _text(cells: Cells) -> str:
    return "".join(text for text, _ in cells)


def drawn(runs: Sequence[Run], width: int, console: Console) -> str:
    """The bytes that draw some runs, which do not overlap, on a terminal of `width` cells that writes plainly; it does
    so afterwards.
    """
    colors = console._color_system  # noqa: SLF001 - what Textual itself asks
    rank = {style: number for number, style in enumerate(dict.fromkeys([None, *(run.style for run in runs)]))}
    by_style = sorted(runs, key=lambda run: rank[run.style])
    return min((Pen(width, colors).write(order) for order in (runs, by_style)), key=len)


class Pen:
    """Where the cursor is, and how it writes."""

    def __init__(self, width: int, colors: ColorSystem | None) -> None:
        self._width = width
        self._colors = colors
        self._at = (-1, -1)
        """Where the cursor is supposed to be; (-1, -1): nobody knows."""
        self._sure = False
        """Not behind signs that some terminals show in one cell and others in two."""
        self._codes = ""
        self._out: list[str] = []

    def write(self, runs: Iterable[Run]) -> str:
        """What is to be sent for some runs."""
        for run in runs:
            if run.style is not None and run.style.link:
                self._wear("")
                self._put(run.x, run.y, run.text, run.style.render(run.text, color_system=self._colors))
                continue
            self._wear(_codes(run.style, self._colors))
            erasable = run.style is None or not shows_on_blank(run.style)
            x = run.x
            for piece in _LONG_BLANK.split(run.text) if erasable else (run.text,):
                # The pieces between those that are matched come with them, and can be empty.
                if piece:
                    last = x + len(piece) == run.x + cell_len(run.text)
                    if erasable and piece.isspace() and (erased := self._erasing(x, len(piece), last)):
                        self._go(x, run.y)
                        self._out.append(erased)
                    else:
                        self._put(x, run.y, piece, piece)
                    x += cell_len(piece)
        self._wear("")
        return "".join(self._out)

    def _erasing(self, x: int, count: int, last: bool) -> str:
        """What erases so many cells; empty where it is shorter to write blanks."""
        erased = "\x1b[K" if x + count == self._width else f"\x1b[{count}X"
        # Erasing moves nothing: what follows has to be gone to.
        return erased if len(erased) + (0 if last else 5) < count else ""

    def _put(self, x: int, y: int, text: str, written: str) -> None:
        self._go(x, y)
        self._out.append(written)
        x += cell_len(text)
        # Behind the last cell, a terminal may be on that line or on the next.
        self._at = (x, y) if x < self._width else (-1, -1)
        self._sure = self._sure and text.isascii()

    def _go(self, x: int, y: int) -> None:
        if self._at == (x, y):
            return
        there = f"\x1b[{y + 1};{x + 1}H" if x else f"\x1b[{y + 1 if y else ''}H"
        by = x - self._at[0]
        if self._sure and self._at[1] == y and by > 0:
            on = f"\x1b[{by}C" if by > 1 else "\x1b[C"
            self._out.append(min(on, there, key=len))
        else:
            self._out.append(there)
            self._sure = True
        self._at = (x, y)

    def _wear(self, codes: str) -> None:
        if codes != self._codes:
            self._out.append(f"\x1b[{'0;' if self._codes and codes else ''}{codes}m")
            self._codes = codes


_LONG_BLANK = re.compile("( {4,})")


@lru_cache(maxsize=1024)
def _codes(style: Style | None, colors: ColorSystem | None) -> str:
    """The numbers that switch a style on; empty for plain."""
    found = re.match(r"\x1b\[([\d;]+)m", style.render("x", color_system=colors)) if style is not None else None
    return found[1] if found is not None else ""
