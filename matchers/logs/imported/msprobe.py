"""Dumps of Ascend's msprobe: `dump.json` of a rank and step, with the files beside it that tell modules and places."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

from capture.log_format import escape
from matchers.errors import LogError
from matchers.laws.functions import dispatched
from matchers.logs.columns import decode
from matchers.logs.imported.columns import UNREAD, Columns, Row
from matchers.logs.imported.format import NATIVE_KEY, Format
from matchers.logs.imported.json_leaves import leaves
from matchers.logs.imported.json_pieces import NOT_AS_EXPECTED, Pieces
from matchers.logs.imported.makers import Makers
from matchers.logs.imported.measured import Dumped, fields_of, printed
from matchers.logs.imported.torch_file import read_torch
from matchers.logs.op_log import NO_DIGEST, Phase
from matchers.logs.source import LogSource

__all__ = ["FORMAT"]

_PATTERN = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"task"\s*:[^{]*"level"\s*:[^{]*"data"\s*:\s*\{')
_HEAD = re.compile(r'\s*\{[^{]*?"data"\s*:\s*\{')
_LEVEL = re.compile(r'"level"\s*:\s*"(\w+)"')
_NAME = re.compile(r'"[^"\n]+\.(?:forward|backward|parameters_grad)(?:\.\d+)?"\s*:')
_FRAME = re.compile(r"File (.+), line (\d+), in ")
_LIBRARY = re.compile(r"[/\\](?:site-packages|torch|msprobe)[/\\]")
_STATISTICS: Final = (("Norm", "L2 norm"), ("Min", "Min"), ("Max", "Max"), ("Mean", "Mean"))
_KNOWN: Final = ("dtype", *(key for key, _ in _STATISTICS))
_NUMBERS: Final = (float, int)
_SIZES = re.compile(r"\[(?:\d+(?:, \d+)*)?\]", re.ASCII)
_PHASES: Final[Mapping[str, Phase]] = {"optimizer": Phase.OPTIMIZER, "clip_grad": Phase.GRADIENTS}
"""By the name of what encloses an entry."""
_LARGEST_BESIDE = 1 << 30
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
        kind, *parts = text.split(".")
        if kind == "Module":
            return cls(".".join(parts[:-3]), parts[-3], parts[-2])
        function = ".".join(parts[:-2])
        bare = function.strip("_") if function.startswith("__") and function.endswith("__") else function
        return cls(None, bare, parts[-1])


class _Tensor(NamedTuple):
    """A tensor of an entry.

    Attributes:
        told: what the dump has of it.
        known: what no other result has; None: nothing.
        norm: L1 where tensors were dumped, else L2; NaN: unknown.
        checksum: -1: none.
        read: the tensor itself, if it was dumped.
    """

    told: Mapping[str, Any]
    known: tuple[Any, ...] | None
    norm: float
    checksum: int
    read: Dumped | None


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
        self._made: dict[str, list[tuple[float, int]]] = {}
        """By the call of a module, what the calls of modules in it have returned: the norm and the row."""
        self._last_backward: dict[str, int] = {}
        """By module the last row of its backward pass."""
        self._saved: dict[str, list[tuple[float, int]]] = {}
        """By the forward call, what its backward pass reads beside gradients: norms and rows of inputs and results."""
        self.checksums = ""
        """`md5` or `xor`, if there is any."""
        folder = Path(columns.path).with_name("dump_tensor_data")
        self.tensors = None if columns.head or not folder.is_dir() else folder
        """The folder of the tensors, if there are any."""

    def enter(self, text: str, entry: Mapping[str, Any], line: int) -> None:
        """Add the rows of an entry."""
        name = _Name.of(text)
        if name.direction == "parameters_grad":
            self._gradients(name, text, entry, line)
            return
        parent, batch = self._parent(text)
        if name.module is not None and not self._by_module and (text in self._inside or not self._parents):
            return  # what was called in it has rows of its own
        enclosing = text if name.module is not None else parent
        module = (_Name.of(enclosing).module or "") if enclosing.startswith("Module.") else ""
        backward = name.direction == "backward"
        read = [entry.get("input")] if backward else [entry.get("input_args"), entry.get("input_kwargs")]
        inputs, outputs = self._tensors(read), self._tensors(entry.get("output"))
        texts = {NATIVE_KEY: text}
        if self._by_module and name.module is not None and isinstance(parameters := entry.get("parameters"), dict):
            names = [f"{module}.{parameter}".lstrip(".") for parameter in parameters]
            texts["Parameter"] = ";".join([*[""] * len(inputs), *map(escape, names)])
            inputs += [self._tensor(told) for told in parameters.values()]
        nested = self._made.pop(text, ())
        phase = Phase.BACKWARD if backward else _PHASES.get(parent, Phase.FORWARD)
        number = len(self._columns)
        maker = self._makers.of
        reads = [(one.norm, maker(one.known)) for one in inputs]
        reads += self._saved.pop(".forward".join(text.rsplit(".backward", 1)), []) if backward else nested
        self._columns.add(
            Row(
                line,
                module,
                _operation(name, inputs),
                inputs=[norm for norm, _ in reads],
                producers=[row for _, row in reads],
                input_digests=_digests(inputs, len(reads)) if self.tensors else (),
                location=self._places.get(text, ""),
                phase=phase,
                recompute=entry.get("is_recompute") is True,
                micro_batch=batch,
                **self._told(outputs, texts),
            )
        )
        if backward:
            self._last_backward[module] = number
        else:
            self._saved[text] = [*reads, *((one.norm, number) for one in outputs)]
        if not text.startswith("Distributed."):  # what a collective returns may not be there yet
            read_ = [one.known for one in inputs]
            for one in outputs:
                if one.known is not None:
                    self._makers.keep(one.known, number, read_)
        if name.module is not None and parent:
            self._made.setdefault(parent, []).append((outputs[0].norm if outputs else math.nan, number))
        while parent and parent not in self._inside:
            self._inside.add(parent)
            parent, _ = self._parent(parent)

    def _gradients(self, name: _Name, text: str, entry: Mapping[str, Any], line: int) -> None:
        """Add the gradients of a module's parameters."""
        module = name.module or ""
        for parameter, told in entry.items():
            producer = self._last_backward.get(module, -1)
            path = f"{module}.{parameter}" if module else str(parameter)
            fields = self._told(self._tensors(told), {NATIVE_KEY: text})
            back = Phase.BACKWARD
            self._columns.add(Row(line, path, "gradient", inputs=UNREAD, producers=(producer,), phase=back, **fields))

    def _told(self, outputs: Sequence[_Tensor], texts: dict[str, str]) -> dict[str, Any]:
        """The fields of a row that are about its outputs, and its texts."""
        if not outputs:
            return {"texts": texts}
        read = [one.read for one in outputs if one.read is not None]
        if len(read) == len(outputs):
            fields = fields_of(read)
            return fields | {"texts": texts | fields["texts"]}
        (shape, dtype, stats), *others = [_as_printed(one.told) for one in outputs]
        for k, (sizes, kind, numbers) in enumerate(others, 1):
            texts[f"Output {k}"] = printed(json.loads(sizes or "null"), kind, numbers)
        if outputs[0].checksum >= 0 and all(one.checksum >= 0 for one in outputs):
            texts["User hash"] = ", ".join(str(one.checksum) for one in outputs)
        return {"shape": shape, "dtype": dtype, "stats": stats, "texts": texts}

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

    def _tensors(self, value: Any) -> list[_Tensor]:
        """Return the tensors of arguments or results, in order."""
        return [self._tensor(item) for item in leaves(value, _is_whole) if type(item) is dict and _is_tensor(item)]

    def _tensor(self, told: Mapping[str, Any]) -> _Tensor:
        checksum = -1
        if "md5" in told and isinstance(text := told["md5"], str):
            checksum = int(text, 16)
            self.checksums = "xor" if text.startswith("0x") else "md5"
        if self.tensors is not None and (read := self._read(self.tensors, told.get("data_name"))) is not None:
            l1 = read.measured.l1
            return _Tensor(told, (read.measured.digest,), math.nan if l1 is None else l1, checksum, read)
        norm: Any = told.get("Norm")
        norm = abs(float(norm)) if type(norm) in _NUMBERS and self.tensors is None else math.nan
        if norm == math.inf and _finite(told):
            norm = math.nan
        # a view has another shape, and was not logged, perhaps
        known = (checksum, *map(told.get, _KNOWN)) if checksum >= 0 or "Norm" in told else None
        return _Tensor(told, known, norm, checksum, None)


