"""One log as columns.

An `OpLog` holds the operations that one rank dispatched in one step: a row per operation, in log order. Numbers are
numpy columns, repeated text is interned to small integers, and bytes are decoded to `str` on access. This module
neither parses nor judges.

Conventions for every column: `-1` in an integer column means that the log does not say; NaN in a statistic means
"absent, or printed as nan", and `present` tells the two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Hash, Int32, Int64, columns, one_of
from matchers.logs.columns import KeyColumn, Ragged, Strings, Texts
from matchers.logs.hashing import fingerprint
from matchers.logs.tells import EVERYTHING, IMPORTED, NUMBERS_ALONE, Tells
from matchers.status import LabelledEnum

__all__ = [
    "COUNTS",
    "MARKS",
    "NO_DIGEST",
    "OF_PARTS",
    "OTHER_PARTS",
    "OTHER_UNKNOWN",
    "STATISTICS",
    "UNKNOWN",
    "Folding",
    "Header",
    "OpLog",
    "Phase",
    "Problem",
    "is_mark",
    "once_per_log",
    "once_per_pair",
]

_Made = TypeVar("_Made")
_One = TypeVar("_One")
_Other = TypeVar("_Other")
_Of = TypeVar("_Of")

STATISTICS = ("L1 norm", "L2 norm", "Min", "Max", "Mean")
"""Rows of `OpLog.stats`, by the names that the log uses."""

COUNTS = ("numel", "nan", "inf", "zero")
"""Rows of `OpLog.counts`."""

NO_DIGEST = np.uint64(0x6E6F206469676573)
"""Placeholder for a digest that was not taken or cannot be read. (Not 0, a possible digest of zeros.)"""

OTHER_UNKNOWN = np.uint64(NO_DIGEST + np.uint64(1))
"""The same in the other of two logs, where two unknown digests must not look equal."""
UNKNOWN = (NO_DIGEST, OTHER_UNKNOWN)
OF_PARTS = np.uint64(NO_DIGEST + np.uint64(2))
"""Digest of a tensor of which only the parts were read, and the sketch is known: no other has its equal."""
OTHER_PARTS = np.uint64(NO_DIGEST + np.uint64(3))
"""The same in the second of two logs of which both are merged: two tensors must not look equal for being of parts."""
MARKS = (*UNKNOWN, OF_PARTS, OTHER_PARTS)
"""The placeholders of a digest, one after the other."""


class Phase(LabelledEnum):
    """Part of the training step that dispatched an operation.

    PREPARE: before a forward pass. GRADIENTS: clipping, scaling and accumulation before the optimizer's step. AFTER:
    what follows the last optimizer, such as averaged copies. OTHER: unknown.
    """

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZER = 2
    OTHER = 3
    PREPARE = 4
    GRADIENTS = 5
    AFTER = 6


_NO_TEXTS = Texts.of({})


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of a log that could not be read; the rest is intact. `line` is 1-based."""

    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Header:
    """The content of the log's header.

    `declared` is the number of records it announces (None: not stated), `run` the run info of our own capture (empty
    for torchtitan's logs), `lines` the header verbatim.
    """

    declared: int | None = None
    excluded: tuple[str, ...] = ()
    format: str | None = None
    run: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()

    @property
    def tool(self) -> str | None:
        """The format, of a log that was converted the one that it had."""
        imported = self.run.get("imported")
        return imported if isinstance(imported, str) else self.format

    @property
    def incomplete(self) -> str:
        """The capture's reason for not finishing the step; empty if it finished."""
        return str(self.run.get("incomplete") or "")


