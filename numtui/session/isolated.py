"""Cursor in the outcome of an isolation, without a screen."""

from __future__ import annotations

from dataclasses import replace

from numtui.inputs import OpenRequest
from numtui.report.isolation import Found, Isolation
from numtui.report.own_errors import OwnError

__all__ = ["IsolatedCursor"]


class IsolatedCursor:
    """A cause, or a module with an error of its own; the first cause at the start.

    Args:
        found: the outcome.
        last: request for the last comparison, which the explorer opens.

    Attributes:
        items: the causes, then the modules.
        at: index into them.
        top: lines of the details that are scrolled away.
        message: what the last key has to say.
    """

    def __init__(self, found: Isolation, last: OpenRequest) -> None:
        self.found, self._last = found, last
        self.items: list[Found | OwnError] = [*found.causes, *(error for error in found.shown if error.differs)]
        self.at = self.top = 0
        self.message = ""

    @property
    def item(self) -> Found | OwnError | None:
        """Cause or module under the cursor; None if nothing was found."""
        return self.items[self.at] if self.items else None

    def go_to(self, at: int) -> None:
        """Choose one, the nearest if there is none."""
        self.at = min(max(at, 0), max(len(self.items) - 1, 0))
        self.top = 0

    def scroll(self, by: int) -> None:
        """Scroll the details."""
        self.top = max(self.top + by, 0)

    def opening(self, request: OpenRequest) -> OpenRequest | None:
        """Return the request for the last comparison, at the row of a cause or at the first red row of a module.

        None, and a message, where no row tells.
        """
        item = self.item
        place = item.place if isinstance(item, Found) else self.found.places.get(item.module) if item else (None, None)
        if place is None:
            self.message = "no row tells: given the same, the module gives something else"
            return None
        return replace(
            request,
            path_a=self._last.path_a,
            path_b=self._last.path_b,
            name_a=self._last.name_a,
            name_b=self._last.name_b,
            row=place[0],
            line_b=place[1],
        )
