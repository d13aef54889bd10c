"""Tensors that somebody has dumped by name, as safetensors: a file, the index of several, or a folder of them."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple

from capture.keeping.form import LARGEST_HEAD, SAFETENSORS
from matchers.errors import LogError
from matchers.logs.imported.columns import UNREAD, Columns, Row
from matchers.logs.imported.files import natural
from matchers.logs.imported.folders import FolderSource, Source
from matchers.logs.imported.format import Format
from matchers.logs.imported.measured import Dumped, fields_of
from matchers.logs.source import LogSource
from matchers.tensor import SIZES

__all__ = ["FORMAT", "NOT_OF_ONE", "Entry", "Placed", "entries", "index_files", "placed"]

_PATTERN = re.compile(rb'\A.{4}\x00{4}\{\s*"[^{]*\{|\A\s*\{[^\[]*"weight_map"\s*:\s*\{', re.DOTALL)
_DTYPES: Final[Mapping[str, str]] = {
    **SAFETENSORS,
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}


class Entry(NamedTuple):
    """A tensor of a file: its name, its number in the order of the data, and what was read; None: it is damaged."""

    name: str
    number: int
    tensor: Dumped | None


class _Stream:
    """The bytes of a file, in order."""

    def __init__(self, source: LogSource) -> None:
        self._blocks = source.blocks()
        self._rest = memoryview(b"")

    def take(self, size: int) -> bytes:
        """The next bytes; fewer at the end of the file."""
        parts = [self._rest[:size]]
        self._rest = self._rest[size:]
        size -= len(parts[0])
        while size > 0 and (block := next(self._blocks, None)):
            parts.append(memoryview(block)[:size])
            self._rest = memoryview(block)[size:]
            size -= len(parts[-1])
        return b"".join(parts)


def entries(source: LogSource, path: str, columns: Columns, *, data: bool = True) -> Iterator[Entry]:
    """Yield the tensors of a file, in the order of their data.

    Args:
        path: for messages.
        data: read their elements, too.

    Raises:
        LogError: its header cannot be read.
    """
    stream = _Stream(source)
    at = 0
    for number, one in enumerate(placed(stream.take, path), 1):
        if not one.dtype or one.begin < at:
            columns.problem(number, f"{path}: {one.name}: {NOT_OF_ONE}")
            yield Entry(one.name, number, None)
            continue
        content = b""
        if data:
            stream.take(one.begin - at)
            content = stream.take(one.end - one.begin)
            at = one.end
            if len(content) < one.end - one.begin:
                columns.cut_off = True
                columns.problem(number, f"{path}: the file ends within {one.name}")
                return
        yield Entry(one.name, number, Dumped(one.dtype, one.shape, content))


class Placed(NamedTuple):
    """A tensor that a header tells of: its bytes after the header; the dtype is empty where it contradicts itself."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


NOT_OF_ONE: Final = "its dtype, shape and place in the file are not of one tensor"


def placed(take: Callable[[int], bytes], path: str) -> list[Placed]:
    """Read the header of a file: its tensors in the order of their data.

    Args:
        take: gives the next bytes of the file; fewer at its end.
        path: for messages.

    Raises:
        LogError: the header cannot be read.
    """
    size = int.from_bytes(take(8), "little")
    if size > LARGEST_HEAD:
        raise LogError(f"{path}:1: a safetensors file with a header of {size:,} bytes: expected at most 100 MB")
    try:
        head = json.loads(take(size))
        told = {str(name): one for name, one in head.items() if name != "__metadata__"}
    except (ValueError, RecursionError, AttributeError):
        raise LogError(f"{path}:1: the header of the safetensors file is no JSON object") from None
    return [_placed(name, one) for name, one in sorted(told.items(), key=lambda item: _start(item[1]))]


def _placed(name: str, told: Any) -> Placed:
    try:
        dtype, shape, (begin, end) = str(told["dtype"]), tuple(told["shape"]), told["data_offsets"]
        whole = all(type(n) is int and n >= 0 for n in (*shape, begin, end)) and end >= begin
    except (TypeError, KeyError, ValueError):
        return Placed(name, "", (), 0, 0)
    known = _DTYPES.get(dtype, dtype) if whole else ""
    if known in SIZES and end - begin != math.prod(shape) * SIZES[known]:
        known = ""
    return Placed(name, known, shape, begin, end) if known else Placed(name, "", (), 0, 0)


