"""Request and result of a reader of records: the interface of the plain and of the compiled reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Float64, Int64, columns
from matchers.errors import LogError
from matchers.logs.columns import KeyColumn, Ragged, Texts

__all__ = [
    "COLUMNS",
    "LISTS",
    "MAX_PROBLEMS",
    "TABLES",
    "TEXTS",
    "Contents",
    "RecordReader",
    "Records",
    "Start",
    "refuse_excess",
]

COLUMNS: Final[Mapping[str, type[np.integer[Any]]]] = {
    **dict.fromkeys(("line", "module", "op", "counter", "shape", "location", "micro_batch"), np.int32),
    "phase": np.int8,
    "present": np.uint8,
    "recompute": np.uint8,
}
"""Columns of `Records`, with their types."""
LISTS: Final[Mapping[str, type[np.number[Any]]]] = {
    "outputs": np.float64,
    "inputs": np.float64,
    "producers": np.int32,
    "digests": np.uint64,
    "input_digests": np.uint64,
}
TABLES = ("modules", "ops", "shapes", "locations")
TEXTS = ("Placement", "Stack", "Parameter", "Mutated", "Sketch", "Group", "Exchanged", "User hash", "Overload",
    "Arguments", "Inputs", "Random", "Read", "Named", "Rows", "Input statistics")  # fmt: skip
MAX_PROBLEMS = 1000
"""Problems that are kept; all are counted."""


class Start(NamedTuple):
    """The part of the header that a reader must know.

    Attributes:
        lines: number of lines before the first record.
        ours: the log is of numtui's capture.
        compact: the log is a compact one.
    """

    lines: int
    ours: bool
    compact: bool


class Contents(NamedTuple):
    """The number of things that have been read, which decides how much memory a log will need.

    Attributes:
        records: records.
        names: distinct modules, operations, shapes and locations.
        values: hashes, digests and producers of all records.
        outputs: distinct fields `Output k`.
    """

    records: int
    names: int
    values: int
    outputs: int

    @property
    def memory(self) -> int:
        """Bytes that a comparison takes for them at its peak, rounded up; measured on logs that have little else."""
        return 1000 * self.records + 800 * self.names + 64 * self.values + 4000 * self.outputs


_MAX_MEMORY = 25
"""Bytes of memory for each byte of a log, from `_FREE` on. A log takes 2 to 5."""
_FREE = 256 << 20


def refuse_excess(path: str, read: Contents, size: int) -> None:
    """Refuse what would fill the memory: a log of a few megabytes may have millions of records without content.

    `size` is the number of bytes that were read.

    Raises:
        LogError: it would.
    """
    if read.memory > max(_FREE, _MAX_MEMORY * size):
        raise LogError(
            f"{path}: its first {read.records:,} records with {read.values:,} values would take"
            f" {read.memory >> 20:,} MiB of memory, more than {_MAX_MEMORY} times their size, which no log does"
        )


@columns
class Records:
    """The records of a log, with names still as the log has them.

    Attributes:
        keys: as in `OpLog`.
        columns: those of `COLUMNS`, as in `OpLog`, but for `shape`, which counts whole `Shape` lines.
        tables: the distinct modules, ops, shapes (values of `Shape` lines) and locations.
        stats, counts: as in `OpLog`.
        lists: those of `LISTS`, as in `OpLog`.
        texts: the further fields (`TEXTS`, `Output k`), as they stand in the log; `Named` is of compact logs.
        problems: the first of them: (line, message), in the order of reading.
        problem_count: number of all.
        outside: lines that may be the footer: (line, its first bytes).
        lines: number of lines, with those of the header.
        open: the log ends within a line.
        ends_blank: its last line is blank.
        blank_before_last: the line before the last record is blank.
    """

    keys: KeyColumn
    columns: Mapping[str, NDArray[Any]]
    tables: Mapping[str, Sequence[bytes]]
    stats: Float64
    counts: Int64
    lists: Mapping[str, Ragged]
    texts: Mapping[str, Texts]
    problems: Sequence[tuple[int, str]]
    problem_count: int
    outside: Sequence[tuple[int, bytes]]
    lines: int
    open: bool
    ends_blank: bool
    blank_before_last: bool


class RecordReader(Protocol):
    """A reader of the records of one log."""

    def add(self, piece: bytes, last: bool) -> bytes:
        """Read a piece, which starts with a record; `last`: the log ends with it.

        Returns the values of `Digest` of all its records, each but the log's first after a newline.
        """
        ...

    def contents(self) -> Contents:
        """Return how much has been read so far."""
        ...

    def finish(self) -> Records:
        """Return what was read."""
        ...
