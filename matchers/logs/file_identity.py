"""Identity of a log file: at a glance by its status and its ends, for certain by a digest of all bytes."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from typing import IO

from matchers.logs.imported.files import files_of

__all__ = ["WORTHWHILE", "Content", "FileIdentity"]

WORTHWHILE = 1 << 20
"""Bytes of text that are worth an entry in a cache; a smaller log is read in 10 ms."""

_END = 4096
"""Bytes at either end: headers differ between ranks, footers and last records between runs."""
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The state of a file, wherever it lies.

    Every write changes the time of the status change, and only the system sets it: unlike the modification time it
    cannot be set back. File systems whose clock is too coarse for two writes are what `content` is for.

    Attributes:
        path: where it was found; not part of the identity.
        status: size, modification and status change in ns, inode; of several files all sizes, and the latest times.
        ends: digest of its first and last bytes; of several files of their statuses, too.
        files: those that the log is read from.
    """

    path: str
    status: tuple[int, int, int, int]
    ends: str
    files: tuple[str, ...]

    @classmethod
    def of(cls, path: str) -> FileIdentity | None:
        """The identity of a log in regular files; None for anything else (a pipe can be read only once)."""
        try:
            files = files_of(path)
            found = [_status_and_ends(file) for file in files]
        except (OSError, ValueError):
            return None
        if len(found) == 1:
            status, ends = found[0]
            return cls(path, status, hashlib.sha256(ends).hexdigest(), (*files,))
        ends = b"".join(f"{status} ".encode() + ends for status, ends in found)
        sizes, *times = zip(*(status for status, _ in found), strict=True) if found else ((),)
        latest = [max(of, default=0) for of in times]
        return cls(path, (sum(sizes), *latest), hashlib.sha256(ends).hexdigest(), (*files,)) if found else None

    @property
    def worthwhile(self) -> bool:
        """The log takes longer to read than an entry of a cache: a compressed one is ten times as large."""
        return self.status[0] * (10 if self.path.endswith(".gz") else 1) >= WORTHWHILE

    @property
    def key(self) -> str:
        """The identity as text, for keys."""
        return " ".join([*map(str, self.status), self.ends])

    def content(self) -> str:
        """SHA-256 of all bytes, in a tenth of the time that parsing takes; empty if the file cannot be read."""
        digests = []
        try:
            for path in self.files:
                read = Content()
                with open(path, "rb", buffering=0) as file:
                    read.watch(file)
                    while chunk := file.read(_CHUNK):
                        read.add(chunk)
                    digests.append(read.finish(file))
        except OSError:
            return ""
        whole = hashlib.sha256(" ".join(digests).encode()).hexdigest()
        return (digests[0] if len(digests) == 1 else whole) if all(digests) else ""


class Content:
    """The digest of a file's bytes, taken while something else reads them."""

    def __init__(self) -> None:
        self.digest = ""
        """SHA-256 of the whole file as hex; empty if it was not read to its end, or changed meanwhile."""
        self._sha = hashlib.sha256()
        self._size = 0
        self._before: tuple[int, ...] = ()

    def watch(self, file: IO[bytes]) -> None:
        """Note the status of a file that is about to be read."""
        self._before = _status(os.fstat(file.fileno()))

    def add(self, data: bytes) -> None:
        """Count the next bytes of the file."""
        self._sha.update(data)
        self._size += len(data)

    def finish(self, file: IO[bytes]) -> str:
        """Return the digest, now that the file was read."""
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and self._before == _status(status) and self._size == status.st_size:
            self.digest = self._sha.hexdigest()
        return self.digest


def _status_and_ends(path: str) -> tuple[tuple[int, int, int, int], bytes]:
    """The status of a regular file, its first and its last bytes.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no regular file.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path}: no regular file")
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        ends = os.pread(file.fileno(), _END, 0) + os.pread(file.fileno(), _END, max(size - _END, 0))
        return _status(os.fstat(file.fileno())), ends


def _status(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
