"""Column types of a log: lazily decoded texts, operation keys and ragged lists."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Int32, Int64, columns
from matchers.graph import lists, owners

__all__ = ["KeyColumn", "Ragged", "Strings", "TextTable", "Texts", "decode", "repeated"]


def decode(raw: bytes) -> str:
    """Decode log text for display: UTF-8, with invalid bytes as `\\xNN`."""
    return raw.decode("utf-8", errors="backslashreplace")


class Strings(Sequence[str]):
    """An intern table: distinct byte strings, decoded when read. Index -1 is the empty string."""

    __slots__ = ("_texts", "answers", "raw")

    def __init__(self, raw: Sequence[bytes]) -> None:
        self.raw = raw
        self.answers: dict[object, NDArray[Any]] = {}
        """Kept for questions that are asked of each text (`ops.laws.rows_where`)."""
        self._texts: list[str] | None = None

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [decode(r) for r in self.raw[index]]
        return decode(self.raw[index]) if index >= 0 else ""

    def __iter__(self) -> Iterator[str]:
        if self._texts is None:
            self._texts = list(map(decode, self.raw))
        return iter(self._texts)


class TextTable(Sequence[Any]):
    """Texts in one blob of bytes, each with a newline after it, and n + 1 offsets."""

    __slots__ = ("blob", "start")

    def __init__(self, blob: bytes, start: Int64 | None = None) -> None:
        """`start`: where each text begins, and the end, if that is known."""
        self.blob = blob
        if start is None:
            start = np.concatenate(([0], np.flatnonzero(np.frombuffer(blob, np.uint8) == 0x0A) + 1))
        self.start = start

    @classmethod
    def of(cls, texts: Iterable[bytes]) -> TextTable:
        """These texts; none has a newline."""
        return cls(b"".join(text + b"\n" for text in texts))

    def __len__(self) -> int:
        return len(self.start) - 1

    def raw(self, row: int) -> bytes:
        """The bytes of one text."""
        return self.blob[self.start[row] : self.start[row + 1] - 1]

    def __getitem__(self, index: Any) -> Any:
        return [self.raw(i) for i in range(*index.indices(len(self)))] if isinstance(index, slice) else self.raw(index)

    def __iter__(self) -> Iterator[Any]:
        return (self.blob[i : j - 1] for i, j in pairwise(self.start.tolist()))


class KeyColumn(TextTable):
    """The operation keys (`module.path/op_N_name`) of a log, decoded when read. Row -1 is the empty string.

    Keys are newline-separated in the blob, so that a search over all of them is one `bytes.find` loop.
    """

    __slots__ = ("_lower", "search")

    def __init__(self, blob: bytes, start: Int64 | None = None) -> None:
        super().__init__(blob, start)
        self._lower: bytes | None = None
        self.search: object = None
        """Kept for searches of the keys (`rules.key_index`)."""

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            first, end, step = row.indices(len(self))
            text = decode(self.blob[self.start[first] : self.start[max(first, end)]])
            return text.split("\n")[:-1] if step == 1 else [self[i] for i in range(first, end, step)]
        return decode(self.raw(row)) if row >= 0 else ""

    def __iter__(self) -> Iterator[str]:
        return iter(decode(self.blob).split("\n")[: len(self)])

    @property
    def plain(self) -> bool:
        """All keys are printable ASCII, without quotes and backslashes."""
        byte = np.frombuffer(self.blob, np.uint8)
        control = np.count_nonzero(byte < 0x20) - np.count_nonzero(byte == 0x0A)
        return not (control or (byte > 0x7E).any() or b'"' in self.blob or b"\\" in self.blob)

    def occurrence(self, row: int) -> int:
        """Number of earlier rows with the same key."""
        return sum(1 for _ in self._places(self.raw(row), int(self.start[row])))

    def find(self, key: bytes, nth: int = 0) -> int:
        """Row of the nth (from 0) occurrence of exactly this key; -1 if there are fewer."""
        place = next(islice(self._places(key, len(self.blob)), nth, None), None)
        return -1 if place is None else int(np.searchsorted(self.start, place))

    def rows(self, key: bytes) -> Int64:
        """Rows with exactly this key."""
        return np.asarray(np.searchsorted(self.start, list(self._places(key, len(self.blob)))), np.int64)

    def _places(self, key: bytes, end: int) -> Iterator[int]:
        """Positions of this key in the blob, before `end`."""
        line = key + b"\n"
        at = -1
        while (at := self.blob.find(line, at + 1, end)) >= 0:
            if at == 0 or self.blob[at - 1] == 0x0A:
                yield at

    def containing(self, text: str) -> Bool:
        """Mask of the rows whose key contains `text`, ignoring ASCII case."""
        found = np.zeros(len(self), bool)
        needle = text.lower().encode("utf-8", errors="surrogateescape")
        if not needle or b"\n" in needle:
            found[:] = not needle
            return found
        if self._lower is None:
            self._lower = self.blob.lower()
        # the rarest byte of the needle first, then the others at the remaining places
        blob = np.frombuffer(self._lower, np.uint8)
        rare = max(range(len(needle)), key=lambda k: (needle[k] not in b"aeilnorst._/0123456789", k))
        at = np.flatnonzero(blob == needle[rare]) - rare
        at = at[(at >= 0) & (at + len(needle) <= len(blob))]
        for k, byte in enumerate(needle):
            at = at[blob[at + k] == byte]
        found[np.searchsorted(self.start, at, side="right") - 1] = True
        return found


class Texts(Mapping[int, str]):
    """A sparse text field by row, decoded on access.

    Attributes:
        rows: int32, the rows that have one, ascending.
        ids: int32, for each of them the number of its text in `table`; rows may share a text.
        table: the texts as the log has them.
    """

    __slots__ = ("_at", "_unpack", "ids", "rows", "table")

    def __init__(
        self, rows: Int32, ids: Int32, table: Sequence[bytes], unpack: Callable[[bytes], bytes] | None = None
    ) -> None:
        """`unpack` gives the text of a raw one, and every text itself that is none."""
        self.rows, self.ids, self.table = rows, ids, table
        self._at = np.ascontiguousarray(rows).data
        self._unpack = unpack

    @classmethod
    def of(cls, raw: Mapping[int, bytes], unpack: Callable[[bytes], bytes] | None = None) -> Texts:
        """The texts of a mapping from rows."""
        rows = sorted(raw)
        known: dict[bytes, int] = {}
        ids = [known.setdefault(raw[row], len(known)) for row in rows]
        return cls(np.array(rows, np.int32), np.array(ids, np.int32), tuple(known), unpack)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[int]:
        return iter(self.rows.tolist())

    def __contains__(self, row: object) -> bool:
        return isinstance(row, (int, np.integer)) and self._place(int(row)) >= 0

    def __getitem__(self, row: int) -> str:
        place = self._place(row)
        if place < 0:
            raise KeyError(row)
        return decode(self._raw(place))

    def raw(self, row: int) -> bytes:
        """The bytes of one record's field, empty if it has none."""
        place = self._place(row)
        return self._raw(place) if place >= 0 else b""

    def in_use(self) -> tuple[Int32, TextTable]:
        """`ids` and `table`, which has the texts as `raw` gives them and no others."""
        used, ids = np.unique(self.ids, return_inverse=True)
        if self._unpack is None and isinstance(self.table, TextTable) and len(used) == len(self.table):
            return self.ids, self.table
        texts = [self.table[i] for i in used.tolist()]
        return ids.astype(np.int32), TextTable.of(texts if self._unpack is None else map(self._unpack, texts))

    def with_unpack(self, unpack: Callable[[bytes], bytes]) -> Texts:
        """The same rows, whose texts are packed."""
        return Texts(self.rows, self.ids, self.table, unpack)

    def changed(self, rows: Mapping[int, bytes]) -> Texts:
        """The same texts, but for these rows; empty: without the row."""
        raw = {row: self.table[i] for row, i in zip(self.rows.tolist(), self.ids.tolist(), strict=True)}
        return Texts.of({row: text for row, text in {**raw, **rows}.items() if text}, self._unpack)

    def _place(self, row: int) -> int:
        """Place of a row among the rows; -1: it has no text."""
        place = bisect_left(self._at, row)
        return place if place < len(self._at) and self._at[place] == row else -1

    def _raw(self, place: int) -> bytes:
        raw = self.table[int(self.ids[place])]
        return raw if self._unpack is None else self._unpack(raw)


