"""The text of `DebugMode.dump_tensor_hashes`: hashes alone, in blocks that look like torchtitan's records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain, islice, takewhile
from typing import Any, Final

from matchers.logs.columns import decode
from matchers.logs.imported.columns import Columns
from matchers.logs.imported.debug_mode import Call, Calls, Form, Op
from matchers.logs.imported.format import Format
from matchers.logs.imported.json_leaves import leaves
from matchers.logs.op_log import Phase
from matchers.logs.source import LogSource

__all__ = ["FORMAT"]

_PATTERN = re.compile(rb"^Total captured tensor hash ops:|^  Call type: (?:torch op|triton kernel)\r?$", re.MULTILINE)
_DECLARED = re.compile(rb"^Total captured tensor hash ops: (\d{1,15})\r?\n", re.MULTILINE)
_KEY_LINE = re.compile(rb"^(\[.*\n)", re.MULTILINE)
_KEY = re.compile(r"\[(.+)/op_\d+_(.+)\]")
_FIELD = re.compile(rb"^  (Call type|Call index|Call depth|Input hashes|Output hashes): (.*?)\r?\n", re.MULTILINE)
_EMPTY = re.compile(rb"^[= \r]*\n", re.MULTILINE)
_SPOT = 256
"""Blocks between two reports of progress."""
_DECODER = json.JSONDecoder()
_NOT_FINITE: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def _read(source: LogSource, columns: Columns) -> Iterator[None]:
    calls, declared, blocks = Calls(columns), None, 0
    key: re.Match[str] | None = None
    fields: dict[bytes, bytes] = {}
    begin = number = 0

    def end() -> None:
        if key is not None:
            calls.add([_call(key, fields, begin, columns)])

    # many lines at once: a damaged file may have millions that are of no block
    for part in filter(None, chain.from_iterable(map(_KEY_LINE.split, source.whole_lines()))):
        lines = part.count(b"\n")
        first, number = number + 1, number + (lines or 1)
        if not lines:
            columns.cut_off = True
            columns.problem(number, "the log ends within a line")
        elif part.startswith(b"["):
            end()
            key, fields, begin = _KEY.fullmatch(decode(part.rstrip(b"\r\n"))), {}, number
            blocks += 1
            if key is None:
                columns.problem(number, "the key is not of the form '[module/op_N_name]'")
            if blocks % _SPOT == 0:
                yield
        else:
            found = _FIELD.findall(part)
            fields = dict(reversed(found)) | fields  # of several, the first counts
            if headers := _DECLARED.findall(part):
                declared = int(headers[-1])
            if others := lines - len(found) - len(headers) - len(_EMPTY.findall(part)):
                calls.others(first, others)
    end()
    calls.finish()
    if declared is not None and declared > blocks:
        columns.cut_off = True
        columns.problem(number, f"the header declares {declared:,} operations, the log has {blocks:,}")


def _call(key: re.Match[str], fields: dict[bytes, bytes], line: int, columns: Columns) -> Call:
    values, many = [], []
    for name in ("Input hashes", "Output hashes"):
        found, entries = _numbers(name, decode(fields.get(name.encode(), b"")), line, columns)
        values.append(found)
        many.append(entries)
    module = "" if key[1] == "<none>" else key[1]
    phase = Phase.FORWARD if module else Phase.OTHER
    op = Op(Form.of(key[2], "", ""), "", (), (), inputs=values[0], outputs=values[1], tensors=(many[0], many[1]))
    return line, decode(fields.get(b"Call index", b"")), module, "", phase, op


def _numbers(name: str, text: str, line: int, columns: Columns) -> tuple[list[Any], int]:
    """The numbers of `NAME=JSON, NAME=JSON`, and of how many tensors they are."""
    numbers: list[Any] = []
    many = at = 0
    while at < len(text):
        try:
            value, at = _DECODER.raw_decode(text, text.index("=", at) + 1)
        except (ValueError, RecursionError):
            columns.problem(line, f"{name} is not of the form '[0][0]=1.5, [0][1]=\"NaN\"'")
            break
        at += 2
        many += value is not None
        numbers += [_NOT_FINITE.get(leaf, leaf) if isinstance(leaf, str) else leaf for leaf in leaves(value)]
    return [leaf if not isinstance(leaf, (str, bool)) else float("nan") for leaf in numbers], many


def _native(source: LogSource, _path: str, line: int, _key: str) -> Iterator[str]:
    block = islice(source.lines(), line - 1, None)
    return (decode(raw.rstrip()) for raw in takewhile(bytes.strip, block))


FORMAT = Format("torch DebugMode (dump_tensor_hashes)", _PATTERN, _read, _native)
