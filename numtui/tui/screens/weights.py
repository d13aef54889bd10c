"""Screen of weights: a matrix of runs and steps, and what differs in its chosen cell."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen

from numtui.session.weights import WeightsCursor
from numtui.tui.pressed_keys import press
from numtui.tui.screens.pager import Pager
from numtui.tui.textual_shims import PresentSize
from numtui.tui.widgets.lines import Lines
from numtui.views.weights import HELP, weights_lines

__all__ = ["WeightsScreen"]

_PAGE = 5
"""Parameters that `space` scrolls."""


class WeightsScreen(PresentSize, Screen[None]):
    """The matrix over the differences of its chosen cell."""

    class Entered(Message):
        """The explorer is asked for, on the operations of the chosen cell."""

    def __init__(self, cursor: WeightsCursor) -> None:
        super().__init__()
        self.cursor = cursor

    def compose(self) -> ComposeResult:
        yield _Body()

    def on_lines_resized(self) -> None:
        """Draw for the new size."""
        self.draw()

    def on_lines_clicked(self, event: Lines.Clicked) -> None:
        """Press a key, or choose a run."""
        event.stop()
        if event.target:
            press(self.app, event.target)
        elif event.item >= 0:
            self.cursor.go_to(event.item, self.cursor.column)
            self.draw()

    def on_lines_wheeled(self, event: Lines.Wheeled) -> None:
        """Scroll the parameters."""
        event.stop()
        self.cursor.scroll(event.by)
        self.draw()

    def draw(self) -> None:
        """Bring the screen up to date."""
        body = self.query_one(_Body)
        if body.size:
            lines, items = weights_lines(self.cursor, *body.size)
            body.paint(lines, items=items)

    def on_key(self, event: events.Key) -> None:
        """Move, scroll, open the explorer, quit."""
        event.stop()
        cursor, key = self.cursor, event.key
        cursor.message = ""
        row, column, last = cursor.row, cursor.column, len(cursor.matrix.steps) - 1
        cells = {
            "left": (row, column - 1), "h": (row, column - 1), "right": (row, column + 1), "l": (row, column + 1),
            "up": (row - 1, column), "k": (row - 1, column), "down": (row + 1, column), "j": (row + 1, column),
            "home": (row, 0), "end": (row, last),
        }  # fmt: skip
        scrolls = {"space": _PAGE, "pagedown": _PAGE, "ctrl+d": _PAGE, "b": -_PAGE, "pageup": -_PAGE, "ctrl+u": -_PAGE}
        if key in cells:
            cursor.go_to(*cells[key])
        elif key in scrolls:
            cursor.scroll(scrolls[key])
        elif key == "g":
            cursor.go_to_first()
        elif key == "f":
            cursor.go_to_first_of_run()
        elif key == "enter":
            self.post_message(self.Entered())
        elif key in ("question_mark", "f1"):
            self.app.push_screen(Pager("weights", HELP, "?"))
        elif key == "ctrl+l":
            self.app.action_redraw()  # type: ignore[attr-defined]  # of TerminalApp, which imports no screen
        elif key in ("q", "ctrl+c", "ctrl+q"):
            self.app.exit()
        self.draw()


class _Body(Lines):
    """Lines of the matrix and of the differences."""
