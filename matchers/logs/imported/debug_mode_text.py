"""The text of `DebugMode.debug_string`, as people print and paste it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from matchers.logs.columns import decode
from matchers.logs.imported.columns import Columns
from matchers.logs.imported.debug_mode import Call, Calls, Nesting, Op
from matchers.logs.imported.format import Format
from matchers.logs.imported.json_leaves import leaves
from matchers.logs.source import LogSource

__all__ = ["FORMAT"]

_PATTERN = re.compile(rb"^(?: {2})+(?:\[(?:nn\.Mod[^\]\n]*|record function)\] |\w+::[\w.]+\()", re.MULTILINE)
_ANNOTATION = re.compile(r"\[(nn\.Mod[^\]]*|record function|annotate|aot_eager region[^\]]*)\] (.*)")
_FRAME = re.compile(r"# File: (.*?):(\d+) in ")
_KERNEL = re.compile(r"\[triton\] ([^(]+)\((.*)\)")
_KERNEL_HASHES = re.compile(r"# (pre|post)-kernel hashes: \{(.*)\}")
_NAMED_NUMBER = re.compile(r"(?:^|, )\w+: (\([^()]*\)|[^,(]+)")
_CALL = re.compile(r"(\w+::[\w.]+|[\w.]+|<[^(]*>)\((.*)")
_REDISTRIBUTION = ("redistribute_input", "-> output:")
_SPOT = 256
"""Lines between two reports of progress."""


class _Reader:
    """The lines of one log."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._calls = Calls(columns)
        self._nesting = Nesting()
        self._location = ""
        self._kernel: Call | None = None
        self._others = 0
        """Lines of something else."""
        self._first_other = 0

    def line(self, number: int, text: str) -> None:
        """Read a line."""
        body = text.lstrip(" ")
        depth = (len(text) - len(body)) // 2 - 1
        if not body:
            return
        if body.startswith("# ") and self._remark(body):
            return
        self._end_kernel()
        if depth < 0:  # the output of the program, in a log that was pasted
            self._others += 1
            self._first_other = self._first_other or number
        elif match := _ANNOTATION.fullmatch(body):
            self._nesting.enter(depth, match[1], match[2])
        elif match := _KERNEL.fullmatch(body):
            self._nesting.leave(depth)
            self._kernel = self._call(number, Op.of(match[1], match[2], ""))
        elif not body.startswith(_REDISTRIBUTION):
            self._operation(number, depth, body)

    def finish(self) -> None:
        """End the log."""
        self._end_kernel()
        self._calls.finish()
        if self._others:
            self._calls.others(self._first_other, self._others)

    def _call(self, line: int, op: Op) -> Call:
        return line, "", self._nesting.module, self._location, self._nesting.phase, op

    def _remark(self, body: str) -> bool:
        """Read a line of a comment; False for one that means nothing."""
        if match := _FRAME.match(body):
            self._location = f"{match[1]}:{match[2]}"
        elif (match := _KERNEL_HASHES.fullmatch(body)) and self._kernel is not None:
            numbers = [n for value in _NAMED_NUMBER.findall(match[2]) for n in leaves(_literal(value))]
            line, number, module, location, phase, op = self._kernel
            op = op._replace(inputs=numbers) if match[1] == "pre" else op._replace(outputs=numbers)
            self._kernel = line, number, module, location, phase, op
            return True
        return bool(match)

    def _end_kernel(self) -> None:
        if self._kernel is not None:
            self._calls.add([self._kernel])
            self._kernel = None

    def _operation(self, line: int, depth: int, body: str) -> None:
        call, mark, hashes = body.rpartition("  # {'")
        call = call if mark else body
        told, arrow, result = call.rpartition("  ->  ")
        if not arrow:
            told, result = call, ""
        match = _CALL.fullmatch(told)
        if match is None or not told.endswith(")"):
            self._columns.problem(line, "not a line of DebugMode")
            return
        op = Op.of(match[1], match[2][:-1], result)
        self._nesting.leave(depth + op.form.encloses)
        if mark:
            try:
                value = _literal("{'" + hashes)
                op = op._replace(inputs=_numbers(value.get("input_hash")), outputs=_numbers(value.get("hash")))
            except (ValueError, AttributeError, RecursionError):
                self._columns.problem(line, "the hashes of the operation are no numbers")
        self._calls.add([self._call(line, op)])


def _numbers(value: Any) -> list[Any]:
    found = leaves(value)
    if any(isinstance(leaf, str) for leaf in found):
        raise ValueError
    return found


def _literal(text: str) -> Any:
    """Read what Python prints of numbers, None, tuples, lists and dicts: after this it is JSON."""
    text = text.replace("(", "[").replace(")", "]").replace(",]", "]").replace("'", '"')
    return json.loads(text.replace("None", "null").replace("nan", "NaN").replace("inf", "Infinity"))


def _read(source: LogSource, columns: Columns) -> Iterator[None]:
    reader = _Reader(columns)
    for number, raw in enumerate(source.lines(), 1):
        reader.line(number, decode(raw.rstrip(b"\r\n")))
        if number % _SPOT == 0:
            yield
    reader.finish()


def _native(source: LogSource, _path: str, line: int, _key: str) -> Iterator[str]:
    return (decode(raw.strip()) for raw in islice(source.lines(), line - 1, line))


FORMAT = Format("torch DebugMode (debug_string)", _PATTERN, _read, _native)
