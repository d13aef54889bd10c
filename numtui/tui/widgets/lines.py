"""Widget of text lines that repaints only the changed ones.

Over a slow connection bytes are time. Textual repaints a whole widget; here the new lines are compared with those on
the screen, so that moving the cursor repaints two lines, and an unchanged inspector sends nothing.

What a click means is known from what was painted: targets are in the roles of pieces, items belong to lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from numtui.text.lines import Line, fit_line, target_at
from numtui.tui.repaint.cells import cells_of, changes

__all__ = ["ROLES", "WHEEL_LINES", "Lines", "differences"]

ROLES = ("red", "close", "alone", "cause", "good", "dim", "title", "key", "chosen", "drift")
"""Roles of pieces; `.lines--<role>` in app.tcss styles them."""


WHEEL_LINES = 3
"""Lines of text that a notch of the wheel scrolls."""


class Lines(Widget):
    """A block of lines; `paint` replaces them."""

    @dataclass
    class Resized(Message):
        """The block was resized: its content has to be laid out again."""

    @dataclass
    class Clicked(Message):
        """A click on a target, or on the line of an item (-1: of none)."""

        lines: Lines
        target: str
        item: int
        double: bool

    @dataclass
    class Wheeled(Message):
        """The wheel turned by a notch: 1 down, -1 up."""

        lines: Lines
        by: int

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"lines--{role}" for role in ROLES}

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._strips: list[Strip] = []
        self._painted: Sequence[Line] = ()
        self._items: Sequence[int] = ()
        self._role_styles: dict[str, Style | None] = {"": None}

    def on_resize(self) -> None:
        """Report the new size, because the layout depends on the width."""
        self.post_message(self.Resized())

    def notify_style_update(self) -> None:
        """Drop cached styles after a change of theme or stylesheet."""
        super().notify_style_update()
        self._role_styles = {"": None}

    def on_click(self, event: events.Click) -> None:
        """Report a click on a target or an item."""
        event.stop()
        at = event.get_content_offset(self)
        if at is None:
            return  # on the border
        target, item = self.target_at(at.x, at.y), self._items[at.y] if at.y < len(self._items) else -1
        # a third click in a row is one too many, not the first of the next two
        if target or (item >= 0 and event.chain <= 2):
            self.post_message(self.Clicked(self, target, item, double=event.chain == 2))

    def target_at(self, x: int, y: int) -> str:
        """Return the target at a cell of this widget; empty without one."""
        return target_at(self._painted[y], x) if 0 <= y < len(self._painted) else ""

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Report the wheel."""
        event.stop()
        self.post_message(self.Wheeled(self, 1))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Report the wheel."""
        event.stop()
        self.post_message(self.Wheeled(self, -1))

    def paint(
        self,
        lines: Sequence[Line],
        reverse: int = -1,
        bar: tuple[int, int] | None = None,
        items: Sequence[int] = (),
    ) -> None:
        """Show these lines.

        Args:
            reverse: line in reverse video between the cells of `bar` (None: all of it).
            items: by line, what a click on it chooses; -1 for nothing.
        """
        width, height = self.size
        self._painted, self._items = lines[:height], items
        strips = [self._strip(line, width) for line in lines[:height]]
        if 0 <= reverse < len(strips):
            strips[reverse] = _reversed(strips[reverse], *(bar or (0, width)))
        old, self._strips = self._strips, strips
        if not self.is_mounted or not width:
            return
        changed = []
        for y in range(max(len(old), len(strips))):
            before = old[y] if y < len(old) else None
            after = strips[y] if y < len(strips) else None
            if before is None or after is None:
                changed.append(Region(0, y, width, 1))
            else:
                changed += [Region(start, y, end - start, 1) for start, end in differences(before, after)]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        """Return a line for the compositor."""
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)

    def _strip(self, line: Line, width: int) -> Strip:
        segments: list[Segment] = []
        for text, role in fit_line(line, width):
            style = self._style(role)
            if segments and segments[-1].style is style:
                segments[-1] = Segment(segments[-1].text + text, style)
            else:
                segments.append(Segment(text, style))
        return Strip(segments, width)

    def _style(self, role: str) -> Style | None:
        if role not in self._role_styles:
            name, _, target = role.partition("@")
            styled = self._style(name) if target else self.get_component_rich_style(f"lines--{role}", partial=True)
            self._role_styles[role] = styled
        return self._role_styles[role]


_REVERSE = Style(reverse=True)


def _reversed(strip: Strip, start: int, end: int) -> Strip:
    # In one style: whatever its pieces are, it is sent in one piece.
    bar = Strip([Segment(strip.crop(start, end).text, _REVERSE)])
    return Strip.join([strip.crop(0, start), bar, strip.crop(end)])


_GAP = 10
"""Equal cells between two differing ones that are redrawn: cheaper than two updates."""


def differences(before: Strip, after: Strip) -> list[tuple[int, int]]:
    """Return the differing stretches of two strips as [start, end) of cells."""
    if before is after or list(before) == list(after):
        return []
    old, new = cells_of(before), cells_of(after)
    if len(old) != len(new):
        return [(0, len(new))]
    found: list[tuple[int, int]] = []
    for x in changes(old, new):
        # The second cell of a wide character belongs to the first: never draw half of it.
        end = x + 2 if x + 1 < len(new) and not new[x + 1][0] else x + 1
        if found and x - found[-1][1] < _GAP:
            found[-1] = (found[-1][0], end)
        else:
            found.append((x, end))
    return found
