"""One log as columns.

An `OpLog` holds what one rank dispatched in one step: a row per operation, in the order of the log.
Numbers are numpy columns, repeated text is interned to small integers, and bytes are decoded to `str` only
when somebody asks for a row. Nothing here parses and nothing here judges.

Conventions for every column: `-1` in an integer column means "the log does not say"; NaN in a statistic means
"absent, or printed as nan": `present` tells the two apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "COUNTS",
    "FloatArray",
    "Header",
    "IntArray",
    "KeyColumn",
    "NO_DIGEST",
    "OpLog",
    "Phase",
    "Problem",
    "Ragged",
    "STATISTICS",
    "Strings",
    "Texts",
]

IntArray = NDArray[np.int32]
FloatArray = NDArray[np.float64]

STATISTICS = ("L1 norm", "L2 norm", "Min", "Max", "Mean")
"""Order of the columns of `OpLog.stats`, by the names that the log uses."""

COUNTS = ("numel", "nan", "inf", "zero")
"""Order of the rows of `OpLog.counts`."""

NO_DIGEST = np.uint64(0x6E6F206469676573)
"""Keeps the place of a digest that was not taken or cannot be read. (0 will not do: it can be that of zeros.)"""


class Phase(IntEnum):
    """Which part of the training step dispatched an operation."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZER = 2
    OTHER = 3

    @property
    def label(self) -> str:
        return self.name.lower()


def decode(raw: bytes) -> str:
    """Text of a log for people: UTF-8, and whatever is not UTF-8 as `\\xNN`."""
    return raw.decode("utf-8", errors="backslashreplace")


class Strings(Sequence[str]):
    """An intern table: distinct byte strings, decoded when read. Index -1 is the empty string."""

    __slots__ = ("raw",)

    def __init__(self, raw: Sequence[bytes]) -> None:
        self.raw = raw

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [decode(r) for r in self.raw[index]]
        return decode(self.raw[index]) if index >= 0 else ""

    def __iter__(self) -> Iterator[str]:
        return map(decode, self.raw)


class KeyColumn(Sequence[str]):
    """The operation keys (`module.path/op_N_name`) of a log: one blob of bytes and n + 1 offsets.

    Keys are newline-separated in the blob, so that a search over all of them is one `bytes.find` loop.
    """

    __slots__ = ("_blob", "_lower", "start")

    def __init__(self, keys: bytes) -> None:
        """`keys` with a newline after each."""
        self._blob = keys
        self._lower: bytes | None = None
        self.start = np.concatenate(([0], np.flatnonzero(np.frombuffer(keys, np.uint8) == 0x0A) + 1))

    def __len__(self) -> int:
        return len(self.start) - 1

    def raw(self, row: int) -> bytes:
        """The bytes of one key."""
        return self._blob[self.start[row] : self.start[row + 1] - 1]

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            first, end, step = row.indices(len(self))
            text = decode(self._blob[self.start[first] : self.start[max(first, end)]])
            return text.split("\n")[:-1] if step == 1 else [self[i] for i in range(first, end, step)]
        return decode(self.raw(row)) if row >= 0 else ""

    def __iter__(self) -> Iterator[str]:
        return iter(decode(self._blob).split("\n")[: len(self)])

    @property
    def plain(self) -> bool:
        """All keys are printable ASCII, without quotes and backslashes."""
        byte = np.frombuffer(self._blob, np.uint8)
        control = np.count_nonzero(byte < 0x20) - np.count_nonzero(byte == 0x0A)
        return not (control or (byte > 0x7E).any() or b'"' in self._blob or b"\\" in self._blob)

    def occurrence(self, row: int) -> int:
        """How many rows before this one have the same key."""
        return sum(1 for _ in self._places(self.raw(row), int(self.start[row])))

    def find(self, key: bytes, nth: int = 0) -> int:
        """The row of the nth (from 0) key that is exactly this; -1 when there are fewer."""
        place = next(islice(self._places(key, len(self._blob)), nth, None), None)
        return -1 if place is None else int(np.searchsorted(self.start, place))

    def rows(self, key: bytes) -> NDArray[np.int64]:
        """The rows whose key is exactly this."""
        return np.asarray(np.searchsorted(self.start, list(self._places(key, len(self._blob)))), np.int64)

    def _places(self, key: bytes, end: int) -> Iterator[int]:
        """Where in the blob this key stands, before `end`."""
        line = key + b"\n"
        at = -1
        while (at := self._blob.find(line, at + 1, end)) >= 0:
            if at == 0 or self._blob[at - 1] == 0x0A:
                yield at

    def containing(self, text: str) -> NDArray[np.bool_]:
        """Mask of the rows whose key contains `text`, ignoring ASCII case."""
        found = np.zeros(len(self), bool)
        needle = text.lower().encode("utf-8", errors="surrogateescape")
        if not needle or b"\n" in needle:
            found[:] = not needle
            return found
        if self._lower is None:
            self._lower = self._blob.lower()
        # the rarest byte of the needle first, then the others at the places that are left
        blob = np.frombuffer(self._lower, np.uint8)
        rare = max(range(len(needle)), key=lambda k: (needle[k] not in b"aeilnorst._/0123456789", k))
        at = np.flatnonzero(blob == needle[rare]) - rare
        at = at[(at >= 0) & (at + len(needle) <= len(blob))]
        for k, byte in enumerate(needle):
            at = at[blob[at + k] == byte]
        found[np.searchsorted(self.start, at, side="right") - 1] = True
        return found


