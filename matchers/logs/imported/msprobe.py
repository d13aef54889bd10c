"""Dumps of Ascend's msprobe: `dump.json` of a rank and step, with the files beside it that tell modules and places."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

from capture.log_format import escape
from matchers.errors import LogError
from matchers.laws.functions import dispatched
from matchers.logs.columns import decode
from matchers.logs.imported.columns import UNREAD, Columns, Row, new_row
from matchers.logs.imported.format import NATIVE_KEY, Format
from matchers.logs.imported.json_leaves import leaves
from matchers.logs.imported.json_pieces import NOT_AS_EXPECTED, Pieces
from matchers.logs.imported.json_shapes import (
    Content,
    Shapes,
    is_double,
    is_number,
    is_text,
    is_whole,
    picker,
    shape_of,
)
from matchers.logs.imported.makers import Makers
from matchers.logs.imported.measured import Dumped, fields_of, printed
from matchers.logs.imported.torch_file import read_torch
from matchers.logs.input_statistics import FIELD, pack
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
        start, dot, last = text.rpartition(".")
        if not dot:
            raise ValueError
        if text.startswith("Module."):
            return cls._of_module(start)
        return cls._of_function(start.rpartition(".")[0].partition(".")[2], last)

    @classmethod
    @lru_cache(maxsize=4096)
    def _of_module(cls, text: str) -> _Name:
        _, *parts = text.split(".")
        return cls(".".join(parts[:-2]), parts[-2], parts[-1])

    @classmethod
    @lru_cache(maxsize=4096)
    def _of_function(cls, function: str, direction: str) -> _Name:
        bare = function.strip("_") if function.startswith("__") and function.endswith("__") else function
        return cls(None, bare, direction)


class _Told:
    """A tensor in the entries of a shape.

    Attributes:
        known: what an entry has by `_KNOWN`, or where it has it.
        dimensions: their number.
        has_norm: it has a key for its norm, perhaps without a number.
        plain: it has four numbers that are doubles, and neither checksum nor file, as almost always.
    """

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.known = [*map(told.get, _KNOWN)]
        self.pick = picker(*self.known)
        self.pick_more = picker(told.get("md5"), told.get("data_name"))
        self.has_more = "md5" in told or "data_name" in told
        self.has_norm = "Norm" in told
        self._numbers = [(k, own) for k, (key, own) in enumerate(_STATISTICS, 1) if is_number(told.get(key))]
        self._all = len(self._numbers) == len(_STATISTICS)
        self.norm_is_number = is_number(told.get("Norm"))
        self.plain = not self.has_more and is_text(self.known[0]) and all(map(is_double, self.known[1:]))
        sizes = told["shape"]
        self.dimensions = len(sizes)
        self._sizes = picker(*sizes) if all(map(is_whole, sizes)) else None

    def shape(self, content: Content) -> str:
        """The shape as a row has it; empty if it is none."""
        return "" if self._sizes is None else _shape(self._sizes(content))

    def stats(self, values: tuple[Any, ...]) -> dict[str, float]:
        """The statistics as a row has them."""
        if self._all:
            _, norm, low, high, mean = values
            if norm >= _SMALLEST and math.isfinite(norm + low + high + mean):
                return {"L2 norm": norm, "Min": low, "Max": high, "Mean": mean}
        stats = {own: float(values[k]) for k, own in self._numbers}
        if stats.get("L2 norm", 0.0) < 0.0:  # that of a number is the number
            stats["L2 norm"] = -stats["L2 norm"]
        if "L2 norm" in stats and _lost(stats["L2 norm"], values):
            del stats["L2 norm"]
        if any(map(math.isinf, stats.values())) and _finite(values):
            stats = {name: value for name, value in stats.items() if not math.isinf(value)}
        return stats


class _Tensors:
    """The tensors among arguments or results in the entries of a shape, in order.

    Attributes:
        told: each.
        plain: all are.
        statistics: picks those of inputs, as `pack` wants them, if all are plain.
    """

    def __init__(self, value: Any) -> None:
        self.told = [_Told(item) for item in leaves(value, _is_whole) if type(item) is dict and _is_tensor(item)]
        self.plain = all(one.plain for one in self.told)
        self._pick = picker(*chain.from_iterable([one.known for one in self.told]))
        self.statistics = picker(*chain.from_iterable([(*one.known[2:], math.nan) for one in self.told]))

    def read(self, content: Content) -> list[_Tensor] | None:
        """Read tensors that are plain; None if one has an infinite number, or a norm that may be `_lost`."""
        values = self._pick(content)
        if math.inf in values or -math.inf in values or min(values[1::5], default=1.0) < _SMALLEST:
            return None  # negative ones, of numbers, too
        each = zip(values[::5], values[1::5], values[2::5], values[3::5], values[4::5], strict=True)
        return [(abs(one[1]), (*one, -1), one, -1, None) for one in each]


class _Entry:
    """The entries of a shape: the tensors among arguments and results, in order."""

    def __init__(self, entry: Any) -> None:
        self._entry: Mapping[str, Any] = entry

    @cached_property
    def recompute(self) -> bool:
        """It ran once before."""
        return self._entry.get("is_recompute") is True

    @cached_property
    def forward(self) -> _Tensors:
        """The tensors that a forward call reads."""
        return _Tensors([self._entry.get("input_args"), self._entry.get("input_kwargs")])

    @cached_property
    def backward(self) -> _Tensors:
        """The tensors that a backward call reads."""
        return _Tensors(self._entry.get("input"))

    @cached_property
    def dimensions(self) -> tuple[int, ...]:
        """Of each tensor that a forward call reads."""
        return tuple([told.dimensions for told in self.forward.told])

    @cached_property
    def outputs(self) -> _Tensors:
        """The tensors that a call returns."""
        return _Tensors(self._entry.get("output"))

    @cached_property
    def parameters(self) -> dict[str, _Told] | None:
        """The parameters of a module, by name."""
        told = self._entry.get("parameters")
        return {name: _Told(one) for name, one in told.items()} if isinstance(told, dict) else None

    @cached_property
    def gradients(self) -> list[tuple[str, _Tensors]]:
        """Those of parameters, by name."""
        return [(str(name), _Tensors(told)) for name, told in self._entry.items()]


_Tensor = tuple[float, tuple[Any, ...] | None, tuple[Any, ...], int, Dumped | None]
"""A tensor of an entry: its norm, L1 where tensors were dumped, else L2, NaN if unknown; what no other result has, None
if there is nothing; what the dump has by `_KNOWN`; its checksum, -1 if there is none; and itself, if it was dumped."""


class _Reader:
    """The rows of one dump."""

    def __init__(self, columns: Columns, level: str) -> None:
        self._columns = columns
        self._by_module = level == "L0"
        self._parents = _beside(columns, "construct.json")
        self._places = dict(_places(_beside(columns, "stack.json")))
        self._makers = Makers()
        self._inside: set[str] = set()
        """Calls of modules in which a row lies."""
        self._made: dict[str, tuple[list[float], list[int]]] = {}
        """By the call of a module, what the calls of modules in it have returned: the norms and the rows."""
        self._last_backward: dict[str, int] = {}
        """By module the last row of its backward pass."""
        self._saved: dict[str, tuple[list[float], list[int], list[float], int]] = {}
        """By the forward call, what its backward pass reads beside gradients: norms and makers of inputs, norms of
        results, and its row."""
        self.checksums = ""
        """`md5` or `xor`, if there is any."""
        folder = Path(columns.path).with_name("dump_tensor_data")
        self.tensors = None if columns.head or not folder.is_dir() else folder
        """The folder of the tensors, if there are any."""

    def enter(self, text: str, entry: _Entry, content: Content, line: int) -> None:
        """Add the rows of an entry."""
        name = _Name.of(text)
        if name.direction == "parameters_grad":
            self._gradients(name, text, entry, content, line)
            return
        parent, batch = self._parent(text) if self._parents else ("", -1)
        if name.module is not None and not self._by_module and (text in self._inside or not self._parents):
            return  # what was called in it has rows of its own
        enclosing = text if name.module is not None else parent
        module = (_Name.of(enclosing).module or "") if enclosing.startswith("Module.") else ""
        backward = name.direction == "backward"
        of_inputs = entry.backward if backward else entry.forward
        inputs, outputs = self._tensors(of_inputs, content), self._tensors(entry.outputs, content)
        texts = {NATIVE_KEY: text}
        location, stack = self._places.get(text, _NO_PLACE)
        if stack:
            texts["Stack"] = stack
        if told := pack(of_inputs.statistics(content)) if of_inputs.plain else _statistics(inputs):
            texts[FIELD] = told
        if self._by_module and name.module is not None and entry.parameters is not None:
            names = [f"{module}.{parameter}".lstrip(".") for parameter in entry.parameters]
            texts["Parameter"] = ";".join([*[""] * len(inputs), *map(escape, names)])
            inputs += [self._tensor(told, content) for told in entry.parameters.values()]
        number = len(self._columns)
        norms, known = [one[0] for one in inputs], [one[1] for one in inputs]
        producers = [*map(self._makers.of, known)]
        if not backward and (nested := self._made.pop(text, None)):
            norms += nested[0]
            producers += nested[1]
        if backward and (saved := self._saved.pop(".forward".join(text.rsplit(".backward", 1)), None)):
            read, makers, results, maker = saved
            norms += read + results
            producers += makers + [maker] * len(results)
        shape, dtype, norm, stats, counts, digests = self._told(entry.outputs, outputs, texts, content)
        op = _operation(name, entry.dimensions)
        phase = Phase.BACKWARD if backward else _PHASES.get(parent, Phase.FORWARD)
        read_digests = _digests(inputs, len(norms)) if self.tensors else ()
        place = line, module, op, shape, dtype, norm, norms, producers, location, phase
        told_of = stats, counts, digests, read_digests, entry.recompute, batch, texts
        self._columns.add(new_row(Row, (*place, *told_of)))
        made = [one[0] for one in outputs]
        if backward:
            self._last_backward[module] = number
        else:
            self._saved[text] = norms, producers, made, number
        if not text.startswith("Distributed."):  # what a collective returns may not be there yet
            for _, one, *_ in outputs:
                if one is not None:
                    self._makers.keep(one, number, known)
        if name.module is not None and parent:
            within = self._made.setdefault(parent, ([], []))
            within[0].append(made[0] if made else math.nan)
            within[1].append(number)
        while parent and parent not in self._inside:
            self._inside.add(parent)
            parent, _ = self._parent(parent)

    def _gradients(self, name: _Name, text: str, entry: _Entry, content: Content, line: int) -> None:
        """Add the gradients of a module's parameters."""
        module = name.module or ""
        for parameter, tensors in entry.gradients:
            producer = self._last_backward.get(module, -1)
            path = f"{module}.{parameter}" if module else parameter
            outputs, texts = self._tensors(tensors, content), {NATIVE_KEY: text}
            shape, dtype, norms, stats, counts, digests = self._told(tensors, outputs, texts, content)
            fields = {"stats": stats, "counts": counts, "digests": digests, "texts": texts, "phase": Phase.BACKWARD}
            self._columns.add(
                Row(line, path, "gradient", shape, dtype, norms, UNREAD, (producer,), **fields)  # type: ignore[arg-type] # by name
            )

    def _told(
        self, told: _Tensors, outputs: Sequence[_Tensor], texts: dict[str, str], content: Content
    ) -> tuple[str, str, Sequence[float], Mapping[str, float], Sequence[int], Sequence[int]]:
        """Shape, dtype, norms, statistics, counts and digests of outputs, as a row has them; adds to its texts."""
        if not outputs:
            return "", "", (), {}, (), ()
        read = [one[4] for one in outputs if one[4] is not None] if self.tensors is not None else None
        if read is not None and len(read) == len(outputs):
            fields = fields_of(read)
            texts.update(fields.pop("texts", {}))
            return tuple([fields.get(name, empty) for name, empty in _OF_OUTPUTS])
        for k, (one, tensor) in enumerate(zip(told.told, outputs, strict=True)):
            values = tensor[2]
            found = one.shape(content), values[0].removeprefix("torch."), one.stats(values)
            if not k:
                shape, dtype, stats = found
            else:
                texts[f"Output {k}"] = printed(json.loads(found[0] or "null"), *found[1:])
        checksums = [tensor[3] for tensor in outputs]
        if min(checksums) >= 0:
            texts["User hash"] = ", ".join(map(str, checksums))
        return shape, dtype, (), stats, (), ()

    def _read(self, folder: Path, name: object) -> Dumped | None:
        """The tensor of a file; None if it cannot be read."""
        if not isinstance(name, str) or "/" in name:
            return None
        path = folder / name
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

    def _tensors(self, told: _Tensors, content: Content) -> list[_Tensor]:
        found = told.read(content) if told.plain and self.tensors is None else None
        return [self._tensor(one, content) for one in told.told] if found is None else found

    def _tensor(self, told: _Told, content: Content) -> _Tensor:
        values = told.pick(content)
        checksum, name = -1, None
        if told.has_more:
            text, name = told.pick_more(content)
            if isinstance(text, str):
                checksum = int(text, 16)
                self.checksums = "xor" if text.startswith("0x") else "md5"
        if self.tensors is not None and (read := self._read(self.tensors, name)) is not None:
            l1 = read.measured.l1
            return math.nan if l1 is None else l1, (read.measured.digest,), values, checksum, read
        norm = abs(float(values[1])) if told.norm_is_number and self.tensors is None else math.nan
        if (norm == math.inf and _finite(values)) or _lost(norm, values):
            norm = math.nan
        # a view has another shape, and was not logged, perhaps
        known = (*values, checksum) if checksum >= 0 or told.has_norm else None
        return norm, known, values, checksum, None


