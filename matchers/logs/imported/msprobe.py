"""Dumps of Ascend's msprobe: `dump.json` of a rank and step, with the files beside it that tell modules and places."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Final

from capture.log_format import escape
from matchers.errors import LogError
from matchers.logs.columns import decode
from matchers.logs.imported.columns import UNREAD, Columns, Row
from matchers.logs.imported.format import Format
from matchers.logs.imported.json_pieces import Pieces
from matchers.logs.imported.json_shapes import NOT_AS_EXPECTED, Content, Shapes
from matchers.logs.imported.makers import Makers
from matchers.logs.imported.measured import Dumped, fields_of, printed
from matchers.logs.imported.msprobe_entries import Entry, EntryShape, Name, Output, Tensor, Tensors, statistics_of
from matchers.logs.imported.torch_file import read_torch
from matchers.logs.op_log import NO_DIGEST, Phase
from matchers.logs.source import LogSource

__all__ = ["FORMAT"]

_PATTERN = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"task"\s*:[^{]*"level"\s*:[^{]*"data"\s*:\s*\{')
_HEAD = re.compile(r'\s*\{[^{]*?"data"\s*:\s*\{')
_LEVEL = re.compile(r'"level"\s*:\s*"(\w+)"')
_NAME = re.compile(r'"[^"\n]+\.(?:forward|backward|parameters_grad)(?:\.\d+)?"\s*:')
_FRAME = re.compile(r"File (.+), line (\d+), in ([^\s,]*)")
_LIBRARY = re.compile(r"[/\\](?:site-packages|torch|msprobe)[/\\]")
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
        """Of rows."""
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

    def flush(self) -> None:
        """Hand on the rows so far."""
        rows, self._rows = self._rows, []
        self._columns.extend(rows)

    def enter(self, text: str, entry: Entry, content: Content, line: int) -> None:
        """Add the rows of an entry."""
        shape, (norms, known, read), parameters, outputs, told, statistics = entry
        called, op, direction, kept = Name.of(text, shape.dimensions)
        if direction == "parameters_grad":
            self._gradients(called or "", text, shape.gradients(content), line)
            return
        parent, batch = self._parent(text) if self._parents else ("", -1)
        if called is not None and not self._by_module and (text in self._inside or not self._parents):
            return  # what was called in it has rows of its own
        module = called or ""
        if called is None and parent.startswith("Module."):
            module = Name.of(parent).module or ""
        backward = direction == "backward"
        if self.tensors is not None:
            (norms, known, read), outputs = self._dumped(entry.inputs), self._dumped(outputs)
            statistics = statistics_of((norms, known, read))
        made, results, tensors = outputs
        texts: dict[str, str] = {}
        location, stack = self._places.get(text, _NO_PLACE)
        if stack:
            texts["Stack"] = stack
        if self._by_module:
            names = [f"{module}.{parameter}".lstrip(".") for parameter in shape.parameters]
            texts["Parameter"] = ";".join([*[""] * len(norms), *map(escape, names)])
            more = parameters if self.tensors is None else self._dumped(parameters)
            norms, known, read = norms + more[0], known + more[1], read + more[2]
        number = self._number
        producers = self._makers.of_all(known)
        if backward:
            if saved := self._saved.pop(".forward".join(text.rsplit(".backward", 1)), None):
                before, makers, after, maker = saved
                norms += before + after
                producers += makers + [maker] * len(after)
            self._last_backward[module] = number
        else:
            if nested := self._made.pop(text, None):
                norms += tuple(nested[0])
                producers += nested[1]
            self._saved[text] = norms, producers, made, number
        size, dtype, norm, stats, counts, digests = self._told(told, tensors, texts)
        phase = _BACKWARD if backward else _PHASES.get(parent, _FORWARD)
        read_digests = _digests(read, len(norms)) if self.tensors else ()
        self._rows.append((line, module, op, size, dtype, norm, norms, producers, location, phase,
            stats, counts, digests, read_digests, shape.recompute, batch, texts, text, statistics))  # fmt: skip
        self._number += 1
        if kept:  # what a collective returns may not be there yet
            for result in results:
                if result is not None and self._makers.first(result, number) != number:
                    self._makers.keep(result, number, known)
        if not parent:
            return
        if called is not None:
            within = self._made.setdefault(parent, ([], []))
            within[0].append(made[0] if made else math.nan)
            within[1].append(number)
        while parent and parent not in self._inside:
            self._inside.add(parent)
            parent, _ = self._parent(parent)

    def _gradients(self, module: str, text: str, gradients: Iterable[tuple[str, Entry]], line: int) -> None:
        """Add the gradients of a module's parameters."""
        for parameter, entry in gradients:
            producer = self._last_backward.get(module, -1)
            path = f"{module}.{parameter}" if module else parameter
            _, _, tensors = entry.outputs if self.tensors is None else self._dumped(entry.outputs)
            texts: dict[str, str] = {}
            shape, dtype, norms, stats, counts, digests = self._told(entry.told, tensors, texts)
            fields: dict[str, Any] = {"stats": stats, "counts": counts, "digests": digests, "texts": texts}
            fields |= {"phase": Phase.BACKWARD, "native": text}
            row = Row(line, path, "gradient", shape, dtype, norms, UNREAD, (producer,), **fields)
            self._rows.append(row)
            self._number += 1

    def _told(
        self, told: Sequence[Output], outputs: Sequence[Tensor], texts: dict[str, str]
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
        for k, found in enumerate(told[1:], 1):
            texts[f"Output {k}"] = printed(json.loads(found[0] or "null"), *found[1:])
        if outputs[0][1] >= 0 and min(checksums := [checksum for _, checksum, _ in outputs]) >= 0:
            texts["User hash"] = ", ".join(map(str, checksums))
        return shape, dtype, (), stats, (), ()

    def _dumped(self, tensors: Tensors) -> Tensors:
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


def _digests(inputs: Sequence[Tensor], count: int) -> list[int]:
    """The digests of the inputs that were dumped; `count`: of all that a record reads."""
    told = [read.measured.digest if isinstance(read, Dumped) else int(NO_DIGEST) for *_, read in inputs]
    return told + [int(NO_DIGEST)] * (count - len(told))


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
    shapes = Shapes(lambda entry: EntryShape(entry, kinds).entries)
    columns.form = f"{FORMAT.name} (statistics)"  # of a head, which ends before the checksums are known
    for some in shapes.told(pieces.entries("}", _next_entry, columns, shapes, named=True)):
        for number, (line, content, name, entry) in enumerate(zip(*some, strict=True)):
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
