"""Data flow: the record that produced each input value.

The log names producers only if no view or cast came between. Otherwise the value identifies its producer: the last
earlier operation whose output has the same printed norm. This inference is good enough to follow a divergence, and is
never used to call two rows equal.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TypeVar

import numpy as np

from matchers.arrays import Bool, Float64, Hash, Int32, Int64, columns, marked, stable_order
from matchers.graph import spread
from matchers.laws.register import law
from matchers.logs.columns import Ragged
from matchers.logs.hashing import float_bits, mix
from matchers.logs.op_log import NO_DIGEST, OpLog, once_per_log
from matchers.ops.collectives import awaiting, unfinished
from matchers.ops.json_values import hex_digest
from matchers.ops.laws import by_law, in_place, on_lists, rows_where
from matchers.ops.placement import REDUCED, merged_records
from matchers.ops.start import known_digests
from matchers.ops.values import further

__all__ = [
    "WHOLE",
    "DataFlow",
    "Readers",
    "consumers",
    "decided_by_floats",
    "downstream",
    "fed_by",
    "read_by_shape",
    "sources",
    "upstream",
    "values_read",
    "whole_numbers",
]


_Marks = TypeVar("_Marks", Bool, Hash)
WHOLE = ("int", "uint", "bool")
"""Beginnings of the names of dtypes of whole numbers."""


def whole_numbers(log: OpLog) -> Bool:
    """bool[n]: records whose first output holds whole numbers; False where no dtype is known."""
    return np.array([name.startswith(WHOLE) for name in log.dtypes] + [False])[log.dtype]


@once_per_log
def decided_by_floats(log: OpLog) -> Bool:
    """bool[n]: records of whole numbers that other numbers decide, as scores do which are the largest."""
    whole = whole_numbers(log)
    return whole & fed_by(sources(log), ~whole, whole)


@once_per_log
def sources(log: OpLog) -> Ragged:
    """The record that produced each input hash of each row, -1 if none in the log did.

    Positions are those of `log.inputs`. Named producers count if their list is as long as that of the hashes;
    everything else is inferred from the values.
    """
    inputs = log.inputs
    out = np.full(len(inputs.value), -1, np.int64)
    owner = inputs.row
    same_length = inputs.count == log.producers.count
    if same_length.any() and len(log.producers.value):
        hash_at = np.flatnonzero(same_length[owner])
        named_at = np.flatnonzero(same_length[log.producers.row])
        out[hash_at] = log.producers.value[named_at]
    _chain_writes(log, out)
    unknown = np.flatnonzero((out < 0) & np.isfinite(inputs.value) & (inputs.value != 0))
    unknown = unknown[~_named(log, unknown)]
    out[out < 0] = -1
    if len(unknown) and len(log.outputs.value):
        # only its wait can read the buffer of an unfinished collective
        early = unfinished(log)
        # of several micro-batches that are read as one, the records of the last one stand for all
        found = _last_with_value(log, inputs.value[unknown], owner[unknown], ~early & (log.joined < 0))
        out[unknown] = np.where(_other_whole_numbers(log, unknown, owner[unknown], found), -1, found)
        waiting = unknown[(out[unknown] < 0) & awaiting(log)[owner[unknown]]]
        out[waiting] = _last_with_value(log, inputs.value[waiting], owner[waiting], early)
    return inputs.with_values(out)


def _chain_writes(log: OpLog, makers: Int64) -> None:
    """Let what is written over a part of a tensor follow what wrote before it, whose maker alone the log names.

    Args:
        makers: int64, of all inputs; changed in place. Of what is written over, no norm is known.
    """
    rows = np.flatnonzero(in_place(log) & ~on_lists(log) & (log.inputs.count > 0))
    # totals of many gradients read one collective, each its own part of it
    rows = rows[~marked(merged_records(log, REDUCED), len(log))[rows]]
    at = log.inputs.start[rows]
    over = np.isnan(log.inputs.value[at]) & (makers[at] >= 0)
    rows, at = rows[over], at[over]
    order = stable_order(makers[at])
    again = np.flatnonzero(np.diff(makers[at[order]]) == 0)
    makers[at[order[again + 1]]] = rows[order[again]]


@once_per_log
def values_read(log: OpLog) -> Int64:
    """int64, the value that each input is: a record for its first output, n + the row of `further`; -1 if unknown.

    Of a record's values by the digest, else by the L1 norm.
    """
    values, flow, n = further(log), sources(log), len(log)
    many = log.outputs.count > 1
    many[values.maker] = True
    out = np.where(many[flow.value], -1, flow.value)
    left = np.flatnonzero((flow.value >= 0) & many[flow.value])
    rows = np.flatnonzero(many)
    maker, of = np.append(rows, values.maker), np.append(rows, n + np.arange(len(values)))
    made = [
        (float_bits(log.inputs.value), float_bits(np.append(log.outputs.first(rows), values.l1))),
    ]
    if np.array_equal(log.inputs.start, log.input_digests.start):
        made.append((log.input_digests.value, np.append(log.digests.first(rows, NO_DIGEST), values.digest)))
    for read, bits in made:  # a digest tells more
        known = bits != NO_DIGEST
        keys = mix(bits[known] ^ mix(maker[known].astype(np.uint64)))
        order = stable_order(keys)
        wanted = mix(read[left] ^ mix(flow.value[left].astype(np.uint64)))
        if not len(keys):
            continue
        at = order[np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)]
        hit = keys[at] == wanted
        out[left[hit]] = of[known][at[hit]]
    return out


@once_per_log
def read_by_shape(log: OpLog) -> Bool:
    """Bool of all inputs, in the order of `log.inputs`: no element of it decides the result, its shape at most."""
    place = np.arange(len(log.inputs.value)) - log.inputs.start[log.inputs.row]
    most = 1 + max((at for name in log.ops for at in law(name).shapes), default=-1)
    known = np.zeros((len(log.ops) + 1, most + 1), bool)
    for k, name in enumerate(log.ops):
        known[k, list(law(name).shapes)] = True
        known[k] |= law(name).blind
    return np.asarray(known[log.op[log.inputs.row], np.minimum(place, most)])


def _named(log: OpLog, at: Int64) -> Bool:
    """For some inputs (places among all), whether they are parameters, buffers or states by their names.

    Whatever wrote such a tensor had named it, too. A gradient is named where it is read, by the optimizer alone.
    """
    texts, owner = log.texts("Parameter"), log.inputs.row[at]
    named = np.zeros(len(at), bool)
    by_row: dict[int, list[str]] = {}
    for k in np.flatnonzero(np.isin(owner, list(texts))).tolist():
        row = int(owner[k])
        names = by_row.get(row)
        if names is None:
            names = by_row[row] = texts[row].split(";")
        slot = int(at[k] - log.inputs.start[row])
        named[k] = slot < len(names) and bool(names[slot]) and not names[slot].endswith(".grad")
    return named


def _other_whole_numbers(log: OpLog, at: Int64, owner: Int64, maker: Int64) -> Bool:
    """Per input of a row (at its place among all) and maker: it holds whole numbers, but not those of that result.

    The same tokens in another order have the same norm, and perhaps a sum of other numbers.
    """
    tokens = by_law(log, owner, lambda law: math.nan if law.tokens is None else law.tokens)
    rounds = ~whole_numbers(log) & (log.dtype >= 0)
    other = (maker >= 0) & (at - log.inputs.start[owner] == tokens) & rounds[maker]
    if np.array_equal(log.inputs.start, log.input_digests.start) and len(log.digests.value):
        whole = (maker >= 0) & (whole_numbers(log) & (log.digests.count == 1))[maker]
        read, made = log.input_digests.value[at], log.digests.first(maker, NO_DIGEST)
        other |= whole & (read != made) & (read != NO_DIGEST) & (made != NO_DIGEST)
    return other


def _last_with_value(log: OpLog, value: Float64, before: Int64, among: Bool) -> Int64:
    """The last row before each `before` with an output of this norm, among some rows (bool[n]); -1 for none."""
    maker = log.outputs.row
    listed = among[maker]
    made, maker = float_bits(log.outputs.value[listed]), maker[listed]
    if not len(made):
        return np.full(len(value), -1, np.int64)
    order = stable_order(made)
    made, maker = made[order], maker[order]
    new = np.concatenate(([True], made[1:] != made[:-1]))
    distinct, span = made[new], np.int64(len(log) + 1)
    place = (np.cumsum(new) - 1) * span + maker
    place.sort()
    wanted = float_bits(value)
    # ascending order keeps the binary search in cache
    order = stable_order(wanted)
    wanted, before = wanted[order], before[order]
    at = np.minimum(np.searchsorted(distinct, wanted), len(distinct) - 1)
    known = distinct[at] == wanted
    found = np.searchsorted(place, at * span + before) - 1
    hit = known & (found >= 0) & (place[np.maximum(found, 0)] // span == at)
    maker_of = np.empty(len(value), np.int64)
    maker_of[order] = np.where(hit, place[np.maximum(found, 0)] % span, -1)
    return maker_of


def consumers(log: OpLog, record: int, flow: Ragged | None = None) -> list[int]:
    """The records that read the outputs of `record`, in order."""
    flow = flow if flow is not None else sources(log)
    return sorted(set(flow.row[flow.value == record].tolist()))


def upstream(flow: Ragged, start: Bool | Int64 | Int32 | list[int], through: Bool) -> Bool:
    """bool[n]: the records of a set, and those whose results reach one of them.

    Args:
        start: the set, as bool[n] or by its rows.
        through: bool[n], records that hand on what they read, those of the set included.
    """
    return spread(flow.start, flow.value, marked(start, len(through)), through, back=True)


def downstream(flow: Ragged, start: _Marks, through: Bool) -> _Marks:
    """The marks of n nodes, and of those that read a result of a marked one: bool, or the bits of a word.

    Args:
        start: [n], the marks.
        through: bool[n], nodes that hand on what they read; others that are marked begin only.
    """
    return spread(flow.start, flow.value, start, through)


def fed_by(flow: Ragged, start: Bool | Int64 | Int32 | list[int], through: Bool) -> Bool:
    """bool[n]: nodes that read a result of a set, directly or over others; arguments as of `upstream`."""
    reached = np.append(downstream(flow, marked(start, len(through)), through), False)
    return marked(flow.row[reached[flow.value]], len(through))


def _depending(log: OpLog, flow: Ragged) -> Bool:
    given = flow.value < 0
    if np.array_equal(log.input_digests.start, flow.start):
        found = map(hex_digest, known_digests(log.header.run, "buffer_digests").values())
        buffers = [digest for digest in found if digest is not None]
        given &= ~np.isin(log.input_digests.value, np.array(buffers, np.uint64))
    every = np.ones(len(flow), bool)
    return spread(flow.start, flow.value, marked(flow.row[given], len(flow)), every, rounds=len(flow))


class DataFlow:
    """The data flow of both logs, computed on first use."""

    def __init__(self, a: OpLog, b: OpLog) -> None:
        self.logs = a, b

    @cached_property
    def a(self) -> Ragged:
        return sources(self.logs[0])

    @cached_property
    def b(self) -> Ragged:
        return sources(self.logs[1])

    def exchanged(self, i: Int64, j: Int64, of_a: Int64, of_b: Int64) -> Bool:
        """bool[k]: b's records read the two tensors of a sum or product in the other order, by who made them.

        Args:
            i, j: int64[k], partners.
            of_a, of_b: the pair of each record; -1 for none.
        """
        a, b = self.logs
        out = (self.a.count[i] == 2) & (self.b.count[j] == 2)
        out[out] &= rows_where(a, lambda law: law.commutes, i[out]) & rows_where(b, lambda law: law.commutes, j[out])
        at = np.flatnonzero(out)
        one, other = (
            [np.append(of, -1)[flow.at(rows[at], np.full(len(at), k), -1)] for k in (0, 1)]
            for flow, rows, of in ((self.a, i, of_a), (self.b, j, of_b))
        )

        def partners(x: int, y: int) -> Bool:
            return (one[x] >= 0) & (one[x] == other[y])

        out[at] = (partners(0, 1) | partners(1, 0)) & ~partners(0, 0) & ~partners(1, 1)
        return out

    @cached_property
    def depends_a(self) -> Bool:
        """bool[n_a]: records that read what no operation made and is no buffer, or what such a record made."""
        return _depending(self.logs[0], self.a)

    @cached_property
    def depends_b(self) -> Bool:
        return _depending(self.logs[1], self.b)

    @cached_property
    def readers_a(self) -> Readers:
        return Readers.of(self.a)

    @cached_property
    def readers_b(self) -> Readers:
        return Readers.of(self.b)


@columns
class Readers:
    """The consumers of each of n records, as far as the verdicts need them.

    Attributes:
        none: bool[n + 1], the record has no consumer. The last entry stands for "no record" and is True.
        only: int64[n + 1], the single consumer; n if there is none, or several.
    """

    none: Bool
    only: Int64

    @classmethod
    def of(cls, flow: Ragged) -> Readers:
        """The readers in a data flow."""
        n = len(flow)
        known = flow.value >= 0
        reader, maker = flow.row[known].astype(np.int64), flow.value[known]
        # readers ascend: the last one written stays
        first, last = np.full(n + 1, n, np.int64), np.full(n + 1, -1, np.int64)
        first[maker[::-1]], last[maker] = reader[::-1], reader
        return cls(last < 0, np.where(first == last, first, n))