def _start(told: Any) -> int:
    try:
        return int(told["data_offsets"][0])
    except (TypeError, KeyError, ValueError, IndexError, OverflowError):
        return -1


def _read(source: Source, columns: Columns) -> Iterator[None]:
    rows: dict[str, Row] = {}
    files, order = _parts(source, columns.path)
    columns.form = FORMAT.name if order else f"{FORMAT.name} (order of names)"
    for number_of_file, file in enumerate(files, 1):
        try:
            with nullcontext(source) if file is None else LogSource(str(file)) as opened:
                assert isinstance(opened, LogSource)
                for name, number, tensor in entries(opened, str(file or columns.path), columns, data=not columns.head):
                    if name in rows:
                        columns.problem(number, f"{file}: {name} is in another file, too, and was taken from there")
                    elif tensor is not None:
                        rows[name] = _row(name, tensor)
                        columns.waiting = len(rows)
                        yield
                columns.beside += 0 if file is None else opened.taken
        except (LogError, OSError) as error:  # costs this file alone
            if number_of_file == len(files) and not rows:
                raise
            columns.problem(1, str(error))
    columns.partial, columns.waiting = columns.head, 0
    for line, name in enumerate(filter(rows.__contains__, order or sorted(rows, key=_returned)), 1):
        columns.add(rows[name]._replace(line=line))
    if missing := [name for name in order if name not in rows]:
        columns.problem(1, f"{missing[0]} is in the index and in no file" + _and_more(len(missing) - 1))


def _returned(name: str) -> list[list[tuple[int, str]]]:
    """The key of the order of names in which a module comes behind those in it: it returns after them."""
    return [*map(natural, name.split(".")), [(sys.maxsize, "")]]


def _row(name: str, tensor: Dumped) -> Row:
    fields = fields_of([tensor])
    return Row(line=0, module=name, op="tensor", inputs=UNREAD, producers=(-1,), native=name, **fields)


def _and_more(many: int) -> str:
    return f", as {many:,} more" if many else ""


def _parts(source: Source, path: str) -> tuple[Sequence[Path | None], Sequence[str]]:
    """The files that hold the tensors, None for the one that is open, and the order of the names, if any is told.

    Raises:
        LogError: an index that cannot be read.
    """
    if isinstance(source, FolderSource):
        return source.files, ()
    if not source.start().lstrip().startswith(b"{"):
        return (None,), ()
    told = index_files(_Stream(source).take(LARGEST_HEAD), path)
    names = list(told)
    # an alphabetical index tells no order
    files = [Path(path).with_name(file) for file in dict.fromkeys(told.values())]
    return files, () if names == sorted(names) else names


def index_files(content: bytes, path: str) -> dict[str, str]:
    """Read the index of a checkpoint of several files: by the name of a tensor the name of its file.

    Raises:
        LogError: it cannot be read, or names a file elsewhere.
    """
    try:
        told = {str(name): str(file) for name, file in json.loads(content)["weight_map"].items()}
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise LogError(f'{path}:1: the index of a checkpoint has no object "weight_map"') from None
    if (odd := next((file for file in told.values() if not _is_file_name(file)), None)) is not None:
        raise LogError(f"{path}:1: {odd!r} in the index is not the name of a file beside it")
    return told


def _is_file_name(text: str) -> bool:
    """True for the name of a file in a folder, whether or not there is one."""
    try:
        plain = os.path.basename(text) == text and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return plain and text not in ("", ".", "..")


def _native(source: Source, path: str, _: int, key: str) -> Iterator[str]:
    for file in _parts(source, path)[0]:
        with nullcontext(source) if file is None else LogSource(str(file)) as opened:
            assert isinstance(opened, LogSource)
            for name, _number, tensor in entries(opened, path, Columns(path), data=False):
                if name == key and tensor is not None:
                    yield f"{name}: {tensor.dtype}, shape {list(tensor.shape)}, in {file or path}"
                    return


FORMAT = Format("safetensors", _PATTERN, _read, _native)
