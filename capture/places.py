"""Files of others in the way of a log: links at its path, folders in which everybody may exchange it."""

from __future__ import annotations

import os
import stat
from functools import cache
from pathlib import Path

from .messages import say

__all__ = ["open_own", "say_if_open_to_others"]


def open_own(path: str, flags: int) -> int:
    """Open a file for `open`, as its opener; a link at its path is an error, and so is a pipe that nobody reads."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def say_if_open_to_others(log: Path) -> None:
    """Say once of a folder above a log that everybody may write to, and so exchange the log or what leads to it."""
    _say_if_open(log.parent)


@cache
def _say_if_open(folder: Path) -> None:
    real = Path(os.path.realpath(folder))
    for above in (real, *real.parents):
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            say(f"everybody may write to {above}, and so exchange the logs in {folder}: chmod o-w {above}")
            return
