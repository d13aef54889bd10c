"""Locks between processes that save one file: waited for a bounded time, and left out where there are none."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["PATIENCE", "BusyError", "locked", "wait_for_lock"]

PATIENCE = 2.0
"""Seconds to wait for another process, which takes milliseconds; it may be stopped, or its disk may hang."""
_POLL = 0.005


class BusyError(OSError):
    """Another process holds the lock, and keeps it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(errno.EAGAIN, "another process is saving it", os.fspath(path))


def wait_for_lock(descriptor: int, path: str | os.PathLike[str], patience: float) -> None:
    """Lock an open file until it is closed; do nothing on a file system without locks.

    Raises:
        BusyError: another process still holds the lock after `patience` seconds.
    """
    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise BusyError(path) from None
            time.sleep(_POLL)
        except OSError:  # as ENOLCK, EOPNOTSUPP
            return
        else:
            return


@contextmanager
def locked(path: str | os.PathLike[str], patience: float = PATIENCE) -> Iterator[bool]:
    """Lock the file at a path against others that do so, also while each of them replaces it.

    The lock is on the file itself: a file for the lock beside it would litter the user's folder, and one elsewhere
    would be another one for another user or on another machine. As the file is replaced by renaming, a lock counts only
    on what the path still names. Yields False where there is no file yet, and nothing is locked.

    Raises:
        BusyError: as `wait_for_lock`.
    """
    while True:
        try:
            # network file systems lock only what can be written
            descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            exists = not isinstance(error, FileNotFoundError)
            break
        try:
            wait_for_lock(descriptor, path, patience)
            if _is_at(descriptor, path):
                yield True
                return
        finally:
            os.close(descriptor)
    yield exists


def _is_at(descriptor: int, path: str | os.PathLike[str]) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
