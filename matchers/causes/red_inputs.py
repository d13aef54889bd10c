"""The inputs of red pairs: the rows that made them in each run, and what is known of their difference."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from matchers.arrays import Bool, Hash, Int64, columns, marked, marked_at
from matchers.logs.columns import Ragged, repeated
from matchers.logs.op_log import NO_DIGEST, OpLog
from matchers.ops.dataflow import downstream
from matchers.ops.input_statistics import statistics_apart
from matchers.ops.laws import on_lists
from matchers.ops.module_path import canonical
from matchers.ops.shapes import numel
from matchers.ops.values import parameter_names
from matchers.rows import Rows
from matchers.status import Status
from matchers.verdict.relative_error import relative
from matchers.verdict.tolerance import EXTREMES

__all__ = ["Inputs", "fed_pairs", "flow_of_red_tensors", "inputs_of_pairs"]


def flow_of_red_tensors(c: Rows, side: str, flow: Ragged) -> Ragged:
    """The data flow of a log, of a red operation on lists only that of the tensor which differs most.

    Where there is none, it is the flow that was given.
    """
    (log, records), makers = c.side(side), flow.value
    lists = on_lists(log)
    for row, slot in c.slots.items():
        record = int(records[row])
        if c.pair[row] < 0 or not lists[record] or c.verdict[row] < Status.SHAPE:
            continue
        start, end = flow.start[record : record + 2].tolist()
        names = list(map(canonical, parameter_names(log, record, end - start)))
        _, _, number = slot.name.partition("output ")
        which = [place for place, name in enumerate(names) if name == slot.name or str(place) == number]
        if which:
            makers = makers.copy() if makers is flow.value else makers
            tensors = max(len(log.outputs[record]), 1)
            makers[start:end][np.arange(end - start) % tensors != which[0] % tensors] = -1
    return flow if makers is flow.value else flow.with_values(makers)


@columns
class Inputs:
    """The inputs of red pairs, one entry each: the row that reads it, and the rows that made it in each run, or -1.

    `equal`: bitwise equal, or an argument that the other run passes as a plain number. `hidden`: different bits,
    although the outputs of the producers are equal. `broken`: bitwise equal without a finite number, not in the first
    red row. `other_bits`: by the digests of both.
    """

    row: Int64
    a: Int64
    b: Int64
    differs: Bool
    unhashed: Bool
    equal: Bool
    hidden: Bool
    broken: Bool
    other_bits: Bool


def fed_pairs(c: Rows, flow_a: Ragged, flow_b: Ragged, rows: Int64, handed_a: Bool, handed_b: Bool) -> Bool:
    """bool[k]: of some rows with pairs those that read another value at a place where either run has one of some rows.

    `inputs_of_pairs` tells it, too, in more time.

    Args:
        handed_a, handed_b: bool[r], by run, the rows.
    """
    found = np.zeros(len(rows), bool)
    single = np.flatnonzero(~c.pairing.assembled[c.pair[rows]])
    owner, place, one, other = _common_inputs(c, rows[single])
    handed = marked_at(handed_a[c.at_a], flow_a.value[one[2]]) | marked_at(handed_b[c.at_b], flow_b.value[other[2]])
    if all(len(log.input_digests.value) for log in (c.a, c.b)):
        handed &= ~_by_digest(_digests(*one, place), _digests(*other, place))[1]
    found[single[owner[handed]]] = True
    return found


_Side = tuple[OpLog, Int64, Int64]
"""A log, and of some inputs the records that read them and their places among all inputs of the log."""


def _common_inputs(c: Rows, rows: Int64) -> tuple[Int64, Int64, _Side, _Side]:
    """Inputs at places that both records of some rows have: the row's number, the input's place, and both sides."""
    a, b = c.a, c.b
    i, j = c.row_a[rows], c.row_b[rows]
    owner, place = repeated(np.arange(len(rows)), np.minimum(a.inputs.count[i], b.inputs.count[j]))
    i, j = i[owner], j[owner]
    return owner, place, (a, i, a.inputs.start[i] + place), (b, j, b.inputs.start[j] + place)


def inputs_of_pairs(c: Rows, flow_a: Ragged, flow_b: Ragged, rows: Int64, first: int) -> Inputs:
    """The inputs of some rows with pairs, ascending; `first` is the first red row.

    Position by position for pairs of single records; each on its own for groups, whose sides list different inputs.
    Of micro-batches that are read as one, those of the last one, and what an operation without a partner gives others.
    """
    grouped = c.pairing.assembled[c.pair[rows]]
    parts = [_single_inputs(c, flow_a, flow_b, rows[~grouped], first)]
    sides = (("a", flow_a, c.at_a), ("b", flow_b, c.at_b))
    parts += [_of_other_batches(c, *of, rows[~grouped]) for of in sides if c.side(of[0])[0].folding is not None]
    of_group = marked(rows[grouped], len(c))
    for side, flow, at in sides if grouped.any() else ():
        reader, maker = at[flow.row], _at(at, flow.value)
        inside = of_group[reader]
        row, maker = reader[inside], maker[inside]
        maker = np.where(maker == row, -1, maker)  # internal to the group
        none, no = np.full(len(row), -1, np.int64), np.zeros(len(row), bool)
        made_a, made_b = (maker, none) if side == "a" else (none, maker)
        parts.append(Inputs(row, made_a, made_b, no, no, no, no, no, no))
    return Inputs(*(np.concatenate([getattr(p, column.name) for p in parts]) for column in fields(Inputs)))


def _at(at: Int64, records: Int64) -> Int64:
    """The rows of some records; -1 for none."""
    return np.append(at, -1)[records]


def _single_inputs(c: Rows, flow_a: Ragged, flow_b: Ragged, rows: Int64, first: int) -> Inputs:
    """Inputs position by position, as far as both sides have them; `first` is the first red row."""
    a, b = c.a, c.b
    i, j = c.row_a[rows], c.row_b[rows]
    count_a, count_b = a.inputs.count[i], b.inputs.count[j]
    owner, place, *sides = _common_inputs(c, rows)
    (_, _, at_a), (_, _, at_b) = sides
    value_a, value_b = a.inputs.value[at_a], b.inputs.value[at_b]
    row, made_a, made_b = rows[owner], _at(c.at_a, flow_a.value[at_a]), _at(c.at_b, flow_b.value[at_b])
    later = row > first
    with np.errstate(invalid="ignore"):
        differs = relative(value_a, value_b) > np.where(later, 0.0, c.tolerance[row])
    # numbers that see what the norms do not: a sign
    told, other = statistics_apart(a, b, i[owner], j[owner], place)
    differs |= (told > np.where(later, 0.0, EXTREMES * c.tolerance[row])) | (other & (later | (c.tolerance[row] == 0)))
    digests = [_digests(*side, place) for side in sides]
    # a norm that one log alone has says nothing of what partners made, if the other does not tell the bits either
    untold_a, untold_b = (
        np.isnan(value) & (digest == NO_DIGEST) & bool(len(log.input_digests.value)) & (made_a == made_b)
        for value, (digest, _), log in zip((value_a, value_b), digests, (a, b), strict=True)
    )
    differs |= (np.isnan(value_a) != np.isnan(value_b)) & ~untold_a & ~untold_b
    unhashed = np.isnan(value_a) & np.isnan(value_b)
    known, equal = _by_digest(*digests)
    hidden = known & ~equal & (made_a == made_b) & marked_at(c.verdict == Status.EQUAL, made_a)
    # the error of a tensor without a recorded producer is unknown: its norm may well be the same, as that of another
    paired = c.pair >= 0
    another = (made_a != made_b) & marked_at(paired, made_a) & marked_at(paired, made_b)
    given = (made_a < 0) & (made_b < 0)
    differs = np.where(known, ~equal & (differs | later | hidden | given | another), differs & ~equal)
    # inputs that only one side has; one from an operation of that side alone may be the whole difference
    most, fewer = np.maximum(count_a, count_b), np.minimum(count_a, count_b)
    uneven = np.flatnonzero(most > fewer)
    extra, beyond = repeated(uneven, (most - fewer)[uneven])
    beyond += fewer[extra]
    longer_a = (count_a > count_b)[extra]
    only_a, only_b = np.full((2, len(extra)), -1, np.int64)
    only_a[longer_a] = _at(c.at_a, flow_a.value[a.inputs.start[i[extra[longer_a]]] + beyond[longer_a]])
    only_b[~longer_a] = _at(c.at_b, flow_b.value[b.inputs.start[j[extra[~longer_a]]] + beyond[~longer_a]])
    only = np.maximum(only_a, only_b)
    alone = marked_at(c.pair < 0, only)
    number = marked_at(_numbers(c), only) if alone.any() else alone
    no = np.zeros(len(extra), bool)
    return Inputs(
        np.concatenate((row, rows[extra])),
        np.concatenate((made_a, only_a)),
        np.concatenate((made_b, only_b)),
        np.concatenate((differs, alone & ~number)),
        np.concatenate((unhashed & ~known & ~equal, no)),
        np.concatenate((equal, number)),
        np.concatenate((hidden, no)),
        np.concatenate((unhashed & known & equal & later, no)),
        np.concatenate((known & ~equal, no)),
    )


def _of_other_batches(c: Rows, side: str, flow: Ragged, at: Int64, rows: Int64) -> Inputs:
    """Results of operations of one run alone that other micro-batches of some rows read than the last one.

    The other run reads in its place what the last one reads.
    """
    log, _ = c.side(side)
    maker, last = _at(at, flow.value), np.append(log.joined, -1)
    other = (last[flow.row] >= 0) & (last[flow.value] < 0) & marked_at(c.pair < 0, maker)
    edge = np.flatnonzero(other & marked(rows, len(c))[at[flow.row]])
    reader = flow.row[edge]
    instead = _at(at, flow.at(last[reader], edge - flow.start[reader], -1))
    edge, instead = edge[instead != maker[edge]], instead[instead != maker[edge]]
    no = np.zeros(len(edge), bool)
    made = (maker[edge], instead) if side == "a" else (instead, maker[edge])
    return Inputs(at[flow.row[edge]], *made, no, no, no, no, no, no)


def _digests(log: OpLog, record: Int64, at: Int64, place: Int64) -> tuple[Hash, Bool]:
    """The digests of some inputs, at their places among all and in their records, and whether the log lists them."""
    of = log.input_digests
    if not len(of.value):
        return np.full(len(at), NO_DIGEST), np.zeros(len(at), bool)
    if np.array_equal(of.start, log.inputs.start):
        return of.value[at], np.ones(len(at), bool)
    return of.at(record, place, NO_DIGEST), place < of.count[record]


def _by_digest(a: tuple[Hash, Bool], b: tuple[Hash, Bool]) -> tuple[Bool, Bool]:
    """(the digests of both are known, they are equal) for some inputs of a and of b.

    An input without digest in both logs was not read, and counts as equal.
    """
    (one, listed_a), (other, listed_b) = a, b
    return (one != NO_DIGEST) & (other != NO_DIGEST), listed_a & listed_b & (one == other)


def _numbers(c: Rows) -> Bool:
    """bool[r]: unpaired scalars that no tensor leads to: a compiler turns the numbers of a model into such tensors."""
    scalar = (c.pair < 0) & (c.by_row(lambda log: numel(log)[log.shape]) == 1)
    return ~downstream(c.edges, ~scalar, scalar)
