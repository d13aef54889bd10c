"""Dumps of Ascend's msprobe: `dump.json` of a rank and step, with the files beside it that tell modules and places."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice, repeat, takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from capture.log_format import escape
from matchers.errors import LogError
from matchers.laws.functions import dispatched
from matchers.logs.columns import decode
from matchers.logs.imported.columns import UNREAD, Columns, Row, new_row, stats_of
from matchers.logs.imported.format import NATIVE_KEY, Format
from matchers.logs.imported.json_leaves import leaves
from matchers.logs.imported.json_pieces import Pieces
from matchers.logs.imported.json_shapes import (
    NOT_AS_EXPECTED,
    Content,
    Contents,
    Place,
    Shapes,
    is_double,
    is_number,
    is_text,
    is_whole,
    picker,
    rows_of,
    shape_of,
)
from matchers.logs.imported.makers import Makers
from matchers.logs.imported.measured import Dumped, fields_of, printed
from matchers.logs.imported.torch_file import read_torch
from matchers.logs.input_statistics import FIELD, PER_INPUT, pack
from matchers.logs.op_log import NO_DIGEST, Phase
from matchers.logs.source import LogSource

__all__ = ["FORMAT"]

_PATTERN = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"task"\s*:[^{]*"level"\s*:[^{]*"data"\s*:\s*\{')
_HEAD = re.compile(r'\s*\{[^{]*?"data"\s*:\s*\{')
_LEVEL = re.compile(r'"level"\s*:\s*"(\w+)"')
_NAME = re.compile(r'"[^"\n]+\.(?:forward|backward|parameters_grad)(?:\.\d+)?"\s*:')
_FRAME = re.compile(r"File (.+), line (\d+), in ([^\s,]*)")
_LIBRARY = re.compile(r"[/\\](?:site-packages|torch|msprobe)[/\\]")
_STATISTICS: Final = (("Norm", "L2 norm"), ("Min", "Min"), ("Max", "Max"), ("Mean", "Mean"))
_KNOWN: Final = ("dtype", *(key for key, _ in _STATISTICS))
"""Keys of a tensor in a dump."""
_NUMBERS: Final = {float, int}
_WHOLE: Final = 1 << 53
"""Whole numbers up to this one are numbers of a float64; of a longer checksum, the last bits tell a difference, too."""
_SMALLEST: Final = 1e-12
"""Norms from this one on tell the elements: the squares of a million elements of 1e-15 are numbers of a float32."""
_PHASES: Final[Mapping[str, Phase]] = {"optimizer": Phase.OPTIMIZER, "clip_grad": Phase.GRADIENTS}
"""By the name of what encloses an entry."""
_FRAMES = 16
"""Frames of a stack that are kept, the innermost ones."""
_LARGEST_BESIDE = 1 << 30
_NO_PLACE: Final = ("", "")
_OF_OUTPUTS: Final[Sequence[tuple[str, Any]]] = (
    ("shape", ""),
    ("dtype", ""),
    ("outputs", ()),
    ("stats", {}),
    ("counts", ()),
    ("digests", ()),
)
"""Fields of a row that are about its outputs, and what they are without any."""
_FORWARD, _BACKWARD = Phase.FORWARD, Phase.BACKWARD
_SPOT = 256
"""Entries between two reports of progress."""


class _Name(NamedTuple):
    """A name of an entry, taken apart.

    Attributes:
        module: its path, of a module's call; None for a function.
        op: the function, or the class of the module.
        direction: `forward`, `backward` or `parameters_grad`.
    """

    module: str | None
    op: str
    direction: str

    @classmethod
    def of(cls, text: str) -> _Name:
        start, middle, last = text.rsplit(".", 2)
        return cls._of(start, middle if start.startswith("Module.") else last)

    @classmethod
    @lru_cache(maxsize=4096)
    def _of(cls, start: str, direction: str) -> _Name:
        """The name without the number of the call."""
        kind, _, function = start.partition(".")
        if kind == "Module":
            path, _, called = function.rpartition(".")
            return cls(path, called, direction)
        bare = function.strip("_") if function.startswith("__") and function.endswith("__") else function
        return cls(None, bare, direction)


_Tensor = tuple[tuple[Any, ...], int, Any]
"""A tensor of an entry: what it has by `_KNOWN`; its checksum, -1 if there is none; its file's name, or itself."""
_Tensors = tuple[tuple[float, ...], tuple[Any, ...], tuple[_Tensor, ...]]
"""Some tensors of an entry: their norms, L1 where tensors were dumped, else L2, NaN if unknown; for each what no other
result has, None if there is nothing; and they."""
_Output = tuple[str, str, Mapping[str, float]]
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

    def outputs(self, contents: Contents) -> Iterable[_Output]:
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

    def _tensor(self, values: tuple[Any, ...], checksum: Any, name: Any) -> tuple[float, Any, _Tensor]:
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


