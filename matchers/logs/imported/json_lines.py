"""Logs of one JSON object a line; a line that cannot be read costs only itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from matchers.logs.columns import decode
from matchers.logs.imported.columns import Columns
from matchers.logs.source import LogSource

__all__ = ["line_of", "read_lines"]

_SPOT = 256
"""Lines between two reports of progress."""


def read_lines(source: LogSource, columns: Columns, enter: Callable[[Any, int], None]) -> Iterator[None]:
    """Enter each object with its line; yields now and then."""
    for number, raw in enumerate(source.lines(), 1):
        if not raw.strip():
            continue
        try:
            enter(json.loads(raw), number)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, OverflowError) as error:
            if not raw.endswith(b"\n"):
                columns.cut_off = True
            columns.problem(number, f"not a record of this format: {error}")
        if number % _SPOT == 0:
            yield


def line_of(source: LogSource, _path: str, line: int, _key: str) -> Iterator[str]:
    """The object of a line, indented."""
    for raw in islice(source.lines(), line - 1, line):
        try:
            yield from json.dumps(json.loads(raw), indent=1, ensure_ascii=False).splitlines()
        except (ValueError, RecursionError):
            yield decode(raw.strip())
