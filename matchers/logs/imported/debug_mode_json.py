"""The JSON of `DebugMode.save_logs`: a list of all calls."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from matchers.errors import LogError
from matchers.logs.imported.columns import Columns
from matchers.logs.imported.debug_mode import Call, Calls, Nesting, encloses
from matchers.logs.imported.format import Format
from matchers.logs.imported.json_pieces import NOT_AS_EXPECTED, Pieces
from matchers.logs.op_log import Phase
from matchers.logs.source import LogSource

__all__ = ["FORMAT"]

_PATTERN = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"[^\[]*"torch\.utils\._debug_mode\.DebugMode\.logs"')
_HEAD = re.compile(r'\s*\{[^\[]*?"logs"\s*:\s*\[')
_VERSION = re.compile(r'"version"\s*:\s*([^,}\s]+)')
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_KNOWN_VERSION = "1"
_LARGEST_HEAD = 64 << 10
_SPOT = 256
"""Calls between two reports of progress."""
_NUMBERS = (float, int)
_PLAIN = {*_NUMBERS, type(None)}
_LIBRARY = ("/torch/", "\\torch\\")
"""Parts of the paths of torch's own files."""


def _next_call(text: str, at: int) -> int:
    """The place of the object that has the next `call_depth`; -1: there is none."""
    while (found := text.find('"call_depth"', at)) >= 0:
        if (start := text.rfind("{", at, found)) >= 0:
            return start
        at = found + 1
    return -1


def _open(source: LogSource, columns: Columns) -> Pieces:
    """Return the text of a file, at its first call.

    Raises:
        LogError: it has another version.
    """
    pieces = Pieces(source)
    head = None
    while head is None and len(pieces.text) < _LARGEST_HEAD and pieces.more():
        head = _HEAD.match(pieces.text)
    version = _VERSION.search(pieces.text, 0, head.end() if head else len(pieces.text))
    if version is not None and version[1] != _KNOWN_VERSION:
        raise LogError(f"{columns.path}:1: version {version[1]} of DebugMode's logs is unknown: expected 1")
    if head is None:
        raise LogError(f'{columns.path}:1: a log of DebugMode without a list "logs"')
    pieces.at = head.end()
    return pieces


def _read(source: LogSource, columns: Columns) -> Iterator[None]:
    calls, reader = Calls(columns), _Reader()
    for number, (line, _, value) in enumerate(_open(source, columns).values("]", _next_call, columns)):
        try:
            call = reader.call(value, number, line)
        except NOT_AS_EXPECTED:
            columns.problem(line, f"logs[{number}] is not a call that can be read")
        else:
            if call is not None:
                calls.add(call)
        if number % _SPOT == 0:
            yield
    calls.finish()


class _Reader:
    """Calls from their JSON."""

    def __init__(self) -> None:
        self._nesting = Nesting()
        self._backward = False

    def call(self, value: Any, number: int, line: int) -> Call | None:
        """Return the call of an operation or a kernel; None for anything else."""
        nesting = self._nesting
        kind, depth = value["type"], int(value["call_depth"])
        if kind == "op":
            name = str(value["op_name"])
            arguments = f"{value['args_str']}{value.get('kwargs_str') or ''}"
            hashes = dict(value["log"]["items"]) if value.get("log") else {}
            inputs, outputs = _numbers(hashes.get("input_hash")), _numbers(hashes.get("hash"))
            nesting.leave(depth + encloses(name, arguments))
        elif kind == "triton_kernel":
            name, arguments = str(value["kernel_name"]), str(value["kwargs_str"])
            inputs, outputs = _numbers(value.get("pre_hashes")), _numbers(value.get("post_hashes"))
            nesting.leave(depth)
        else:
            if kind == "annotate":
                nesting.enter(depth, str(value["header"]), str(value["tag"]))
            return None
        stack, forward = value.get("stack_trace"), value.get("fwd_stack_trace")
        backward = bool(forward) and forward != stack
        self._backward |= backward
        phase = nesting.phase
        if phase is not Phase.OPTIMIZER and stack:
            unknown = Phase.OTHER if self._backward else Phase.FORWARD
            phase = Phase.BACKWARD if backward else unknown
        location = _location(str(forward if backward else stack)) if stack or backward else ""
        result = str(value.get("output_str") or "")
        return Call(line, str(number), nesting.module, name, arguments, result, inputs, outputs, location, phase)


def _numbers(value: Any) -> list[Any]:
    """The numbers of a tagged value, in order; without recursion."""
    out: list[Any] = []
    stack = [value] if value is not None else []
    while stack:
        item = stack.pop()
        kind = item["type"]
        if kind == "scalar":
            number = item["value"]
            if type(number) in _NUMBERS:
                out.append(number)
            elif number is not None:
                raise TypeError
        elif kind == "nonfinite_float":
            out.append(float(item["value"]))
        else:
            items = item["items"] if kind != "dict" else [entry[1] for entry in item["items"]]
            plain = [one.get("value", "") for one in items]
            if _PLAIN.issuperset(map(type, plain)):  # almost always: numbers of tensors, and None of what is none
                out += [number for number in plain if number is not None]
            else:
                stack += items[::-1]
    return out


@lru_cache(maxsize=4096)
def _location(stack: str) -> str:
    """The innermost line of a traceback outside torch."""
    frames = _FRAME.findall(stack)
    own = [frame for frame in frames if not any(part in frame[0] for part in _LIBRARY)]
    return ":".join(own[-1]) if own else ""


def _native(source: LogSource, _path: str, _line: int, index: str) -> Iterator[str]:
    columns = Columns("")
    for number, (_, _, value) in enumerate(_open(source, columns).values("]", _next_call, columns)):
        if str(number) == index:
            yield from json.dumps(value, indent=1, ensure_ascii=False).splitlines()
            return


FORMAT = Format("torch DebugMode (save_logs)", _PATTERN, _read, _native)