def _together(told: Sequence[_Told], contents: Contents) -> Iterable[_Tensors]:
    """Some tensors of each of some entries."""
    columns = [one.read(contents) for one in told]
    return zip(*(rows_of([one[k] for one in columns], len(contents)) for k in range(3)), strict=True)


def _tensors(value: Any, kinds: set[str]) -> list[_Told]:
    """The tensors among arguments or results in the entries of a shape, in order."""
    return [_Told(item, kinds) for item in leaves(value, _is_whole) if type(item) is dict and _is_tensor(item)]


class _Entry(NamedTuple):
    """An entry.

    Attributes:
        shape: what is the same in all entries of its shape.
        inputs, parameters, outputs: the tensors among arguments and results, in order.
        told: what a row has of each output.
        statistics: of inputs, packed, of what an entry has itself.
    """

    shape: _Shape
    inputs: _Tensors
    parameters: _Tensors
    outputs: _Tensors
    told: tuple[_Output, ...]
    statistics: bytes


class _Shape:
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
        self._operations: dict[tuple[str, str], str] = {}
        self._dimensions = tuple([told.dimensions for told in self._inputs])
        self._plain = all(told.plain for told in self._inputs)
        self._statistics = [at for told in self._inputs for at in told.numbers[1:]]
        self._gradients = cache(lambda: {str(name): _Shape({"output": one}, kinds) for name, one in entry.items()})

    def entries(self, _lines: Sequence[int], contents: Contents) -> Iterable[_Entry]:
        """Tell entries, many at once."""
        many = len(contents)
        inputs, *others = ([*_together(of, contents)] for of in (self._inputs, self._parameters, self._outputs))
        told = rows_of([[*one.outputs(contents)] for one in self._outputs], many)
        texts: Iterable[bytes] = map(_statistics, inputs)
        if self._plain and self._inputs:
            numbers = np.full((many, len(self._inputs), PER_INPUT), np.nan)
            numbers[:, :, :-1] = contents.numbers[:, self._statistics].reshape(many, -1, PER_INPUT - 1)
            texts = pack(numbers)
        return map(new_row, repeat(_Entry), zip(repeat(self), inputs, *others, told, texts))

    def operation(self, name: _Name) -> str:
        """The operation of an entry: that of a function is what it dispatches, by which other tools call it."""
        of = name.op, name.direction
        if (found := self._operations.get(of)) is None:
            found = f"{name.op}_{name.direction}" if name.direction == "backward" else name.op
            if name.module is None and name.direction != "backward":
                found = dispatched(name.op, self._dimensions)
            self._operations[of] = found
        return found

    def gradients(self, content: Content) -> Iterator[tuple[str, _Entry]]:
        """Yield those of parameters, by name, as outputs."""
        for name, shape in self._gradients().items():
            (entry,) = shape.entries([0], Contents([content]))
            yield name, entry


