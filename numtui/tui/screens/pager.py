"""Pager: a long text over the whole screen, with the keys of less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import events
from textual.app import ComposeResult

from numtui.action import Action, help_of, key_label
from numtui.actions import ACTIONS, first_keys
from numtui.text.counts import plural
from numtui.text.line_editor import LineEditor, Typed
from numtui.text.lines import Line, fit, key_help, wrap_line
from numtui.text.safe import safe_text
from numtui.tui.screens.modal import Modal
from numtui.tui.widgets.lines import WHEEL_LINES, Lines
from numtui.tui.widgets.status_line import editor_line

__all__ = ["Pager", "help_lines", "keys_page"]


class Pager(Modal[None]):
    """Searchable text; `q`, `esc` and the key that opened it close it."""

    covers = True
    wheel_lines = WHEEL_LINES

    def __init__(self, title: str, lines: Sequence[Line], opened_by: str = "") -> None:
        super().__init__()
        self._title = title
        self._lines = list(lines)
        self._wrapped: list[Line] = []
        self._top = 0
        self._opened_by = opened_by
        self._editor: LineEditor | None = None
        """The search being typed."""
        self._text = ""
        """The searched text."""
        self._hits: list[int] = []
        """The lines with a hit."""
        self._hit = -1
        """The current hit, an index into the wrapped lines."""

    def compose(self) -> ComposeResult:
        yield _PagerText()

    @property
    def _room(self) -> int:
        return max(self.size.height - 2, 1)

    def draw(self) -> None:
        """Draw the visible lines."""
        self._wrapped = [part for line in self._lines for part in wrap_line(line, self.size.width)]
        self._hits = self._having(self._text)
        self._top = min(max(self._top, 0), max(len(self._wrapped) - self._room, 0))
        below = len(self._wrapped) - self._top - self._room
        shown = self._wrapped[self._top : self._top + self._room]
        blank: list[Line] = [[] for _ in range(self._room - len(shown))]
        page = self.query_one(_PagerText)
        hit = self._hit - self._top + 1 if self._top <= self._hit < self._top + self._room else -1
        page.paint([self.heading(), *shown, *blank, self._tail(below)], reverse=hit)

    @property
    def typing(self) -> bool:
        """True while a search is typed."""
        return self._editor is not None

    def heading(self) -> Line:
        """Return the first line."""
        return [(f" {self._title}", "title"), ("   / search", "dim@/"), (" · ", "dim"), ("q close", "dim@q")]

    def _tail(self, below: int) -> Line:
        """Return the last line: the typed search, else the position among the hits, else the number of lines below."""
        if self._editor is not None:
            return editor_line(self._editor)
        if self._text:
            place = f"{self._hits.index(self._hit) + 1 if self._hit in self._hits else '–'}/{len(self._hits)}"
            return [(f" /{safe_text(self._text, 60)}  {place}", ""), ("  n next · N previous · esc end", "dim")]
        return [(f" {plural(below, 'more line')}: space, j, ctrl+d" if below > 0 else " the end", "dim")]

    def _having(self, text: str) -> list[int]:
        wanted = text.lower()
        return [
            y for y, line in enumerate(self._wrapped) if wanted and wanted in "".join(part for part, _ in line).lower()
        ]

    def _go_to_hit(self, by: int) -> None:
        """Go to the next hit, wrapping around the end."""
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
        elif event.key in ("question_mark", "f1"):
            self.app.push_screen(keys_page(self._title or "Pages", _PAGER_KEYS))
        elif event.key in steps:
            self._top += steps[event.key]
            self.draw()


def keys_page(title: str, keys: Mapping[str, str]) -> Pager:
    """Return the page behind `?`: keys and what they do."""
    return Pager(title, key_help(keys), "?")


_PAGER_KEYS = {
    "j ↓  k ↑": "a line down, up",
    "space  b": "a page down, up",
    "g  G": "start, end",
    "/  n  N": "search; next, previous hit",
    "tab  1 to 5": "other pages, where there are tabs",
    "q esc": "close",
}


class _PagerText(Lines):
    """Lines of the text."""


_SIGNS = """\
● first cause: inputs agree, output differs   ○ first difference
✗ ≠ ! red: diverged; shape or dtype mismatch; NaN or Inf in one run
≈ close: differs within tolerance   ≡ = equal: bitwise; same printed values
◀ ▶ only one side: a, b   · ignored by a rule   ↻ recompute on one side
∥ … Σ ∅ ? not judged: sharded; unfinished; partial sum; no values; no verdict
ε: error in units of the dtype's machine epsilon: a few ε are rounding
≥ before an error: a lower bound from norms   ≈ before an error: estimated"""
"""Signs of the rows, in lines that fit the narrowest usual terminal."""

_DETAILS = """\
ε is 1.2e-07 for float32, 7.8e-03 for bfloat16
before a row number: " a note, a letter for a mark, / a search hit
◇ ◆ behind it: kept whole (# shows its elements); replayed
≠ before it: given other arguments   × red, and explained by what W assumes equal
≥ is a lower bound: norms miss what keeps them, the tensors may differ by more; ≈ comes from sketches
+1 after a key: a group, such as a collective and its wait   via values·.61: pairing method and confidence
right edge: map of the run, █ where red is; ┃ marks the rows on the screen"""


def help_lines(actions: Sequence[Action] = ACTIONS) -> list[Line]:
    """Return the help from the registry of actions; its first 22 lines, of 80 columns, are enough to begin."""
    lines: list[Line] = [[(" First keys", "title")]]
    lines.extend([(f"  {fit(key_label(a.keys[0]), 8)}", "key"), (f" {a.essence}", "")] for a in first_keys(actions))
    lines += [[], [(" Signs", "title")]]
    lines.extend([(f"  {text}", "")] for text in f"{_SIGNS}\n{_DETAILS}".splitlines())
    for heading, rows in help_of(actions):
        lines += [[], [(f" {heading}", "title")]]
        lines.extend([(f"  {row.label:<20}", "key"), (f" {row.help}", "")] for row in rows)
    lines += [
        [],
        [(" In short", "title")],
        [("  What has no key runs by its name after : or in ctrl+p; `keys:` in config.yaml gives it one.", "")],
        [("  A rule change shows its effect first: enter or the same key applies it, esc cancels.", "")],
        [("  A digit waits half a second for more keys (123G, 5j); alone, 1 to 6 show or hide a status.", "")],
    ]
    return lines
