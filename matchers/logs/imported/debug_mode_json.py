"""The JSON of `DebugMode.save_logs`: a list of all calls."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count, repeat
from typing import Any, NamedTuple

from matchers.errors import LogError
from matchers.logs.imported.columns import Columns, new_row
from matchers.logs.imported.debug_mode import Call, Calls, Form, Nesting, Op
from matchers.logs.imported.format import Format
from matchers.logs.imported.json_pieces import Pieces
from matchers.logs.imported.json_shapes import (
    Contents,
    Parts,
    Place,
    Plan,
    Shapes,
    is_number,
    is_whole,
    picker,
    raw,
    rows_of,
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
    calls, nesting, first = Calls(columns), Nesting(), 0
    shapes, backward = Shapes(_plan, _APART), False
    for lines, _, _, told in shapes.told(_open(source, columns).entries("]", _next_call, columns, shapes)):
        found: list[Call] = []
        for line, one, number in zip(lines, told, map(str, count(first)), strict=False):
            if type(one) is tuple:
                depth, own, of_forward, op = one
                if nesting.depth >= depth:
                    nesting.leave(depth)
                location, phase = "", nesting.phase
                if own or of_forward:
                    is_backward = bool(of_forward) and of_forward != own
                    backward |= is_backward
                    location = _location(of_forward if is_backward else own)
                    if phase is not Phase.OPTIMIZER and own:
                        phase = Phase.BACKWARD if is_backward else Phase.OTHER if backward else Phase.FORWARD
                found.append((line, number, nesting.module, location, phase, op))
            elif type(one) is _Annotation:
                nesting.enter(*one)
            elif one is not None:
                columns.problem(line, f"logs[{number}] is not a call that can be read")
        calls.add(found)
        first += len(told)
        yield
    calls.finish()


class _Annotation(NamedTuple):
    """Depth, header and tag of a record that opens a module or a range."""

    depth: int
    header: str
    tag: str


_Call = tuple[float, str, str, Op]
"""Depth of what a call lies in, its stack and that of the forward pass, as JSON has them, and the operation."""


def _plan(value: Any) -> Plan:
    """Return what tells of the records of a shape."""
    if not is_number(value["call_depth"]):
        raise TypeError
    kind = value["type"]
    if kind == "op":
        log = value.get("log")
        hashes = dict(log["items"]) if log else {}
        return _calls(value, "op_name", hashes.get("input_hash"), hashes.get("hash"))
    if kind == "triton_kernel":
        return _calls(value, "kernel_name", value.get("pre_hashes"), value.get("post_hashes"))
    known = picker(value["call_depth"], *(value[key] for key in ("header", "tag") if kind == "annotate"))

    def annotations(_lines: Sequence[int], contents: Contents) -> Iterable[Any]:
        depths, *texts = known(contents)
        depths = [*map(int, depths)]
        columns = depths, *([*map(str, column)] for column in texts)
        return [_Annotation(*one) for one in zip(*columns, strict=True)] if texts else (None for _ in depths)

    return annotations


def _calls(value: Any, name: str, before: Any, after: Any) -> Plan:
    arguments = value["args_str"] if name == "op_name" else ""
    texts = [value[name], arguments, value.get("kwargs_str"), value.get("output_str")]
    inputs, outputs = _numbers(before), _numbers(after)
    hashes = [*inputs, *outputs]
    are_whole = [*map(is_whole, hashes)]
    first, last = 3 + len(inputs), 3 + len(hashes)
    wanted, ops, encloses = _ops(texts, None if any(are_whole) else (len(inputs), len(outputs)))
    stacks = [raw(value.get(key)) for key in ("stack_trace", "fwd_stack_trace")]
    pick = picker(value["call_depth"], *stacks, *hashes, *wanted)

    def calls(_lines: Sequence[int], contents: Contents) -> Iterable[_Call]:
        found = pick(contents)
        depths, own, of_forward = found[:3]
        for k, is_whole_number in enumerate(are_whole, 3):
            if is_whole_number:
                found[k] = [*map(int, found[k])]
        read, made = (rows_of(of, len(contents)) for of in (found[3:first], found[first:last]))
        found_ops = [*ops(contents, found[last:], read, made)]
        if name == "op_name" and encloses is not False:
            depths = [depth + op.form.encloses for depth, op in zip(depths, found_ops, strict=True)]
        return zip(depths, own, of_forward, found_ops, strict=True)

    return calls


def _ops(
    texts: Sequence[Any], hashes: tuple[int, int] | None
) -> tuple[Sequence[Any], Callable[..., Iterable[Op]], bool | None]:
    """Return what is wanted of contents; what tells operations from contents, columns of that, and hashes; and what the
    form of all `encloses`, None if there are several.

    Args:
        texts: the name, arguments and result.
        hashes: number of inputs' and outputs' hashes, if none is a whole number.
    """
    if isinstance(texts[0], Parts) or any(isinstance(text, Place) for text in texts):  # an escape
        columns = [*map(whole, texts)]

        def each(contents: Contents, _: Any, read: Iterable[Any], made: Iterable[Any]) -> Iterable[Op]:
            name, *arguments, result = (of(contents) for of in columns)
            return map(Op.of, name, map("".join, zip(*arguments, strict=True)), result, read, made)

        return (), each, None
    parts = [text if isinstance(text, Parts) else Parts(str(text or ""), ()) for text in texts]
    name, *before, after = [part.pattern for part in parts]
    form = Form.of(name, "".join(before), after)
    places = [place for part in parts for place in part.places]
    norms = hashes is not None and hashes[0] in (0, form.read) and hashes[1] in (0, form.made)

    def together(contents: Any, numbers: Any, read: Iterable[Any], made: Iterable[Any]) -> Iterable[Op]:
        told = form.told(numbers, len(contents))
        return map(new_row, repeat(Op), zip(repeat(form), *told, repeat(norms), read, made, repeat(None), strict=False))

    return [places[one] if isinstance(one, int) else one for one in form.wanted], together, form.encloses


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
    for number, (_, _, _, value, _) in enumerate(_open(source, columns).entries("]", _next_call, columns)):
        if str(number) == index:
            yield from json.dumps(value, indent=1, ensure_ascii=False).splitlines()
            return


FORMAT = Format("torch DebugMode (save_logs)", _PATTERN, _read, _native)
