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
    for some in shapes.told(_entries(source, shapes)):
        told = []
        for (line, _, _, ended), one in some:
            if isinstance(one, Exception):
                columns.cut_off |= not ended
                columns.problem(line, f"not a record of this format: {one}")
            else:
                told.append((line, one))
        yield told


def _entries(source: LogSource, shapes: Shapes) -> Iterator[Entry]:
    """Yield the objects, each with whether a line break ends its line."""
    number = 1
    for text in source.whole_lines():
        at, whole = 0, text.endswith(b"\n")
        while at < len(text):
            start, first = at, number
            last = not whole and len(text) - at <= SPAN
            piece = text[at : at + SPAN] if shapes.quick else b""
            for breaks, end, shape, content, _ in shapes.many(piece, by_line=True, last=last):
                number, at = first + breaks, start + end
                yield number, shape, content, whole or at < len(text)
            if at == start:
                at = text.find(b"\n", at) + 1 or len(text)
                raw = text[start:at]
                try:
                    if raw.strip():
                        yield number, *shapes.one(json.loads(raw)), raw.endswith(b"\n")
                except NOT_AS_EXPECTED as error:
                    yield number, None, error, raw.endswith(b"\n")
                number += 1


def line_of(source: LogSource, _path: str, line: int, _key: str) -> Iterator[str]:
    """The object of a line, indented."""
    for raw in islice(source.lines(), line - 1, line):
        try:
            yield from json.dumps(json.loads(raw), indent=1, ensure_ascii=False).splitlines()
        except (ValueError, RecursionError):
            yield decode(raw.strip())
