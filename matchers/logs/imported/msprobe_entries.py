"""Entries of a dump of msprobe, of one shape of JSON at a time: names, tensors and what a log has of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np

from matchers.laws.functions import dispatched
from matchers.logs.imported.columns import new_row, stats_of
from matchers.logs.imported.json_leaves import leaves
from matchers.logs.imported.json_shapes import (
    Content,
    Contents,
    Place,
    is_double,
    is_number,
    is_text,
    is_whole,
    picker,
    rows_of,
    shape_of,
)
from matchers.logs.imported.measured import Dumped
from matchers.logs.input_statistics import PER_INPUT, pack

__all__ = ["Entry", "EntryShape", "Name", "Output", "Tensor", "Tensors", "statistics_of"]

_STATISTICS: Final = (("Norm", "L2 norm"), ("Min", "Min"), ("Max", "Max"), ("Mean", "Mean"))
_KNOWN: Final = ("dtype", *(key for key, _ in _STATISTICS))
"""Keys of a tensor in a dump."""
_NUMBERS: Final = {float, int}
_WHOLE: Final = 1 << 53
"""Whole numbers up to this one are numbers of a float64; of a longer checksum, the last bits tell a difference, too."""
_SMALLEST: Final = 1e-12
"""Norms from this one on tell the elements: the squares of a million elements of 1e-15 are numbers of a float32."""


class Name(NamedTuple):
    """A name of an entry, taken apart.

    Attributes:
        module: its path, of a module's call; None for a function.
        op: the operation: what a function dispatches, by which other tools call it, or the class of the module.
        direction: `forward`, `backward` or `parameters_grad`.
        kept: what it returns is there when it returns: it is no collective.
    """

    module: str | None
    op: str
    direction: str
    kept: bool

    @classmethod
    def of(cls, text: str, dimensions: tuple[int, ...] = ()) -> Name:
        """Return the parts of a name, of an entry with inputs of so many dimensions; fails for a text that is none."""
        start, middle, last = text.rsplit(".", 2)
        return cls._of(start, middle if start.startswith("Module.") else last, dimensions)

    @classmethod
    @lru_cache(maxsize=4096)
    def _of(cls, start: str, direction: str, dimensions: tuple[int, ...]) -> Name:
        """The name without the number of the call."""
        kind, _, function = start.partition(".")
        path, called = None, function
        if kind == "Module":
            path, _, called = function.rpartition(".")
        elif function.startswith("__") and function.endswith("__"):
            called = function.strip("_")
        if direction == "backward":
            called = f"{called}_{direction}"
        elif path is None:
            called = dispatched(called, dimensions)
        return cls(path, called, direction, kind != "Distributed")


Tensor = tuple[tuple[Any, ...], int, Any]
"""A tensor of an entry: what it has by `_KNOWN`; its checksum, -1 if there is none; its file's name, or itself."""
Tensors = tuple[tuple[float, ...], tuple[Any, ...], tuple[Tensor, ...]]
"""Some tensors of an entry: their norms, L1 where tensors were dumped, else L2, NaN if unknown; for each what no other
result has, None if there is nothing; and they."""
Output = tuple[str, str, Mapping[str, float]]
"""Shape, dtype and statistics of an output, as a row has them."""


