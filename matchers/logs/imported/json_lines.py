"""Logs of one JSON object a line; a line that cannot be read costs only itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from matchers.logs.columns import decode
from matchers.logs.imported.columns import Columns
from matchers.logs.imported.json_shapes import NOT_AS_EXPECTED, SPAN, Entry, Shapes
from matchers.logs.source import LogSource

__all__ = ["line_of", "read_lines"]


def read_lines(source: LogSource, columns: Columns, shapes: Shapes) -> Iterator[list[tuple[int, Any]]]:
    """Yield the lines of objects, many at once, and what the plans of their shapes tell of each."""
    for lines, _, open_, told in shapes.told(_entries(source, shapes)):
        found = []
        for line, is_open, one in zip(lines, open_, told, strict=True):
            if isinstance(one, Exception):
                columns.cut_off |= bool(is_open)
                columns.problem(line, f"not a record of this format: {one}")
            else:
                found.append((line, one))
        yield found


def _entries(source: LogSource, shapes: Shapes) -> Iterator[Entry]:
    """Yield the objects, and the errors of lines that are none, each with whether its line may go on."""
    number = 1
    for text in source.whole_lines():
        at, whole = 0, text.endswith(b"\n")
        while at < len(text):
            start = at
            last = not whole and len(text) - at <= SPAN
            piece = text[at : at + SPAN] if shapes.quick else b""
            for entry in shapes.many(piece, number, by_line=True, last=last):
                number, at = entry[0], start + entry[1]
                yield entry
            if at == start:
                at = text.find(b"\n", at) + 1 or len(text)
                raw = text[start:at]
                try:
                    if raw.strip():
                        yield shapes.one(number, json.loads(raw))
                except NOT_AS_EXPECTED as error:
                    yield number, 0, None, error, not raw.endswith(b"\n")
                number += 1


def line_of(source: LogSource, _path: str, line: int, _key: str) -> Iterator[str]:
    """The object of a line, indented."""
    for raw in islice(source.lines(), line - 1, line):
        try:
            yield from json.dumps(json.loads(raw), indent=1, ensure_ascii=False).splitlines()
        except (ValueError, RecursionError):
            yield decode(raw.strip())
