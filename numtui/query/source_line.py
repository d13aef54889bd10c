"""Find the source file that a log names on this machine, and the editor command to open it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from matchers.comparison import Comparison
from matchers.errors import InputError

__all__ = ["editor_command", "find_source", "source_lines", "split_location"]

_MAX_FILES = 100_000
"""Files visited in search of one: seconds on a slow disk."""
_SKIPPED = frozenset({"node_modules", "__pycache__", "build", "dist", "site-packages"})
_COLON = ("code", "codium", "code-insiders", "cursor", "subl", "hx", "helix", "zed", "micro")
"""Editors that take `file:line`; all others take `+line file`, like vi."""


def source_lines(c: Comparison, row: int) -> tuple[str, ...]:
    """Return the source lines of a row, a's first; b's only where it differs."""
    if row < 0:
        return ()
    sides = ((c.a, int(c.row_a[row])), (c.b, int(c.row_b[row])))
    found = (log.location_text(record) for log, record in sides if record >= 0)
    return tuple(dict.fromkeys(location for location in found if location))


def split_location(location: str) -> tuple[str, int]:
    """Split `model.py:12` into `model.py` and 12; line 1 where none is named."""
    path, colon, line = location.rpartition(":")
    return (path, int(line)) if colon and line.isascii() and line.isdigit() else (location, 1)


def find_source(name: str, roots: Sequence[Path]) -> Path | None:
    """Find the file that a log calls `name`, possibly only the end of its path; None where it is missing.

    Tries `name` itself, then the trees below the roots without hidden folders, caches and environments. A log comes
    from anywhere: only files that lie below a root, all links followed, are found.

    Raises:
        InputError: such a file lies elsewhere.
    """
    if not name or "\0" in name:
        return None
    real = [os.path.realpath(root) for root in roots]
    outside = ""
    for path in _candidates(name, roots):
        if not os.path.isfile(path):  # `Path.is_file` raises for a name that is too long
            continue
        target = os.path.realpath(path)
        if any(os.path.commonpath((root, target)) == root for root in real):
            return path
        outside = outside or target
    if outside:
        raise InputError(
            f"{outside} is not opened: a log may name any file, and this one is not below the current folder "
            "nor a folder of the setting `sources`"
        )
    return None


def _candidates(name: str, roots: Sequence[Path]) -> Iterator[Path]:
    """Yield paths where the file may be, the likeliest first."""
    yield from (root / name for root in roots)
    wanted = Path(name).parts
    if not wanted or ".." in wanted or Path(name).is_absolute():
        return
    seen = 0
    for root in roots:
        for place, folders, files in os.walk(root):
            folders[:] = sorted(
                d for d in folders if not d.startswith(".") and d not in _SKIPPED and d != "site-packages"
            )
            seen += len(files)
            if wanted[-1] in files and (Path(place) / wanted[-1]).parts[-len(wanted) :] == wanted:
                yield Path(place) / wanted[-1]
            if seen > _MAX_FILES:
                return


def editor_command(template: str | None, path: Path, line: int) -> list[str]:
    """Build the command that opens a line of a file: from the settings, else `$VISUAL`, `$EDITOR`, or `vi`.

    Raises:
        InputError: the setting is not a command.
    """
    try:
        words = shlex.split(template or os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    except ValueError as error:
        raise InputError(f"the editor setting is not a command: {error}") from None
    if not words:
        raise InputError("the editor setting is empty")
    if any("{file}" in word for word in words):
        return [word.replace("{file}", str(path)).replace("{line}", str(line)) for word in words]
    if Path(words[0]).name in _COLON:
        goto = ["-g"] if Path(words[0]).name.startswith(("cod", "cursor")) else []
        return [*words, *goto, f"{path}:{line}"]
    return [*words, f"+{line}", str(path)]
