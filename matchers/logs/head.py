"""Header and footer of a log, read without the rest of it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from itertools import islice
from typing import IO

from capture import log_format
from matchers.logs.source import LogSource

__all__ = ["LogEnds", "captured_step", "read_ends", "read_head"]

_MAX_HEADER = 100
_SEPARATOR = b"===="
_PIECE = 1 << 15
_MAX_SIZE = 16 << 20
"""Bytes of a header."""
_LAST = 512
"""Bytes in which the footer lies."""


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Header and footer of a log.

    Attributes:
        header: without its lines.
        footer: None for a log that was cut off, or has none.
        size: bytes from the end of the header to the footer.
    """

    header: log_format.ParsedHeader
    footer: log_format.Footer | None
    size: int


def read_head(path: str) -> log_format.ParsedHeader:
    """Read the header of a log.

    Raises:
        OSError: the file cannot be read.
        LogError: it is a damaged archive, or no log.
    """
    lines: list[str] = []
    with LogSource(path) as file:
        for raw in islice(file.lines(), _MAX_HEADER):
            if raw.startswith(_SEPARATOR):
                break
            lines.append(_text(raw))
    return log_format.parse_header(lines)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r\n")


def read_ends(path: str) -> LogEnds | None:
    """Read header and footer of a log; None for a pipe, an archive, or what cannot be read."""
    try:
        if path.endswith(".gz") or not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, "rb") as file:
            head = _head(file)
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - _LAST, 0))
            last = file.read(_LAST)
    except (OSError, ValueError):
        return None
    header = log_format.parse_header(map(_text, head.split(b"\n")[:_MAX_HEADER]))
    line = last.removesuffix(b"\n").rpartition(b"\n")[2]
    whole = last.endswith(b"\n") and not last.startswith(b"\x1f\x8b")
    footer = log_format.parse_footer(line.decode("utf-8", "replace")) if whole else None
    return LogEnds(header, footer, end - len(head) - len(line) - 1)


def _head(file: IO[bytes]) -> bytes:
    """The lines before the separator; all that was read where there is none."""
    read, at = file.read(_PIECE), -1
    while (at := read.find(b"\n" + _SEPARATOR)) < 0 and len(read) < _MAX_SIZE and (more := file.read(len(read))):
        read += more
    return read[: at + 1]


def captured_step(path: str) -> int | None:
    """Return the step that a log of operations is about; None if its header does not say.

    Raises:
        OSError, LogError: as `read_head`.
    """
    step = read_head(path).run.get("step")
    return step if isinstance(step, int) else None
