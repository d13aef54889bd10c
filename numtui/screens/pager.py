"""A long text over the whole screen, read as in less."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult

from numtui.actions import ACTIONS, Action, by_group
from numtui.inspection import wrap
from numtui.screens.modal import Modal
from numtui.text import Line, fit, width_of
from numtui.widgets.lines import Lines

__all__ = ["Pager", "help_lines"]


class Pager(Modal[None]):
    """Any text; `q`, `esc` and the key that opened it close it."""

    def __init__(self, title: str, lines: Sequence[Line], opened_by: str = "") -> None:
        super().__init__()
        self._title = title
        self._lines = list(lines)
        self._wrapped: list[Line] = []
        self._top = 0
        self._opened_by = opened_by

    def compose(self) -> ComposeResult:
        yield _Page()

    @property
    def _room(self) -> int:
        return max(self.size.height - 2, 1)

    def draw(self) -> None:
        """What fits."""
        self._wrapped = [part for line in self._lines for part in _wrapped(line, self.size.width)]
        self._top = min(max(self._top, 0), max(len(self._wrapped) - self._room, 0))
        below = len(self._wrapped) - self._top - self._room
        tail = f"{below} more lines: space, j, ctrl+d" if below > 0 else "the end"
        shown = self._wrapped[self._top : self._top + self._room]
        blank: list[Line] = [[] for _ in range(self._room - len(shown))]
        page = self.query_one(_Page)
        title: Line = [(f" {self._title}", "title"), ("   q or esc closes", "dim")]
        page.paint([title, *shown, *blank, [(f" {tail}", "dim")]])

    def pressed(self, event: events.Key) -> None:
        """Move, or close."""
        end = len(self._wrapped)
        steps = {
            "j": 1, "down": 1, "enter": 1, "k": -1, "up": -1,
            "ctrl+d": self._room // 2, "ctrl+u": -self._room // 2,
            "space": self._room - 2, "pagedown": self._room - 2, "ctrl+f": self._room - 2,
            "b": 2 - self._room, "pageup": 2 - self._room,
            "g": -end, "home": -end, "G": end, "end": end,
        }  # fmt: skip
        if event.key in ("q", "escape", "ctrl+c") or self._opened_by in (event.key, event.character):
            self.dismiss()
        elif event.key in steps:
            self._top += steps[event.key]
            self.draw()


class _Page(Lines):
    """The text."""


def _wrapped(line: Line, width: int) -> list[Line]:
    """A line, in several when it is too long: the last piece is broken, under where it starts."""
    if not line or sum(width_of(text) for text, _ in line) <= width:
        return [line]
    *head, (text, role) = line
    start = sum(width_of(piece) for piece, _ in head)
    indent = start + len(text) - len(text.lstrip())
    first, *rest = wrap(text.strip(), max(width - indent - 1, 20))
    return [[*head, (" " * (indent - start) + first, role)], *([(" " * indent + part, role)] for part in rest)]


_GLYPHS = """\
● first cause: its inputs agree, its output does not    ✗ diverged   ≠ other shape or dtype   ! NaN or Inf on one side
≈ close   ≡ equal bits   = same print   ◀ only a   ▶ only b   ↻ recompute   ∥ sharded   … unfinished
Σ partial sum: the runs add up in another order, and the total agrees   · ignored
≥ in front of an error: a lower bound, as two norms that agree do not bound it.   ε: in units of the dtype's epsilon
+1 behind a key: the row is a group, a collective and its wait.   via values·.61: how it was found, how sure that is
left edge: the whole run, worst row per stretch (█ red, ● first cause); ┃ is what is on the screen"""


def help_lines(actions: Sequence[Action] = ACTIONS) -> list[Line]:
    """The help, from the registry of actions."""
    lines: list[Line] = [[(f"  {text}", "")] for text in _GLYPHS.splitlines()]
    for heading, group in by_group(actions):
        lines += [[], [(f" {heading}", "title")]]
        lines.extend([(f"  {fit(action.label, 20)}", "key"), (f" {action.help}", "")] for action in group)
    lines += [
        [],
        [(" In short", "title")],
        [("  n steps through what is red, o to where it began; p and c follow the data, ctrl+o comes back.", "")],
        [
            (
                "  A change of the rules first says what it would do; enter or the same key again does it, esc not.",
                "",
            )
        ],
        [("  A digit waits half a second for what follows (123G, 5j); alone, 1 to 6 show or hide a status.", "")],
    ]
    return lines