def _statistics(inputs: Sequence[_Tensor]) -> str:
    """Statistics of inputs besides norms, as a log has them; empty if there are none, or digests tell all."""
    told, known = list[float](), False
    for _, _, values, checksum, read in inputs:
        numbers = values[2:]
        known = known or (read is None and (checksum >= 0 or type(numbers[0]) is float))
        if not {*map(type, numbers)} <= _NUMBERS:
            numbers = tuple([value if type(value) in _NUMBERS else math.nan for value in numbers])
        told += (*numbers, checksum % _WHOLE if checksum >= 0 else math.nan)
    return pack(told) if known else ""


def _finite(values: tuple[Any, ...]) -> bool:
    """True for a tensor of finite elements: its norm or mean is infinite only as msprobe adds in the dtype of it."""
    return all(isinstance(value, (float, int)) and math.isfinite(value) for value in values[2:4])


def _lost(norm: float, values: tuple[Any, ...]) -> bool:
    """True for a norm of elements whose squares are too small for the dtype that msprobe adds them in."""
    return norm < _SMALLEST and any(isinstance(value, float) and value != 0.0 for value in values[2:4])


def _digests(inputs: Sequence[_Tensor], count: int) -> list[int]:
    """The digests of the inputs that were dumped; `count`: of all that a record reads."""
    told = [int(NO_DIGEST) if read is None else read.measured.digest for *_, read in inputs]
    return told + [int(NO_DIGEST)] * (count - len(told))


