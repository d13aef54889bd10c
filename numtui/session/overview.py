"""State of a screen that leads to the explorer, and to which quitting the explorer returns."""

from __future__ import annotations

from typing import Protocol

from numtui.inputs import OpenRequest

__all__ = ["Overview"]


class Overview(Protocol):
    """Cursor of such a screen.

    Attributes:
        message: what the last key has to say.
    """

    message: str

    def opening(self, request: OpenRequest) -> OpenRequest | None:
        """Return the request completed with the logs under the cursor; None, and a message, where there are none."""
