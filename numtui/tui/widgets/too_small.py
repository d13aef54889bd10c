"""What is shown when the terminal is too small for the main screen."""

from __future__ import annotations

from textual.geometry import Size

from numtui.text.lines import Line
from numtui.tui.widgets.lines import Lines

__all__ = ["MINIMUM", "TooSmall"]

MINIMUM = Size(60, 14)


class TooSmall(Lines):
    """A sentence in place of a mess."""

    def show(self) -> None:
        """Say what there is and what is needed."""
        width, height = self.size
        said = [
            f"{width}×{height} is too small:",
            f"numtui needs {MINIMUM.width}×{MINIMUM.height}.",
            "Enlarge it, or q.",
        ]
        lines: list[Line] = [[(text, "")] for text in said]
        self.paint(lines)