def repeated(rows: Int64, count: Int64) -> tuple[Int64, Int64]:
    """Repeat rows[k] count[k] times; return the rows, and the number of each repetition of its row, from 0."""
    start = np.concatenate(([0], np.cumsum(count)))
    owner = owners(start)
    return rows[owner], np.arange(len(owner)) - start[owner]


@columns
class Ragged:
    """A list of values per row: row i owns `value[start[i]:start[i + 1]]`."""

    start: Int64
    value: NDArray[Any]
    _kept: dict[str, Int64] = field(default_factory=dict)
    """The next two properties, which are asked for by most of what looks at a log."""

    @classmethod
    def distinct(cls, row: Int64, value: Int64, many: int) -> Ragged:
        """The distinct values (from 0) of each of many rows, ascending."""
        return cls(*lists(row, value, many))

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.value[self.start[row] : self.start[row + 1]]

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def count(self) -> Int64:
        """Number of values of each row; cannot be written to."""
        return self._once("count", np.diff)

    @property
    def row(self) -> Int64:
        """Row that each value belongs to; cannot be written to."""
        return self._once("row", owners)

    def _once(self, name: str, made_of: Callable[[Int64], Int64]) -> Int64:
        if name not in self._kept:
            self._kept[name] = made_of(self.start)
            self._kept[name].flags.writeable = False
        return self._kept[name]

    def with_values(self, value: NDArray[Any]) -> Ragged:
        """Lists of the same lengths of other values."""
        return Ragged(self.start, value, self._kept)

    def owner(self, at: Int64) -> Int64:
        """Row that each of some values belongs to."""
        return np.searchsorted(self.start, at, side="right") - 1

    def taken(self, rows: Int64) -> Ragged:
        """The lists of some rows, in this order."""
        count = self.count[rows]
        start, nth = repeated(self.start[rows], count)
        return Ragged(np.concatenate(([0], np.cumsum(count))), self.value[start + nth])

    def replaced(self, rows: Int64, *values: NDArray[Any]) -> Ragged:
        """The same lists but for some rows, which get as many values as are given: the first of each, the second, …"""
        count = self.count.copy()
        kept = np.ones(len(count), bool)
        kept[rows] = False
        taken = kept[self.row]
        count[rows] = len(values)
        start = np.concatenate(([0], np.cumsum(count)))
        out = np.empty(start[-1], self.value.dtype)
        out[kept[owners(start)]] = self.value[taken]
        for k, value in enumerate(values):
            out[start[rows] + k] = value
        return Ragged(start, out)

    def first(self, rows: NDArray[Any] | slice = slice(None), missing: float = np.nan) -> NDArray[Any]:
        """First value of each row, or of each of some rows; `missing` where a row has none."""
        start, end = self.start[:-1][rows], self.start[1:][rows]
        if not len(self.value):
            return np.full(len(start), missing, self.value.dtype)
        return np.where(end > start, self.value.take(start, mode="clip"), self.value.dtype.type(missing))

    def at(self, rows: NDArray[Any], place: Int64, missing: float = np.nan) -> NDArray[Any]:
        """The value at a place in the list of each of some rows; `missing` where the list is shorter."""
        out = np.full(len(rows), missing, self.value.dtype)
        there = np.flatnonzero(place < self.start[rows + 1] - self.start[rows])
        out[there] = self.value[self.start[rows[there]] + place[there]]
        return out
