"""The JSON of `DebugMode.save_logs`: a list of all calls."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from matchers.errors import LogError
from matchers.logs.imported.columns import Columns, new_row
from matchers.logs.imported.debug_mode import Call, Calls, Form, Nesting
from matchers.logs.imported.format import Format
from matchers.logs.imported.json_pieces import NOT_AS_EXPECTED, Pieces
from matchers.logs.imported.json_shapes import (
    Content,
    Parts,
    Place,
    Shapes,
    is_number,
    is_whole,
    picker,
    raw,
    unescaped,
    whole,
)
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
_APART = ("op_name", "args_str", "kwargs_str", "output_str")
"""Keys of texts that name tensors by their numbers."""
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
    shapes = Shapes(reader.plan, _APART)
    for number, (line, _, value) in enumerate(_open(source, columns).values("]", _next_call, columns, shapes)):
        try:
            shape, content = value
            call = shapes.plan(shape)(content, number, line)
        except NOT_AS_EXPECTED:
            columns.problem(line, f"logs[{number}] is not a call that can be read")
        else:
            if call is not None:
                calls.add(call)
        if number % _SPOT == 0:
            yield
    calls.finish()


_Plan = Callable[[Content, int, int], Call | None]
"""Reads a record, by its number and its line: the call of an operation or a kernel; None for anything else."""


class _Reader:
    """Calls from their JSON."""

    def __init__(self) -> None:
        self._nesting = Nesting()
        self._backward = False

    def plan(self, value: Any) -> _Plan:
        """Return what reads the records of a shape."""
        kind = value["type"]
        if kind == "op":
            log = value.get("log")
            hashes = dict(log["items"]) if log else {}
            return self._call(value, "op_name", hashes.get("input_hash"), hashes.get("hash"))
        if kind == "triton_kernel":
            return self._call(value, "kernel_name", value.get("pre_hashes"), value.get("post_hashes"))
        if kind == "annotate":
            return self._annotation(picker(value["call_depth"], value["header"], value["tag"]))
        depth = raw(value["call_depth"])

        def nothing(content: Content, _number: int, _line: int) -> None:
            int(depth(content))

        return nothing

    def _annotation(self, pick: Callable[[Content], tuple[Any, ...]]) -> _Plan:
        def read(content: Content, _number: int, _line: int) -> None:
            depth, header, tag = pick(content)
            self._nesting.enter(int(depth), str(header), str(tag))

        return read

    def _call(self, value: Any, name: str, before: Any, after: Any) -> _Plan:
        operation = name == "op_name"
        texts = [value["args_str"], value.get("kwargs_str")] if operation else [value["kwargs_str"]]
        of_depth = value["call_depth"]
        inputs, outputs = _numbers(before), _numbers(after)
        first, last = 1 + len(inputs), 1 + len(inputs) + len(outputs)
        hashes = [of_depth, *inputs, *outputs]
        told = _told(value[name], texts, value.get("output_str"), hashes)
        whole = [k for k, number in enumerate(hashes) if k and is_whole(number)]
        where = self._place(value.get("stack_trace"), value.get("fwd_stack_trace"))
        nesting = self._nesting

        def read(content: Content, number: int, line: int) -> Call:
            form, found = told(content)
            if whole:
                found = tuple([int(one) if k in whole else one for k, one in enumerate(found)])
            depth = int(found[0]) + (operation and form.encloses)
            if nesting.depth >= depth:
                nesting.leave(depth)
            location, phase = ("", nesting.phase) if where is None else where(content)
            numbers, read, made = found[last:], found[1:first], found[first:last]
            return new_row(Call, (line, str(number), nesting.module, form, numbers, read, made, location, phase, None))

        return read

    def _place(self, stack: Any, forward: Any) -> Callable[[Content], tuple[str, Phase]] | None:
        """Return what tells the source line and the phase of a call; None for one without a stack."""
        nesting = self._nesting
        if not stack and not forward:
            return None
        own_text, forward_text = raw(stack), raw(forward)

        def read(content: Content) -> tuple[str, Phase]:
            own, of_forward = own_text(content), forward_text(content)
            backward = bool(of_forward) and of_forward != own
            self._backward |= backward
            phase = nesting.phase
            if phase is not Phase.OPTIMIZER and own:
                unknown = Phase.OTHER if self._backward else Phase.FORWARD
                phase = Phase.BACKWARD if backward else unknown
            return (_location(str(of_forward if backward else own)) if own or backward else ""), phase

        return read


def _told(
    name: Any, arguments: list[Any], result: Any, wanted: list[Any]
) -> Callable[[Content], tuple[Form, tuple[Any, ...]]]:
    """Return what tells the form of a call, what is wanted, and the numbers in its texts that the form asks for."""
    if isinstance(name, Parts) or any(isinstance(text, Place) for text in (name, *arguments, result)):  # an escape
        name_of, result_of, arguments_of = whole(name), whole(result), [*map(whole, arguments)]
        pick_wanted = picker(*wanted)

        def read(content: Content) -> tuple[Form, tuple[Any, ...]]:
            of_arguments = "".join([one(content) for one in arguments_of])
            form, numbers = Form.with_numbers(name_of(content), of_arguments, result_of(content))
            return form, pick_wanted(content) + numbers

        return read
    parts = [text if isinstance(text, Parts) else Parts(str(text or ""), ()) for text in (*arguments, result)]
    *before, after = [part.pattern for part in parts]
    form = Form.of(str(name), "".join(before), after)
    places = [place for part in parts for place in part.places]
    pick = picker(*wanted, *(places[one] if isinstance(one, int) else one for one in form.wanted))
    return lambda content: (form, pick(content))


def _numbers(value: Any) -> list[Any]:
    """Return the numbers of a tagged value, or their places, in order; without recursion."""
    out: list[Any] = []
    stack = [value] if value is not None else []
    while stack:
        item = stack.pop()
        kind = item["type"]
        if kind == "scalar":
            number = item["value"]
            if is_number(number):
                out.append(number)
            elif number is not None:
                raise TypeError
        elif kind == "nonfinite_float":
            out.append(float(item["value"]))
        else:
            stack += [entry[1] for entry in item["items"]][::-1] if kind == "dict" else item["items"][::-1]
    return out


@lru_cache(maxsize=4096)
def _location(stack: str) -> str:
    """The innermost line of a traceback outside torch, from its text in JSON."""
    frames = _FRAME.findall(unescaped(stack))
    own = [frame for frame in frames if not any(part in frame[0] for part in _LIBRARY)]
    return ":".join(own[-1]) if own else ""


def _native(source: LogSource, _path: str, _line: int, index: str) -> Iterator[str]:
    columns = Columns("")
    for number, (_, _, value) in enumerate(_open(source, columns).values("]", _next_call, columns)):
        if str(number) == index:
            yield from json.dumps(value, indent=1, ensure_ascii=False).splitlines()
            return


FORMAT = Format("torch DebugMode (save_logs)", _PATTERN, _read, _native)
