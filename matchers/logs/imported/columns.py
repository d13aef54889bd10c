"""The columns of another tool's log, filled row by row; the reader of a format knows nothing else of an `OpLog`."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, repeat
from operator import attrgetter, methodcaller
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capture.log_format import escape
from matchers.arrays import Int32, stable_order
from matchers.logs.columns import KeyColumn, Ragged, Strings, Texts
from matchers.logs.imported.format import NATIVE_KEY
from matchers.logs.input_statistics import FIELD as INPUT_STATISTICS
from matchers.logs.input_statistics import unpack
from matchers.logs.op_log import COUNTS, STATISTICS, Header, OpLog, Phase, Problem
from matchers.logs.records import LISTS, MAX_PROBLEMS, Contents, refuse_excess

__all__ = ["UNREAD", "Columns", "Row", "new_row", "rows", "stats_of"]

UNREAD: Final = (math.nan,)
"""The inputs of an operation of which the log tells none: what comes in may differ."""

_NAMED: Final = ("module", "op", "shape", "dtype", "location")
"""Columns of an `OpLog` whose numbers stand for texts."""
_NUMBERS: Final = {
    **dict.fromkeys(_NAMED, np.int64),
    "line": np.int32,
    "phase": np.int8,
    "recompute": np.bool_,
    "micro_batch": np.int32,
}
"""Columns of an `OpLog` that a row has a number for."""
_BITS: Final = {name: 1 << k for k, name in enumerate(STATISTICS)}
"""Those of `OpLog.present`."""
_OWN: Final[Mapping[str, tuple[str, Callable[[bytes], bytes] | None]]] = {
    "native": (NATIVE_KEY, None),
    "statistics": (INPUT_STATISTICS, unpack),
}
"""Fields of a row that are texts which hardly another row has: their names, and what unpacks them."""
_BATCH: Final = 1024
"""Rows that become columns together."""
_NOT_OF_A_COLUMN: Final = (TypeError, ValueError, OverflowError, AttributeError)
"""Exceptions for values that a column does not take."""
_MAX_LINE = 2**31 - 1
_values = methodcaller("values")
_OF_KEYS: Final = ("module", "op")
_NONE = "<none>"
"""The module of an operation that ran in none, and the name of one that has none."""


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
        native: the name that the other tool gives it; empty if it has none.
        statistics: of inputs, packed; empty if unknown.
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
    native: str = ""
    statistics: bytes = b""


new_row: Final = tuple.__new__
"""Makes a `Row`, or another named tuple, of all its fields in less than half the time of `Row(…)`."""


def rows(**columns: Iterable[Any]) -> list[Row]:
    """Rows from columns by the names of fields; the other fields are the same in each, as `Row` has them."""
    every = [columns.get(name, repeat(Row._field_defaults.get(name))) for name in Row._fields]
    return [*map(new_row, repeat(Row), zip(*every, strict=False))]


def stats_of(names: Sequence[str], columns: Sequence[Sequence[float]]) -> list[dict[str, float]]:
    """The statistics of rows by these names, from a column for each name."""
    if len(names) == 4:  # almost always; half the time
        a, b, c, d = names
        return [{a: w, b: x, c: y, d: z} for w, x, y, z in zip(*columns, strict=True)]
    return [dict(zip(names, numbers, strict=True)) for numbers in zip(*columns, strict=True)]


class Columns:
    """The rows of one log so far, and what could not be read.

    Rows become columns many at a time: that is several times faster than one by one.

    Attributes:
        cut_off: the file is known to end early.
        head: only the first rows are wanted, and need no numbers.
        partial: there are more.
        form: what the header calls the format, where that depends on what the log tells; else empty.
        beside: bytes that were read of other files.
        waiting: number of operations that a reader holds back for now.
        step: the only one that is wanted, of a file that has several; None for all.
        steps: those that were met, of such a file.
    """

    def __init__(self, path: str, *, head: bool = False, step: int | None = None) -> None:
        self.path = path
        self.head = head
        self.step = step
        self.steps: set[int] = set()
        self.cut_off = self.partial = False
        self.beside = 0
        self.form = ""
        self.waiting = 0
        self._pending: list[tuple[Any, ...]] = []
        self._many = 0
        """Rows of the columns, without those that are pending."""
        self._numbers = {name: array("i") for name in _NUMBERS}
        self._tables: dict[str, dict[str, int]] = {f"{name}s": {"": -1} for name in _NAMED}
        self._lists: dict[str, tuple[array[int], array[Any]]] = {
            name: (array("q"), array(np.dtype(LISTS[name]).char)) for name in LISTS
        }
        """By name the length of each row's list, and all their values."""
        self._stats: dict[str, array[float]] = {name: array("d") for name in STATISTICS}
        self._present = bytearray()
        self._key_size = 0
        self._counts: dict[int, Sequence[int]] = {}
        self._texts: dict[str, tuple[array[int], array[int], dict[str, int]]] = {}
        """By name the rows that have the field, the numbers of their texts, and these."""
        self._own: dict[str, list[Any]] = {name: [] for name in _OWN}
        """By name the texts of all rows, empty where one has none."""
        self._problems: list[Problem] = []
        self._problem_count = 0

    def __len__(self) -> int:
        return self._many + len(self._pending)

    def add(self, row: tuple[Any, ...]) -> None:
        """Add a row, perhaps as a plain tuple; its N is the number of earlier ones in its module."""
        self.extend([row])

    def extend(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows."""
        self._pending += rows
        if len(self._pending) >= _BATCH:
            self._enter_pending()

    def _enter_pending(self) -> None:
        """Turn rows into columns; of one with a value that no column can have, its place alone, which others name."""
        rows, self._pending = self._pending, []
        try:
            self._enter(rows)
        except _NOT_OF_A_COLUMN:
            for row in rows:
                try:
                    self._enter([row])
                except _NOT_OF_A_COLUMN:
                    self.problem(row[0], "a value that no operation has")
                    self._enter([Row(row[0], "", "unreadable")])

    def _enter(self, rows: Sequence[tuple[Any, ...]]) -> None:
        fields: dict[str, tuple[Any, ...]] = dict(zip(Row._fields, zip(*rows, strict=True), strict=True))
        for name in _OF_KEYS:
            if "" in fields[name]:
                fields[name] = tuple([text or _NONE for text in fields[name]])
        numbers = {name: array("i", self._interned(f"{name}s", fields[name])) for name in _NAMED}
        lines = fields["line"]
        numbers["line"] = array("i", lines if max(lines) <= _MAX_LINE else [min(line, _MAX_LINE) for line in lines])
        numbers |= {name: array("i", fields[name]) for name in ("phase", "recompute", "micro_batch")}
        none = array("q", bytes(8 * len(rows)))
        lists = {
            name: (array("q", [*map(len, fields[name])]), array(held.typecode, [*chain.from_iterable(fields[name])]))
            if any(fields[name])
            else (none, array(held.typecode))
            for name, (_, held) in self._lists.items()
        }
        stats, present = _told(fields["stats"])
        named = dict.fromkeys(chain.from_iterable(fields["texts"]))
        texts = {name: [of.get(name) for of in fields["texts"]] for name in named}
        for told in (*texts.values(), fields["native"]):
            "".join(filter(None, told))  # fails for what is no text
        # all is well: from here on nothing fails
        self._key_size += sum(map(len, chain(fields["module"], fields["op"])))
        self._present += present
        for name, values in numbers.items():
            self._numbers[name].extend(values)
        for name, (sizes, values) in lists.items():
            self._lists[name][0].extend(sizes)
            self._lists[name][1].extend(values)
        for name, held in self._stats.items():
            held.extend(stats[name])
        if any(fields["counts"]):
            self._counts |= {self._many + k: counts for k, counts in enumerate(fields["counts"]) if counts}
        for name, told in texts.items():
            of_row, ids, known = self._texts.setdefault(name, (array("i"), array("i"), {}))
            of_row.extend([k for k, text in enumerate(told, self._many) if text is not None])
            ids.extend([known.setdefault(text, len(known)) for text in told if text is not None])
        for name, all_rows in self._own.items():
            all_rows += fields[name]
        self._many += len(rows)

    def _interned(self, table: str, texts: Sequence[str]) -> list[int]:
        known = self._tables[table]
        try:
            return [*map(known.__getitem__, texts)]
        except KeyError:
            for text in dict.fromkeys(texts):
                known.setdefault(text, len(known) - 1)
            return [*map(known.__getitem__, texts)]

    def wanted(self, step: int) -> bool:
        """Return True if the rows of a step, which was met, are to be entered."""
        self.steps.add(step)
        return self.step in (None, step)

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
        if self._pending:
            self._enter_pending()
        many = self._many
        texts = {name: [escape(text) for text in table if text] for name, table in self._tables.items()}
        tables = {name: [*map(_bytes, table)] for name, table in texts.items()}
        lists = {
            name: Ragged(np.concatenate(([0], np.cumsum(np.array(sizes)))), np.array(values))
            for name, (sizes, values) in self._lists.items()
        }
        columns: dict[str, NDArray[Any]] = {
            name: np.array(self._numbers[name]).astype(kind) for name, kind in _NUMBERS.items()
        }
        columns["counter"] = _counted(columns["module"])
        extra = {
            name: Texts(np.array(of_row), np.array(ids), _encoded([*known]))
            for name, (of_row, ids, known) in self._texts.items()
        }
        for field, (name, unpacked) in _OWN.items():
            if some := [*filter(None, self._own[field])]:
                where = np.flatnonzero([*map(bool, self._own[field])]).astype(np.int32)
                extra[name] = Texts(where, np.arange(len(some), dtype=np.int32), _encoded(some), unpacked)
        counts = np.full((len(COUNTS), many), -1)
        if self._counts:
            counts[:, list(self._counts)] = np.array(list(self._counts.values())).T
        return OpLog(
            path=self.path,
            header=Header(format=form, lines=(f"Format: {form}",)),
            keys=KeyColumn(_keys(columns, texts)),
            present=np.frombuffer(bytes(self._present), np.uint8),
            stats=np.array([np.array(values) for values in self._stats.values()]),
            counts=counts,
            extra=extra,
            problems=tuple(sorted(self._problems, key=attrgetter("line"))),  # what is before one may be read later
            problem_count=self._problem_count,
            complete=False if self.cut_off and not self.partial else None,
            partial=self.partial,
            **columns,  # type: ignore[arg-type] # by the names of fields
            **{name: Strings(table) for name, table in tables.items()},  # type: ignore[arg-type] # as above
            **lists,  # type: ignore[arg-type] # as above
        )


def _told(rows: Sequence[Mapping[str, float]]) -> tuple[dict[str, array[float]], bytes]:
    """The statistics of rows by name, NaN where one has none, and which each has, as in `OpLog.present`."""
    if not any(rows):
        return {name: array("d", [math.nan]) * len(rows) for name in STATISTICS}, bytes(len(rows))
    names = [*map(tuple, rows)]
    bits = {own: sum(_BITS[name] for name in own) for own in {*names}}
    unknown = [math.nan] * len(rows)
    if len(bits) == 1:  # almost always
        told = dict(zip(names[0], zip(*map(_values, rows), strict=True), strict=True))
        stats = {name: told.get(name, unknown) for name in STATISTICS}
    else:
        some = {*chain.from_iterable(bits)}
        stats = {name: [of.get(name, math.nan) for of in rows] if name in some else unknown for name in STATISTICS}
    return {name: array("d", of) for name, of in stats.items()}, bytes(map(bits.__getitem__, names))


def _counted(codes: NDArray[Any]) -> Int32:
    """For each row the number of earlier ones with its code."""
    order = stable_order(codes)
    there, first = np.unique(codes[order], return_index=True)
    out = np.empty(len(codes), np.int32)
    out[order] = np.arange(len(codes)) - first[np.searchsorted(there, codes[order])]
    return out


def _keys(columns: Mapping[str, NDArray[Any]], tables: Mapping[str, Sequence[str]]) -> bytes:
    """The keys of all rows, each with a newline."""
    modules, ops = ([*tables[name], ""] for name in ("modules", "ops"))
    parts = zip(*(columns[name].tolist() for name in ("module", "counter", "op")), strict=True)
    return _bytes("".join([f"{modules[module]}/op_{counter}_{ops[op]}\n" for module, counter, op in parts]))


def _encoded(texts: Sequence[Any]) -> list[bytes]:
    """Each text in UTF-8; many at once where none has a line break, and none is packed."""
    with suppress(TypeError):
        found = _bytes("\n".join(texts)).split(b"\n")
        if len(found) == len(texts):
            return found
    return [*map(_bytes, texts)]


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")