class Texts(Mapping[int, str]):
    """A field that few records have, or that few readers ask for: its text by row, decoded when read."""

    __slots__ = ("_raw",)

    def __init__(self, raw: Mapping[int, bytes]) -> None:
        self._raw = raw

    def __len__(self) -> int:
        return len(self._raw)

    def __iter__(self) -> Iterator[int]:
        return iter(self._raw)

    def __getitem__(self, row: int) -> str:
        return decode(self._raw[row])

    def raw(self, row: int) -> bytes:
        """The bytes of one record's field, empty where it has none."""
        return self._raw.get(row, b"")


_NO_TEXTS = Texts({})


@dataclass(frozen=True, slots=True)
class Ragged:
    """A list of values per row: row i owns `value[start[i]:start[i + 1]]`."""

    start: NDArray[np.int64]
    value: NDArray[Any]

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.value[self.start[row] : self.start[row + 1]]

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def count(self) -> NDArray[np.int64]:
        """Number of values of each row."""
        return np.diff(self.start)

    @property
    def row(self) -> NDArray[np.int64]:
        """Row that owns each value."""
        return np.repeat(np.arange(len(self)), self.count)

    def first(self, rows: NDArray[Any] | slice = slice(None), missing: float = np.nan) -> NDArray[Any]:
        """First value of each row, or of each of some rows; `missing` where a row has none."""
        start, end = self.start[:-1][rows], self.start[1:][rows]
        out = np.full(len(start), missing, self.value.dtype)
        has = end > start
        out[has] = self.value[start[has]]
        return out


@dataclass(frozen=True, slots=True)
class Problem:
    """A spot of a log that could not be read; only this spot is lost. `line` is 1-based."""

    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Header:
    """What the log says about itself before the first record.

    `declared` is the number of records it promises (None: not said), `run` the run info of our own capture
    (empty for torchtitan's logs), `lines` the header as it stands.
    """

    declared: int | None = None
    excluded: tuple[str, ...] = ()
    format: str | None = None
    run: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()

    @property
    def incomplete(self) -> str:
        """Why the captured step did not come to its end, in the words of the capture; empty where it did."""
        return str(self.run.get("incomplete") or "")


@dataclass(frozen=True, slots=True)
class OpLog:
    """The columns of one log; n rows, in the order of the file.

    Attributes:
        path: where it was read from, for messages.
        keys: operation keys as they stand in the log (they may repeat).
        module, op, shape, dtype, location: int32[n], indices into the tables of the plural name.
        counter: int32[n], the N of `op_N_name`; -1 when the key has none.
        phase: int8[n] of `Phase`.
        present: uint8[n], which statistics a record has; bit k is `STATISTICS[k]`.
        stats: float64[5, n], rows as in `STATISTICS`.
        outputs, inputs: L1 norms ("hashes") of every output and of every input before the op ran.
        producers: for each input position the row that produced it, -1 when the log names none,
            -2 when it names an operation that is not in this log (before this row).
        line: int32[n], 1-based line of the record, for `path:line`.
        digests: uint64 per output of our own capture (empty rows otherwise); `NO_DIGEST` where one is not known.
        input_digests: the same for the inputs.
        counts: int64[4, n], rows as in `COUNTS`: of the first output; where there are counts, the statistics are
            those of the finite values.
        recompute: bool[n], the log itself says that activation checkpointing ran this again.
        micro_batch: int32[n].
        extra: other fields of our superset, verbatim: field name -> {row: text}; see `texts`.
        problems: the first spots that could not be read (at most 1,000); `problem_count` counts all.
        complete: False when the log is known to be cut off, None when the format cannot tell.
        partial: only the head of the file was read (the explorer's first screen).
    """

    path: str
    header: Header
    keys: KeyColumn
    modules: Strings
    module: IntArray
    ops: Strings
    op: IntArray
    counter: IntArray
    shapes: Strings
    shape: IntArray
    dtypes: Strings
    dtype: IntArray
    locations: Strings
    location: IntArray
    phase: NDArray[np.int8]
    present: NDArray[np.uint8]
    stats: FloatArray
    outputs: Ragged
    inputs: Ragged
    producers: Ragged
    line: IntArray
    digests: Ragged
    input_digests: Ragged
    counts: NDArray[np.int64]
    recompute: NDArray[np.bool_]
    micro_batch: IntArray
    extra: Mapping[str, Texts]
    problems: tuple[Problem, ...] = ()
    problem_count: int = 0
    complete: bool | None = None
    partial: bool = False

    def __len__(self) -> int:
        return len(self.module)

    @property
    def ours(self) -> bool:
        """Whether our own capture wrote it: collectives are read when they are done, micro-batches are numbered, …"""
        return self.header.format is not None

    def texts(self, field: str) -> Texts:
        """One field of `extra`, also where no record has it."""
        return self.extra.get(field, _NO_TEXTS)

    def module_name(self, row: int) -> str:
        name: str = self.modules[int(self.module[row])]
        return name

    def op_name(self, row: int) -> str:
        name: str = self.ops[int(self.op[row])]
        return name

    def shape_text(self, row: int) -> str:
        """`[256, 256]`, or the empty string for operations that return nothing."""
        text: str = self.shapes[int(self.shape[row])]
        return text

    def dtype_text(self, row: int) -> str:
        """`float32`, without the `torch.` in front."""
        text: str = self.dtypes[int(self.dtype[row])]
        return text

    def location_text(self, row: int) -> str:
        text: str = self.locations[int(self.location[row])]
        return text
