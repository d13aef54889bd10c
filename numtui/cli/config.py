"""Optional user settings: `config.yaml` in `~/.config/numtui`.

    keys:                 # by the names that `:` takes; these keys replace the ones an action has
      next-red: [n, "] c"]
      page-down: [ctrl+f, space]
      html: []            # no key; the palette still has it
    theme: nord           # a theme of the explorer (default: the terminal's own colours)
    color: false          # as --no-color
    mouse: true           # as --mouse
    session: false        # as --no-session
    cache: 4 GiB          # the most that logs once read may take (default: 1 GiB); false as --no-cache
    editor: code -g {file}:{line}
    sources: [~/torchtitan]   # further folders below which V opens source files
    replay_python: ~/train/bin/python   # a Python with torch, for replays (default: this one)

Every mistake is an error with its position: a silently ignored setting looks like a bug.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from matchers.errors import InputError
from numtui.folders import config_folders
from numtui.paths import small_text, typed_path

if TYPE_CHECKING:
    from matchers.files.yaml_tree import Node

__all__ = ["Config", "config_path", "load_config"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """User settings.

    Attributes:
        keys: keys by action id, in place of the default ones.
        theme: name of a theme, None for the terminal's own colours.
        color, mouse, session: as the command-line options.
        cache: the most bytes that the cache may take, 0 to do without.
        editor: the command that shows a line of a file, with `{file}` and `{line}` in it; None for `$VISUAL`.
        sources: folders below which files may be opened, besides the current one.
        replay_python: a Python with torch; None for the one that runs.
    """

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    theme: str | None = None
    color: bool = True
    mouse: bool = False
    session: bool = True
    cache: int = 1 << 30
    editor: str | None = None
    sources: tuple[Path, ...] = ()
    replay_python: str | None = None


def config_path() -> Path:
    """Return the path of the settings file, which may not exist."""
    paths = [folder / "config.yaml" for folder in config_folders()]
    return next((path for path in paths if os.path.exists(path)), paths[0])


def load_config(path: Path | None = None) -> Config:
    """Return the settings of a file; without one, the defaults.

    Raises:
        InputError: the file cannot be read or is invalid; the text says where and lists valid values.
    """
    path = config_path() if path is None else path
    try:
        text = small_text(path, "file of settings")
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return _Reader(path, text).config()


_SHIFT = {"MiB": 20, "GiB": 30, "TiB": 40}
_BYTES = re.compile(rf"([1-9]\d{{0,5}}) ?({'|'.join(_SHIFT)})", re.ASCII)


class _Reader:
    """Parser from a YAML tree to settings."""

    def __init__(self, path: Path, text: str) -> None:
        from matchers.files.yaml_tree import Lines  # imports PyYAML: 20 ms saved without settings

        self._path, self._text, self._lines = path, text, Lines(text)

    def config(self) -> Config:
        from matchers.files.yaml_tree import TreeError, read_tree

        try:
            root = read_tree(self._text).root
        except TreeError as error:
            raise self._wrong(error.index, str(error)) from None
        values: dict[str, object] = {}
        for name, node in self._pairs(root, "settings"):
            if name.text == "keys":
                values["keys"] = self._keys(node)
            elif name.text in ("theme", "editor"):
                values[name.text] = self._word(node, name.text)
            elif name.text == "sources":
                values[name.text] = tuple(map(self._folder, node.items if node.kind == "list" else [node]))
            elif name.text == "replay_python":
                values[name.text] = str(self._absolute(node, name.text))
            elif name.text == "cache":
                values[name.text] = self._bytes(node)
            elif name.text in ("color", "mouse", "session"):
                values[name.text] = self._switch(node, name.text)
            else:
                known = "keys, theme, color, mouse, session, cache, editor, sources, replay_python"
                raise self._wrong(name.start, f"{name.text!r} is no setting; there are {known}")
        return Config(**values)  # type: ignore[arg-type]

    def _wrong(self, index: int, message: str) -> InputError:
        line, column = self._lines.number(index) + 1, self._lines.column(index) + 1
        return InputError(f"{self._path}:{line}:{column}: {message}")

    def _pairs(self, node: Node, what: str) -> Iterator[tuple[Node, Node]]:
        if node.null:
            return
        if node.kind != "map":
            raise self._wrong(node.start, f"{what} are written as `name: value`, one on a line")
        seen = set()
        for name, value in node.pairs:
            if name.text in seen:
                raise self._wrong(name.start, f"{name.text!r} is set twice")
            seen.add(name.text)
            yield name, value

    def _word(self, node: Node, name: str) -> str:
        if node.kind != "text" or node.null or not node.text.strip():
            raise self._wrong(node.start, f"{name}: a text is expected")
        return node.text

    def _folder(self, node: Node) -> Path:
        return self._absolute(node, "sources", "a folder")

    def _absolute(self, node: Node, name: str, what: str = "it") -> Path:
        try:
            path = typed_path(self._word(node, name), expand=True)
        except InputError as error:
            raise self._wrong(node.start, f"{name}: {error}") from None
        if not path.is_absolute():
            raise self._wrong(node.start, f"{name}: {what} is given from / or ~ on")
        return path

    def _bytes(self, node: Node) -> int:
        """A size with its unit; 0 for `false`."""
        if node.kind == "text" and not node.quoted and node.text == "false":
            return 0
        match = _BYTES.fullmatch(node.text) if node.kind == "text" else None
        if match is None:
            raise self._wrong(node.start, "cache: expected a size like `500 MiB` or `4 GiB`, or false")
        return int(match[1]) << _SHIFT[match[2]]

    def _switch(self, node: Node, name: str) -> bool:
        if node.kind != "text" or node.quoted or node.text not in ("true", "false"):
            raise self._wrong(node.start, f"{name}: expected true or false")
        return node.text == "true"

    def _keys(self, node: Node) -> dict[str, tuple[str, ...]]:
        from numtui.actions import ACTIONS, conflicts, key_label, remapped  # few settings name keys, reports need none

        ids = {name: action.id for action in ACTIONS for name in (action.name, action.id)}
        found: dict[str, tuple[str, ...]] = {}
        where: dict[str, Node] = {}
        for name, value in self._pairs(node, "keys"):
            if name.text not in ids:
                raise self._wrong(name.start, f"{name.text!r} is no action; the help (?) and ctrl+p name them all")
            given = value.items if value.kind == "list" else [value]
            for key in given:
                if (wrong := _wrong_key(key.text) if key.kind == "text" else "a key is expected") != "":
                    raise self._wrong(key.start, f"{name.text}: {wrong}")
            found[ids[name.text]] = tuple(key.text for key in given)
            where[ids[name.text]] = value
        for one, other, taken in conflicts(remapped(found)):
            # Report the one that this file sets.
            mine, theirs = (one, other) if one.id in found else (other, one)
            raise self._wrong(
                where[mine.id].start,
                f"{mine.name}: the key {key_label(taken)} does {theirs.name} already; give that one another key too",
            )
        return found


_NAMED = frozenset(
    {
        "up",
        "down",
        "left",
        "right",
        "home",
        "end",
        "pageup",
        "pagedown",
        "insert",
        "delete",
        "backspace",
        "enter",
        "tab",
    }
    | {"escape", "space"}
)
_CHORD = re.compile(r"(ctrl|shift|alt)\+([a-z0-9]|[a-z]+)|f([1-9]|1[0-9]|2[0-4])|shift\+tab")


def _wrong_key(text: str) -> str:
    """Return the error of a key or a sequence of keys (`z z`); empty when valid."""
    parts = text.split(" ")
    for part in parts:
        if len(part) == 1 and part.isprintable():
            if part.isdigit() and len(parts) > 1:
                return f"{text!r}: a digit begins a count, it cannot be part of a sequence"
            continue
        if part not in _NAMED and not _CHORD.fullmatch(part):
            return f"{text!r} is no key; keys are written as x, X, ctrl+x, f5, pagedown, or several with blanks: z z"
    return ""
