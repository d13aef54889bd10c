"""Screen lines as cells, for comparison."""

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
"""Character and style of a cell; no character in the second cell of a wide one. None is the plain style, and the style
of a blank where it cannot be seen.
"""

Cells = list[Cell]


def cells_of(segments: Iterable[Segment]) -> Cells:
    """Split styled text into cells."""
    cells: Cells = []
    for text, given, _ in segments:
        style = _look(given) if given else None
        if text.isascii():
            cells += zip(text, repeat(style))
        else:
            for character in text:
                wide = cell_len(character)
                if wide == 0 and cells:
                    # A zero-width character is drawn in the cell before it.
                    cells[-1] = (cells[-1][0] + character, cells[-1][1])
                cells += [(character if part == 0 else "", style) for part in range(wide)]
        if style is not None and " " in text and not shows_on_blank(style):
            start = len(cells) - cell_len(text)
            cells[start:] = [_BLANK if cell[0] == " " else cell for cell in cells[start:]]
    return cells


_BLANK: Cell = (" ", None)


def changes(before: Cells, after: Cells) -> list[int]:
    """Return the differing cells of two lines of the same length."""
    return [x for x, differs in enumerate(map(ne, before, after)) if differs]


@lru_cache(maxsize=1024)
def _look(style: Style) -> Style | None:
    """Drop the terminal's default colours, which Textual names under a page and not elsewhere."""
    named = [None if color is None or color.is_default else color for color in (style.color, style.bgcolor)]
    bare = style if named == [style.color, style.bgcolor] else style.without_color + Style.from_color(*named)
    return None if bare == Style.null() else bare


@lru_cache(maxsize=1024)
def shows_on_blank(style: Style) -> bool:
    """True when the style is visible on a blank."""
    lines = (style.underline, style.underline2, style.overline, style.strike, style.frame, style.encircle)
    return bool(style.reverse or style.link or any(lines)) or style.bgcolor is not None
