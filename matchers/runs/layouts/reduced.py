"""Gradients that ranks add up, as the additions with which one process accumulates them.

Where one process adds the gradient of each micro-batch to those before it, ranks reduce them: in buckets, over shards,
for many parameters at once. What comes of it is what the updates read that the log names, such as the norm for
clipping. So the last addition of the other run has a counterpart: the sum as the ranks go on with it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Int64
from matchers.logs.columns import KeyColumn, Ragged, Strings
from matchers.logs.op_log import NO_DIGEST, OpLog, Phase
from matchers.ops.dataflow import sources
from matchers.ops.last_contents import GRADIENT, LastContents, Touch
from matchers.ops.micro_batches import accumulations, micro_batch_numbers
from matchers.ops.module_path import canonical
from matchers.ops.outputs import Result
from matchers.ops.placement import MERGED

__all__ = ["ReducedGradients"]

_OP = b"add_"


class _Sum(NamedTuple):
    """The gradient of a parameter, summed over ranks.

    Attributes:
        term: the record of the last micro-batch with what it adds.
        content: as it is read after the reduction.
        like: the addition of the other run.
        readers: the updates that read it.
    """

    name: str
    term: int
    content: Result
    like: int
    readers: list[Touch]


class ReducedGradients:
    """The gradients that another run accumulates, and the ranks of this one reduce.

    Their sums are records of the joined log. Most are new: doubles of the terms, which become additions.
    """

    def __init__(self, other: OpLog, log: OpLog, rows: Int64, updates: OpLog) -> None:
        """`log`, `rows`: a rank, and its records of the last micro-batch; `updates`: with the updates of all ranks."""
        self._other, self._log, self._updates = other, log, updates
        self._last = rows
        self._sums = list(self._found())
        number = micro_batch_numbers(log)
        self._own = {term: row for row, _, term in accumulations(log, number, sources(log))}
        """The additions with which the rank itself accumulates."""

    def _found(self) -> Iterator[_Sum]:
        number, flow = micro_batch_numbers(self._other), sources(self._other)
        terms = {record: term for record, _, term in accumulations(self._other, number, flow)}
        places = _places(self._other, np.flatnonzero(number == number.max(initial=0)))
        here = {place: row for row, place in _places(self._log, self._last).items()}
        for name, touch in LastContents(self._other, tuple(self._other.modules)).first.items():
            record = int(flow[touch.row][touch.slot])
            place, readers = places.get(terms.get(record, -1)), self._readers.get(name)
            if place in here and readers:
                content = self._contents.before(readers[0])
                if math.isfinite(content.l1):
                    yield _Sum(name, here[place], content, record, readers)

    @cached_property
    def _contents(self) -> LastContents:
        return LastContents(self._updates, tuple(self._updates.modules))

    @cached_property
    def _readers(self) -> Mapping[str, list[Touch]]:
        """By the name of a gradient, the updates that read it as the passes left it: neither clipped nor scaled."""
        found: dict[str, list[Touch]] = defaultdict(list)
        made = self._updates.producers
        for row in self._contents.rows.tolist():
            for slot, name in enumerate(self._contents.names(row)):
                if name.endswith(GRADIENT) and slot < made.count[row]:
                    maker = int(made[row][slot])
                    if maker >= 0 and not self._updates.updates[maker]:
                        found[name].append(Touch(row, slot))
        return found

    @cached_property
    def rows(self) -> Int64:
        """The records of the last micro-batch, with the doubles."""
        doubled = [of.term for of in self._sums if of.term not in self._own]
        return np.sort(np.concatenate((self._last, np.array(doubled, np.int64))))

    def joined(self, log: OpLog, start: int, updates: Int64, ranks: int) -> OpLog:
        """The joined log with the sums.

        Args:
            start: of the last micro-batch in it; the updates, these records, follow.
            ranks: for the reader.
        """
        new = [of.term not in self._own for of in self._sums]
        at = [self._own.get(of.term, of.term) for of in self._sums]
        rows = start + np.searchsorted(self.rows, at) + np.array(new, np.int64)
        after = start + len(self.rows)
        log = _as_additions(log, rows[new])
        makers = log.producers.value.copy()
        for row, of in zip(rows.tolist(), self._sums, strict=True):
            for touch in of.readers:
                at_slot = log.producers.start[after + np.searchsorted(updates, touch.row)] + touch.slot
                reduced, makers[at_slot] = makers[at_slot], row
                if reduced < row:
                    makers[log.producers.start[row]] = reduced
        log = replace(log, producers=Ragged(log.producers.start, makers))
        return self._with_contents(log, rows, ranks)

    def _with_contents(self, log: OpLog, rows: Int64, ranks: int) -> OpLog:
        """The log in which some additions result in the sums; their form is that of the other log."""
        other, like = self._other, [of.like for of in self._sums]
        shapes, shape = _taken_over(log.shapes, log.shape, rows, other.shapes, other.shape[like])
        dtypes, dtype = _taken_over(log.dtypes, log.dtype, rows, other.dtypes, other.dtype[like])
        stats, present, counts = log.stats.copy(), log.present.copy(), log.counts.copy()
        stats[:, rows], present[rows], counts[:, rows] = np.nan, 0, -1
        outputs, digests = log.outputs.value.copy(), log.digests.value.copy()
        contents = [of.content for of in self._sums]
        outputs[log.outputs.start[rows]] = [of.l1 for of in contents]
        digests[log.digests.start[rows]] = [NO_DIGEST if of.digest is None else of.digest for of in contents]
        told = [f"{ranks} ranks, {of.name} reduced".encode() for of in self._sums]
        return replace(
            log,
            shapes=shapes,
            shape=shape,
            dtypes=dtypes,
            dtype=dtype,
            stats=stats,
            present=present,
            counts=counts,
            outputs=Ragged(log.outputs.start, outputs),
            digests=Ragged(log.digests.start, digests),
            extra={**log.extra, MERGED: log.texts(MERGED).changed(dict(zip(rows.tolist(), told, strict=True)))},
        )


def _places(log: OpLog, rows: Int64) -> dict[int, tuple[str, str, int]]:
    """The place of each record of the backward pass: its module, op, and number among those."""
    seen: dict[tuple[str, str], int] = defaultdict(int)
    out = {}
    for row in rows[log.phase[rows] == Phase.BACKWARD].tolist():
        kind = canonical(log.module_name(row)), log.op_name(row)
        out[row] = (*kind, seen[kind])
        seen[kind] += 1
    return out


def _as_additions(log: OpLog, rows: Int64) -> OpLog:
    """The log with additions in place of some records, which are doubles of those right before them: of the terms."""
    terms, ops = rows - 1, (*log.ops.raw, *(() if _OP in log.ops.raw else (_OP,)))
    op, counter, line = log.op.copy(), log.counter.copy(), log.line.copy()
    op[rows], counter[rows], line[rows] = ops.index(_OP), -1, 0
    keys = [log.keys.raw(row) for row in range(len(log))]
    for row in rows.tolist():
        keys[row] = log.modules.raw[log.module[row]] + b"/" + _OP
    none, unknown = np.full(len(rows), np.nan), np.full(len(rows), NO_DIGEST)
    return replace(
        log,
        keys=KeyColumn(b"".join(key + b"\n" for key in keys)),
        ops=Strings(ops),
        op=op,
        counter=counter,
        line=line,
        outputs=_with_lists(log.outputs, rows, none),
        digests=_with_lists(log.digests, rows, unknown),
        inputs=_with_lists(log.inputs, rows, none, log.outputs.first(terms)),
        input_digests=_with_lists(log.input_digests, rows, unknown, log.digests.first(terms, NO_DIGEST)),
        producers=_with_lists(log.producers, rows, np.full(len(rows), -1), terms),
        extra={name: texts.changed(dict.fromkeys(rows.tolist(), b"")) for name, texts in log.extra.items()},
    )


def _with_lists(lists: Ragged, rows: Int64, *values: NDArray[Any]) -> Ragged:
    """Lists, with other ones in some rows; `values`: the first of each, the second, …"""
    count = lists.count
    kept = np.ones(len(count), bool)
    kept[rows] = False
    taken = np.repeat(kept, count)
    count[rows] = len(values)
    start = np.concatenate(([0], np.cumsum(count)))
    out = np.empty(start[-1], lists.value.dtype)
    out[np.repeat(kept, count)] = lists.value[taken]
    for k, value in enumerate(values):
        out[start[rows] + k] = value
    return Ragged(start, out)


def _taken_over(
    table: Strings, column: NDArray[np.int32], rows: Int64, theirs: Strings, ids: NDArray[np.int32]
) -> tuple[Strings, NDArray[np.int32]]:
    """A table and its column, in some rows with entries of another table."""
    number = {raw: k for k, raw in enumerate(table.raw)}
    column = column.copy()
    column[rows] = [number.setdefault(theirs.raw[k], len(number)) for k in ids.tolist()]
    return Strings(tuple(number)), column
