"""Panel: a list of choices over the lower main screen, such as first causes or neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from textual import events
from textual.app import ComposeResult

from numtui.text.counts import plural
from numtui.text.lines import Line
from numtui.tui.screens.modal import Modal
from numtui.tui.screens.pager import keys_page
from numtui.tui.widgets.lines import Lines
from numtui.views.panels import Entry

__all__ = ["Panel", "Picked"]

_SHARE = 0.7
"""Maximum share of the screen that a panel covers, so that the row stays visible."""


@dataclass(frozen=True, slots=True)
class Picked:
    """The chosen entry: its row, its index among the selectable entries (from 0), and the key."""

    row: int
    number: int
    key: str


class Panel(Modal[Picked | None]):
    """List of choices, dismissed with the chosen entry or None.

    Args:
        entries: makes the entries for a width.
        keys: further choosing keys, each with its description.
        opened_by: the key that opened the panel, which also closes it.
        row: the row of the initial entry.
    """

    def __init__(
        self,
        title: str,
        entries: Callable[[int], Sequence[Entry]],
        *,
        keys: Mapping[str, str] | None = None,
        opened_by: str = "",
        row: int = -1,
    ) -> None:
        super().__init__()
        self._title = title
        self._make = entries
        self._keys = {"enter": "go there", **(keys or {})}
        self._opened_by = opened_by
        self._row = row
        self._entries: Sequence[Entry] = ()
        self._width = 0
        self._choices: list[int] = []
        self._at = 0
        self._top = 0
        self._room = 0

    def compose(self) -> ComposeResult:
        yield _Body()

    def on_mount(self) -> None:
        """Lay out at once: keys may come before the first frame."""
        self._lay_out(self.app.size.width)

    def on_resize(self, event: events.Resize) -> None:
        """Fit the height to the text, at most its share of the screen."""
        self._lay_out(event.size.width)
        lines = sum(len(entry.lines) for entry in self._entries) + 2
        self.query_one(_Body).styles.height = max(min(lines, int(event.size.height * _SHARE)), 3)

    def _lay_out(self, width: int) -> None:
        if width == self._width:
            return
        first = not self._width
        self._width = width
        self._entries = self._make(width)
        self._choices = [i for i, entry in enumerate(self._entries) if entry.row >= 0]
        if first:
            self._at = next((k for k, i in enumerate(self._choices) if self._entries[i].row == self._row), 0)

    def draw(self) -> None:
        """Draw the entries around the chosen one."""
        body = self.query_one(_Body)
        if not body.size or not self._width:
            return
        room = max(body.size.height - 2, 1)
        if room != self._room:  # what was scrolled away for want of room is seen again
            self._room, self._top = room, 0
        lines: list[Line] = []
        items: list[int] = []
        start = end = 0
        chosen = self._choices[self._at] if self._choices else -1
        for i, entry in enumerate(self._entries):
            if i == chosen:
                start, end = len(lines), len(lines) + len(entry.lines)
            lines += entry.lines
            items += [i] * len(entry.lines)
        if self._at == 0:
            start = 0  # include its heading
        self._top = max(min(self._top, start), end - room, 0)
        self._top = min(self._top, max(len(lines) - room, 0))
        title = f" {self._title} "
        rule: Line = [("───", "dim"), (title, "title"), ("─" * max(body.size.width - 3 - len(title), 0), "dim")]
        below = len(lines) - self._top - room
        # First, so that a narrow screen does not cut it.
        hint: Line = [(f" {plural(below, 'more line')}  ", "key")] if below > 0 else []
        keys = [*(self._keys.items() if self._choices else ()), ("q", "close"), ("?", "help")]
        hint += [(f"{' · ' if n else ' '}{key} {does}", f"dim@{key}") for n, (key, does) in enumerate(keys)]
        shown = lines[self._top : self._top + room]
        marked = end - len(self._entries[chosen].lines) - self._top + 1 if chosen >= 0 else -1
        painted = [rule, *shown, *([[]] * (room - len(shown))), hint]
        body.paint(painted, reverse=marked, items=[-1, *items[self._top : self._top + room]])

    def choose(self, item: int) -> bool:
        """Choose an entry that can be chosen."""
        if (there := item in self._choices) is True:
            self._at = self._choices.index(item)
        return there

    def pressed(self, event: events.Key) -> None:
        """Move, choose, close."""
        page = max(self.query_one(_Body).size.height - 3, 1)
        last = len(self._choices) - 1
        steps = {
            "j": 1, "down": 1, "k": -1, "up": -1, "tab": 1, "n": 1, "N": -1, "ctrl+d": page // 2, "ctrl+u": -page // 2,
            "space": page, "pagedown": page, "ctrl+f": page, "pageup": -page, "b": -page,
            "g": -last, "home": -last, "G": last, "end": last,
        }  # fmt: skip
        if event.key in self._keys or event.character in self._keys:
            if self._choices:
                key = event.key if event.key in self._keys else str(event.character)
                self.dismiss(Picked(self._entries[self._choices[self._at]].row, self._at, key))
        elif event.key in ("question_mark", "f1"):
            self.app.push_screen(keys_page(self._title, self._help()))
        elif event.key in ("q", "escape", "ctrl+c") or self._opened_by in (event.key, event.character):
            self.dismiss(None)
        elif event.key in steps:
            if not self._choices:
                self._top = max(self._top + steps[event.key], 0)
            self._at = min(max(self._at + steps[event.key], 0), max(last, 0))
            self.draw()

    def _help(self) -> dict[str, str]:
        return {
            **self._keys,
            "j ↓  k ↑": "next, previous entry; also n and N, tab",
            "ctrl+d  ctrl+u": "half a panel down, up",
            "space  b": "a panel down, up",
            "g  G": "first, last entry",
            f"q esc {self._opened_by}": "close the panel",
        }


class _Body(Lines):
    """Lines of the list."""
