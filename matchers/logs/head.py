"""What the first and last lines of a log say, without the rest of it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from itertools import islice

from capture import log_format
from matchers.errors import LogError
from matchers.logs.source import LogSource

__all__ = ["LogEnds", "captured_step", "read_ends", "read_head"]

_MAX_HEADER = 100
_SEPARATOR = b"===="
_LAST = 512
"""Bytes in which the footer lies."""


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Header and footer of a log.

    Attributes:
        header: without its lines.
        footer: None for a log that was cut off, or has none.
        size: bytes of the records.
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
    with LogSource(path) as file:
        return _header(file)[0]


def _header(file: LogSource) -> tuple[log_format.ParsedHeader, int]:
    """The header and its size in bytes."""
    lines: list[str] = []
    size = 0
    for raw in islice(file.lines(), _MAX_HEADER):
        size += len(raw)
        if raw.startswith(_SEPARATOR):
            break
        lines.append(raw.decode("utf-8", "replace").rstrip("\r\n"))
    return log_format.parse_header(lines), size


def read_ends(path: str) -> LogEnds | None:
    """Read header and footer of a log; None for a pipe, an archive, or what cannot be read."""
    try:
        if path.endswith(".gz") or not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with LogSource(path) as file:
            header, start = _header(file)
        with open(path, "rb") as plain:
            end = plain.seek(0, os.SEEK_END)
            plain.seek(max(end - _LAST, 0))
            last = plain.read(_LAST)
    except (OSError, LogError, ValueError):
        return None
    line = last.removesuffix(b"\n").rpartition(b"\n")[2]
    whole = last.endswith(b"\n") and not last.startswith(b"\x1f\x8b")
    footer = log_format.parse_footer(line.decode("utf-8", "replace")) if whole else None
    return LogEnds(header, footer, end - start - len(line) - 1)


def captured_step(path: str) -> int | None:
    """Return the step that a log of operations is about; None if its header does not say.

    Raises:
        OSError, LogError: as `read_head`.
    """
    step = read_head(path).run.get("step")
    return step if isinstance(step, int) else None
