"""A few lines of text under the keys of a shell: what a rule is typed into.

Pure and synchronous like the line editor, and for the same reason: a key changes the text before the next one is
looked at, however fast they come.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["TextEditor"]

_TAB = 2
"""Blanks that a tab stands for at most."""

_State = tuple[tuple[str, ...], int, int]


@dataclass(slots=True)
class TextEditor:
    """Lines, and a cursor: `y` is its line, `x` the character it stands before."""

    lines: list[str]
    y: int = 0
    x: int = 0
    _past: list[_State] = field(default_factory=list)
    _future: list[_State] = field(default_factory=list)
    _typing: bool = False
    """The last key was a letter; several of them are undone together."""

    @classmethod
    def of(cls, text: str) -> TextEditor:
        """The text, with the cursor behind its first line."""
        lines = text.split("\n")
        return cls(lines, x=len(lines[0]))

    @property
    def before(self) -> str:
        """The text before the cursor."""
        return "\n".join([*self.lines[: self.y], self.lines[self.y][: self.x]])

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.lines)

    def insert(self, text: str, *, typing: bool = False) -> None:
        """Type or paste; what no terminal shows is left out."""
        clean = text.expandtabs(_TAB).replace("\r\n", "\n").replace("\r", "\n")
        first, *rest = ("".join(char for char in line if char.isprintable()) for line in clean.split("\n"))
        self._remember(typing=typing and not rest)
        before, after = self.lines[self.y][: self.x], self.lines[self.y][self.x :]
        self.lines[self.y : self.y + 1] = [before + first, *rest]
        self.y += len(rest)
        self.x = len(self.lines[self.y])
        self.lines[self.y] += after

    def key(self, key: str, character: str | None = None) -> bool:
        """Press a key, by Textual's name of it; `character` is what it prints. Whether it meant anything."""
        if key in _MOVES:
            self._typing = False
            self._move(key)
        elif key == "enter":
            line = self.lines[self.y]
            self.insert("\n" + line[: min(len(line) - len(line.lstrip(" ")), self.x)])
        elif key in ("backspace", "ctrl+h"):
            self._cut_before(1)
        elif key == "delete":
            self._cut_behind(1)
        elif key == "ctrl+u":
            self._cut_before(max(self.x, 1))
        elif key == "ctrl+k":
            self._cut_behind(max(len(self.lines[self.y]) - self.x, 1))
        elif key == "ctrl+w":
            before = self.lines[self.y][: self.x]
            self._cut_before(max(len(before) - (before.rstrip().rfind(" ") + 1), 1))
        elif key == "ctrl+z":
            self._travel(self._past, self._future)
        elif key == "ctrl+y":
            self._travel(self._future, self._past)
        elif character is not None and character.isprintable():
            self.insert(character, typing=True)
        else:
            return False
        return True

    def _move(self, key: str) -> None:
        last = len(self.lines) - 1
        if key in ("up", "down", "pageup", "pagedown"):
            self.y = {"up": max(self.y - 1, 0), "down": min(self.y + 1, last), "pageup": 0, "pagedown": last}[key]
            self.x = min(self.x, len(self.lines[self.y]))
        elif key == "left" and self.x == 0 and self.y > 0:
            self.y -= 1
            self.x = len(self.lines[self.y])
        elif key == "right" and self.x == len(self.lines[self.y]) and self.y < last:
            self.y, self.x = self.y + 1, 0
        elif key in ("left", "right"):
            self.x = min(max(self.x + (1 if key == "right" else -1), 0), len(self.lines[self.y]))
        else:
            self.x = 0 if key in ("home", "ctrl+a") else len(self.lines[self.y])

    def _cut_before(self, count: int) -> None:
        """Characters before the cursor; at the start of a line its break."""
        if self.x == 0 and self.y == 0:
            return
        self._remember()
        line = self.lines[self.y]
        if self.x > 0:
            self.lines[self.y] = line[: self.x - count] + line[self.x :]
            self.x -= count
        else:
            self.y -= 1
            self.x = len(self.lines[self.y])
            self.lines[self.y : self.y + 2] = [self.lines[self.y] + line]

    def _cut_behind(self, count: int) -> None:
        """Characters behind the cursor; at the end of a line its break."""
        line = self.lines[self.y]
        if self.x == len(line) and self.y + 1 == len(self.lines):
            return
        self._remember()
        if self.x < len(line):
            self.lines[self.y] = line[: self.x] + line[self.x + count :]
        else:
            self.lines[self.y : self.y + 2] = [line + self.lines[self.y + 1]]

    def _remember(self, *, typing: bool = False) -> None:
        if not (typing and self._typing):
            self._past.append(self._state)
        self._future.clear()
        self._typing = typing

    @property
    def _state(self) -> _State:
        return tuple(self.lines), self.y, self.x

    def _travel(self, source: list[_State], target: list[_State]) -> None:
        self._typing = False
        if source:
            target.append(self._state)
            lines, self.y, self.x = source.pop()
            self.lines = list(lines)


_MOVES = frozenset(
    {"up", "down", "left", "right", "pageup", "pagedown", "home", "end", "ctrl+a", "ctrl+e"},
)
