"""A long text over the whole screen, read as in less."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult

from numtui.actions import ACTIONS, Action, by_group
from numtui.text.line_editor import LineEditor, Typed
from numtui.text.lines import Line, fit, width_of, wrap
from numtui.text.safe import safe_text
from numtui.tui.screens.modal import Modal
from numtui.tui.widgets.lines import Lines
from numtui.tui.widgets.status_line import editor_line

__all__ = ["Pager", "help_lines"]


class Pager(Modal[None]):
    """Any text, which can be searched; `q`, `esc` and the key that opened it close it."""

    covers = True

    def __init__(self, title: str, lines: Sequence[Line], opened_by: str = "") -> None:
        super().__init__()
        self._title = title
        self._lines = list(lines)
        self._wrapped: list[Line] = []
        self._top = 0
        self._opened_by = opened_by
        self._editor: LineEditor | None = None
        """What is being typed of a search."""
        self._text = ""
        """What was searched for."""
        self._hits: list[int] = []
        """The lines that have it."""
        self._hit = -1
        """The line that was gone to, an index into the wrapped ones."""

    def compose(self) -> ComposeResult:
        yield _PagerText()

    @property
    def _room(self) -> int:
        return max(self.size.height - 2, 1)

    def draw(self) -> None:
        """What fits."""
        self._wrapped = [part for line in self._lines for part in _wrapped(line, self.size.width)]
        self._hits = self._having(self._text)
        self._top = min(max(self._top, 0), max(len(self._wrapped) - self._room, 0))
        below = len(self._wrapped) - self._top - self._room
        shown = self._wrapped[self._top : self._top + self._room]
        blank: list[Line] = [[] for _ in range(self._room - len(shown))]
        page = self.query_one(_PagerText)
        title: Line = [(f" {self._title}", "title"), ("   / searches · q or esc closes", "dim")]
        hit = self._hit - self._top + 1 if self._top <= self._hit < self._top + self._room else -1
        page.paint([title, *shown, *blank, self._tail(below)], reverse=hit)

    def _tail(self, below: int) -> Line:
        """The last line: what is typed, else where one is in the search, else how much is below."""
        if self._editor is not None:
            return editor_line(self._editor)
        if self._text:
            place = f"{self._hits.index(self._hit) + 1 if self._hit in self._hits else '–'}/{len(self._hits)}"
            return [(f" /{safe_text(self._text, 60)}  {place}", ""), ("  n next  N previous  esc ends it", "dim")]
        return [(f" {below} more line{'s' * (below > 1)}: space, j, ctrl+d" if below > 0 else " the end", "dim")]

    def _having(self, text: str) -> list[int]:
        wanted = text.lower()
        return [
            y for y, line in enumerate(self._wrapped) if wanted and wanted in "".join(part for part, _ in line).lower()
        ]

    def _go_to_hit(self, by: int) -> None:
        """The next line that has what was searched for, around the end."""
        start = self._hit if self._hit >= 0 else self._top - (by > 0)
        later = [y for y in self._hits if (y > start if by > 0 else y < start)] or self._hits
        if later:
            self._hit = later[0 if by > 0 else -1]
            if not self._top <= self._hit < self._top + self._room:
                self._top = self._hit - self._room // 3
        self.draw()

    def _type(self, event: events.Key, editor: LineEditor) -> None:
        typed = editor.key(event.key, event.character)
        if typed in (Typed.ENTERED, Typed.CANCELLED):
            self._editor = None
        if typed is Typed.ENTERED:
            self._text, self._hit = editor.text or self._text, -1
            self._hits = self._having(self._text)
            self._go_to_hit(1)
        else:
            self.draw()

    def pressed(self, event: events.Key) -> None:
        """Move, or close."""
        if self._editor is not None:
            self._type(event, self._editor)
            return
        end = len(self._wrapped)
        steps = {
            "j": 1, "down": 1, "enter": 1, "k": -1, "up": -1,
            "ctrl+d": self._room // 2, "ctrl+u": -self._room // 2,
            "space": self._room - 2, "pagedown": self._room - 2, "ctrl+f": self._room - 2,
            "b": 2 - self._room, "pageup": 2 - self._room,
            "g": -end, "home": -end, "G": end, "end": end,
        }  # fmt: skip
        if event.key == "slash":
            self._editor = LineEditor("search", "/")
            self.draw()
        elif event.key in ("n", "N"):
            self._go_to_hit(1 if event.key == "n" else -1)
        elif event.key == "escape" and self._text:
            self._text, self._hit = "", -1
            self.draw()
        elif event.key in ("q", "escape", "ctrl+c") or self._opened_by in (event.key, event.character):
            self.dismiss()
        elif event.key in steps:
            self._top += steps[event.key]
            self.draw()


class _PagerText(Lines):
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
left edge: the whole run, worst row per stretch (█ red, ● first cause); ┃ is what is on the screen
in front of a number: ● first cause, " a note, a letter that marks the row, / a hit of the search"""


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
