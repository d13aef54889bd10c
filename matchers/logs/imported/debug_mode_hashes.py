"""The text of `DebugMode.dump_tensor_hashes`: hashes alone, in blocks that look like torchtitan's records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice, takewhile
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
_DECLARED = re.compile(r"Total captured tensor hash ops: (\d{1,15})")
_KEY = re.compile(r"\[(.+)/op_\d+_(.+)\]")
_FIELD = re.compile(r"  (Call type|Call index|Call depth|Input hashes|Output hashes): (.*)")
_SPOT = 256
"""Blocks between two reports of progress."""
_DECODER = json.JSONDecoder()
_NOT_FINITE: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def _read(source: LogSource, columns: Columns) -> Iterator[None]:
    calls, declared, blocks = Calls(columns), None, 0
    key: re.Match[str] | None = None
    fields: dict[str, str] = {}
    begin = number = 0

    def end() -> None:
        if key is not None:
            calls.add([_call(key, fields, begin, columns)])

    for number, raw in enumerate(source.lines(), 1):
        line = decode(raw.rstrip(b"\r\n"))
        if not raw.endswith(b"\n"):
            columns.cut_off = True
            columns.problem(number, "the log ends within a line")
        elif line.startswith("["):
            end()
            key, fields, begin = _KEY.fullmatch(line), {}, number
            blocks += 1
            if key is None:
                columns.problem(number, "the key is not of the form '[module/op_N_name]'")
            if blocks % _SPOT == 0:
                yield
        elif match := _FIELD.fullmatch(line):
            fields.setdefault(match[1], match[2])
        elif match := _DECLARED.fullmatch(line):
            declared = int(match[1])
        elif line.strip("= "):
            columns.problem(number, "not a field of a hash dump")
    end()
    calls.finish()
    if declared is not None and declared > blocks:
        columns.cut_off = True
        columns.problem(number, f"the header declares {declared:,} operations, the log has {blocks:,}")


def _call(key: re.Match[str], fields: dict[str, str], line: int, columns: Columns) -> Call:
    values, many = [], []
    for name in ("Input hashes", "Output hashes"):
        found, entries = _numbers(name, fields.get(name, ""), line, columns)
        values.append(found)
        many.append(entries)
    module = "" if key[1] == "<none>" else key[1]
    phase = Phase.FORWARD if module else Phase.OTHER
    op = Op(Form.of(key[2], "", ""), "", (), (), inputs=values[0], outputs=values[1], tensors=(many[0], many[1]))
    return line, fields.get("Call index", ""), module, "", phase, op


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
