"""The columns of another tool's log, filled row by row; the reader of a format knows nothing else of an `OpLog`."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from capture.log_format import escape
from matchers.logs.columns import KeyColumn, Ragged, Strings, Texts
from matchers.logs.op_log import COUNTS, STATISTICS, Header, OpLog, Phase, Problem
from matchers.logs.records import LISTS, MAX_PROBLEMS, Contents, refuse_excess

__all__ = ["UNREAD", "Columns", "Row"]

UNREAD: Final = (math.nan,)
"""The inputs of an operation of which the log tells none: what comes in may differ."""

_COLUMNS: Final = {
    "line": np.int32,
    "module": np.int64,
    "op": np.int64,
    "counter": np.int32,
    "shape": np.int64,
    "dtype": np.int64,
    "location": np.int64,
    "phase": np.int8,
    "recompute": np.bool_,
    "micro_batch": np.int32,
}
"""Columns of an `OpLog` that a row has a number for."""
_ROW = struct.Struct(f"={len(_COLUMNS)}i")
_MAX_LINE = 2**31 - 1
_TABLES = ("modules", "ops", "shapes", "dtypes", "locations")
_NONE = "<none>"
"""The module of an operation that ran in none."""


class Row(NamedTuple):
    """One operation.

    Attributes:
        line: where it stands in the file, from 1.
        module: its path; empty outside of all modules.
        op: without namespace and overload.
        shape: of the first output, as in `[3, 4]`; empty if unknown.
        dtype: of the first output, as in `bfloat16`; empty if unknown.
        outputs, inputs: their float64 L1 norms; NaN is a value.
        stats: of the first output, by the names of `STATISTICS`; NaN is a value.
        counts: of the first output, as in `OpLog.counts`, empty if unknown: `stats` are of its finite values then.
        digests, input_digests: of the bits of all outputs and inputs; empty if unknown.
        producers: for each input the row that made it, -1 where that is unknown.
        location: `file:line`; empty if unknown.
        recompute: it ran once before, in the forward pass.
        micro_batch: from 0; -1 if unknown.
        texts: further fields of docs/log-format.md.
    """

    line: int
    module: str
    op: str
    shape: str = ""
    dtype: str = ""
    outputs: Sequence[float] = ()
    inputs: Sequence[float] = ()
    producers: Sequence[int] = ()
    location: str = ""
    phase: Phase = Phase.OTHER
    stats: Mapping[str, float] = {}
    counts: Sequence[int] = ()
    digests: Sequence[int] = ()
    input_digests: Sequence[int] = ()
    recompute: bool = False
    micro_batch: int = -1
    texts: Mapping[str, str] = {}


class Columns:
    """The rows of one log so far, and what could not be read.

    Attributes:
        cut_off: the file is known to end early.
        head: only the first rows are wanted, and need no numbers.
        partial: there are more.
        form: what the header calls the format, where that depends on what the log tells; else empty.
        beside: bytes that were read of other files.
        waiting: number of operations that a reader holds back for now.
    """

    def __init__(self, path: str, *, head: bool = False) -> None:
        self.path = path
        self.head = head
        self.cut_off = self.partial = False
        self.beside = 0
        self.form = ""
        self.waiting = 0
        self._keys: list[bytes] = []
        self._key_size = 0
        self._rows = bytearray()
        """Of each row the numbers of `_ROW`."""
        self._tables: dict[str, dict[str, int]] = {name: {} for name in _TABLES}
        self._starts: list[tuple[bytes, int]] = []
        """By module what its keys begin with, and the number of its rows."""
        self._ends: list[bytes] = []
        """By operation what its keys end with."""
        self._lists: dict[str, tuple[array[int], array[Any]]] = {
            name: (array("q", [0]), array(np.dtype(LISTS[name]).char)) for name in LISTS
        }
        self._stats: dict[str, dict[int, float]] = {name: {} for name in STATISTICS}
        self._counts: dict[int, Sequence[int]] = {}
        self._texts: dict[str, dict[int, bytes]] = {}
        self._problems: list[Problem] = []
        self._problem_count = 0

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, row: Row) -> None:
        """Add a row; its N is the number of earlier ones in its module."""
        module = self._interned("modules", row.module or _NONE)
        if module == len(self._starts):
            self._starts.append((_bytes(f"{escape(row.module) or _NONE}/op_"), 0))
        op = self._interned("ops", row.op)
        if op == len(self._ends):
            self._ends.append(_bytes(f"_{escape(row.op)}"))
        start, counter = self._starts[module]
        self._starts[module] = start, counter + 1
        self._rows += _ROW.pack(
            min(row.line, _MAX_LINE),
            module,
            op,
            counter,
            self._interned("shapes", row.shape),
            self._interned("dtypes", row.dtype),
            self._interned("locations", row.location),
            row.phase,
            row.recompute,
            row.micro_batch,
        )
        lists = (row.outputs, row.inputs, row.producers, row.digests, row.input_digests)
        for (starts, held), values in zip(self._lists.values(), lists, strict=True):
            held.extend(values)
            starts.append(len(held))
        for name, value in row.stats.items():
            self._stats[name][len(self)] = value
        if row.counts:
            self._counts[len(self)] = row.counts
        for name, text in row.texts.items():
            self._texts.setdefault(name, {})[len(self)] = _bytes(text)
        self._keys.append(b"%b%d%b" % (start, counter, self._ends[op]))
        self._key_size += len(self._keys[-1])

    def _interned(self, table: str, text: str) -> int:
        known = self._tables[table]
        return known.setdefault(text, len(known)) if text else -1

    def problem(self, line: int, message: str) -> None:
        """Note what could not be read, with its line from 1."""
        self._problem_count += 1
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(Problem(line, message))

    def refuse_excess(self, size: int) -> None:
        """Refuse what would fill the memory; `size` is the number of bytes read.

        Raises:
            LogError: it would.
        """
        names = sum(map(len, self._tables.values()))
        values = sum(len(values) for _, values in self._lists.values())
        refuse_excess(self.path, Contents(len(self) + self.waiting, names + self._key_size // 400, values, 0), size)

    def log(self, form: str) -> OpLog:
        """Return the whole; `form` is the name of the format."""
        many = len(self)
        numbers = np.frombuffer(self._rows, np.int32).reshape(-1, len(_COLUMNS)).T
        columns = {name: values.astype(kind) for (name, kind), values in zip(_COLUMNS.items(), numbers, strict=True)}
        lists = {name: Ragged(np.array(start), np.array(values)) for name, (start, values) in self._lists.items()}
        stats, present = np.full((len(STATISTICS), many), np.nan), np.zeros(many, np.uint8)
        for k, of in enumerate(self._stats.values()):
            rows = list(of)
            stats[k, rows], present[rows] = list(of.values()), present[rows] | np.uint8(1 << k)
        counts = np.full((len(COUNTS), many), -1)
        if self._counts:
            counts[:, list(self._counts)] = np.array(list(self._counts.values())).T
        tables = {name: Strings([_bytes(escape(text)) for text in table]) for name, table in self._tables.items()}
        return OpLog(
            path=self.path,
            header=Header(format=form, lines=(f"Format: {form}",)),
            keys=KeyColumn(b"".join(key + b"\n" for key in self._keys)),
            present=present,
            stats=stats,
            counts=counts,
            extra={name: Texts.of(texts) for name, texts in self._texts.items()},
            problems=tuple(self._problems),
            problem_count=self._problem_count,
            complete=False if self.cut_off and not self.partial else None,
            partial=self.partial,
            **columns,
            **tables,  # type: ignore[arg-type] # by the names of fields
            **lists,  # type: ignore[arg-type] # as above
        )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