def _as_printed(told: Mapping[str, Any]) -> tuple[str, str, dict[str, float]]:
    """The shape, the dtype and the statistics of a tensor, as a row has them."""
    dtype = _dtype(told["dtype"])
    stats = {own: float(told[key]) for key, own in _STATISTICS if type(told.get(key)) in _NUMBERS}
    if stats.get("L2 norm", 0.0) < 0.0:  # that of a number is the number
        stats["L2 norm"] = -stats["L2 norm"]
    if any(map(math.isinf, stats.values())) and _finite(told):
        stats = {name: value for name, value in stats.items() if not math.isinf(value)}
    return _shape(str(told["shape"])), dtype, stats


def _finite(told: Mapping[str, Any]) -> bool:
    """True for a tensor of finite elements: its norm or mean is infinite only as msprobe adds in the dtype of it."""
    return all(isinstance(value, _NUMBERS) and math.isfinite(value) for value in (told.get("Min"), told.get("Max")))


def _digests(inputs: Sequence[_Tensor], count: int) -> list[int]:
    """The digests of the inputs that were dumped; `count`: of all that a record reads."""
    told = [int(NO_DIGEST) if one.read is None else one.read.measured.digest for one in inputs]
    return told + [int(NO_DIGEST)] * (count - len(told))


