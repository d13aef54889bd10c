"""Diff against the frame on the terminal, so that only changed cells are sent.

Textual redraws whole widgets, and the whole screen when a page over it opens or closes. Over a slow connection bytes
are time: the sent cells are remembered and compared with the next drawing.

The compositor's updates and the colour system of the pen are private parts of Textual and Rich: pyproject.toml
therefore allows only the minor version of Textual that the tests pass with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Size

from numtui.tui.repaint.cells import Cells, cells_of
from numtui.tui.repaint.pen import Run, drawn, fewest_runs, runs_between
from numtui.tui.repaint.scroll import scroll_between

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["Frame"]

Sent = tuple[str, list[Run]]
"""Output for the terminal: escape codes that scroll lines, then text."""


class Frame:
    """The cells on the terminal, as far as known."""

    def __init__(self) -> None:
        self._lines: list[Cells] | None = None

    def forget(self) -> None:
        """Send everything at the next full drawing, because something else may have written to the terminal."""
        self._lines = None

    def tightened(self, drawn: RenderableType | None) -> RenderableType | None:
        """Strip the cells that are already on the screen from a drawing of Textual."""
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
        runs = [run for y, (before, after) in pairs if before is not after for run in fewest_runs(y, before, after)]
        return "" if scroll is None else scroll.codes, runs

    def put(self, pieces: Iterable[tuple[int, int, Cells]], size: Size) -> Sent:
        """Show some stretches of lines, each with its first cell and line, on a screen laid out for a size."""
        if self._lines is not None and [len(line) for line in self._lines] != [size.width] * size.height:
            # The screen below one that closes may have been laid out before the terminal changed.
            self.forget()
        if self._lines is None:
            return "", [run for x, y, cells in pieces for run in runs_between(x, y, None, cells)]
        lines = list(self._lines)
        for x, y, cells in pieces:
            old, end = lines[y], x + len(cells)
            line = lines[y] = [*old[:x], *cells, *old[end:]]
            # Overwriting half of a wide character leaves a blank.
            for half, other in ((x, x - 1), (end, end)):
                if 0 < half < len(old) and not old[half][0]:
                    line[other] = (" ", None)
        return self.replace(lines)


class _Part(ChopsUpdate):
    """Update of some stretches of some lines."""

    def __init__(self, drawn: ChopsUpdate, shown: Frame) -> None:
        super().__init__(drawn.chops, drawn.spans, drawn.chop_ends)
        self._shown = shown

    def render_segments(self, console: Console) -> str:
        """Return the output; Textual calls it exactly when it sends it."""
        width = max((ends[-1] for ends in self.chop_ends if ends), default=0)
        codes, runs = self._shown.put(self._pieces(), Size(width, len(self.chops)))
        return codes + drawn(runs, width, console)

    def _pieces(self) -> Iterator[tuple[int, int, Cells]]:
        for y, x1, x2 in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                start, stop = max(x, x1), min(end, x2)
                if strip is not None and start < stop:
                    yield start, y, cells_of(strip.crop(start - x, stop - x))


class _Whole(LayoutUpdate):
    """Update of the whole screen."""

    def __init__(self, drawn: LayoutUpdate, shown: Frame) -> None:
        super().__init__([list(strips) for strips in drawn.strips], drawn.region)
        self._shown = shown

    def render_segments(self, console: Console) -> str:
        """Return the output, as `_Part` does."""
        codes, runs = self._shown.replace([cells_of(chain.from_iterable(strips)) for strips in self.strips])
        return codes + drawn(runs, self.region.width, console)
