"""The inputs of red pairs: their producers on both sides, and what is known of their difference."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from matchers.arrays import Bool, Int32, Int64, columns
from matchers.logs.columns import Ragged, repeated
from matchers.logs.op_log import NO_DIGEST, OpLog
from matchers.ops.laws import on_lists
from matchers.ops.module_path import canonical
from matchers.ops.shapes import numel
from matchers.ops.values import parameter_names
from matchers.pairing.pairing import Pairing
from matchers.status import Status
from matchers.verdict.judge import Verdicts
from matchers.verdict.relative_error import relative

__all__ = ["Inputs", "inputs_of_pairs", "is_alone", "marked", "marked_at", "of_red_tensors"]


def of_red_tensors(log: OpLog, flow: Ragged, lead: Int32, verdicts: Verdicts) -> Ragged:
    """The data flow, of a red operation on lists only that of the tensor which differs most.

    Args:
        lead: int32[p], the record of each pair.
    """
    lists, makers = on_lists(log), flow.value.copy()
    for k, slot in verdicts.slots.items():
        row = int(lead[k])
        if not lists[row] or verdicts.status[k] < Status.SHAPE:
            continue
        start, end = flow.start[row : row + 2].tolist()
        names = list(map(canonical, parameter_names(log, row, end - start)))
        _, _, number = slot.name.partition("output ")
        which = [place for place, name in enumerate(names) if name == slot.name or str(place) == number]
        if which:
            tensors = max(int(log.outputs.count[row]), 1)
            makers[start:end][np.arange(end - start) % tensors != which[0] % tensors] = -1
    return Ragged(flow.start, makers)


@columns
class Inputs:
    """The inputs of the red pairs, one entry each: the pair, and the producer on each side.

    `equal`: bitwise equal, or an argument that the other run passes as a plain number. `hidden`: different bits,
    although the outputs of the producers are equal. `broken`: bitwise equal without a finite number, not in the first
    red row.
    """

    pair: Int64
    maker_a: Int64
    maker_b: Int64
    differs: Bool
    unhashed: Bool
    equal: Bool
    hidden: Bool
    broken: Bool


def inputs_of_pairs(
    a: OpLog, b: OpLog, pairing: Pairing, verdicts: Verdicts, flow_a: Ragged, flow_b: Ragged, pairs: Int64
) -> Inputs:
    """The inputs of some pairs.

    Position by position for pairs of single rows; each on its own for groups, whose sides list different inputs.
    """
    grouped = pairing.assembled[pairs]
    single = _single_inputs(a, b, pairing, verdicts, flow_a, flow_b, pairs[~grouped], int(pairing.lead_a[pairs].min()))
    parts = [single]
    for of, flow, side in ((pairing.of_a, flow_a, "a"), (pairing.of_b, flow_b, "b")):
        pair_of = of[flow.row].astype(np.int64)
        inside = marked_at(marked(pairs[grouped], len(pairing)), pair_of)
        pair, maker = pair_of[inside], flow.value[inside]
        maker = np.where((maker >= 0) & (of[np.maximum(maker, 0)] == pair), -1, maker)  # internal to the group
        none, no = np.full(len(pair), -1, np.int64), np.zeros(len(pair), bool)
        maker_a, maker_b = (maker, none) if side == "a" else (none, maker)
        parts.append(Inputs(pair, maker_a, maker_b, no, no, no, no, no))
    return Inputs(*(np.concatenate([getattr(p, column.name) for p in parts]) for column in fields(Inputs)))


def _single_inputs(
    a: OpLog, b: OpLog, pairing: Pairing, verdicts: Verdicts, flow_a: Ragged, flow_b: Ragged, pairs: Int64, first: int
) -> Inputs:
    """Inputs position by position, as far as both sides have them; `first` is the first red row of a."""
    i, j = pairing.lead_a[pairs].astype(np.int64), pairing.lead_b[pairs].astype(np.int64)
    count_a, count_b = a.inputs.count[i], b.inputs.count[j]
    count = np.minimum(count_a, count_b)
    owner, place = repeated(np.arange(len(pairs)), count)
    at_a, at_b = a.inputs.start[i[owner]] + place, b.inputs.start[j[owner]] + place
    value_a, value_b = a.inputs.value[at_a], b.inputs.value[at_b]
    difference = relative(value_a, value_b)
    with np.errstate(invalid="ignore"):
        later = pairing.lead_a[pairs[owner]] > first
        differs = difference > np.where(later, 0.0, verdicts.tolerance[pairs[owner]])
    differs |= np.isnan(value_a) != np.isnan(value_b)
    unhashed = np.isnan(value_a) & np.isnan(value_b)
    made_a, made_b = flow_a.value[at_a], flow_b.value[at_b]
    known, equal = _by_digest(a, b, i[owner], j[owner], place)
    of_maker = np.where(made_a >= 0, pairing.of_a[np.maximum(made_a, 0)], -1) if len(a) else made_a
    shared = (of_maker >= 0) & (made_b >= 0)
    shared[shared] = pairing.of_b[made_b[shared]] == of_maker[shared]
    hidden = known & ~equal & shared
    hidden[hidden] = verdicts.status[of_maker[hidden]] == Status.EQUAL
    # the error of a tensor without a recorded producer is unknown: its norm may well be the same
    given = (made_a < 0) & (made_b < 0)
    differs = np.where(known, ~equal & (differs | later | hidden | given), differs & ~equal)
    broken = unhashed & known & equal & later
    unhashed &= ~known & ~equal
    # inputs that only one side has; one from an operation of that side alone may be the whole difference
    most, fewer = np.maximum(count_a, count_b), np.minimum(count_a, count_b)
    uneven = np.flatnonzero(most > fewer)
    extra, beyond = repeated(uneven, (most - fewer)[uneven])
    beyond += fewer[extra]
    longer_a = (count_a > count_b)[extra]
    none = np.full(len(extra), -1, np.int64)
    only_a, only_b = none.copy(), none
    only_a[longer_a] = flow_a.value[a.inputs.start[i[extra[longer_a]]] + beyond[longer_a]]
    only_b[~longer_a] = flow_b.value[b.inputs.start[j[extra[~longer_a]]] + beyond[~longer_a]]
    alone = is_alone(only_a, pairing.of_a) | is_alone(only_b, pairing.of_b)
    number = np.zeros(len(extra), bool)
    if alone.any():
        number |= marked_at(_numbers(a, flow_a, pairing.of_a), only_a)
        number |= marked_at(_numbers(b, flow_b, pairing.of_b), only_b)
    no = np.zeros(len(extra), bool)
    return Inputs(
        np.concatenate((pairs[owner], pairs[extra])),
        np.concatenate((made_a, only_a)),
        np.concatenate((made_b, only_b)),
        np.concatenate((differs, alone & ~number)),
        np.concatenate((unhashed, no)),
        np.concatenate((equal, number)),
        np.concatenate((hidden, no)),
        np.concatenate((broken, no)),
    )


def _by_digest(a: OpLog, b: OpLog, i: Int64, j: Int64, place: Int64) -> tuple[Bool, Bool]:
    """(the digests of both are known, they are equal) for the inputs at some places.

    An input without digest in both logs was not read, and counts as equal.
    """
    digests, listed = [], np.ones(len(place), bool)
    for log, row in ((a, i), (b, j)):
        inside = place < log.input_digests.count[row]
        listed &= inside
        value = np.full(len(place), NO_DIGEST)
        value[inside] = log.input_digests.value[log.input_digests.start[row[inside]] + place[inside]]
        digests.append(value)
    known = listed & (digests[0] != NO_DIGEST) & (digests[1] != NO_DIGEST)
    return known, listed & (digests[0] == digests[1])


def _numbers(log: OpLog, flow: Ragged, of: Int32) -> Bool:
    """bool[n]: unpaired scalars that no tensor leads to: a compiler turns the numbers of a model into such tensors."""
    found = (of < 0) & (numel(log)[log.shape] == 1)
    for record in np.flatnonzero(found).tolist():
        makers = flow[record]
        found[record] = bool(found[makers[makers >= 0]].all())
    return np.asarray(found)


def is_alone(maker: Int64, of: Int32 | Int64) -> Bool:
    """bool: the input's producer is unpaired."""
    return np.asarray((maker >= 0) & (of[np.maximum(maker, 0)] < 0)) if len(of) else np.zeros(len(maker), bool)


def marked_at(flags: Bool, record: Int64) -> Bool:
    """bool: the flags of some records; False for no record (-1)."""
    return np.asarray((record >= 0) & flags[np.maximum(record, 0)]) if len(flags) else record >= 0


def marked(index: Int64, size: int) -> Bool:
    """bool[size], True at some places."""
    out = np.zeros(size, bool)
    out[index] = True
    return out
