"""What is sent to the terminal: only cells that it does not show already, in as few bytes as they take.

Textual redraws whole widgets, and all of the screen when a page over it is opened or closed. Over a slow connection
bytes are time: what was sent is remembered, and what is to be drawn is compared with it, cell by cell.

The compositor's updates, and the colour system that the pen asks for, are private parts of Textual and Rich:
pyproject.toml therefore allows only the minor version of Textual that the tests pass with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from textual._compositor import ChopsUpdate, LayoutUpdate

from numtui.tui.repaint.cells import Cells, cells_of
from numtui.tui.repaint.pen import Run, drawn, runs_between
from numtui.tui.repaint.scroll import scroll_between

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["Frame"]

Sent = tuple[str, list[Run]]
"""What is sent to the terminal: codes that move lines of it, then text."""


class Frame:
    """What the terminal shows, as far as it is known."""

    def __init__(self) -> None:
        self._lines: list[Cells] | None = None

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

    def replace(self, lines: list[Cells]) -> Sent:
        """Show these lines and no others."""
        old, self._lines = self._lines, lines
        if old is None or [len(line) for line in old] != [len(line) for line in lines]:
            return "", [run for y, line in enumerate(lines) for run in runs_between(0, y, None, line)]
        scroll = scroll_between(old, lines)
        if scroll is not None:
            old = scroll.of(old)
        pairs = enumerate(zip(old, lines, strict=True))
        runs = [run for y, (before, after) in pairs if before is not after for run in runs_between(0, y, before, after)]
        return "" if scroll is None else scroll.codes, runs

    def put(self, pieces: Iterable[tuple[int, int, Cells]]) -> Sent:
        """Show some stretches of lines, each with the cell and the line where it begins."""
        if self._lines is None:
            return "", [run for x, y, cells in pieces for run in runs_between(x, y, None, cells)]
        lines = list(self._lines)
        for x, y, cells in pieces:
            old, end = lines[y], x + len(cells)
            line = lines[y] = [*old[:x], *cells, *old[end:]]
            # What is left of a wide sign that is written over by half is blank.
            for half, other in ((x, x - 1), (end, end)):
                if 0 < half < len(old) and not old[half][0]:
                    line[other] = (" ", None)
        return self.replace(lines)


class _Part(ChopsUpdate):
    """Some stretches of some lines."""

    def __init__(self, drawn: ChopsUpdate, shown: Frame) -> None:
        super().__init__(drawn.chops, drawn.spans, drawn.chop_ends)
        self._shown = shown

    def render_segments(self, console: Console) -> str:
        """What is sent; Textual asks for it exactly when it sends it."""
        codes, runs = self._shown.put(self._pieces())
        width = max((ends[-1] for ends in self.chop_ends if ends), default=0)
        return codes + drawn(runs, width, console)

    def _pieces(self) -> Iterator[tuple[int, int, Cells]]:
        for y, x1, x2 in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                start, stop = max(x, x1), min(end, x2)
                if strip is not None and start < stop:
                    yield start, y, cells_of(strip.crop(start - x, stop - x))


class _Whole(LayoutUpdate):
    """All of the screen."""

    def __init__(self, drawn: LayoutUpdate, shown: Frame) -> None:
        super().__init__([list(strips) for strips in drawn.strips], drawn.region)
        self._shown = shown

    def render_segments(self, console: Console) -> str:
        """As that of a part."""
        codes, runs = self._shown.replace([cells_of(chain.from_iterable(strips)) for strips in self.strips])
        return codes + drawn(runs, self.region.width, console)
