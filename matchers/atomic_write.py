"""Atomic file writes: a temporary file beside the target is forced to disk, then renamed over it."""

from __future__ import annotations

import errno
import io
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import BinaryIO, TextIO

__all__ = ["atomic_binary", "atomic_write", "atomic_writer", "process_exists"]


_PART = ".part"
_OLD = 3600.0
"""Seconds after which a temporary file of a process that is not here is nobody's: it may be on another machine."""


@contextmanager
def atomic_binary(
    path: str | os.PathLike[str],
    *,
    mode: int = 0o666,
    check: Callable[[], None] | None = None,
    durable: bool = True,
) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` if the block succeeds and is deleted if it raises.

    An existing file keeps its permissions, and symbolic links are followed. `mode` applies to new files only and is
    narrowed by the umask. `check` is called when all is on the disk, just before the file is replaced, and may raise.
    Without `durable` nothing waits for the disk: a crash of the machine may leave a damaged file.

    Raises:
        OSError: the folder is not writable or the disk is full. Nothing is left behind.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mode &= ~_umask()
    own = f".{target.name[:64]}."
    _remove_left_behind(target.parent, own)
    descriptor, temporary = tempfile.mkstemp(prefix=f"{own}{os.getpid()}.", suffix=_PART, dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as out:
            os.fchmod(out.fileno(), mode)
            yield out
            out.flush()
            if durable:
                os.fsync(out.fileno())
        if check is not None:
            check()
        os.replace(temporary, target)
    except BaseException:
        # Ctrl-C too must not leave half a file behind.
        with suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        _sync_folder(target.parent)


@contextmanager
def atomic_writer(path: str | os.PathLike[str], *, mode: int = 0o644) -> Iterator[TextIO]:
    """Open a UTF-8 text file like `atomic_binary`; anything but a regular file (`/dev/stdout`, a FIFO) is written
    directly.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "w", encoding="utf-8", newline="") as direct:
            yield direct
        return
    with atomic_binary(path, mode=mode) as out:
        text = io.TextIOWrapper(out, encoding="utf-8", newline="")
        yield text
        text.flush()
        text.detach()


def process_exists(pid: int) -> bool:
    """True while a process with this number runs here."""
    if not 0 < pid < 1 << 31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove_left_behind(folder: Path, prefix: str) -> None:
    """Delete the old temporary files of saves that were killed."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not (entry.name.startswith(prefix) and entry.name.endswith(_PART)):
                continue
            pid = entry.name.removeprefix(prefix).partition(".")[0]
            dead = not (pid.isascii() and pid.isdigit() and len(pid) < 11 and process_exists(int(pid)))
            with suppress(OSError):
                if dead and entry.is_file(follow_symlinks=False) and time.time() - entry.stat().st_mtime > _OLD:
                    os.unlink(entry.path)


def _umask() -> int:
    """Return the process's umask, which can only be read by setting it."""
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


def atomic_write(path: str | PathLike[str], data: bytes, *, check: Callable[[], None] | None = None) -> None:
    """Replace a file in one step: readers see the old content or the new one, even after a crash or on a full disk.

    Follow symbolic links, keep the mode of an existing file, and leave no temporary file behind. `check` is that of
    `atomic_binary`.

    Raises:
        OSError: writing failed, or the file is read-only (even if its folder is writable).
    """
    target = Path(os.path.realpath(path))
    if target.exists():
        if not target.is_file():
            raise OSError(errno.EINVAL, "not a regular file", str(target))
        if not os.access(target, os.W_OK):
            raise OSError(errno.EACCES, "the file is read-only", str(target))
    with atomic_binary(target, check=check) as file:
        file.write(data)
