"""Base class of the pages and dialogs over the explorer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, TypeVar

from textual import events
from textual.errors import NoWidget
from textual.screen import ModalScreen

from numtui.tui.pressed_keys import press
from numtui.tui.textual_shims import PresentSize, pass_on
from numtui.tui.widgets.footer import Footer
from numtui.tui.widgets.lines import Lines

__all__ = ["Modal"]

T = TypeVar("T")

_CLOSE = ("q", "escape")


class Modal(PresentSize, ModalScreen[T]):
    """A screen of lines that takes every key itself, and draws once its size is known."""

    covers: ClassVar[bool] = False
    """True when it covers the whole main screen."""
    wheel_lines: ClassVar[int] = 1
    """Lines that the wheel moves by a notch."""
    footer_keys: Sequence[tuple[str, str]] = ()
    """Keys and their effects, for the main screen's footer where this does not cover it."""

    def on_lines_resized(self) -> None:
        """Draw for the new size."""
        self.draw()

    def on_lines_clicked(self, event: Lines.Clicked) -> None:
        """Press a key, or choose a line; a double click enters it."""
        event.stop()
        if self.app.screen is not self:
            return
        if event.target:
            press(self.app, event.target)
        elif self.choose(event.item):
            self.draw()
            if event.double:
                press(self.app, "enter")

    def on_lines_wheeled(self, event: Lines.Wheeled) -> None:
        """Move down or up."""
        event.stop()
        for _ in range(self.wheel_lines):
            press(self.app, "down" if event.by > 0 else "up")

    def on_click(self, event: events.Click) -> None:
        """Press a key of the main screen's footer, which this may leave visible."""
        try:
            widget, region = self.app.screen_stack[-2].get_widget_at(event.screen_x, event.screen_y)
        except NoWidget:
            return  # the screen below is laid out when it is seen again
        if isinstance(widget, Footer) and not self.covers:
            press(self.app, widget.target_at(event.screen_x - region.x, event.screen_y - region.y))

    def choose(self, _item: int) -> bool:
        """Move the cursor to an item that was clicked; False if that is impossible now."""
        return False

    def on_key(self, event: events.Key) -> None:
        """Handle a key; one typed after this screen was closed goes to the screen below.

        Except a closing key: over a slow line it is often pressed twice, and the second press would drop a filter or
        end the program.
        """
        event.stop()
        if self.app.return_code is not None:
            # The program is ending: drop later keys.
            return
        if self.app.screen is self:
            self.pressed(event)
        elif event.key not in _CLOSE:
            pass_on(self.app, event)

    def session_changed(self) -> None:
        """Handle a change of the rules or the comparison."""

    def hear(self, message: str, *, trouble: bool) -> None:
        """Handle a message of the main screen, which this may cover."""

    def redraw(self) -> None:
        """Draw again; before the first time, the lines are not there yet."""
        if self.is_mounted:
            self.draw()

    @abstractmethod
    def draw(self) -> None:
        """Bring the screen up to date."""

    @abstractmethod
    def pressed(self, event: events.Key) -> None:
        """Handle a key."""
