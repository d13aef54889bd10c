"""What the pages and dialogs over the explorer have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, TypeVar

from textual import events
from textual.screen import ModalScreen

from numtui.tui.textual_shims import pass_on

__all__ = ["Modal"]

T = TypeVar("T")

_CLOSE = ("q", "escape")


class Modal(ModalScreen[T]):
    """A screen of lines that takes every key itself, and draws when its size is known."""

    covers: ClassVar[bool] = False
    """Whether nothing of the main screen can be seen beside it."""

    def on_lines_resized(self) -> None:
        """The size of what is drawn is known, or is another."""
        self.draw()

    def on_key(self, event: events.Key) -> None:
        """A key; one that was typed for what is under this screen, after it was closed, goes there.

        Not what closes a screen: over a slow line one presses that twice, and the second would drop a filter or end
        the program.
        """
        event.stop()
        if self.app.return_code is not None:
            # The program is ending: what came after that key has nowhere to go.
            return
        if self.app.screen is self:
            self.pressed(event)
        elif event.key not in _CLOSE:
            pass_on(self.app, event)

    def session_changed(self) -> None:
        """The rules, or the comparison, are others than when this was drawn."""

    def hear(self, message: str, *, trouble: bool) -> None:
        """The main screen, which this may cover, has said something."""

    @abstractmethod
    def draw(self) -> None:
        """Bring the screen up to date."""

    @abstractmethod
    def pressed(self, event: events.Key) -> None:
        """A key was pressed."""
