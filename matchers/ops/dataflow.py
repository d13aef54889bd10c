"""Which record made the value that another one reads.

The log names producers only where no view or cast came between. Where it names none, the value itself tells: the last
operation before whose output has the same printed norm. That is an inference, and good enough to follow a divergence;
it is never used to call two rows equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from matchers.arrays import Bool, Float64, Int64
from matchers.logs.columns import Ragged
from matchers.logs.hashing import float_bits
from matchers.logs.op_log import OpLog
from matchers.ops.collectives import awaiting, unfinished

__all__ = ["DataFlow", "Readers", "consumers", "sources"]


def sources(log: OpLog) -> Ragged:
    """For every input hash of every row the record that made it, -1 where nothing in the log did.

    Positions are those of `log.inputs`. Producers that the log names count where their list is as long as that of the
    hashes; everything else is inferred from the values.
    """
    inputs = log.inputs
    out = np.full(len(inputs.value), -1, np.int64)
    owner = inputs.row
    same_length = inputs.count == log.producers.count
    if same_length.any() and len(log.producers.value):
        hash_at = np.flatnonzero(same_length[owner])
        named_at = np.flatnonzero(same_length[log.producers.row])
        out[hash_at] = log.producers.value[named_at]
    unknown = np.flatnonzero((out < 0) & np.isfinite(inputs.value) & (inputs.value != 0))
    out[out < 0] = -1
    if len(unknown) and len(log.outputs.value):
        # what a collective had in its buffer before it was done is nobody's value, but for the wait for it
        early = unfinished(log)
        out[unknown] = _last_with_value(log, inputs.value[unknown], owner[unknown], ~early)
        waiting = unknown[(out[unknown] < 0) & awaiting(log)[owner[unknown]]]
        out[waiting] = _last_with_value(log, inputs.value[waiting], owner[waiting], early)
    return Ragged(inputs.start, out)


def _last_with_value(log: OpLog, value: Float64, before: Int64, among: Bool) -> Int64:
    """The last row before each `before`, among some rows (bool[n]), that has an output of this norm, -1 for none."""
    listed = among[log.outputs.row]
    made, maker = float_bits(log.outputs.value[listed]), log.outputs.row[listed]
    if not len(made):
        return np.full(len(value), -1, np.int64)
    distinct, code = np.unique(made, return_inverse=True)
    span = np.int64(len(log) + 1)
    place = np.sort(code * span + maker)
    wanted = float_bits(value)
    # in ascending order a search finds its surroundings in the cache
    order = np.argsort(wanted)
    wanted, before = wanted[order], before[order]
    at = np.minimum(np.searchsorted(distinct, wanted), len(distinct) - 1)
    known = distinct[at] == wanted
    found = np.searchsorted(place, at * span + before) - 1
    hit = known & (found >= 0) & (place[np.maximum(found, 0)] // span == at)
    maker_of = np.empty(len(value), np.int64)
    maker_of[order] = np.where(hit, place[np.maximum(found, 0)] % span, -1)
    return maker_of


def consumers(log: OpLog, record: int, flow: Ragged | None = None) -> list[int]:
    """The records that read what `record` made, in order."""
    flow = flow if flow is not None else sources(log)
    return sorted(set(flow.row[flow.value == record].tolist()))


class DataFlow:
    """The data flow of both logs, computed when first asked for."""

    def __init__(self, a: OpLog, b: OpLog) -> None:
        self._logs = a, b

    @cached_property
    def a(self) -> Ragged:
        return sources(self._logs[0])

    @cached_property
    def b(self) -> Ragged:
        return sources(self._logs[1])

    @cached_property
    def readers_a(self) -> Readers:
        return Readers.of(self.a)

    @cached_property
    def readers_b(self) -> Readers:
        return Readers.of(self.b)


@dataclass(frozen=True, slots=True)
class Readers:
    """Who reads what each of n records made.

    Attributes:
        none: bool[n + 1], nobody does. The last entry is about no record, and True.
        only: int64[n + 1], the one record that does; n where there is none, or several.
    """

    none: Bool
    only: Int64

    @classmethod
    def of(cls, flow: Ragged) -> Readers:
        """The readers in a data flow."""
        n = len(flow)
        known = flow.value >= 0
        reader, maker = flow.row[known].astype(np.int64), flow.value[known]
        # readers ascend: the last one that is written stays
        first, last = np.full(n + 1, n, np.int64), np.full(n + 1, -1, np.int64)
        first[maker[::-1]], last[maker] = reader[::-1], reader
        return cls(last < 0, np.where(first == last, first, n))
