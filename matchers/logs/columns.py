"""Column types of a log: lazily decoded texts, operation keys, ragged lists, and arrays that grow while parsing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from matchers.arrays import Bool, Int64

__all__ = ["GrowingColumn", "KeyColumn", "Ragged", "Strings", "Texts", "decode", "repeated"]


def decode(raw: bytes) -> str:
    """Decode log text for display: UTF-8, with invalid bytes as `\\xNN`."""
    return raw.decode("utf-8", errors="backslashreplace")


class Strings(Sequence[str]):
    """An intern table: distinct byte strings, decoded when read. Index -1 is the empty string."""

    __slots__ = ("_texts", "raw")

    def __init__(self, raw: Sequence[bytes]) -> None:
        self.raw = raw
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


class KeyColumn(Sequence[str]):
    """The operation keys (`module.path/op_N_name`) of a log: one blob of bytes and n + 1 offsets.

    Keys are newline-separated in the blob, so that a search over all of them is one `bytes.find` loop.
    """

    __slots__ = ("_lower", "blob", "start")

    def __init__(self, keys: bytes) -> None:
        """`keys` with a newline after each."""
        self.blob = keys
        self._lower: bytes | None = None
        self.start = np.concatenate(([0], np.flatnonzero(np.frombuffer(keys, np.uint8) == 0x0A) + 1))

    def __len__(self) -> int:
        return len(self.start) - 1

    def raw(self, row: int) -> bytes:
        """The bytes of one key."""
        return self.blob[self.start[row] : self.start[row + 1] - 1]

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
    """A sparse text field by row, decoded on access."""

    __slots__ = ("_raw", "_unpack")

    def __init__(self, raw: Mapping[int, bytes], unpack: Callable[[bytes], bytes] | None = None) -> None:
        """`unpack` gives the text of a raw one, and every text itself that is none."""
        self._raw = raw
        self._unpack = unpack

    def __len__(self) -> int:
        return len(self._raw)

    def __iter__(self) -> Iterator[int]:
        return iter(self._raw)

    def __getitem__(self, row: int) -> str:
        raw = self._raw[row]
        return decode(raw if self._unpack is None else self._unpack(raw))

    def raw(self, row: int) -> bytes:
        """The bytes of one record's field, empty if it has none."""
        raw = self._raw.get(row, b"")
        return raw if self._unpack is None else self._unpack(raw)

    def changed(self, rows: Mapping[int, bytes]) -> Texts:
        """The same texts, but for these rows; empty: without the row."""
        return Texts({row: raw for row, raw in {**self._raw, **rows}.items() if raw}, self._unpack)


def repeated(rows: Int64, count: Int64) -> tuple[Int64, Int64]:
    """Repeat rows[k] count[k] times; return the rows, and the number of each repetition of its row, from 0."""
    owner = np.repeat(rows, count)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)


@dataclass(frozen=True, slots=True)
class Ragged:
    """A list of values per row: row i owns `value[start[i]:start[i + 1]]`."""

    start: Int64
    value: NDArray[Any]

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.value[self.start[row] : self.start[row + 1]]

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def count(self) -> Int64:
        """Number of values of each row."""
        return np.diff(self.start)

    @property
    def row(self) -> Int64:
        """Row that each value belongs to."""
        return np.repeat(np.arange(len(self)), self.count)

    def taken(self, rows: Int64) -> Ragged:
        """The lists of some rows, in this order."""
        count = self.count[rows]
        start, nth = repeated(self.start[rows], count)
        return Ragged(np.concatenate(([0], np.cumsum(count))), self.value[start + nth])

    def replaced(self, rows: Int64, *values: NDArray[Any]) -> Ragged:
        """The same lists but for some rows, which get as many values as are given: the first of each, the second, …"""
        count = self.count
        kept = np.ones(len(count), bool)
        kept[rows] = False
        taken = np.repeat(kept, count)
        count[rows] = len(values)
        start = np.concatenate(([0], np.cumsum(count)))
        out = np.empty(start[-1], self.value.dtype)
        out[np.repeat(kept, count)] = self.value[taken]
        for k, value in enumerate(values):
            out[start[rows] + k] = value
        return Ragged(start, out)

    def first(self, rows: NDArray[Any] | slice = slice(None), missing: float = np.nan) -> NDArray[Any]:
        """First value of each row, or of each of some rows; `missing` where a row has none."""
        start, end = self.start[:-1][rows], self.start[1:][rows]
        if not len(self.value):
            return np.full(len(start), missing, self.value.dtype)
        return np.where(end > start, self.value.take(start, mode="clip"), self.value.dtype.type(missing))


_LEAST = 1 << 12


class GrowingColumn:
    """An array that grows by appending chunks in place.

    Joining a list of chunks at the end would double the memory: the freed chunks are too scattered for reuse.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self._values: NDArray[Any] = np.empty(_LEAST, dtype)
        self._size = 0

    def add(self, piece: NDArray[Any]) -> None:
        """Append values."""
        size = self._size + len(piece)
        if size > len(self._values):
            # in place, if the system can; nothing else refers to the array yet
            self._values.resize(max(size, len(self._values) * 5 // 4), refcheck=False)
        self._values[self._size : size] = piece
        self._size = size

    def take(self) -> NDArray[Any]:
        """Return all values and leave the column empty."""
        values = self._values
        values.resize(self._size, refcheck=False)
        self._values, self._size = np.empty(0, values.dtype), 0
        return values