class _Reader:
    """The rows of one dump."""

    def __init__(self, columns: Columns, level: str) -> None:
        self._columns = columns
        self._by_module = level == "L0"
        self._parents = _beside(columns, "construct.json")
        self._places = dict(_places(_beside(columns, "stack.json")))
        self._makers = Makers()
        self._rows: list[tuple[Any, ...]] = []
        """Rows that are not entered yet."""
        self._number = 0
        """Of the next row."""
        self._inside: set[str] = set()
        """Calls of modules in which a row lies."""
        self._made: dict[str, tuple[list[float], list[int]]] = {}
        """By the call of a module, what the calls of modules in it have returned: the norms and the rows."""
        self._last_backward: dict[str, int] = {}
        """By module the last row of its backward pass."""
        self._saved: dict[str, tuple[tuple[float, ...], list[int], tuple[float, ...], int]] = {}
        """By the forward call, what its backward pass reads beside gradients: norms and makers of inputs, norms of
        results, and its row."""
        folder = Path(columns.path).with_name("dump_tensor_data")
        self.tensors = None if columns.head or not folder.is_dir() else folder
        """The folder of the tensors, if there are any."""

    def _add(self, row: tuple[Any, ...]) -> None:
        self._rows.append(row)
        self._number += 1

    def flush(self) -> None:
        """Hand on the rows so far."""
        rows, self._rows = self._rows, []
        self._columns.extend(rows)

    def enter(self, text: str, entry: _Entry, content: Content, line: int) -> None:
        """Add the rows of an entry."""
        name = _Name.of(text)
        if name.direction == "parameters_grad":
            self._gradients(name, text, entry.shape.gradients(content), line)
            return
        parent, batch = self._parent(text) if self._parents else ("", -1)
        if name.module is not None and not self._by_module and (text in self._inside or not self._parents):
            return  # what was called in it has rows of its own
        module = name.module or ""
        if name.module is None and parent.startswith("Module."):
            module = _Name.of(parent).module or ""
        backward = name.direction == "backward"
        shape, inputs, parameters, outputs, told, statistics = entry
        if self.tensors is not None:
            inputs, outputs = self._dumped(inputs), self._dumped(outputs)
            statistics = _statistics(inputs)
        norms, known, read = inputs
        made, results, tensors = outputs
        texts: dict[str, Any] = {NATIVE_KEY: text}
        location, stack = self._places.get(text, _NO_PLACE)
        if stack:
            texts["Stack"] = stack
        if statistics:
            texts[FIELD] = statistics
        if self._by_module and parameters:
            names = [f"{module}.{parameter}".lstrip(".") for parameter in shape.parameters]
            texts["Parameter"] = ";".join([*[""] * len(norms), *map(escape, names)])
            more = parameters if self.tensors is None else self._dumped(parameters)
            norms, known, read = norms + more[0], known + more[1], read + more[2]
        number = self._number
        producers = self._makers.of_all(known)
        if not backward and (nested := self._made.pop(text, None)):
            norms += tuple(nested[0])
            producers += nested[1]
        if backward and (saved := self._saved.pop(".forward".join(text.rsplit(".backward", 1)), None)):
            before, makers, after, maker = saved
            norms += before + after
            producers += makers + [maker] * len(after)
        size, dtype, norm, stats, counts, digests = self._told(told, tensors, texts)
        op = shape.operation(name)
        phase = _BACKWARD if backward else _PHASES.get(parent, _FORWARD)
        read_digests = _digests(read, len(norms)) if self.tensors else ()
        self._add((line, module, op, size, dtype, norm, norms, producers, location, phase,
            stats, counts, digests, read_digests, shape.recompute, batch, texts))  # fmt: skip
        if backward:
            self._last_backward[module] = number
        else:
            self._saved[text] = norms, producers, made, number
        if not text.startswith("Distributed."):  # what a collective returns may not be there yet
            for result in results:
                if result is not None:
                    self._makers.keep(result, number, known)
        if name.module is not None and parent:
            within = self._made.setdefault(parent, ([], []))
            within[0].append(made[0] if made else math.nan)
            within[1].append(number)
        while parent and parent not in self._inside:
            self._inside.add(parent)
            parent, _ = self._parent(parent)

    def _gradients(self, name: _Name, text: str, gradients: Iterable[tuple[str, _Entry]], line: int) -> None:
        """Add the gradients of a module's parameters."""
        module = name.module or ""
        for parameter, entry in gradients:
            producer = self._last_backward.get(module, -1)
            path = f"{module}.{parameter}" if module else parameter
            _, _, tensors = entry.outputs if self.tensors is None else self._dumped(entry.outputs)
            texts = {NATIVE_KEY: text}
            shape, dtype, norms, stats, counts, digests = self._told(entry.told, tensors, texts)
            fields = {"stats": stats, "counts": counts, "digests": digests, "texts": texts, "phase": Phase.BACKWARD}
            self._add(
                Row(line, path, "gradient", shape, dtype, norms, UNREAD, (producer,), **fields)  # type: ignore[arg-type] # by name
            )

    def _told(
        self, told: Sequence[_Output], outputs: Sequence[_Tensor], texts: dict[str, str]
    ) -> tuple[str, str, Sequence[float], Mapping[str, float], Sequence[int], Sequence[int]]:
        """Shape, dtype, norms, statistics, counts and digests of outputs, as a row has them; adds to its texts."""
        if not outputs:
            return "", "", (), {}, (), ()
        if self.tensors is not None:
            read = [one for _, _, one in outputs if isinstance(one, Dumped)]
            if len(read) == len(outputs):
                fields = fields_of(read)
                texts.update(fields.pop("texts", {}))
                return tuple([fields.get(name, empty) for name, empty in _OF_OUTPUTS])
        shape, dtype, stats = told[0]
        for k, found in enumerate(told[1:], 1) if len(told) > 1 else ():
            texts[f"Output {k}"] = printed(json.loads(found[0] or "null"), *found[1:])
        if outputs[0][1] >= 0 and min(checksums := [checksum for _, checksum, _ in outputs]) >= 0:
            texts["User hash"] = ", ".join(map(str, checksums))
        return shape, dtype, (), stats, (), ()

    def _dumped(self, tensors: _Tensors) -> _Tensors:
        """Tensors, each with what its file has; without one, its norm is unknown."""
        _, known, told = tensors
        each = [(values, checksum, self._read(name)) for values, checksum, name in told]
        norms = [math.nan if read is None or read.measured.l1 is None else read.measured.l1 for *_, read in each]
        own = [of if read is None else (read.measured.digest,) for of, (*_, read) in zip(known, each, strict=True)]
        return tuple(norms), tuple(own), tuple(each)

    def _read(self, name: object) -> Dumped | None:
        """The tensor of a file; None if it cannot be read."""
        if self.tensors is None or not isinstance(name, str) or "/" in name:
            return None
        path = self.tensors / name
        try:
            found = read_torch(str(path), str(path))
            self._columns.beside += path.stat().st_size
        except (OSError, LogError) as error:
            self._columns.problem(1, str(error))
            return None
        return found if isinstance(found, Dumped) else None

    def _parent(self, text: str) -> tuple[str, int]:
        """The name of what encloses an entry, empty for nothing, and the micro-batch; -1: unknown."""
        told = self._parents.get(text)
        if isinstance(told, list) and len(told) == 2:
            return (told[0] if isinstance(told[0], str) else ""), (told[1] if type(told[1]) is int else -1)
        return (told if isinstance(told, str) else ""), -1