@columns
class Folding:
    """The reading of a log as if it had one micro-batch (`matchers.ops.micro_batches`).

    Attributes:
        raw: the log as it was written.
        batches: number of its micro-batches.
        into: int64[n], the record that stands for this one and those of the other micro-batches; -1 for all others.
        terms: bool[n], the result is a term of each micro-batch (a mean loss), whose whole the log does not have.
        by_part: bool[n], the result depends on how the batch is divided: statistics of a batch, random numbers.
    """

    raw: OpLog
    batches: int
    into: Int64
    terms: Bool
    by_part: Bool


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Ranks of a run that its virtual log (`matchers.runs.layouts`) lacks, or of which it shows a part.

    Attributes:
        ranks: ascending.
        name: the same in words: `rank 1`, `ranks 1–3`.
        operations: number of operations in their logs.
        why: a clause for one rank and for several: `could not be merged`.
        note: what that means, as the end of a sentence; empty if the clause says all.
        helps: what would settle it, an imperative; empty if nothing is known to.
        layout: no log of global tensors shows what the ranks compute for each other, so that a difference need not be
            one.
    """

    ranks: tuple[int, ...]
    name: str
    operations: int
    why: str
    note: str = ""
    helps: str = ""
    layout: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class OpLog:
    """The columns of one log: n rows, in file order.

    Attributes:
        path: source of the log, for messages.
        keys: operation keys as printed in the log (they may repeat).
        module, op, shape, dtype, location: int64[n], indices into the tables of the plural name. (As int32, they would
            be converted wherever they index.)
        counter: int32[n], the N of `op_N_name`; -1 when the key has none.
        phase: int8[n] of `Phase`.
        present: uint8[n], the statistics that a record has; bit k is `STATISTICS[k]`.
        stats: float64[5, n], rows as in `STATISTICS`.
        outputs, inputs: L1 norms ("hashes") of every output, and of every input before the op ran.
        producers: for each input position the row that produced it; -1 when the log names none, -2 when it names an
            operation that is not in this log (before this row).
        line: int32[n], 1-based line of the record, for `path:line`.
        digests: uint64 per output, from our own capture (empty rows otherwise); `NO_DIGEST` where unknown.
        input_digests: the same for the inputs.
        counts: int64[4, n], rows as in `COUNTS`, of the first output; where counts exist, the statistics cover only the
            finite values.
        recompute: bool[n], the log marks the record as a recomputation by activation checkpointing.
        micro_batch: int32[n].
        extra: further fields of our superset, verbatim: field name -> {row: text}; see `texts`.
        problems: the first 1,000 unreadable places; `problem_count` counts all.
        complete: False when the log is known to be cut off, None when the format cannot tell.
        partial: only the head of the file was read (the explorer's first screen).
        stated_digest: the digest over all records in the footer of our own capture; empty without one.
        members: the logs that were merged, by rank (`matchers.runs.layouts`); empty for the log of one rank.
        left_out: ranks of the run that were not merged; of the log of one rank by itself none.
        content: SHA-256 of the file as it was read; empty if it was not taken.
        rows_kept: records whose numbers are those of some rows, by output; of one that is missing, none are known.
        rows_compared: which rows that are, in words; empty where all are compared.
        rows_told: number of results of which each index of rows of a, and of b, tells the common rows.
        held_once: number of records whose result the log holds several times over, and the other log once.
        folding: set where the numbers are those of all micro-batches together.
    """

    path: str
    header: Header
    keys: KeyColumn
    modules: Strings
    module: Int64
    ops: Strings
    op: Int64
    counter: Int32
    shapes: Strings
    shape: Int64
    dtypes: Strings
    dtype: Int64
    locations: Strings
    location: Int64
    phase: NDArray[np.int8]
    present: NDArray[np.uint8]
    stats: Float64
    outputs: Ragged
    inputs: Ragged
    producers: Ragged
    line: Int32
    digests: Ragged
    input_digests: Ragged
    counts: Int64
    recompute: Bool
    micro_batch: Int32
    extra: Mapping[str, Texts]
    problems: tuple[Problem, ...] = ()
    problem_count: int = 0
    complete: bool | None = None
    partial: bool = False
    stated_digest: str = ""
    content: str = ""
    members: Mapping[int, str] = field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()
    rows_kept: Mapping[int, Mapping[int, Int64]] = field(default_factory=dict)
    rows_compared: str = ""
    rows_told: Mapping[tuple[str, str], int] = field(default_factory=dict)
    held_once: int = 0
    folding: Folding | None = None

    def __len__(self) -> int:
        return len(self.module)

    @property
    def tells(self) -> Tells:
        form = self.header.tool
        return NUMBERS_ALONE if form is None else IMPORTED.get(form, EVERYTHING)

    @property
    def batches(self) -> int:
        """Number of micro-batches that are read as one; 1 for a log as it was written."""
        return 1 if self.folding is None else self.folding.batches

    @property
    def joined(self) -> Int64:
        """int64[n], the record that stands for this one and those of other micro-batches; -1 for all others."""
        return np.full(len(self), -1) if self.folding is None else self.folding.into

    @property
    def written(self) -> OpLog:
        """The log as it was written, each record with the numbers of its own micro-batch."""
        return self if self.folding is None else self.folding.raw

    @property
    def updates(self) -> NDArray[np.bool_]:
        """bool[n]: records of the phases that change parameters and states: gradients, optimizer, after."""
        return one_of(self.phase, (Phase.GRADIENTS, Phase.OPTIMIZER, Phase.AFTER))

    def texts(self, field: str) -> Texts:
        """One field of `extra`; empty if no record has it."""
        return self.extra.get(field, _NO_TEXTS)

    def module_name(self, row: int) -> str:
        return self.modules[int(self.module[row])]

    def op_name(self, row: int) -> str:
        return self.ops[int(self.op[row])]

    def shape_text(self, row: int) -> str:
        """`[256, 256]`; empty for operations that return nothing."""
        return self.shapes[int(self.shape[row])]

    def dtype_text(self, row: int) -> str:
        """`float32`, without the `torch.` prefix."""
        return self.dtypes[int(self.dtype[row])]

    def location_text(self, row: int) -> str:
        return self.locations[int(self.location[row])]

    def fingerprints(self, column: str) -> Hash:
        """uint64[n]: hashes of the lists of a column (`digests`, `inputs`, …), in their order; kept with the log."""
        kept: dict[str, Hash] = vars(self).setdefault("_fingerprints", {})
        if column not in kept:
            kept[column] = fingerprint(getattr(self, column))
            kept[column].flags.writeable = False
        return kept[column]


def is_mark(digests: Hash) -> Bool:
    """bool: digests that are placeholders."""
    return np.asarray(digests - MARKS[0] < len(MARKS))


def once_per_log(function: Callable[[OpLog], _Made]) -> Callable[[OpLog], _Made]:
    """Keep what a function makes of a log's columns with the log: columns, or an array, which cannot be written to."""
    name = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def kept(log: OpLog) -> _Made:
        held = vars(log)
        if name not in held:
            made = function(log)
            if isinstance(made, np.ndarray):
                made.flags.writeable = False
            held[name] = made
        return held[name]

    return kept


def once_per_pair(function: Callable[[_One, _Other], _Of]) -> Callable[[_One, _Other], _Of]:
    """Keep what a function makes of a log, say, and something else with the log, for one of the others at a time."""
    name = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def kept(one: _One, other: _Other) -> _Of:
        held: tuple[_Other, _Of] | None = vars(one).get(name)
        if held is None or held[0] is not other:
            held = vars(one)[name] = other, function(one, other)
        return held[1]

    return kept
