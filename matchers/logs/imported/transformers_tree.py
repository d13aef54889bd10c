"""The debug trees of transformers (`model_addition_debugger_context`): the calls of all modules, with their tensors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import count, islice, takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

from matchers.errors import LogError
from matchers.logs.columns import decode
from matchers.logs.imported.columns import UNREAD, Columns, Row, new_row
from matchers.logs.imported.format import NATIVE_KEY, Format
from matchers.logs.imported.json_leaves import leaves
from matchers.logs.imported.json_shapes import shape_of
from matchers.logs.imported.makers import Makers
from matchers.logs.imported.measured import Dumped, fields_of, printed
from matchers.logs.imported.safetensors import entries
from matchers.logs.op_log import NO_DIGEST, Phase
from matchers.logs.source import LogSource

__all__ = ["FORMAT"]

_PATTERN = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"module_path"\s*:\s*"')
_NODE: Final = b'"module_path":'
_SHAPE = re.compile(r"torch\.Size\((\[[\d, ]*\])\)")
_DIGITS = re.compile(r"\d+")
_PRINTED: Final = (("Min", "min"), ("Max", "max"), ("Mean", "mean"))
_SPOT: Final = 256
"""Calls between two reports of progress."""
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


class _Tree:
    """The rows of one tree."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._makers = Makers()
        self.read_any = False

    def enter(self, node: Any, line: int) -> None:
        """Add the call of a module, if its outputs are told."""
        outputs = [self._tensor(told) for told in _tensors(node.get("outputs"))]
        if not outputs:
            return
        path = str(node["module_path"])
        place = line, path.partition(".")[2], "forward"
        if read := [tensor.read for tensor in outputs if tensor.read is not None]:
            self.read_any = True
            fields = {**self._inputs(node), **fields_of(read)}
            for digest in fields["digests"]:
                self._makers.keep(digest, len(self._columns), fields["input_digests"])
            fields["texts"] = {NATIVE_KEY: path, **fields["texts"]}
            self._columns.add(Row(*place, phase=Phase.FORWARD, **fields))
            return
        (shape, dtype, stats, _), *further = outputs
        texts = {NATIVE_KEY: path}
        for k, one in enumerate(further, 1):
            texts[f"Output {k}"] = printed(one.shape, one.dtype, one.stats)
        told_of = shape_of(shape), dtype, (), UNREAD, (-1,), "", Phase.FORWARD, stats
        self._columns.add(new_row(Row, (*place, *told_of, (), (), (), False, -1, texts)))

    def _inputs(self, node: Any) -> dict[str, Any]:
        """The fields of a row that are about what a module reads."""
        inputs = [self._tensor(told) for told in _tensors(node.get("inputs"))]
        told = [None if tensor.read is None else tensor.read.measured for tensor in inputs]
        return {
            "inputs": [math.nan if one is None or one.l1 is None else one.l1 for one in told],
            "input_digests": [int(NO_DIGEST) if one is None else one.digest for one in told],
            "producers": [-1 if one is None else self._makers.of(one.digest) for one in told],
        }

    def _tensor(self, told: Any) -> _Tensor:
        shape, numel = _sizes(told["shape"])
        stats: dict[str, float] = {}
        for name, key in _PRINTED:
            if (value := _printed(told.get(key))) is not None:
                stats[name] = value
        deviation, mean = _printed(told.get("std")), stats.get("Mean")
        if deviation is not None and mean is not None:
            deviation = 0.0 if numel == 1 else deviation
            stats["L2 norm"] = math.sqrt((numel - 1) * deviation**2 + numel * mean**2) if numel else 0.0
        file = told.get("value")
        read = self._read(file, shape, stats) if isinstance(file, str) and file.startswith("./") else None
        return new_row(_Tensor, (shape, told["dtype"].removeprefix("torch."), stats, read))

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
        apart = any(abs(stats[name] - own[name]) > _CLOSE * largest for name, _ in _PRINTED if name in own)
        return None if apart else found.tensor


@lru_cache(maxsize=4096)
def _sizes(text: str) -> tuple[tuple[int, ...], int]:
    """The shape in `torch.Size([2, 3])`, and its number of elements."""
    found = _SHAPE.match(text)
    shape = tuple(map(int, _DIGITS.findall(found[1]))) if found else ()
    return shape, math.prod(shape)


def _printed(text: Any) -> float | None:
    """The number in `tensor(1.5)`."""
    if type(text) is not str or text[:7] != "tensor(":
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
    return isinstance(told.get("shape"), str) and isinstance(told.get("dtype"), str)


def _calls(root: Any) -> Iterator[tuple[int, Any]]:
    """Yield the calls in the order in which they end, children first, each with its number in the order of the file."""
    numbers = count()
    stack: list[tuple[Any, int]] = [(root, -1)]
    while stack:
        node, number = stack.pop()
        if number >= 0:
            yield number, node
            continue
        stack.append((node, next(numbers)))
        children = node.get("children") or ()
        if children:
            if type(children) is not list:
                raise TypeError
            stack += [(child, -1) for child in reversed(children)]


def _read(source: LogSource, columns: Columns) -> Iterator[None]:
    content = b"".join(source.blocks())
    try:
        root = json.loads(content)
    except json.JSONDecodeError as error:
        raise LogError(f"{columns.path}:{error.lineno}: no JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise LogError(f"{columns.path}:1: no JSON that can be read") from None
    lines = _lines(content)
    tree = _Tree(columns)
    number = 0
    try:
        for entered, (number, node) in enumerate(_calls(root)):
            tree.enter(node, lines[number] if number < len(lines) else 1)
            if tree.read_any or entered % _SPOT == 0:  # the files beside it take their time
                yield
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError, RecursionError):
        line = lines[number] if number < len(lines) else 1
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
