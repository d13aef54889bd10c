"""The verbatim text of a record, read again from its log, because columns keep only parsed values."""

from __future__ import annotations

from itertools import takewhile

from matchers.errors import LogError
from matchers.logs.byte_words import PADDING
from matchers.logs.columns import decode
from matchers.logs.op_log import OpLog
from matchers.logs.source import LogSource

__all__ = ["raw_record"]

_MAX_LINES = 500
"""Maximum number of lines returned: a record that lists each of a thousand tensors on a line may have more."""


def raw_record(log: OpLog, record: int) -> tuple[str, ...]:
    """Return the lines of a record, its key first.

    Reads the file up to the record: up to a second in a large log.

    Raises:
        LogError: the log cannot be read again (it was standard input), or has changed.
    """
    wanted = int(log.line[record]) - 1
    try:
        with LogSource(log.path) as source:
            for piece, last in source.pieces():
                ends = piece.count(b"\n")
                if wanted < ends or last:
                    return _lines(piece[:-PADDING].split(b"\n")[wanted : wanted + _MAX_LINES], log, record)
                wanted -= ends
    except OSError as error:
        raise LogError(f"{log.path}: cannot be read again: {error.strerror or error}") from None
    raise AssertionError("a log has a last piece")


def _lines(lines: list[bytes], log: OpLog, record: int) -> tuple[str, ...]:
    if not lines or lines[0].rstrip() != b"[" + log.keys.raw(record) + b"]":
        raise _changed(log)
    rest = takewhile(lambda line: line.strip() and not line.startswith(b"["), lines[1:])
    return tuple(decode(line.rstrip()) for line in (lines[0], *rest))


def _changed(log: OpLog) -> LogError:
    return LogError(f"{log.path}: has changed since it was read")