def _operation(name: _Name, inputs: Sequence[_Tensor]) -> str:
    """The operation of an entry: that of a function is what it dispatches, by which other tools call it."""
    if name.direction == "backward":
        return f"{name.op}_{name.direction}"
    if name.module is not None:
        return name.op
    return dispatched(name.op, [len(one.told["shape"]) for one in inputs])


def _is_tensor(told: Mapping[str, Any]) -> bool:
    return "dtype" in told and type(told.get("shape")) is list


def _is_whole(told: Mapping[str, Any]) -> bool:
    """True for a tensor, and for a value that is none."""
    return "value" in told or _is_tensor(told)


@lru_cache(maxsize=4096)
def _shape(text: str) -> str:
    """A shape as a row has it; empty if it is none."""
    return text if _SIZES.fullmatch(text) else ""


@lru_cache(maxsize=4096)
def _dtype(text: str) -> str:
    return text.removeprefix("torch.")


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


def _places(stacks: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name of each entry and the innermost line of its stack outside of libraries."""
    for told in stacks.values():
        if isinstance(told, list) and len(told) == 2 and all(isinstance(one, list) for one in told):
            frames = (_FRAME.match(frame) for frame in told[1] if isinstance(frame, str))
            own = next((frame for frame in frames if frame and not _LIBRARY.search(frame[1])), None)
            yield from ((str(name), f"{own[1]}:{own[2]}") for name in told[0] if own)


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
    reader = _Reader(columns, level)
    columns.form = f"{FORMAT.name} (statistics)"  # of a head, which ends before the checksums are known
    for number, (line, name, value) in enumerate(pieces.values("}", _next_entry, columns, named=True)):
        try:
            reader.enter(name, value, line)
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
