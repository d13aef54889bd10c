"""Full-screen plot of the error over depth: move, zoom, go to a row."""

from __future__ import annotations

import numpy as np
from textual import events
from textual.app import ComposeResult
from textual.geometry import Size

from matchers.single_run import explained
from numtui.session.listing import Listing
from numtui.terminal.tty import speaks_unicode
from numtui.text.lines import Line, wrap
from numtui.tui.screens.modal import Modal
from numtui.tui.screens.pager import keys_page
from numtui.tui.widgets.lines import Lines
from numtui.views.panels import row_line
from numtui.views.plot import ASCII, AXIS, BRAILLE, MARGIN, Plot

__all__ = ["PlotScreen"]

_FACT_LINES = 2
"""Lines for facts about the row under the cursor."""

_MIN_ROWS = 16
"""Minimum number of rows shown."""


class PlotScreen(Modal[int | None]):
    """Plot dismissed with the row to go to, or None."""

    covers = True

    def __init__(self, listing: Listing) -> None:
        super().__init__()
        self._listing = listing
        self._row = max(listing.cursor, 0)
        self._range = (0, len(listing.comparison))
        self._plot: Plot | None = None

    def prepared(self, size: Size) -> PlotScreen:
        """Return this screen with its plot drawn for a size. Callable from any thread before opening."""
        self._plot_for(*_room(size)).prepare()
        return self

    def compose(self) -> ComposeResult:
        yield _Canvas()

    def _plot_for(self, width: int, height: int) -> Plot:
        """Return the plot of the visible rows, redrawn only when they or the size change."""
        plot, view = self._plot, self._listing.view
        wanted = (*self._range, max(width, 1), max(height, 1))
        if plot is None or (plot.first, plot.last, plot.width, plot.height) != wanted:
            signs = BRAILLE if speaks_unicode() else ASCII
            plot = self._plot = Plot(view.comparison, view.passing, *wanted, signs)
        return plot

    def draw(self) -> None:
        """Draw the plot, the row under the cursor, and the keys."""
        canvas = self.query_one(_Canvas)
        width, height = canvas.size
        if not width:
            return
        c = self._listing.comparison
        plot = self._plot_for(*_room(canvas.size))
        first, last = self._range
        part = "" if (first, last) == (0, len(c)) else f"   rows {first + 1:,} to {last:,}"
        filtered = "   filtered rows only" if self._listing.filter else ""
        what = "largest value" if c.single else "error"
        legend = _LEGEND if speaks_unicode() else _LEGEND_ASCII
        title: Line = [(f" {what} over depth", "title"), (f"{part}{filtered}   {legend}", "dim")]
        said = wrap(explained(c, self._row).headline, width - 2)[:_FACT_LINES]
        lines: list[Line] = [title, *plot.lines(self._row), row_line(c, self._row, width, " ")]
        lines += [[(f" {text}", "")] for text in said]
        lines += [[] for _ in range(height - 1 - len(lines))]
        canvas.paint([*lines[: height - 1], [(_KEYS, "dim")]])

    def session_changed(self) -> None:
        """Plot all of the new comparison, around the list's row."""
        self._row = max(self._listing.cursor, 0)
        self._range, self._plot = (0, len(self._listing.comparison)), None
        if len(self._listing.comparison):
            self.redraw()
        else:
            self.dismiss(None)

    def pressed(self, event: events.Key) -> None:
        """Move, zoom, choose, close."""
        key = event.character if event.character in ("+", "-", "0") else event.key
        if key in ("q", "escape", "v", "ctrl+c"):
            self.dismiss(None)
        elif key == "enter":
            self.dismiss(self._row)
        elif key in ("question_mark", "f1"):
            self.app.push_screen(keys_page("Error over depth", _HELP))
        elif key in _ZOOMS:
            self._zoom(_ZOOMS[key])
        else:
            self._move(key)
        if self.app.screen is self:
            self.draw()

    def _move(self, key: str) -> None:
        view = self._listing.view
        if key in _COLUMNS and self._plot is not None:
            self._row = self._plot.beside(self._row, _COLUMNS[key])
        elif key in _STEPS:
            which, by = _STEPS[key]
            rows = np.sort(view.stops if which == "red" else view.causes)
            if len(rows):
                at = int(np.searchsorted(rows, self._row, side="right" if by > 0 else "left"))
                self._row = int(rows[(at if by > 0 else at - 1) % len(rows)])
        elif key in ("g", "home", "G", "end"):
            self._row = 0 if key in ("g", "home") else len(view.comparison) - 1
        self._keep_in_sight()

    def _zoom(self, factor: float) -> None:
        """Scale the visible range around the cursor by `factor`; 0 shows all."""
        total = len(self._listing.comparison)
        first, last = self._range
        size = min(max(round((last - first) * factor), min(_MIN_ROWS, total)), total) if factor else total
        start = min(max(self._row - size // 2, 0), total - size)
        self._range = (start, start + size)

    def _keep_in_sight(self) -> None:
        first, last = self._range
        if not first <= self._row < last:
            self._zoom(1)


def _room(size: Size) -> tuple[int, int]:
    """Return the columns and lines of the plot itself, without axes, title, facts and keys."""
    return size.width - AXIS - 1, size.height - MARGIN - _FACT_LINES - 3


_LEGEND = "● first cause  ┄ tolerance  ∞ NaN or Inf"
_LEGEND_ASCII = "@ first cause  # red  + close  - tolerance  ! NaN or Inf"
_KEYS = " ← → n N o O move · + - zoom in, out, 0 all · enter go there · q close"
_HELP = {
    "← →  h l": "next column to the left, right, at its worst row",
    "space  b": "ten columns on, back",
    "n N  o O": "next, previous red row; first cause",
    "g  G": "first, last row",
    "+  -  0": "zoom in, out; show all",
    "enter": "go to the row",
    "q esc v": "close",
}
_COLUMNS = {
    "right": 1, "l": 1, "down": 1, "j": 1, "left": -1, "h": -1, "up": -1, "k": -1,
    "pagedown": 10, "space": 10, "ctrl+d": 10, "pageup": -10, "b": -10, "ctrl+u": -10,
}  # fmt: skip
_STEPS = {"n": ("red", 1), "N": ("red", -1), "o": ("cause", 1), "O": ("cause", -1)}
_ZOOMS = {"+": 0.5, "-": 2.0, "0": 0.0}


class _Canvas(Lines):
    """Canvas of the plot."""
