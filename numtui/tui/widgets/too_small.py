"""Notice in a terminal that is too small for the main screen."""

from __future__ import annotations

from textual.geometry import Size

from numtui.text.lines import Line
from numtui.tui.widgets.lines import Lines

__all__ = ["MINIMUM", "TooSmall"]

MINIMUM = Size(48, 12)
"""The inspector's numbers of both runs need the width."""


class TooSmall(Lines):
    """States the terminal's size and the required one."""

    def show(self) -> None:
        """Show both sizes."""
        width, height = self.size
        said = [
            f"{width}×{height} is too small:",
            f"numtui needs {MINIMUM.width}×{MINIMUM.height}.",
            "Enlarge it, or q.",
        ]
        lines: list[Line] = [[(text, "")] for text in said]
        self.paint(lines)
