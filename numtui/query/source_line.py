"""From the source line that a log names to a file on this machine, and the command that shows it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from matchers.comparison import Comparison
from matchers.errors import InputError

__all__ = ["editor_command", "find_source", "source_lines", "split_location"]

_MAX_FILES = 100_000
"""Files that are looked at in search of one: seconds on a slow disk."""
_SKIPPED = frozenset({"node_modules", "__pycache__", "build", "dist"})
_COLON = ("code", "codium", "code-insiders", "cursor", "subl", "hx", "helix", "zed", "micro")
"""Editors that take `file:line`; the others take `+line file`, as vi does."""


def source_lines(c: Comparison, row: int) -> tuple[str, ...]:
    """Where the operations of a row stand in the source, a's line first; b's only where it is another one."""
    if row < 0:
        return ()
    sides = ((c.a, int(c.row_a[row])), (c.b, int(c.row_b[row])))
    found = (log.location_text(record) for log, record in sides if record >= 0)
    return tuple(dict.fromkeys(location for location in found if location))


def split_location(location: str) -> tuple[str, int]:
    """`model.py`, 12 of `model.py:12`; line 1 where none is named."""
    path, colon, line = location.rpartition(":")
    return (path, int(line)) if colon and line.isascii() and line.isdigit() else (location, 1)


def find_source(name: str, folder: Path) -> Path | None:
    """The file that a log calls `name`, which may be the end of its path only; None where it is not here.

    Looked for as it stands, then below `folder`: hidden folders, caches and environments are passed over.
    """
    if not name or "\0" in name:
        return None
    direct = folder / name
    if direct.is_file():
        return direct
    wanted = Path(name).parts
    if not wanted or ".." in wanted or Path(name).is_absolute():
        return None
    seen = 0
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(d for d in folders if not d.startswith(".") and d not in _SKIPPED and d != "site-packages")
        seen += len(files)
        if wanted[-1] in files and (Path(place) / wanted[-1]).parts[-len(wanted) :] == wanted:
            return Path(place) / wanted[-1]
        if seen > _MAX_FILES:
            return None
    return None


def editor_command(template: str | None, path: Path, line: int) -> list[str]:
    """The command that shows a line of a file: that of the settings, else `$VISUAL`, `$EDITOR`, or `vi`.

    Raises:
        InputError: what it is set to is no command.
    """
    try:
        words = shlex.split(template or os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    except ValueError as error:
        raise InputError(f"the editor is set to no command: {error}") from None
    if not words:
        raise InputError("the editor is set to no command")
    if any("{file}" in word for word in words):
        return [word.replace("{file}", str(path)).replace("{line}", str(line)) for word in words]
    if Path(words[0]).name in _COLON:
        goto = ["-g"] if Path(words[0]).name.startswith(("cod", "cursor")) else []
        return [*words, *goto, f"{path}:{line}"]
    return [*words, f"+{line}", str(path)]
