"""Tensors that were saved with torch: a file of named ones, or a dump of SGLang's dumper, whose files are one log."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from matchers.errors import LogError
from matchers.logs.imported.columns import UNREAD, Columns, Row
from matchers.logs.imported.files import dumper_files, dumper_tags
from matchers.logs.imported.format import Format
from matchers.logs.imported.makers import Makers
from matchers.logs.imported.measured import Dumped, fields_of
from matchers.logs.imported.torch_file import read_torch, tensors_in
from matchers.logs.op_log import Phase
from matchers.logs.source import LogSource

__all__ = ["FORMAT"]

_PATTERN = re.compile(rb"\APK\x03\x04.{26}[^/]{1,255}/data\.pkl", re.DOTALL)
_OF_MODULE = re.compile(r"non_intrusive__(.*)\.(inputs|output)(?:\.(.+))?")
_OF_NAME: Final[Mapping[str, tuple[str, Phase]]] = {
    "grad__": ("gradient", Phase.BACKWARD),
    "param__": ("parameter", Phase.OTHER),
}
"""By the beginning of a name the operation, and its phase."""


class _Named(NamedTuple):
    """A tensor of a file: its name, the tags of the file, and what was read; None: nothing was."""

    name: str
    tags: Mapping[str, str]
    tensor: Dumped | None
    line: int


class _Reader:
    """The rows of one log of the dumper."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._makers = Makers()
        self._inputs: dict[str, list[Dumped | None]] = {}
        """By module what was dumped of the inputs of the call that runs."""

    def enter(self, named: _Named) -> None:
        """Add a tensor."""
        tags, name, layer = named.tags, named.name, named.tags.get("layer_id", "")
        recompute = tags.get("recompute_status") == "recompute"
        if told := _OF_MODULE.fullmatch(name):
            module, kind, place = told[1], told[2], told[3] or "0"
            if kind == "inputs":
                self._inputs.setdefault(module, []).append(named.tensor)
                return
            op = "forward" if place == "0" else f"output_{place}"
            row = Row(named.line, module, op, phase=Phase.FORWARD, recompute=recompute)
            row = self._with_inputs(row, self._inputs.pop(module, []))
        else:
            start = next((start for start in _OF_NAME if name.startswith(start)), "")
            op, phase = _OF_NAME.get(start, ("tensor", Phase.OTHER))
            name = name.removeprefix(start)
            module = f"layers.{layer}.{name}" if layer and not start else name
            row = Row(named.line, module, op, inputs=UNREAD, producers=(-1,), phase=phase, recompute=recompute)
        _add(self._columns, row._replace(native=named.name), named.tensor, self._makers)

    def _with_inputs(self, row: Row, inputs: list[Dumped | None]) -> Row:
        read = [tensor.measured for tensor in inputs if tensor is not None]
        if not read:
            return row._replace(inputs=UNREAD, producers=(-1,))
        return row._replace(
            inputs=[math.nan if one.l1 is None else one.l1 for one in read],
            input_digests=[one.digest for one in read],
            producers=[self._makers.of(one.digest) for one in read],
        )


def _add(columns: Columns, row: Row, tensor: Dumped | None, makers: Makers | None = None) -> None:
    fields = fields_of([tensor]) if tensor is not None else {}
    for digest in fields.get("digests", ()) if makers is not None else ():
        assert makers is not None
        makers.keep(digest, len(columns), row.input_digests)
    columns.add(row._replace(**fields))


def _read(source: LogSource, columns: Columns) -> Iterator[None]:
    path = Path(columns.path)
    if not dumper_tags(path.name):
        saved = read_torch(_file(source, path), columns.path)
        found = list(tensors_in(saved))
        if not found:
            raise LogError(f"{path}:1: no tensor is in this file")
        for line, (name, tensor) in enumerate(found, 1):
            row = Row(line, name or path.stem, "tensor", inputs=UNREAD, producers=(-1,), native=name)
            _add(columns, row, tensor)
            yield
        return
    columns.form = f"{FORMAT.name} (SGLang dumper)"
    reader = _Reader(columns)
    for line, file in enumerate(dumper_files(path), 1):
        tags = dumper_tags(file.name)
        for name, value in _values(file, columns, tags.get("name", ""), line):
            reader.enter(_Named(name, tags, value, line))
        yield
    columns.partial = columns.head


def _values(file: Path, columns: Columns, name: str, line: int) -> Iterator[tuple[str, Dumped | None]]:
    """The tensors of a file of the dumper, each with its name."""
    if columns.head:
        yield name, None
        return
    try:
        saved = read_torch(str(file), str(file))
        columns.beside += file.stat().st_size
    except (OSError, LogError) as error:
        columns.problem(line, str(error))
        return
    value = saved["value"] if isinstance(saved, dict) and "value" in saved else saved
    found = list(tensors_in(value, name))
    if not found:
        columns.problem(line, f"{file}: its value is neither a tensor nor a number")
    yield from found


def _file(source: LogSource, path: Path) -> str | io.BytesIO:
    """The file itself, or what a compressed one or standard input has."""
    return str(path) if path.is_file() and path.suffix != ".gz" else io.BytesIO(b"".join(source.blocks()))


def _native(source: LogSource, path: str, line: int, key: str) -> Iterator[str]:
    file = Path(path)
    if dumper_tags(file.name):
        file = dumper_files(file)[line - 1]
        yield file.name
    saved: Any = read_torch(_file(source, file), str(file))
    meta = saved.get("meta") if isinstance(saved, dict) else None
    yield f"{key}: in {file}"
    if isinstance(meta, dict):
        yield from (f"  {name}: {value}" for name, value in meta.items())


FORMAT = Format("torch.save", _PATTERN, _read, _native)