class _Told:
    """A tensor in the entries of a shape.

    Attributes:
        known: what an entry has by `_KNOWN`, or where it has it.
        dimensions: their number.
        numbers: places of those that it has by `_KNOWN`.
        plain: it has four numbers that are doubles, and neither checksum nor file, as almost always.
    """

    def __init__(self, told: Mapping[str, Any], kinds: set[str]) -> None:
        self._kinds = kinds
        self.known = [*map(told.get, _KNOWN)]
        self.numbers = [one.at for one in self.known[1:] if isinstance(one, Place)]
        self._pick = picker(*self.known, told.get("md5", -1), told.get("data_name"))
        self._has_norm = "Norm" in told
        self._numbers = [(k, own) for k, (key, own) in enumerate(_STATISTICS, 1) if is_number(told.get(key))]
        self._norm_is_number = is_number(told.get("Norm"))
        more = told.keys() & {"md5", "data_name"}
        self.plain = not more and is_text(self.known[0]) and all(map(is_double, self.known[1:]))
        sizes = told["shape"]
        self.dimensions = len(sizes)
        self._sizes = picker(*sizes) if all(map(is_whole, sizes)) else None

    def read(self, contents: Contents) -> list[Sequence[Any]]:
        """The tensor in each of some entries: columns of its norm, what is known of it, and itself."""
        *known, checksums, names = self._pick(contents)
        if self._usual(contents):
            values = [*zip(*known, checksums, strict=True)]
            return [known[1], values, [*zip(values, checksums, names, strict=True)]]
        return [*zip(*map(self._tensor, zip(*known, strict=True), checksums, names), strict=True)]

    def outputs(self, contents: Contents) -> Iterable[Output]:
        """Return the part of a row that tells the tensor, for each of some entries."""
        *known, _, _ = self._pick(contents)
        shapes = repeat("") if self._sizes is None else map(_shape, rows_of(self._sizes(contents), len(contents)))
        dtypes = [dtype.removeprefix("torch.") for dtype in known[0]]
        stats: Iterable[dict[str, float]] = map(self._stats, zip(*known, strict=True))
        if self._usual(contents):
            stats = stats_of([own for _, own in _STATISTICS], known[1:])
        return zip(shapes, dtypes, stats, strict=False)

    def _usual(self, contents: Contents) -> bool:
        """True for numbers of entries that all are finite, with norms that are positive and not `_lost`."""
        if not self.plain:
            return False
        numbers = contents.numbers[:, self.numbers]
        return bool(np.isfinite(numbers).all() and numbers[:, 0].min() >= _SMALLEST)

    def _tensor(self, values: tuple[Any, ...], checksum: Any, name: Any) -> tuple[float, Any, Tensor]:
        total = -1
        if isinstance(checksum, str):
            total = int(checksum, 16)
            self._kinds.add("xor" if checksum.startswith("0x") else "md5")
        norm = abs(float(values[1])) if self._norm_is_number else math.nan
        if (norm == math.inf and _finite(values)) or _lost(norm, values):
            norm = math.nan
        # a view has another shape, and was not logged, perhaps
        return norm, (*values, total) if total >= 0 or self._has_norm else None, (values, total, name)

    def _stats(self, values: tuple[Any, ...]) -> dict[str, float]:
        """The statistics as a row has them."""
        stats = {own: float(values[k]) for k, own in self._numbers}
        if stats.get("L2 norm", 0.0) < 0.0:  # that of a number is the number
            stats["L2 norm"] = -stats["L2 norm"]
        if "L2 norm" in stats and _lost(stats["L2 norm"], values):
            del stats["L2 norm"]
        if any(map(math.isinf, stats.values())) and _finite(values):
            stats = {name: value for name, value in stats.items() if not math.isinf(value)}
        return stats


def _together(told: Sequence[_Told], contents: Contents) -> Iterable[Tensors]:
    """Some tensors of each of some entries."""
    columns = [one.read(contents) for one in told]
    return zip(*(rows_of([one[k] for one in columns], len(contents)) for k in range(3)), strict=True)


def _tensors(value: Any, kinds: set[str]) -> list[_Told]:
    """The tensors among arguments or results in the entries of a shape, in order."""
    return [_Told(item, kinds) for item in leaves(value, _is_whole) if type(item) is dict and _is_tensor(item)]


class Entry(NamedTuple):
    """An entry.

    Attributes:
        shape: what is the same in all entries of its shape.
        inputs, parameters, outputs: the tensors among arguments and results, in order.
        told: what a row has of each output.
        statistics: of inputs, packed, of what an entry has itself.
    """

    shape: EntryShape
    inputs: Tensors
    parameters: Tensors
    outputs: Tensors
    told: tuple[Output, ...]
    statistics: bytes