def _operation(name: _Name, dimensions: tuple[int, ...]) -> str:
    """The operation of an entry: that of a function is what it dispatches, by which other tools call it."""
    if name.direction == "backward":
        return f"{name.op}_{name.direction}"
    if name.module is not None:
        return name.op
    return dispatched(name.op, dimensions)


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
    reader, shapes = _Reader(columns, level), Shapes(_Entry)
    columns.form = f"{FORMAT.name} (statistics)"  # of a head, which ends before the checksums are known
    for number, (line, name, value) in enumerate(pieces.values("}", _next_entry, columns, shapes, named=True)):
        try:
            shape, content = value
            reader.enter(name, shapes.plan(shape), content, line)
        except NOT_AS_EXPECTED:
            columns.problem(line, f"{name} is not an entry that can be read")
        if number % _SPOT == 0:
            yield
    what = "tensors" if reader.tensors else reader.checksums or "statistics"
    columns.form = f"{FORMAT.name} ({what}, modules)" if level == "L0" else f"{FORMAT.name} ({what})"


def _native(source: LogSource, _path: str, line: int, _key: str) -> Iterator[str]:
    lines = islice(source.lines(), line - 1, None)
    yield decode(next(lines, b"").strip())
    yield from (decode(raw.rstrip()) for raw in takewhile(lambda raw: not _ENTRY.match(raw), lines))


_ENTRY = re.compile(rb' ? ?"[^"\n]+\.(?:forward|backward|parameters_grad)(?:\.\d+)?"\s*:')
FORMAT = Format("msprobe", _PATTERN, _read, _native)
