"""Write pieces of text to any place of the screen in few bytes.

The pen tracks the cursor and the style: it makes the shortest move, keeps its style until another is needed, and erases
long blanks.
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

__all__ = ["Pen", "Run", "drawn", "fewest_runs", "runs_between"]

_GAP = 4
"""Equal cells between two differing ones that are sent again: as cheap as a jump."""


@dataclass(frozen=True, slots=True)
class Run:
    """Text in one style, and its first cell."""

    x: int
    y: int
    text: str
    style: Style | None


def runs_between(x: int, y: int, before: Cells | None, after: Cells) -> Iterator[Run]:
    """Yield the runs that turn a stretch of line `y`, from cell `x` on, into another of the same length.

    Args:
        before: the cells before; None where unknown.
    """
    if before is None and after.count(_BLANK) == len(after):
        yield Run(x, y, " " * len(after), None)
        return
    changed: Sequence[int] = range(len(after)) if before is None else changes(before, after)
    start = end = 0
    look: _Look = (None, True)
    for at in changed:
        cell = after[at]
        if start < at == end and cell[1] is look[0] and (not look[1] or cell == _BLANK):
            end += 1  # as most are
            continue
        if start < end and at - end <= _GAP and (longer := _look_with(look, after[end : at + 1])) is not None:
            look = longer
        else:
            if start < end:
                yield Run(x + start, y, _text(after[start:end]), look[0])
            start, look = at, (cell[1], cell == _BLANK)
        end = at + 1
    if start < end:
        yield Run(x + start, y, _text(after[start:end]), look[0])


def fewest_runs(y: int, before: Cells, after: Cells) -> list[Run]:
    """Return the runs that turn line `y` into another of the same length.

    Where several stretches become blank, all from the first to the last is erased at once if that takes fewer bytes.
    """
    runs = list(runs_between(0, y, before, after))
    emptied = [x for x, (old, new) in enumerate(zip(before, after, strict=True)) if new == _BLANK != old]
    if not emptied or len(emptied) == emptied[-1] - emptied[0] + 1:
        return runs
    start, end = emptied[0], emptied[-1] + 1
    while start and before[start - 1] != after[start - 1]:
        start -= 1  # writing begins where the cursor then is
    erased = [*before[:start], *[_BLANK] * (end - start), *before[end:]]
    # Erasing half of a wide character leaves a blank.
    for half, other in ((start, start - 1), (end, end)):
        if 0 < half < len(before) and not before[half][0]:
            erased[other] = _BLANK
    at_once = [Run(start, y, " " * (end - start), None), *runs_between(0, y, erased, after)]
    return min(runs, at_once, key=lambda made: len(Pen(len(after), None).write(made)))


_BLANK: Cell = (" ", None)
_Look = tuple["Style | None", bool]
"""Style of some cells, and True when all are plain blanks, which look the same in most styles."""


def _look_with(look: _Look, cells: Cells) -> _Look | None:
    """Extend a look to the following cells; None where they need another style."""
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
    """Return the bytes that draw runs on a terminal of `width` cells; its style is plain before and after.

    Only a plain run may lie below later ones: it is drawn before them in any case.
    """
    colors = console._color_system  # noqa: SLF001 - as Textual itself does
    rank = {style: number for number, style in enumerate(dict.fromkeys([None, *(run.style for run in runs)]))}
    by_style = sorted(runs, key=lambda run: rank[run.style])
    return min((Pen(width, colors).write(order) for order in (runs, by_style)), key=len)


class Pen:
    """Cursor position and style of the terminal."""

    def __init__(self, width: int, colors: ColorSystem | None) -> None:
        self._width = width
        self._colors = colors
        self._at = (-1, -1)
        """Expected position of the cursor; (-1, -1) where unknown."""
        self._sure = False
        """False behind characters that take one cell on some terminals and two on others."""
        self._codes = ""
        self._out: list[str] = []

    def write(self, runs: Iterable[Run]) -> str:
        """Return the bytes for some runs."""
        for run in runs:
            if run.style is not None and run.style.link:
                self._wear("")
                self._put(run.x, run.y, run.text, run.style.render(run.text, color_system=self._colors))
                continue
            self._wear(_codes(run.style, self._colors))
            erasable = run.style is None or not shows_on_blank(run.style)
            x = run.x
            for piece in _LONG_BLANK.split(run.text) if erasable else (run.text,):
                # The pieces between the matches are included, and can be empty.
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
        """Return the code that erases `count` cells; empty where blanks are shorter."""
        erased = "\x1b[K" if x + count == self._width else f"\x1b[{count}X"
        # Erasing does not move the cursor: the next piece needs a move.
        return erased if len(erased) + (0 if last else 5) < count else ""

    def _put(self, x: int, y: int, text: str, written: str) -> None:
        self._go(x, y)
        self._out.append(written)
        x += cell_len(text)
        # Behind the last cell, a terminal may be on this line or the next.
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
    """Return the SGR numbers of a style; empty for plain."""
    found = re.match(r"\x1b\[([\d;]+)m", style.render("x", color_system=colors)) if style is not None else None
    return found[1] if found is not None else ""