class EntryShape:
    """The entries of a shape.

    Attributes:
        recompute: the call ran once before.
        parameters: their names, of a module.

    Args:
        kinds: of checksums, which grows: `md5` or `xor`.
    """

    def __init__(self, entry: Mapping[str, Any], kinds: set[str]) -> None:
        self.recompute = entry.get("is_recompute") is True
        self._inputs = _tensors([*map(entry.get, ("input_args", "input_kwargs", "input"))], kinds)
        self._outputs = _tensors(entry.get("output"), kinds)
        told = entry.get("parameters")
        parameters = {str(name): one for name, one in told.items() if _is_tensor(one)} if type(told) is dict else {}
        self.parameters = [*parameters]
        self._parameters = [_Told(one, kinds) for one in parameters.values()]
        self.dimensions = tuple([told.dimensions for told in self._inputs])
        self._plain = all(told.plain for told in self._inputs)
        self._statistics = [at for told in self._inputs for at in told.numbers[1:]]
        self._gradients = cache(lambda: {str(name): EntryShape({"output": one}, kinds) for name, one in entry.items()})

    def entries(self, _lines: Sequence[int], contents: Contents) -> Iterable[Entry]:
        """Tell entries, many at once."""
        many = len(contents)
        inputs, *others = ([*_together(of, contents)] for of in (self._inputs, self._parameters, self._outputs))
        told = rows_of([[*one.outputs(contents)] for one in self._outputs], many)
        texts: Iterable[bytes] = map(statistics_of, inputs)
        if self._plain and self._inputs:
            numbers = np.full((many, len(self._inputs), PER_INPUT), np.nan)
            numbers[:, :, :-1] = contents.numbers[:, self._statistics].reshape(many, -1, PER_INPUT - 1)
            texts = pack(numbers)
        return map(new_row, repeat(Entry), zip(repeat(self), inputs, *others, told, texts))

    def gradients(self, content: Content) -> Iterator[tuple[str, Entry]]:
        """Yield those of parameters, by name, as outputs."""
        for name, shape in self._gradients().items():
            (entry,) = shape.entries([0], Contents([content]))
            yield name, entry


def statistics_of(inputs: Tensors) -> bytes:
    """Statistics of inputs besides norms, as a log has them; empty if there are none, or digests tell all."""
    told, known = list[float](), False
    for values, checksum, read in inputs[2]:
        numbers = values[2:5]
        known = known or (not isinstance(read, Dumped) and (checksum >= 0 or type(numbers[0]) is float))
        if not {*map(type, numbers)} <= _NUMBERS:
            numbers = tuple([value if type(value) in _NUMBERS else math.nan for value in numbers])
        told += (*numbers, checksum % _WHOLE if checksum >= 0 else math.nan)
    return next(pack(np.array([told]))) if known else b""


def _finite(values: tuple[Any, ...]) -> bool:
    """True for a tensor of finite elements: its norm or mean is infinite only as msprobe adds in the dtype of it."""
    return all(isinstance(value, (float, int)) and math.isfinite(value) for value in values[2:4])


def _lost(norm: float, values: tuple[Any, ...]) -> bool:
    """True for a norm of elements whose squares are too small for the dtype that msprobe adds them in."""
    return norm < _SMALLEST and any(isinstance(value, float) and value != 0.0 for value in values[2:4])


def _is_tensor(told: Mapping[str, Any]) -> bool:
    return "dtype" in told and type(told.get("shape")) is list


def _is_whole(told: Mapping[str, Any]) -> bool:
    """True for a tensor, and for a value that is none."""
    return "value" in told or _is_tensor(told)


def _shape(sizes: tuple[Any, ...]) -> str:
    text = shape_of(sizes)
    return "" if "-" in text else text
