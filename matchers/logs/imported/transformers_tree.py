"""The debug trees of transformers (`model_addition_debugger_context`): the calls of all modules, with their tensors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import count, islice, repeat, takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

from matchers.errors import LogError
from matchers.logs.columns import decode
from matchers.logs.imported.columns import UNREAD, Columns, Row, new_row, rows, stats_of
from matchers.logs.imported.format import Format
from matchers.logs.imported.json_leaves import leaves
from matchers.logs.imported.json_shapes import (
    CLOSED,
    NOT_AS_EXPECTED,
    OPEN,
    SPAN,
    Contents,
    Entry,
    Plan,
    Record,
    Shapes,
    is_text,
    picker,
    rows_of,
    shape_of,
)
from matchers.logs.imported.makers import Makers
from matchers.logs.imported.measured import Dumped, fields_of, printed
from matchers.logs.imported.safetensors import entries
from matchers.logs.op_log import NO_DIGEST, Phase
from matchers.logs.source import LogSource

__all__ = ["FORMAT"]

_PATTERN = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"module_path"\s*:\s*"')
_NODE: Final = b'"module_path":'
_NEST: Final = "children"
_OPEN: Final = f'"{_NEST}":{OPEN}}}'.encode()
_SHAPE = re.compile(r"torch\.Size\((\[[\d, ]*\])\)")
_DIGITS = re.compile(r"\d+")
_PRINTED: Final = ("Min", "Max", "Mean")
_STATISTICS: Final = (*_PRINTED, "L2 norm")
_TOLD: Final = ("shape", "dtype", "value", "std", "min", "max", "mean")
"""Keys of a tensor in a tree."""
_CLOSE: Final = 1e-2
"""Difference of printed numbers from those of the file, in parts of the largest, beyond which they are of two calls."""


class _Tensor(NamedTuple):
    """A tensor of the tree.

    Attributes:
        shape, dtype: as a row has them.
        stats: the printed ones.
        read: its elements; None if they are in no file, or one of another call.
    """

    shape: tuple[int, ...]
    dtype: str
    stats: dict[str, float]
    read: Dumped | None


_Call = tuple[int, str, Sequence[tuple[Any, ...]], Sequence[tuple[Any, ...]]]
"""Line and path of a call, and `_TOLD` of each tensor that it returns and reads."""
_Pick = Callable[[Contents], list[Sequence[Any]]]


def _plan(node: Any) -> Plan:
    """Return what tells of the calls of a shape the row, or path, and `_TOLD` of what they return and read."""
    made, read = (_tensors(node.get(key)) for key in ("outputs", "inputs"))
    path, outputs, inputs = picker(node["module_path"]), [*map(_picker, made)], [*map(_picker, read)]
    printed = len(made) == 1 and not is_text(made[0].get("value"))

    def told(lines: Sequence[int], contents: Contents) -> Iterable[Row | _Call]:
        (paths,) = path(contents)
        if printed:
            with suppress(*NOT_AS_EXPECTED):  # a text is no number
                return _rows(lines, paths, outputs[0](contents))
        many = len(lines)
        each = [rows_of([[*rows_of(of(contents), many)] for of in picks], many) for picks in (outputs, inputs)]
        return zip(lines, paths, *each, strict=True)

    return told


def _rows(lines: Sequence[int], paths: Sequence[str], told: Sequence[Sequence[Any]]) -> list[Row]:
    """The rows of calls with all numbers of one tensor: twice as fast as call by call."""
    sizes, dtypes, _, *texts = told
    deviation, *numbers = ([float(text[7:-1]) for text in column] for column in texts)
    shapes, counts = zip(*map(_sizes, sizes), strict=True)
    norms = [*map(_norm, counts, deviation, numbers[-1])]
    return rows(
        line=lines,
        module=[path.partition(".")[2] for path in paths],
        op=repeat("forward"),
        shape=map(shape_of, shapes),
        dtype=[dtype.removeprefix("torch.") for dtype in dtypes],
        inputs=repeat(UNREAD),
        producers=repeat((-1,)),
        phase=repeat(Phase.FORWARD),
        stats=stats_of(_STATISTICS, [*numbers, norms]),
        native=paths,
    )


def _picker(told: Mapping[str, Any]) -> _Pick:
    return picker(*map(told.get, _TOLD))


class _Tree:
    """The rows of one tree."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._makers = Makers()
        self.read_any = False

    def enter(self, line: int, path: str, made: Sequence[Any], inputs: Sequence[Any]) -> None:
        """Add the call of a module, if its outputs are told."""
        if not made:
            return
        outputs = [*map(self._tensor, made)]
        place = line, path.partition(".")[2], "forward"
        if read := [tensor.read for tensor in outputs if tensor.read is not None]:
            self.read_any = True
            fields = {**self._inputs(inputs), **fields_of(read)}
            for digest in fields["digests"]:
                self._makers.keep(digest, len(self._columns), fields["input_digests"])
            self._columns.add(Row(*place, phase=Phase.FORWARD, native=path, **fields))
            return
        (shape, dtype, stats, _), *further = outputs
        texts = {f"Output {k}": printed(one.shape, one.dtype, one.stats) for k, one in enumerate(further, 1)}
        told_of = shape_of(shape), dtype, (), UNREAD, (-1,), "", Phase.FORWARD, stats
        self._columns.add(new_row(Row, (*place, *told_of, (), (), (), False, -1, texts, path, b"")))

    def _inputs(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """The fields of a row that are about what a module reads."""
        told = [None if tensor.read is None else tensor.read.measured for tensor in map(self._tensor, inputs)]
        return {
            "inputs": [math.nan if one is None or one.l1 is None else one.l1 for one in told],
            "input_digests": [int(NO_DIGEST) if one is None else one.digest for one in told],
            "producers": [-1 if one is None else self._makers.of(one.digest) for one in told],
        }

    def _tensor(self, told: tuple[Any, ...]) -> _Tensor:
        size, dtype, file, *texts = told
        shape, numel = _sizes(size)
        deviation, low, high, mean = map(_printed, texts)
        stats = {name: value for name, value in zip(_PRINTED, (low, high, mean), strict=True) if value is not None}
        if deviation is not None and mean is not None:
            stats["L2 norm"] = _norm(numel, deviation, mean)
        read = self._read(file, shape, stats) if isinstance(file, str) and file.startswith("./") else None
        return new_row(_Tensor, (shape, dtype.removeprefix("torch."), stats, read))

    def _read(self, value: str, shape: tuple[int, ...], stats: dict[str, float]) -> Dumped | None:
        """The elements of a tensor, from the file that it names beside the tree."""
        if "/" in value[2:] or self._columns.head:
            return None
        path = str(Path(self._columns.path).with_name(value[2:]))
        try:
            with LogSource(path) as source:
                found = next(iter(entries(source, path, self._columns)), None)
            self._columns.beside += source.taken
        except (OSError, ValueError, LogError) as error:
            self._columns.problem(1, f"{path} cannot be read: {error}")
            return None
        if found is None or found.tensor is None or found.tensor.shape != shape:
            return None
        # a module that is called twice writes both calls to one file
        own = {name: number for name, number in found.tensor.measured.stats.items() if name in stats}
        largest = max(map(abs, own.values()), default=0.0)
        apart = any(abs(stats[name] - own[name]) > _CLOSE * largest for name in _PRINTED if name in own)
        return None if apart else found.tensor


def _norm(numel: int, deviation: float, mean: float) -> float:
    """The L2 norm of a tensor with this standard deviation, which is NaN of one element, and mean."""
    deviation = 0.0 if numel == 1 else deviation
    return math.sqrt((numel - 1) * deviation**2 + numel * mean**2) if numel else 0.0


@lru_cache(maxsize=4096)
def _sizes(text: str) -> tuple[tuple[int, ...], int]:
    """The shape in `torch.Size([2, 3])`, and its number of elements."""
    found = _SHAPE.match(text)
    shape = tuple(map(int, _DIGITS.findall(found[1]))) if found else ()
    return shape, math.prod(shape)


def _printed(text: Any) -> float | None:
    """The number in `tensor(1.5)`."""
    if type(text) is not str:
        return None
    try:
        return float(text[7:-1] if "," not in text else text[7:].partition(",")[0])
    except ValueError:
        return None


def _tensors(value: Any) -> list[Any]:
    """Return the tensors of arguments or results, in order."""
    if type(value) is dict and _is_tensor(value):
        return [value]
    return [item for item in leaves(value, _is_tensor) if isinstance(item, dict)]


def _is_tensor(told: Mapping[str, Any]) -> bool:
    return is_text(told.get("shape")) and is_text(told.get("dtype"))


def _calls(content: bytes, shapes: Shapes, path: str) -> Iterator[Entry]:
    """Return the calls of a tree in the order in which they end, children first.

    Raises:
        LogError: it is no JSON.
    """
    quick = _split(content, shapes) if shapes.quick and content.isascii() else None  # else perhaps no UTF-8
    if quick is not None:
        return iter(quick)
    try:
        root = json.loads(content)
    except json.JSONDecodeError as error:
        raise LogError(f"{path}:{error.lineno}: no JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise LogError(f"{path}:1: no JSON that can be read") from None
    return _decoded(root, content, shapes)


def _split(content: bytes, shapes: Shapes) -> list[Record] | None:
    """Return the calls of a tree, quickly; None for one that is damaged or written in another way."""
    found: list[Record] = []
    open_: list[Record] = []
    at, line = 0, 1
    while not found or open_:
        piece = content[at : at + SPAN]
        end = 0
        for call_line, after, shape, told, _ in shapes.many(piece, line):
            if shape == CLOSED:
                if not open_:
                    return None
                found.append(open_.pop())
            else:
                name = piece.find(_NODE, end, after)
                within = piece.count(b"\n", piece.rfind(b"{", 0, name), name) if name > 0 else 0
                call = call_line + within, 0, shape, told, ""
                (open_ if shape.endswith(_OPEN) else found).append(call)
            end = after
            if not open_:
                break
        if not end:
            return None
        at += end
        line += piece.count(b"\n", 0, end)
    return None if content[at:].strip() else found


def _decoded(root: Any, content: bytes, shapes: Shapes) -> Iterator[Entry]:
    """Yield the calls of a tree that `json` has decoded."""
    lines, numbers = _lines(content), count()
    stack: list[tuple[Any, int]] = [(root, -1)]
    while stack:
        node, number = stack.pop()
        if number >= 0:
            own = {key: value for key, value in node.items() if key != _NEST}
            yield shapes.one(lines[number] if number < len(lines) else 1, own)
            continue
        stack.append((node, next(numbers)))
        children = node.get(_NEST) or ()
        if children:
            if type(children) is not list:
                raise TypeError
            stack += [(child, -1) for child in reversed(children)]


def _read(source: LogSource, columns: Columns) -> Iterator[None]:
    content = b"".join(source.blocks())
    shapes, tree = Shapes(_plan, nest=_NEST), _Tree(columns)
    line = 1
    try:
        for lines, _, _, told in shapes.told(_calls(content, shapes, columns.path)):
            for number, one in zip(lines, told, strict=True):
                line = number
                if isinstance(one, Exception):
                    raise one
                if isinstance(one, Row):
                    columns.add(one)
                else:
                    tree.enter(*one)
                    if tree.read_any:  # the files beside it take their time
                        yield
            yield
    except NOT_AS_EXPECTED:
        columns.problem(line, "not a call of a module; what follows was not read")
        columns.cut_off = True
    columns.form = FORMAT.name if tree.read_any or columns.head else _OF_NUMBERS


def _lines(content: bytes) -> list[int]:
    """The line of each call in the file."""
    found, line, at = [], 1, 0
    while (place := content.find(_NODE, at)) >= 0:
        line += content.count(b"\n", at, place)
        found.append(line)
        at = place + len(_NODE)
    return found


def _native(source: LogSource, _path: str, line: int, _key: str) -> Iterator[str]:
    lines = islice(source.lines(), line - 1, None)
    yield decode(next(lines, b"").strip())
    yield from (decode(raw.rstrip()) for raw in takewhile(lambda raw: _NODE not in raw, lines))


FORMAT = Format("transformers debug tree", _PATTERN, _read, _native)
_OF_NUMBERS: Final = f"{FORMAT.name} (printed numbers)"
