"""Screen that leads to the explorer: lines with a cursor, and the keys that all such screens have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from textual import events
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen

from numtui.session.overview import Overview
from numtui.text.lines import Line
from numtui.tui.pressed_keys import press
from numtui.tui.screens.pager import Pager
from numtui.tui.textual_shims import PresentSize
from numtui.tui.widgets.lines import Lines

__all__ = ["OverviewScreen", "row_keys"]

_PAGE = 5
"""Lines that `space` scrolls."""

_SCROLLS: Mapping[str, int] = {
    **dict.fromkeys(("space", "pagedown", "ctrl+d"), _PAGE),
    **dict.fromkeys(("b", "pageup", "ctrl+u"), -_PAGE),
}


def row_keys(go_to: Callable[[int], None], at: int, count: int) -> dict[str, Callable[[], None]]:
    """Return the keys that move a cursor over some rows, of which it is on one."""
    last = count - 1
    rows = {"down": at + 1, "j": at + 1, "up": at - 1, "k": at - 1, "home": 0, "g": 0, "end": last, "G": last}
    return {key: partial(go_to, row) for key, row in rows.items()}


class OverviewScreen(PresentSize, Screen[None]):
    """Lines over the whole screen.

    Args:
        title: of the help.
        about: lines of the help.
    """

    class Entered(Message):
        """The explorer is asked for, on what the cursor is on."""

    def __init__(self, overview: Overview, title: str, about: Sequence[Line]) -> None:
        super().__init__()
        self.overview = overview
        self._help = (title, about)

    @abstractmethod
    def lines(self, width: int, height: int) -> tuple[list[Line], list[int]]:
        """Return the lines, and by line what a click chooses (-1: nothing)."""

    @abstractmethod
    def choose(self, item: int) -> None:
        """Move the cursor to what was clicked."""

    @abstractmethod
    def scroll(self, by: int) -> None:
        """Scroll what lies below the cursor's list."""

    @property
    @abstractmethod
    def keys(self) -> Mapping[str, Callable[[], None]]:
        """The keys of this screen alone."""

    def compose(self) -> ComposeResult:
        yield _Body()

    def on_lines_resized(self) -> None:
        """Draw for the new size."""
        self.draw()

    def on_lines_clicked(self, event: Lines.Clicked) -> None:
        """Press a key, or choose an item."""
        event.stop()
        if event.target:
            press(self.app, event.target)
        elif event.item >= 0:
            self.choose(event.item)
            self.draw()

    def on_lines_wheeled(self, event: Lines.Wheeled) -> None:
        """Scroll."""
        event.stop()
        self.scroll(event.by)
        self.draw()

    def draw(self) -> None:
        """Bring the screen up to date."""
        body = self.query_one(_Body)
        if body.size:
            lines, items = self.lines(*body.size)
            body.paint(lines, items=items)

    def on_key(self, event: events.Key) -> None:
        """Move, scroll, open the explorer, quit."""
        event.stop()
        self.overview.message = ""
        key = event.key
        if key in self.keys:
            self.keys[key]()
        elif key in _SCROLLS:
            self.scroll(_SCROLLS[key])
        elif key == "enter":
            self.post_message(self.Entered())
        elif key in ("question_mark", "f1"):
            self.app.push_screen(Pager(*self._help, "?"))
        elif key == "ctrl+l":
            self.app.action_redraw()  # type: ignore[attr-defined]  # of TerminalApp, which imports no screen
        elif key in ("q", "ctrl+c", "ctrl+q"):
            self.app.exit()
        self.draw()


class _Body(Lines):
    """Lines of the whole screen."""
