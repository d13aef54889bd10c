"""The bytes of a log, in pieces that each start with a record.

Plain files, gzip (by name or content) and standard input look the same. A truncated gzip file yields everything that
could be decompressed; `cut_off` then holds the reason.

What no log is, is refused before it fills the memory: devices, records of many megabytes, gzip files that expand more
than numbers can.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from typing import IO, cast

from matchers.errors import LogError
from matchers.logs.devices import refuse_device
from matchers.logs.file_identity import Content

__all__ = ["LogSource"]

_CHUNK = 256 << 10
"""Bytes of a piece: what was read is still in the cache of the processor when it is parsed."""
_MAX_RECORD = 64 << 20
"""Bytes without the beginning of a record; an operation on 100,000 tensors takes a third of that."""
_MAX_LINES = 1 << 20
"""Lines without the beginning of a record; each output of an operation has one."""
_TOO_LARGE = f"{_MAX_RECORD >> 20} MiB or {_MAX_LINES:,} lines"
_MAX_LINE = 16 << 20
_START = 64 << 10
"""Bytes by which a format is recognised."""
_FEW = 1 << 20
_SUSPICIOUS = 8 << 20
_MAX_EXPANSION = 100
"""Greatest ratio of a gzip file's content to itself, from `_SUSPICIOUS` bytes on. A log has 2 to 8, and 53 if all its
values are zeros."""


class LogSource:
    """A log open for reading; use it in a `with` statement."""

    def __init__(self, path: str, content: Content | None = None) -> None:
        """Open `path`, a file or `-` for standard input. `content` takes the digest of what is read.

        Raises:
            LogError: a directory, a device, or standard input is closed.
            OSError: the file cannot be opened.
        """
        self.cut_off: str | None = None
        self.taken = 0
        """Bytes read so far, of a compressed file those that it expands to."""
        if path == "-" and sys.stdin is None:
            raise LogError("standard input: is closed")
        self._name = "standard input" if path == "-" else path
        if path != "-" and os.path.isdir(path):
            raise LogError(f"{path}: is a directory, not a log")
        if path != "-" and os.path.exists(path):
            refuse_device(path, os.stat(path))  # before it is opened, which may do something
        self._file: IO[bytes] = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115 - see __exit__
        self._owned = path != "-"
        self._size = max(os.fstat(self._file.fileno()).st_size, 1) if self._owned else 0
        magic = self._file.peek(2)[:2] if isinstance(self._file, io.BufferedReader) else b""
        self._compressed = path.endswith(".gz") or magic == b"\x1f\x8b"
        self._content = content if self._owned else None
        if self._content is not None:
            self._content.watch(self._file)
        self._packed = _Counted(self._file, self._content)
        packed = cast("IO[bytes]", self._packed)
        self._stream: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=packed) if self._compressed else packed
        self._ahead = b""

    def __enter__(self) -> LogSource:
        return self

    def __exit__(self, *_: object) -> None:
        if self._content is not None:
            self._content.finish(self._file)
        if self._owned:
            self._file.close()

    def fraction(self) -> float:
        """Fraction of the file read so far, 0 to 1; 0 if the size is unknown."""
        return min(self._file.tell() / self._size, 1.0) if self._owned and self._file.seekable() else 0.0

    def start(self) -> bytes:
        """The first bytes, by which a format is recognised; they are read again afterwards."""
        self._ahead = self._ahead or self._read(_START)
        return self._ahead

    def pieces(self, head: int | None = None) -> Iterator[tuple[bytes, bool]]:
        """Yield (piece, is it the last), cut before lines that start with `[`.

        Args:
            head: yield a single piece of about this many bytes.
        """
        size = _CHUNK if head is None else head
        pending: list[bytes] = []
        room, lines = _MAX_RECORD, _MAX_LINES
        while True:
            block = self._read(size)
            if pending and not block.startswith(b"["):
                before = block[: block.find(b"\n[") + 1 or len(block)]
                room, lines = room - len(before), lines - before.count(b"\n")
                if room < 0 or lines < 0:
                    raise LogError(f"{self._name}: a record has more than {_TOO_LARGE}: this is no operation log")
            if not block or (head is None and len(block) < size):  # there is no more
                yield b"".join((*pending, block)), True
                return
            # the newline of "\n[" may be the last byte of the previous block
            if pending and pending[-1][-1:] == b"\n" and block[:1] == b"[":
                cut = 0
            else:
                cut = block.rfind(b"\n[") + 1
                if cut == 0:
                    pending.append(block)
                    if head is not None:
                        yield b"".join(pending), False
                        return
                    continue
            if pending or cut:
                yield b"".join((*pending, memoryview(block)[:cut])), False
            if head is not None:
                return
            pending = [block[cut:]]
            room, lines = _MAX_RECORD, _MAX_LINES

    def _read(self, size: int) -> bytes:
        """Read the next `size` bytes, fewer at the end."""
        if self._ahead:
            block, self._ahead = self._ahead[:size], self._ahead[size:]
            return block + self._read(size - len(block)) if len(block) < size else block
        if not isinstance(self._stream, gzip.GzipFile):
            block = self._stream.read(size)
            self.taken += len(block)
            return block
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
        self._refuse_bomb(_SUSPICIOUS)
        self.taken = self._stream.tell()
        return b"".join(parts)

    def _refuse_bomb(self, above: int) -> None:
        size = self._stream.tell() if self._compressed else 0
        if size > above and size > _MAX_EXPANSION * self._packed.size:
            ratio = size // max(self._packed.size, 1)
            raise LogError(f"{self._name}: expands to {ratio:,} times its size, which no log does: it was not read")

    def blocks(self) -> Iterator[bytes]:
        """Yield all bytes; a damaged gzip file ends early, which `cut_off` says.

        Raises:
            LogError: the file is no log.
        """
        while block := self._read(_FEW):
            self._refuse_bomb(_FEW)
            yield block

    def whole_lines(self) -> Iterator[bytes]:
        """Yield all bytes, cut behind line breaks; a damaged gzip file ends early, which `cut_off` says.

        Raises:
            LogError: a line is too long, or the file no log.
        """
        rest = b""
        for block in self.blocks():
            text = rest + block
            cut = text.rfind(b"\n") + 1
            rest = text[cut:]
            if len(rest) > _MAX_LINE:
                raise LogError(f"{self._name}: a line is longer than {_MAX_LINE >> 20} MiB: this is no log")
            if cut:
                yield text[:cut]
        if rest:
            yield rest

    def lines(self) -> Iterator[bytes]:
        """Yield the lines, each with its line break; otherwise as `whole_lines`."""
        for text in self.whole_lines():
            whole = text.split(b"\n")
            rest = whole.pop()
            yield from (line + b"\n" for line in whole)
            if rest:
                yield rest


class _Counted:
    """A file, the number of bytes read of it, and their digest if it is wanted."""

    def __init__(self, file: IO[bytes], content: Content | None) -> None:
        self._file = file
        self._content = content
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.size += len(data)
        if self._content is not None:
            self._content.add(data)
        return data
