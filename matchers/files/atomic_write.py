"""Atomic file writes: a temporary file beside the target is forced to disk, then renamed over it.

Processes that save one file take turns at the last step (`files.file_lock`), so that a check made in it still holds
when the file is replaced.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import BinaryIO, TextIO

from matchers.files.file_lock import PATIENCE, BusyError, locked

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
    patience: float = PATIENCE,
) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` if the block succeeds and is deleted if it raises.

    An existing file keeps its permissions, and symbolic links are followed. `mode` applies to new files only and is
    narrowed by the umask. `check` is called when all is on the disk, just before the file is replaced, and may raise;
    no other process replaces the file from then on. Without `durable` nothing waits for the disk, nor for other
    processes: a crash of the machine may leave a damaged file.

    Raises:
        BusyError: another process replaces the file and has not ended that after `patience` seconds.
        OSError: the folder is not writable or the disk is full. Nothing is left behind.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mode &= ~_umask()
    own = f".{target.name[:64]}."
    _remove_left_behind(target.parent, own)
    prefix = f"{own}{os.getpid()}.{_host()}."
    import tempfile  # 3 ms that a report does not need

    descriptor, temporary = tempfile.mkstemp(prefix=prefix, suffix=_PART, dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as out:
            os.fchmod(out.fileno(), mode)
            yield out
            out.flush()
            if durable:
                os.fsync(out.fileno())
        if durable:
            _publish(temporary, target, check, patience)
        else:
            os.replace(temporary, target)
    except BaseException as error:
        # Ctrl-C too must not leave half a file behind.
        if isinstance(error, BusyError):
            error.strerror = _saver(target.parent, own, temporary) or error.strerror
        with suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        _sync_folder(target.parent)


def _publish(temporary: str, target: Path, check: Callable[[], None] | None, patience: float) -> None:
    """Put a complete file in its place."""
    while True:
        with locked(target, patience) as exists:
            if check is not None:
                check()
            if exists:
                os.replace(temporary, target)
                return
            # A new file has nothing to lock: of several that make it, the first succeeds.
            try:
                os.link(temporary, target)
            except FileExistsError:
                continue
            except OSError:  # a file system without hard links
                os.replace(temporary, target)
            else:
                os.unlink(temporary)
            return


@contextmanager
def atomic_writer(
    path: str | os.PathLike[str], *, mode: int = 0o644, check: Callable[[], None] | None = None
) -> Iterator[TextIO]:
    """Open a UTF-8 text file like `atomic_binary`; anything but a regular file (`/dev/stdout`, a FIFO) is written
    directly.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "w", encoding="utf-8", newline="") as direct:
            yield direct
        return
    with atomic_binary(path, mode=mode, check=check) as out:
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
    for path, pid, _ in _temporary_files(folder, prefix):
        with suppress(OSError):
            if not process_exists(pid) and time.time() - os.stat(path).st_mtime > _OLD:
                os.unlink(path)


def _saver(folder: Path, prefix: str, own: str) -> str:
    """Name the process that has been saving for the longest time, by its temporary file; empty if there is none."""
    found: list[tuple[float, int, str]] = []
    for path, pid, host in _temporary_files(folder, prefix):
        # others may write to this folder
        if path != own and host and host.isascii() and host.isprintable() and (host != _host() or process_exists(pid)):
            with suppress(OSError):
                found.append((os.stat(path).st_mtime, pid, host))
    return "numtui, process {1} on {2}, is saving it".format(*min(found)) if found else ""


def _temporary_files(folder: Path, prefix: str) -> Iterator[tuple[str, int, str]]:
    """Yield the temporary files of saves: path, process and host; 0 and an empty text where the name says none."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not (entry.name.startswith(prefix) and entry.name.endswith(_PART)):
                continue
            pid, _, rest = entry.name.removeprefix(prefix).removesuffix(_PART).partition(".")
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    number = int(pid) if pid.isascii() and pid.isdigit() and len(pid) < 11 else 0
                    yield entry.path, number, rest.rpartition(".")[0]


def _host() -> str:
    """Return the name of this machine, as a part of a file's name."""
    return os.uname().nodename[:32].replace("/", "_")


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


def atomic_write(
    path: str | PathLike[str],
    data: bytes,
    *,
    check: Callable[[], None] | None = None,
    patience: float = PATIENCE,
) -> None:
    """Replace a file in one step: readers see the old content or the new one, even after a crash or on a full disk.

    Follow symbolic links, keep the mode of an existing file, and leave no temporary file behind. `check` and
    `patience` are those of `atomic_binary`.

    Raises:
        BusyError: as `atomic_binary`.
        OSError: writing failed, or the file is read-only (even if its folder is writable).
    """
    target = Path(os.path.realpath(path))
    if target.exists():
        if not target.is_file():
            raise OSError(errno.EINVAL, "not a regular file", str(target))
        if not os.access(target, os.W_OK):
            raise OSError(errno.EACCES, "the file is read-only", str(target))
    with atomic_binary(target, check=check, patience=patience) as file:
        file.write(data)
