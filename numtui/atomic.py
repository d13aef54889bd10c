"""Files that are there whole or not at all: written beside the target, forced to disk, then renamed over it."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

__all__ = ["atomic_writer"]


@contextmanager
def atomic_writer(path: str | os.PathLike[str], *, mode: int = 0o644) -> Iterator[TextIO]:
    """Open a text file (UTF-8) that replaces `path` when the block ends without an exception, and else vanishes.

    An existing file keeps its permissions and stays where a symbolic link points; `mode` is for a new one and is
    narrowed by the umask. What is no regular file (`/dev/stdout`, a FIFO) is written to directly.

    Raises:
        OSError: the folder cannot be written, the disk is full. Nothing is left behind.
    """
    target = Path(os.path.realpath(path))
    try:
        old = target.stat()
    except FileNotFoundError:
        old = None
    if old is not None and not stat.S_ISREG(old.st_mode):
        with target.open("w", encoding="utf-8", newline="") as direct:
            yield direct
        return
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:64]}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as out:
            os.fchmod(out.fileno(), stat.S_IMODE(old.st_mode) if old is not None else mode & ~_umask())
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, target)
    except BaseException:
        # Also for a Ctrl-C in the middle: half a file must not be found later.
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(target.parent)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Force the rename itself to disk, where the file system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
