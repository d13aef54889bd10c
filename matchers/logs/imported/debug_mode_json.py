"""The JSON of `DebugMode.save_logs`: a list of all calls."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from matchers.errors import LogError
from matchers.logs.imported.columns import Columns
from matchers.logs.imported.debug_mode import Call, Calls, Nesting, encloses
from matchers.logs.imported.format import Format
from matchers.logs.imported.json_pieces import Damaged, Pieces
from matchers.logs.op_log import Phase
from matchers.logs.records import MAX_PROBLEMS
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
_LIBRARY = ("/torch/", "\\torch\\")
"""Parts of the paths of torch's own files."""


class _Spot(NamedTuple):
    """A value of the list of calls: its number, its line in the file, and what was read; None: it is damaged."""

    number: int
    line: int
    value: Any


def _calls(pieces: Pieces, columns: Columns) -> Iterator[_Spot]:
    """Yield the values of the list; after a damaged one reading goes on with the next call."""
    number = damaged = 0
    while pieces.skip() not in ("", "]") and damaged < MAX_PROBLEMS:
        line = pieces.line
        try:
            value = pieces.value()
        except Damaged:
            damaged += 1
            yield _Spot(number, line, None)
            pieces.seek(_next_call)
        else:
            yield _Spot(number, line, value)
        number += 1
    if damaged == MAX_PROBLEMS:
        columns.problem(pieces.line, f"logs[{number}]: so much is damaged that the rest was not read")
    elif not pieces.skip():
        columns.cut_off = True
        columns.problem(pieces.line, f"logs[{number}]: the file ends within its list of calls")


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
    pieces.move(head.end())
    return pieces


def _read(source: LogSource, columns: Columns) -> Iterator[None]:
    calls, nesting, reader = Calls(columns), Nesting(), _Reader()
    pieces = _open(source, columns)
    for spot in _calls(pieces, columns):
        try:
            call = reader.call(spot, nesting)
        except (TypeError, KeyError, IndexError, AttributeError, ValueError, OverflowError):
            columns.problem(spot.line, f"logs[{spot.number}] is not a call that can be read")
        else:
            if call is not None:
                calls.add(call)
        if spot.number % _SPOT == 0:
            yield
    calls.finish()
    while pieces.more():  # the digest of a file is of all its bytes
        pieces.move(len(pieces.text))


class _Reader:
    """Calls from their JSON."""

    def __init__(self) -> None:
        self._backward = False

    def call(self, spot: _Spot, nesting: Nesting) -> Call | None:
        """Return the call of an operation or a kernel; None for anything else."""
        value = spot.value
        kind, depth = value["type"], int(value["call_depth"])
        if kind == "annotate":
            nesting.enter(depth, str(value["header"]), str(value["tag"]))
        if kind not in ("op", "triton_kernel"):
            return None
        if kind == "op":
            name = str(value["op_name"])
            arguments = f"{value['args_str']}{value.get('kwargs_str') or ''}"
            deeper = encloses(name, arguments)
            hashes = dict(value["log"]["items"]) if value.get("log") else {}
            inputs, outputs = _numbers(hashes.get("input_hash")), _numbers(hashes.get("hash"))
        else:
            name, arguments, deeper = str(value["kernel_name"]), str(value["kwargs_str"]), False
            inputs, outputs = _numbers(value.get("pre_hashes")), _numbers(value.get("post_hashes"))
        nesting.leave(depth + deeper)
        stack, forward = value.get("stack_trace"), value.get("fwd_stack_trace")
        backward = bool(forward) and forward != stack
        self._backward |= backward
        phase = nesting.phase
        if phase is not Phase.OPTIMIZER and stack:
            unknown = Phase.OTHER if self._backward else Phase.FORWARD
            phase = Phase.BACKWARD if backward else unknown
        return Call(
            line=spot.line,
            number=str(spot.number),
            module=nesting.module,
            name=name,
            arguments=arguments,
            result=str(value.get("output_str") or ""),
            inputs=inputs,
            outputs=outputs,
            location=_location(str(forward if backward else stack or "")),
            phase=phase,
        )


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
        elif kind == "dict":
            stack += [entry[1] for entry in reversed(item["items"])]
        else:
            stack += item["items"][::-1]
    return out


@lru_cache(maxsize=4096)
def _location(stack: str) -> str:
    """The innermost line of a traceback outside torch."""
    frames = _FRAME.findall(stack)
    own = [frame for frame in frames if not any(part in frame[0] for part in _LIBRARY)]
    return ":".join(own[-1]) if own else ""


def _native(source: LogSource, _path: str, _line: int, index: str) -> Iterator[str]:
    columns = Columns("")
    for spot in _calls(_open(source, columns), columns):
        if str(spot.number) == index:
            yield from json.dumps(spot.value, indent=1, ensure_ascii=False).splitlines()
            return


FORMAT = Format("torch DebugMode (save_logs)", _PATTERN, _read, _native)
