"""Logs of one JSON object a line; a line that cannot be read costs only itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice

from matchers.logs.columns import decode
from matchers.logs.imported.columns import Columns
from matchers.logs.imported.json_pieces import NOT_AS_EXPECTED
from matchers.logs.imported.json_shapes import SPAN, Content, Shapes
from matchers.logs.source import LogSource

__all__ = ["line_of", "read_lines"]


def read_lines(source: LogSource, columns: Columns, shapes: Shapes[Callable[[Content, int], None]]) -> Iterator[None]:
    """Enter each object with its line, by the plan of its shape; yields now and then."""
    number = 1
    for text in source.whole_lines():
        at, whole = 0, text.endswith(b"\n")
        while at < len(text):
            start, first = at, number
            last = not whole and len(text) - at <= SPAN
            piece = text[at : at + SPAN] if shapes.quick else b""
            for breaks, end, shape, content in shapes.many(piece, by_line=True, last=last):
                number, at = first + breaks, start + end
                try:
                    shapes.plan(shape)(content, number)
                except NOT_AS_EXPECTED as error:
                    columns.cut_off |= not whole and at == len(text)
                    columns.problem(number, f"not a record of this format: {error}")
            if at == start:
                at = text.find(b"\n", at) + 1 or len(text)
                raw = text[start:at]
                try:
                    if raw.strip():
                        shape, content = shapes.one(json.loads(raw))
                        shapes.plan(shape)(content, number)
                except NOT_AS_EXPECTED as error:
                    columns.cut_off |= not raw.endswith(b"\n")
                    columns.problem(number, f"not a record of this format: {error}")
                number += 1
            yield


def line_of(source: LogSource, _path: str, line: int, _key: str) -> Iterator[str]:
    """The object of a line, indented."""
    for raw in islice(source.lines(), line - 1, line):
        try:
            yield from json.dumps(json.loads(raw), indent=1, ensure_ascii=False).splitlines()
        except (ValueError, RecursionError):
            yield decode(raw.strip())
