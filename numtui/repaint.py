"""What is sent to the terminal: only cells that it does not show already.

Textual redraws whole widgets, and all of the screen when a page over it is opened or closed. Over a slow connection
bytes are time: what was sent is remembered, and what is to be drawn is compared with it, cell by cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from rich.control import Control
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.strip import Strip

from numtui.widgets.lines import differences

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["Shown"]


class Shown:
    """What the terminal shows, as far as it is known."""

    def __init__(self) -> None:
        self._lines: list[Strip] | None = None

    def forget(self) -> None:
        """Somebody else may have written to the terminal: send everything the next time that all is drawn."""
        self._lines = None

    def tightened(self, drawn: RenderableType | None) -> RenderableType | None:
        """What Textual is about to draw, without the cells that are on the screen already."""
        if isinstance(drawn, ChopsUpdate):
            return _Part(drawn, self)
        if isinstance(drawn, LayoutUpdate):
            return _Whole(drawn, self)
        if drawn is not None:
            self.forget()
        return drawn

    def replace(self, lines: list[Strip], console: Console) -> str | None:
        """Show these lines and no others: what has to be sent, None where that is everything."""
        old, self._lines = self._lines, lines
        if old is None or [line.cell_length for line in old] != [line.cell_length for line in lines]:
            return None
        return "".join(
            text
            for y, (before, after) in enumerate(zip(old, lines, strict=True))
            for text in _changed(0, y, before, after, console)
        )

    def put(self, x: int, y: int, strip: Strip, console: Console) -> Iterator[str]:
        """Show a stretch of a line: what has to be sent."""
        strip = _plain(strip)
        if self._lines is None or y >= len(self._lines):
            yield Control.move_to(x, y).segment.text
            yield from _written(strip, console)
            return
        line, end = self._lines[y], x + strip.cell_length
        yield from _changed(x, y, line.crop(x, end), strip, console)
        self._lines[y] = Strip.join([line.crop(0, x), strip, line.crop(end)])


class _Part(ChopsUpdate):
    """Some stretches of some lines."""

    def __init__(self, drawn: ChopsUpdate, shown: Shown) -> None:
        super().__init__(drawn.chops, drawn.spans, drawn.chop_ends)
        self._shown = shown

    def render_segments(self, console: Console) -> str:
        """What is sent; Textual asks for it exactly when it sends it."""
        written: list[str] = []
        for y, x1, x2 in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                start, stop = max(x, x1), min(end, x2)
                if strip is not None and start < stop:
                    written += self._shown.put(start, y, strip.crop(start - x, stop - x), console)
        return "".join(written)


class _Whole(LayoutUpdate):
    """All of the screen."""

    def __init__(self, drawn: LayoutUpdate, shown: Shown) -> None:
        super().__init__([[_plain(Strip.join(list(strips)))] for strips in drawn.strips], drawn.region)
        self._shown = shown

    def render_segments(self, console: Console) -> str:
        """As that of a part."""
        sent = self._shown.replace([line for (line,) in self.strips], console)
        return super().render_segments(console) if sent is None else sent


def _plain(strip: Strip) -> Strip:
    """Without the terminal's own colours, which Textual names under a page and not elsewhere."""
    return Strip([Segment(text, style and _without_default(style)) for text, style, _ in strip], strip.cell_length)


@lru_cache(maxsize=1024)
def _without_default(style: Style) -> Style | None:
    named = [None if color is None or color.is_default else color for color in (style.color, style.bgcolor)]
    bare = style if named == [style.color, style.bgcolor] else style.without_color + Style.from_color(*named)
    return None if bare == Style.null() else bare


def _changed(x: int, y: int, before: Strip, after: Strip, console: Console) -> Iterator[str]:
    """The cells of `after` that differ, each stretch with a jump to it; the strips start at cell `x` of line `y`."""
    for start, end in differences(before, after):
        yield Control.move_to(x + start, y).segment.text
        yield from _written(after.crop(start, end), console)


_LONG_BLANK = re.compile(" {12,}")


def _written(strip: Strip, console: Console) -> Iterator[str]:
    """A piece of a line as the terminal gets it; of plain blanks only how many there are."""
    segments = list(strip)
    for segment in segments:
        text, style, _ = segment
        if style:
            yield style.render(text, color_system=console._color_system)  # noqa: SLF001 - what Textual itself asks
        else:
            end = len(text) if segment is segments[-1] else -1
            yield _LONG_BLANK.sub(partial(_erased, end=end), text)


def _erased(blank: re.Match[str], end: int) -> str:
    """Erase so many cells; go behind them, unless nothing follows."""
    count = len(blank[0])
    return f"\x1b[{count}X" + ("" if blank.end() == end else f"\x1b[{count}C")
