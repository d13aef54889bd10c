"""Take what `reader.c` read as arrays."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchers.logs.columns import KeyColumn, Ragged, Texts, TextTable
from matchers.logs.op_log import COUNTS, STATISTICS
from matchers.logs.reader_library import library
from matchers.logs.records import COLUMNS, LISTS, TABLES, TEXTS, Contents, Records, Start

__all__ = ["CompiledReader"]

_STATE = 9


class _Library(NamedTuple):
    """The functions of `reader.c`, and its columns by name: (number, type)."""

    functions: ctypes.CDLL
    columns: dict[str, tuple[int, str]]


@cache
def _declared(found: ctypes.CDLL) -> _Library:
    pointer, number, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    for name, result, arguments in (
        ("reader_new", pointer, (number, flag, flag, ctypes.c_uint64)),
        ("reader_add", flag, (pointer, ctypes.c_char_p, number, flag)),
        ("reader_finish", flag, (pointer,)),
        ("reader_names", ctypes.c_char_p, ()),
        ("reader_state", None, (pointer, pointer)),
        ("reader_size", number, (pointer, number)),
        ("reader_take", pointer, (pointer, number)),
        ("reader_give_back", None, (pointer,)),
        ("reader_free", None, (pointer,)),
    ):
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    lines = [line.split(":") for line in found.reader_names().decode().splitlines()]
    return _Library(found, {name: (k, kind) for k, (name, kind) in enumerate(lines)})


class _Memory:
    """A column's memory, as an array that frees it in the end."""

    def __init__(self, functions: ctypes.CDLL, address: int, size: int, dtype: np.dtype[Any]) -> None:
        self._give_back, self._address = functions.reader_give_back, address
        self.__array_interface__ = {"shape": (size,), "typestr": dtype.str, "data": (address, False), "version": 3}

    def __del__(self) -> None:
        self._give_back(self._address)


class CompiledReader:
    """The records of one log, read by `reader.c`: the same as of `PlainReader`."""

    def __init__(self, start: Start) -> None:
        """Raises:
        MemoryError: as all methods.
        RuntimeError: there is no compiled reader: see `library`.
        """
        found, problem = library()
        if found is None:
            raise RuntimeError(problem)
        self._c, self._numbers = _declared(found)
        seed = int.from_bytes(os.urandom(8), "little")
        self._reader = self._c.reader_new(start.lines, start.ours, start.compact, seed)
        if not self._reader:
            raise MemoryError

    def __del__(self) -> None:
        if getattr(self, "_reader", None):
            self._c.reader_free(self._reader)

    def add(self, piece: bytes, last: bool) -> bytes:
        """As in `RecordReader`."""
        if self._c.reader_add(self._reader, piece, len(piece), last):
            raise MemoryError
        return self._taken("digest text").tobytes()

    def contents(self) -> Contents:
        """As in `RecordReader`."""
        state = self._state()
        return Contents(state[1], *state[6:])

    def _state(self) -> list[int]:
        state = (ctypes.c_int64 * _STATE)()
        self._c.reader_state(self._reader, state)
        return list(state)

    def finish(self) -> Records:
        """As in `RecordReader`."""
        if self._c.reader_finish(self._reader):
            raise MemoryError
        lines, rows, problem_count, is_open, ends_blank, blank_before_last = self._state()[:6]
        return Records(
            columns={name: self._taken(name) for name in COLUMNS},
            stats=self._together(STATISTICS, np.float64, rows),
            counts=self._counts(rows),
            lists={name: self._list(name, rows) for name in LISTS},
            keys=KeyColumn(self._taken("keys").tobytes(), self._taken("keys start")),
            tables={name: list(self._table(name)) for name in TABLES},
            texts=self._texts(),
            problems=[
                *zip(self._taken("problem line").tolist(), map(bytes.decode, self._table("problem")), strict=True)
            ],
            problem_count=problem_count,
            outside=self._at_lines("outside"),
            lines=lines,
            open=bool(is_open),
            ends_blank=bool(ends_blank),
            blank_before_last=bool(blank_before_last),
        )

    def _taken(self, name: str) -> NDArray[Any]:
        """A column, which the reader no longer has."""
        number, kind = self._numbers[name]
        dtype = np.dtype("u1" if kind == "S" else kind)
        size = int(self._c.reader_size(self._reader, number)) // dtype.itemsize
        address = self._c.reader_take(self._reader, number)
        return np.asarray(_Memory(self._c, address, size, dtype)) if size else np.zeros(0, dtype)

    def _together(self, names: tuple[str, ...], dtype: Any, rows: int) -> NDArray[Any]:
        """Columns of the same length as rows of one array."""
        values = np.empty((len(names), rows), dtype)
        for k, name in enumerate(names):
            values[k] = self._taken(name)
        return values

    def _counts(self, rows: int) -> NDArray[np.int64]:
        if not self._c.reader_size(self._reader, self._numbers[COUNTS[0]][0]):
            return np.broadcast_to(np.int64(-1), (len(COUNTS), rows))
        return self._together(COUNTS, np.int64, rows)

    def _list(self, name: str, rows: int) -> Ragged:
        value, start = self._taken(name), self._taken(f"{name} start")
        # if no record has the field, zeros that are not written to take no memory
        return Ragged(start if len(value) else np.zeros(rows + 1, np.int64), value)

    def _at_lines(self, name: str) -> list[tuple[int, bytes]]:
        return list(zip(self._taken(f"{name} line").tolist(), self._table(name), strict=True))

    def _table(self, name: str) -> TextTable:
        return TextTable(self._taken(name).tobytes(), self._taken(f"{name} start"))

    def _texts(self) -> dict[str, Texts]:
        found = {}
        for name in (*TEXTS, "Output"):
            rows, ids = self._taken(f"{name} row"), self._taken(f"{name} id")
            if len(rows):
                found[name] = Texts(rows, ids, self._table(name))
        further = found.pop("Output", None)
        return found if further is None else found | self._by_name(further)

    def _by_name(self, further: Texts) -> dict[str, Texts]:
        """The texts of the fields `Output k`."""
        of = self._taken("Output name")
        order = np.argsort(of, kind="stable")
        names = self._table("Output names")
        ends = np.searchsorted(of[order], np.arange(len(names)), side="right").tolist()
        return {
            name.decode(): Texts(further.rows[order[start:end]], further.ids[order[start:end]], further.table)
            for name, start, end in zip(names, [0, *ends], ends, strict=False)
        }
