"""Logs of one JSON object a line; a line that cannot be read costs only itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from matchers.logs.columns import decode
from matchers.logs.imported.columns import Columns
from matchers.logs.imported.json_pieces import NOT_AS_EXPECTED
from matchers.logs.source import LogSource

__all__ = ["line_of", "read_lines"]

_DECODE: Final = json.JSONDecoder().raw_decode
_SPOT: Final = 256
"""Lines between two reports of progress."""


def read_lines(source: LogSource, columns: Columns, enter: Callable[[Any, int], None]) -> Iterator[None]:
    """Enter each object with its line; yields now and then."""
    for number, raw in enumerate(source.lines(), 1):
        if not raw.strip():
            continue
        try:
            enter(_loaded(raw), number)
        except NOT_AS_EXPECTED as error:
            if not raw.endswith(b"\n"):
                columns.cut_off = True
            columns.problem(number, f"not a record of this format: {error}")
        if number % _SPOT == 0:
            yield


def _loaded(raw: bytes) -> Any:
    """As `json.loads`, in half its time for a short line: that looks for other encodings first, and for spaces."""
    try:
        value, end = _DECODE(raw.decode(), 0)
    except ValueError:
        return json.loads(raw)
    return value if end == len(raw) - 1 else json.loads(raw)


def line_of(source: LogSource, _path: str, line: int, _key: str) -> Iterator[str]:
    """The object of a line, indented."""
    for raw in islice(source.lines(), line - 1, line):
        try:
            yield from json.dumps(json.loads(raw), indent=1, ensure_ascii=False).splitlines()
        except (ValueError, RecursionError):
            yield decode(raw.strip())
