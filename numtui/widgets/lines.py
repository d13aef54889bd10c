"""A widget that is a block of lines, and sends only those lines to the terminal that changed.

Over a slow connection bytes are time. Textual repaints a widget whole; here the new lines are compared with the ones
on the screen, so that moving the cursor repaints two lines, and an inspector that says the same says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from numtui.text import Line, fit_line

__all__ = ["ROLES", "Lines"]

ROLES = ("red", "close", "alone", "cause", "good", "dim", "title", "key", "chosen")
"""The roles a piece can play; `.lines--<role>` in app.tcss says what they look like."""


class Lines(Widget):
    """A block of lines; `paint` replaces them."""

    @dataclass
    class Resized(Message):
        """The block has another size: what it shows has to be made anew."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"lines--{role}" for role in ROLES}

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._strips: list[Strip] = []
        self._role_styles: dict[str, Style | None] = {"": None}

    def on_resize(self) -> None:
        """Widths decide what is written."""
        self.post_message(self.Resized())

    def notify_style_update(self) -> None:
        """The theme or the stylesheet changed: forget what roles looked like."""
        super().notify_style_update()
        self._role_styles = {"": None}

    def paint(self, lines: Sequence[Line], reverse: int = -1) -> None:
        """Show these lines; `reverse` is the one to show in reverse video."""
        width, height = self.size
        strips = [self._strip(line, width, y == reverse) for y, line in enumerate(lines[:height])]
        old, self._strips = self._strips, strips
        if not self.is_mounted or not width:
            return
        changed = []
        for y in range(max(len(old), len(strips))):
            before = old[y] if y < len(old) else None
            after = strips[y] if y < len(strips) else None
            if before is None or after is None:
                changed.append(Region(0, y, width, 1))
            elif (span := _difference(before, after)) is not None:
                changed.append(Region(span[0], y, span[1] - span[0], 1))
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        """A line for the compositor."""
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)

    def _strip(self, line: Line, width: int, reverse: bool) -> Strip:
        segments: list[Segment] = []
        for text, role in fit_line(line, width):
            style = self._style(role)
            if segments and segments[-1].style is style:
                segments[-1] = Segment(segments[-1].text + text, style)
            else:
                segments.append(Segment(text, style))
        strip = Strip(segments, width)
        return strip.apply_style(_REVERSE) if reverse else strip

    def _style(self, role: str) -> Style | None:
        if role not in self._role_styles:
            self._role_styles[role] = self.get_component_rich_style(f"lines--{role}", partial=True)
        return self._role_styles[role]


_REVERSE = Style(reverse=True)


def _difference(before: Strip, after: Strip) -> tuple[int, int] | None:
    """The cells from the first to the last segment that differ; None for equal strips."""
    old, new = list(before), list(after)
    if old == new:
        return None
    start = 0
    same = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        start += other.cell_length
        same += 1
    end = after.cell_length
    for one, other in zip(reversed(old[same:]), reversed(new[same:]), strict=False):
        if one != other:
            break
        end -= other.cell_length
    return (start, end) if before.cell_length == after.cell_length and start < end else (0, after.cell_length)