def _statistics(inputs: _Tensors) -> bytes:
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


def _digests(inputs: Sequence[_Tensor], count: int) -> list[int]:
    """The digests of the inputs that were dumped; `count`: of all that a record reads."""
    told = [read.measured.digest if isinstance(read, Dumped) else int(NO_DIGEST) for *_, read in inputs]
    return told + [int(NO_DIGEST)] * (count - len(told))


def _is_tensor(told: Mapping[str, Any]) -> bool:
    return "dtype" in told and type(told.get("shape")) is list


def _is_whole(told: Mapping[str, Any]) -> bool:
    """True for a tensor, and for a value that is none."""
    return "value" in told or _is_tensor(told)


def _shape(sizes: tuple[Any, ...]) -> str:
    text = shape_of(sizes)
    return "" if "-" in text else text


def _beside(columns: Columns, name: str) -> dict[str, Any]:
    """The object of a file beside the dump; empty without one."""
    path = Path(columns.path).with_name(name)
    try:
        if path.stat().st_size > _LARGEST_BESIDE:
            raise ValueError("too large")
        content = path.read_bytes()
        columns.beside += len(content)
        told = json.loads(content)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        columns.problem(1, f"{path} cannot be read: {error}")
        return {}
    return told if isinstance(told, dict) else {}


