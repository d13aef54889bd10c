"""A line of text under the keys of a shell: what searches, filters and commands are typed into.

Pure and synchronous: a key changes the line before the next key is looked at, however fast they come. (An input widget
gets the focus a moment after it was asked for, and over a slow line the first letters of a search would be commands.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

__all__ = ["LineEditor", "Typed"]


class Typed(Enum):
    """What a key did to the line."""

    EDITED = auto()
    ENTERED = auto()
    CANCELLED = auto()
    NOTHING = auto()


@dataclass(slots=True)
class LineEditor:
    """One question.

    Attributes:
        kind: what the answer is for.
        sign: what stands in front of the line.
        text, at: the line, and where the cursor is in it.
        told: something short to show at the end of the line (a count of hits).
        words: what `tab` completes to.
    """

    kind: str
    sign: str
    text: str = ""
    at: int = -1
    told: str = ""
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.at < 0:
            self.at = len(self.text)

    def insert(self, text: str) -> None:
        """Type or paste; line ends become spaces."""
        clean = " ".join(text.splitlines())
        self.text = self.text[: self.at] + clean + self.text[self.at :]
        self.at += len(clean)

    def key(self, key: str, character: str | None = None) -> Typed:
        """Press a key, by Textual's name of it; `character` is what it prints, if anything."""
        if key == "enter":
            return Typed.ENTERED
        if key in ("escape", "ctrl+c"):
            return Typed.CANCELLED
        before = self.text
        if key == "backspace":
            if not self.text:
                # As in vim: there is nothing left but the question itself.
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
        elif key in _MOVES:
            self.at = _MOVES[key](self.at, len(self.text))
            return Typed.EDITED
        elif character is not None and character.isprintable():
            self.insert(character)
        return Typed.EDITED if self.text != before else Typed.NOTHING

    def _cut(self, start: int, end: int) -> None:
        self.text = self.text[:start] + self.text[end:]
        self.at = start

    def _complete(self) -> None:
        """As far as all words that begin like this agree."""
        fitting = [word for word in self.words if word.startswith(self.text)]
        if fitting:
            first, last = min(fitting), max(fitting)
            same = next(
                (i for i, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first)
            )
            self.text = first[: max(same, len(self.text))]
            self.at = len(self.text)


_MOVES: dict[str, Callable[[int, int], int]] = {
    "left": lambda at, _: max(at - 1, 0),
    "right": lambda at, end: min(at + 1, end),
    "home": lambda _, __: 0,
    "ctrl+a": lambda _, __: 0,
    "end": lambda _, end: end,
    "ctrl+e": lambda _, end: end,
}
