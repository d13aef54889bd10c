"""Micro-batches side by side: the records that are one operation in several of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from matchers.arrays import Bool, Int64, marked, numbered_together
from matchers.logs.columns import Ragged, repeated
from matchers.logs.op_log import OpLog
from matchers.ops.laws import in_place

__all__ = ["aligned"]


def aligned(log: OpLog, number: Int64, rows: Int64, flow: Ragged) -> tuple[Int64, Int64]:
    """Records in groups, each in order, and the start of each: the k-th of a module, op and line in each micro-batch.

    Where its samples decide what is run, one has fewer of them, or others: then those that read the same.

    Args:
        number: int64[n], the micro-batch of each record of the log.
        rows: these records are grouped.
        flow: of the log (`sources`).
    """
    kind_of = (log.module, log.op, log.phase, log.dtype, log.recompute, log.location)
    kind = numbered_together(*(column[rows] for column in kind_of))
    order = np.lexsort((rows, number[rows], kind))
    run = np.flatnonzero(np.diff(kind[order], prepend=-1) | np.diff(number[rows][order], prepend=-2))
    place = np.zeros(len(rows), np.int64)
    place[order] = np.arange(len(rows)) - np.repeat(run, np.diff(np.append(run, len(rows))))
    many = np.zeros((int(kind.max(initial=-1)) + 1, int(number.max()) + 1), np.int64)
    np.add.at(many, (kind, number[rows]), 1)
    several, doubted = many.max(axis=1) > 1, many.max(axis=1) != many.min(axis=1)
    flow = _of_changed_tensors(log, number, flow)
    if doubted.any():
        flow = _without_own_ends(rows, kind, place, many, number, flow)
    by_order = place
    while doubted.any():
        place = _placed_by_makers(rows, kind, by_order, doubted, number, flow)
        others = marked(kind[_reading_others(rows, kind, place, number, flow)], len(doubted))
        if not (new := others & several & ~doubted).any():
            break
        doubted = doubted | new
    order = np.lexsort((rows, place, kind))
    start = np.flatnonzero(np.diff(kind[order], prepend=-1) | np.diff(place[order], prepend=-1))
    return rows[order], start


def _of_changed_tensors(log: OpLog, number: Int64, flow: Ragged) -> Ragged:
    """The makers, of a tensor that a micro-batch changed in place what made it: another one changes it more often."""
    first = np.arange(len(log) + 1)
    first[-1] = -1
    changes = np.flatnonzero(in_place(log) & (flow.count > 0))
    for row, maker in zip(changes.tolist(), flow.value[flow.start[changes]].tolist(), strict=True):
        if maker >= 0 and number[maker] == number[row]:
            first[row] = first[maker]
    return flow.with_values(first[flow.value])


def _without_own_ends(rows: Int64, kind: Int64, place: Int64, many: Int64, number: Int64, flow: Ragged) -> Ragged:
    """The makers without those that stand for one of another kind in another micro-batch, and have no like there.

    What occurs once in every micro-batch reads them at one place: a ring, say, that one rank ends with a copy.
    """
    kind_of, place_of = np.full(len(flow) + 1, -1, np.int64), np.full(len(flow) + 1, -1, np.int64)
    kind_of[rows], place_of[rows] = kind, place
    once = (many == 1).all(axis=1)[kind]
    _, _, one, other = _beside_first(rows[once], kind[once], flow)
    unlike = (kind_of[one] >= 0) & (kind_of[other] >= 0) & (kind_of[one] != kind_of[other])
    one, other = one[unlike], other[unlike]
    ends = [x[place_of[x] >= many[kind_of[x], number[y]]] for x, y in ((one, other), (other, one))]
    return Ragged(flow.start, np.where(np.isin(flow.value, np.concatenate(ends)), -1, flow.value))


def _placed_by_makers(rows: Int64, kind: Int64, place: Int64, doubted: Bool, number: Int64, flow: Ragged) -> Int64:
    """The places of records, of doubted kinds other ones: equal where they read the same in their micro-batches.

    The kinds follow each other as they begin, so that what one reads of a later one, as of the expert before it, does
    not count: that may be another in each micro-batch.
    """
    place, of_record = place.copy(), np.full(len(flow) + 1, -1, np.int64)
    firm = ~doubted[kind]
    of_record[rows[firm]] = numbered_together(kind, place)[firm]
    members: dict[int, list[int]] = defaultdict(list)
    for at in np.flatnonzero(~firm).tolist():
        members[int(kind[at])].append(at)
    for of_kind in members.values():
        batch, read = number[rows[of_kind]].tolist(), [_read(int(rows[at]), of_record, number, flow) for at in of_kind]
        place[of_kind] = _places(batch, read)
        of_record[rows[of_kind]] = len(rows) * (of_kind[0] + 1) + place[of_kind]
    return place


def _places(batch: Sequence[int], read: Sequence[tuple[int, ...]]) -> list[int]:
    """Places of the records of one kind, of which the micro-batch and what each reads is known.

    A place is that of the records before it which read the same; else of one that has more in common with it than not,
    by what no other of its micro-batch reads.
    """
    out, reads = list[int](), list[tuple[int, ...]]()
    known: dict[tuple[Any, ...], int] = {}
    alone = Counter((own, of) for own, made in zip(batch, read, strict=True) for of in enumerate(made))
    seen, taken = Counter[tuple[Any, ...]](), set[tuple[int, int]]()
    for own, made in zip(batch, read, strict=True):
        seen[own, made] += 1
        call = (made, seen[own, made])
        telling = [of for of in enumerate(made) if of[1] >= 0 and alone[own, of] == 1]
        place = known.get(call, -1)
        if place < 0 or (own, place) in taken:
            votes = Counter(known[of] for of in telling if of in known and (own, known[of]) not in taken)
            place = next((at for at, many in votes.most_common(1) if many > _unlike(reads[at], made)), len(reads))
        if place == len(reads):
            reads.append(made)
        for of in (call, *telling):
            known.setdefault(of, place)
        taken.add((own, place))
        out.append(place)
    return out


def _unlike(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return sum(x != y and x >= 0 and y >= 0 for x, y in zip(one, other, strict=False))


def _read(row: int, of_record: Int64, number: Int64, flow: Ragged) -> tuple[int, ...]:
    """Makers in its micro-batch that a record reads: equal numbers for the same of others; -1 for unknown ones."""
    makers = flow[row]
    inside = (makers >= 0) & (number[makers] == number[row])
    return tuple(np.where(inside, of_record[makers], -1).tolist())


def _reading_others(rows: Int64, kind: Int64, place: Int64, number: Int64, flow: Ragged) -> Int64:
    """The positions in `rows` of records that read another one of their micro-batch than the first of their place."""
    code = numbered_together(kind, place)
    of_record = np.full(len(flow) + 1, -1, np.int64)
    of_record[rows] = code
    owner, like, *makers = _beside_first(rows, code, flow)
    one, other = (
        np.where((maker >= 0) & (number[maker] == number[rows[at]]), of_record[maker], -1)
        for maker, at in zip(makers, (like, owner), strict=True)
    )
    return owner[(one != other) & (one >= 0) & (other >= 0)]


def _beside_first(rows: Int64, code: Int64, flow: Ragged) -> tuple[Int64, Int64, Int64, Int64]:
    """Inputs that records have in common with the first one of their code.

    Returns:
        the positions in `rows` of the record and of that first one, and the makers of what that one reads, and of this.
    """
    first = np.empty(int(code.max(initial=-1)) + 1, np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    like = first[code]
    owner, nth = repeated(np.arange(len(rows)), np.minimum(flow.count[rows], flow.count[rows[like]]))
    like = like[owner]
    one, other = (flow.value[flow.start[rows[at]] + nth] for at in (like, owner))
    return owner, like, one, other