def _places(stacks: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the name of each entry, and the innermost line and the whole of its stack outside of libraries."""
    for told in stacks.values():
        if isinstance(told, list) and len(told) == 2 and all(isinstance(one, list) for one in told):
            frames = (_FRAME.match(frame) for frame in told[1] if isinstance(frame, str))
            own = [frame for frame in frames if frame and not _LIBRARY.search(frame[1])]
            if own:
                stack = " < ".join(escape(":".join(frame.groups())) for frame in own[:_FRAMES])
                place = f"{own[0][1]}:{own[0][2]}", stack
                yield from ((str(name), place) for name in told[0])


def _open(source: LogSource, columns: Columns) -> tuple[Pieces, str]:
    """Return the text of a file at its first entry, and the level of the dump.

    Raises:
        LogError: it has no entries.
    """
    pieces = Pieces(source)
    pieces.more()
    head = _HEAD.match(pieces.text)
    if head is None:
        raise LogError(f'{columns.path}:1: a dump of msprobe without an object "data"')
    level = _LEVEL.search(head[0])
    pieces.at = head.end()
    return pieces, level[1] if level else ""


def _next_entry(text: str, at: int) -> int:
    """The place of the next name of an entry; -1: there is none."""
    found = _NAME.search(text, at)
    return found.start() if found else -1


def _read(source: LogSource, columns: Columns) -> Iterator[None]:
    pieces, level = _open(source, columns)
    reader, kinds = _Reader(columns, level), set[str]()
    shapes = Shapes(lambda entry: _Shape(entry, kinds).entries)
    columns.form = f"{FORMAT.name} (statistics)"  # of a head, which ends before the checksums are known
    for some in shapes.told(pieces.entries("}", _next_entry, columns, shapes, named=True)):
        for number, ((line, _, content, name), entry) in enumerate(some):
            try:
                reader.enter(name, entry, content, line)
            except NOT_AS_EXPECTED:
                columns.problem(line, f"{name} is not an entry that can be read")
            if number % _SPOT == 0:
                reader.flush()
                yield
    reader.flush()
    what = "tensors" if reader.tensors else max(kinds, default="statistics")
    columns.form = f"{FORMAT.name} ({what}, modules)" if level == "L0" else f"{FORMAT.name} ({what})"


def _native(source: LogSource, _path: str, line: int, _key: str) -> Iterator[str]:
    lines = islice(source.lines(), line - 1, None)
    yield decode(next(lines, b"").strip())
    yield from (decode(raw.rstrip()) for raw in takewhile(lambda raw: not _ENTRY.match(raw), lines))


_ENTRY = re.compile(rb' ? ?"[^"\n]+\.(?:forward|backward|parameters_grad)(?:\.\d+)?"\s*:')
FORMAT = Format("msprobe", _PATTERN, _read, _native)
