"""Lines of the screen cell by cell, so that two of them can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import repeat
from operator import ne

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

__all__ = ["Cell", "Cells", "cells_of", "changes", "shows_on_blank"]

Cell = tuple[str, "Style | None"]
"""The character that a cell shows and how; none in the second cell of a wide one. Plain is None, and so is how a blank
is shown where that cannot be seen.
"""

Cells = list[Cell]


def cells_of(segments: Iterable[Segment]) -> Cells:
    """Text with styles, cell by cell."""
    cells: Cells = []
    for text, given, _ in segments:
        style = _look(given) if given else None
        if text.isascii():
            cells += zip(text, repeat(style))
        else:
            for character in text:
                wide = cell_len(character)
                if wide == 0 and cells:
                    # It is drawn in the cell of the one before it.
                    cells[-1] = (cells[-1][0] + character, cells[-1][1])
                cells += [(character if part == 0 else "", style) for part in range(wide)]
        if style is not None and " " in text and not shows_on_blank(style):
            start = len(cells) - cell_len(text)
            cells[start:] = [_BLANK if cell[0] == " " else cell for cell in cells[start:]]
    return cells


_BLANK: Cell = (" ", None)


def changes(before: Cells, after: Cells) -> list[int]:
    """The cells that differ, of two lines of the same length."""
    return [x for x, differs in enumerate(map(ne, before, after)) if differs]


@lru_cache(maxsize=1024)
def _look(style: Style) -> Style | None:
    """Without the terminal's own colours, which Textual names under a page and not elsewhere."""
    named = [None if color is None or color.is_default else color for color in (style.color, style.bgcolor)]
    bare = style if named == [style.color, style.bgcolor] else style.without_color + Style.from_color(*named)
    return None if bare == Style.null() else bare


@lru_cache(maxsize=1024)
def shows_on_blank(style: Style) -> bool:
    """Whether a blank looks other in this style than without."""
    lines = (style.underline, style.underline2, style.overline, style.strike, style.frame, style.encircle)
    return bool(style.reverse or style.link or any(lines)) or style.bgcolor is not None
