"""Base class of the pages and dialogs over the explorer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, TypeVar

from textual import events
from textual.screen import ModalScreen

from numtui.tui.textual_shims import pass_on

__all__ = ["Modal"]

T = TypeVar("T")

_CLOSE = ("q", "escape")


class Modal(ModalScreen[T]):
    """A screen of lines that takes every key itself, and draws once its size is known."""

    covers: ClassVar[bool] = False
    """True when it covers the whole main screen."""
    footer_keys: Sequence[tuple[str, str]] = ()
    """Keys and their effects, for the main screen's footer where this does not cover it."""

    def on_lines_resized(self) -> None:
        """Draw for the new size."""
        self.draw()

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

    @abstractmethod
    def draw(self) -> None:
        """Bring the screen up to date."""

    @abstractmethod
    def pressed(self, event: events.Key) -> None:
        """Handle a key."""
