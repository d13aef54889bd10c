"""The bytes of a log, in pieces that each start with a record.

Plain files, gzip (by name or content) and standard input look the same. A truncated gzip file yields everything that
could be decompressed; `cut_off` then holds the reason.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from typing import IO

from matchers.errors import LogError
from matchers.logs.byte_words import PADDING

__all__ = ["LogSource"]

_CHUNK = 4 << 20


class LogSource:
    """A log open for reading; use it in a `with` statement."""

    def __init__(self, path: str) -> None:
        """Open `path`, a file or `-` for standard input.

        Raises:
            LogError: a directory, or standard input is closed.
            OSError: the file cannot be opened.
        """
        self.cut_off: str | None = None
        if path == "-" and sys.stdin is None:
            raise LogError("standard input: is closed")
        if path != "-" and os.path.isdir(path):
            raise LogError(f"{path}: is a directory, not a log")
        self._file: IO[bytes] = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115 - see __exit__
        self._owned = path != "-"
        self._size = max(os.fstat(self._file.fileno()).st_size, 1) if self._owned else 0
        magic = self._file.peek(2)[:2] if isinstance(self._file, io.BufferedReader) else b""
        self._compressed = path.endswith(".gz") or magic == b"\x1f\x8b"
        self._stream: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=self._file) if self._compressed else self._file

    def __enter__(self) -> LogSource:
        return self

    def __exit__(self, *_: object) -> None:
        if self._owned:
            self._file.close()

    def fraction(self) -> float:
        """Fraction of the file read so far, 0 to 1; 0 if the size is unknown."""
        return min(self._file.tell() / self._size, 1.0) if self._owned and self._file.seekable() else 0.0

    def pieces(self, head: int | None = None) -> Iterator[tuple[bytes, bool]]:
        """Yield (piece, is it the last), cut before lines that start with `[`.

        Every piece ends in `PADDING` extra zero bytes; adding them later would copy the log once more.

        Args:
            head: yield a single piece of about this many bytes.
        """
        size = _CHUNK if head is None else head
        padding = bytes(PADDING)
        pending: list[bytes] = []
        while True:
            block = self._read(size)
            if not block or (head is None and len(block) < size):  # there is no more
                yield b"".join((*pending, block, padding)), True
                return
            # the newline of "\n[" may be the last byte of the previous block
            if pending and pending[-1][-1:] == b"\n" and block[:1] == b"[":
                cut = 0
            else:
                cut = block.rfind(b"\n[") + 1
                if cut == 0:
                    pending.append(block)
                    if head is not None:
                        yield b"".join((*pending, padding)), False
                        return
                    continue
            if pending or cut:
                yield b"".join((*pending, memoryview(block)[:cut], padding)), False
            if head is not None:
                return
            pending = [block[cut:]]

    def _read(self, size: int) -> bytes:
        """Read the next `size` bytes, fewer at the end."""
        if not isinstance(self._stream, gzip.GzipFile):
            return self._stream.read(size)
        # in small steps, because an error discards everything read in the same call
        parts: list[bytes] = []
        try:
            while size > 0 and self.cut_off is None and (part := self._stream.read1(size)):
                parts.append(part)
                size -= len(part)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            if not parts and self._stream.tell() == 0 and not isinstance(error, EOFError):
                raise OSError(f"not a gzip file, or a damaged one ({error})") from None
            self.cut_off = f"the compressed file is damaged or ends early ({error})"
        return b"".join(parts)
