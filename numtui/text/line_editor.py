"""Line editor with the keys of a shell, for searches, filters and commands.

Pure and synchronous: each key changes the line before the next one is read, however fast they come. (An input widget
gets the focus with a delay, and over a slow line the first letters of a search would run as commands.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

__all__ = ["LineEditor", "Typed"]

_MAX_CANDIDATES = 6
"""Candidates listed when `tab` is ambiguous."""


class Typed(Enum):
    """Effect of a key on the line."""

    EDITED = auto()
    ENTERED = auto()
    CANCELLED = auto()
    NOTHING = auto()


@dataclass(slots=True)
class LineEditor:
    """A one-line prompt.

    Attributes:
        kind: purpose of the answer.
        sign: text in front of the line.
        text, at: the line, and the position of the cursor in it.
        told: short text at the end of the line (a count of hits).
        wrong: range (from, to) of the invalid characters, None when valid.
        refused: an invalid line was entered; `told` gives the full reason.
        words: completions for `tab`.
        many: the line consists of several such words, not of one.
        earlier: lines entered before, the last one at the end.
    """

    kind: str
    sign: str
    text: str = ""
    at: int = -1
    told: str = ""
    wrong: tuple[int, int] | None = None
    refused: bool = False
    words: tuple[str, ...] = ()
    many: bool = False
    earlier: tuple[str, ...] = ()
    _given: str = field(init=False)
    """The text before anything was typed."""
    _draft: str = field(init=False, default="")
    """The text that was typed before an earlier line took its place."""
    _recalled: str | None = field(init=False, default=None)
    """The line as it was recalled last."""
    _back: int = field(init=False, default=0)
    """How far back that is."""

    def __post_init__(self) -> None:
        self._given = self.text
        if self.at < 0:
            self.at = len(self.text)

    @property
    def keys(self) -> list[tuple[str, str]]:
        """Return the keys that end or change the line, each with its effect; letters type."""
        found = [("enter", "apply"), ("esc", "cancel")]
        if self.words:
            found.append(("tab", "complete"))
        if self.earlier:
            found.append(("↑ ↓", "earlier lines"))
        return [*found, ("ctrl+u", "clear")]

    def insert(self, text: str) -> None:
        """Type or paste; line ends become spaces."""
        clean = " ".join(text.splitlines())
        self.text = self.text[: self.at] + clean + self.text[self.at :]
        self.at += len(clean)

    def key(self, key: str, character: str | None = None) -> Typed:
        """Press a key, by Textual's name; `character` is the printable character, if any."""
        if key == "enter":
            return Typed.ENTERED
        if key in ("escape", "ctrl+c"):
            return Typed.CANCELLED
        before = self.text
        if key == "backspace":
            if not self.text:
                # As in vim: backspace on an empty line leaves the prompt.
                return Typed.CANCELLED
            self._cut(max(self.at - 1, 0), self.at)
        elif key == "delete":
            self._cut(self.at, self.at + 1)
        elif key == "ctrl+u":
            self._cut(0, self.at)
        elif key == "ctrl+k":
            self._cut(self.at, len(self.text))
        elif key == "ctrl+w":
            kept = self.text[: self.at].rstrip()
            self._cut(kept.rfind(" ") + 1, self.at)
        elif key == "tab":
            self._complete()
        elif key in _RECALLS:
            self._recall(_RECALLS[key])
        elif key in _MOVES:
            self.at = _MOVES[key](self.at, len(self.text))
            return Typed.EDITED
        elif character is not None and character.isprintable():
            self.insert(character)
        return Typed.EDITED if self.text != before else Typed.NOTHING

    def _cut(self, start: int, end: int) -> None:
        self.text = self.text[:start] + self.text[end:]
        self.at = start

    def _recall(self, by: int) -> None:
        """Recall an earlier or a later line, among those that begin with the typed text."""
        if self.text != self._recalled:
            self._draft, self._back = self.text, 0
        begin = "" if self._draft == self._given else self._draft
        fitting = [line for line in reversed(self.earlier) if line.startswith(begin) and line != self._draft]
        self._back = min(max(self._back + by, 0), len(fitting))
        self.text = self._recalled = fitting[self._back - 1] if self._back else self._draft
        self.at = len(self.text)

    def _complete(self) -> None:
        """Complete the common prefix of all matching words; list them where there is none to add."""
        start = self.text.rfind(" ", 0, self.at) + 1 if self.many else 0
        start += self.many and self.text.startswith("-", start)
        typed, rest = self.text[start : self.at], self.text[self.at :]
        if not self.many:
            typed, rest = self.text, ""
        fitting = [word for word in self.words if word.startswith(typed)]
        fields = self.many and ":" not in typed
        if fields:
            # Fields first: thousands of names would hide them.
            fitting = list(dict.fromkeys(word[: word.find(":") + 1] or word for word in fitting))
        if not fitting:
            return
        first, last = min(fitting), max(fitting)
        same = next((first[:i] for i, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), first)
        if len(fitting) > 1 and same == typed:
            shown = fitting if fields else fitting[:_MAX_CANDIDATES]
            more = f" … {len(fitting)} in all" if len(fitting) > len(shown) else ""
            self.told = "  ".join(word[word.find(":") + 1 :] or word for word in shown) + more
        self.text = self.text[:start] + same + rest
        self.at = start + len(same)


_RECALLS = {"up": 1, "ctrl+p": 1, "down": -1, "ctrl+n": -1}
"""Steps back in the history, by key."""

_MOVES: dict[str, Callable[[int, int], int]] = {
    "left": lambda at, _: max(at - 1, 0),
    "right": lambda at, end: min(at + 1, end),
    "home": lambda _, __: 0,
    "ctrl+a": lambda _, __: 0,
    "end": lambda _, end: end,
    "ctrl+e": lambda _, end: end,
}
