"""Collectives, and other operations that are one record in one run and several in the other.

Functional collectives take two rows: one starts the communication, `wait_tensor` reads the result. The in-place
collectives of c10d take one. The pairing treats a start and its wait as one operation, judged at the wait, if the other
side has the in-place form. A user's `ops` rule declares other chains of this kind.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from matchers.arrays import Bool, Float64, Int64, distinct
from matchers.laws.law import Bucket
from matchers.laws.register import law
from matchers.logs.op_log import OpLog, Phase, once_per_log
from matchers.ops.laws import collective, rows_named, rows_where

__all__ = [
    "Chain",
    "awaiting",
    "find_chains",
    "lowered",
    "read_by_collective",
    "unfinished",
]


@dataclass(frozen=True, slots=True)
class Chain:
    """Ops of one log, in order, that together correspond to one op of the other log.

    `shapes`, `phase`: only where the last op has one of these shapes, or ran in this phase; None: everywhere.
    """

    ops: tuple[str, ...]
    stands_for: str
    shapes: frozenset[str] | None = None
    phase: Phase | None = None


def lowered(log: OpLog, other: OpLog) -> list[Chain]:
    """The collectives that take two rows in `log` and one, under another name, in `other`.

    Decided shape by shape: a log can mix the functional form of one collective with the in-place form of another.
    """
    mine, theirs = _shapes_by_op(log), _shapes_by_op(other)
    # our own capture may record the awaited value with the collective itself
    end = [name for name in mine if law(name).waits][:1]
    if not (end or log.tells.awaited):
        return []
    chains = []
    for start, its in mine.items():
        whole = law(start).lowered
        shapes = its & theirs.get(whole, frozenset())
        shapes -= theirs.get(start, frozenset()) | mine.get(whole, frozenset())
        if shapes:
            chains.append(Chain((start, *end), whole, shapes))
    return chains


def _shapes_by_op(log: OpLog) -> dict[str, frozenset[str]]:
    """The shapes of each collective of a log."""
    out: dict[str, set[str]] = {}
    rows = np.flatnonzero(collective(log))
    width = len(log.shapes) + 1
    for code in distinct(log.op[rows] * width + log.shape[rows] + 1).tolist():
        out.setdefault(log.ops[code // width], set()).add(log.shapes[code % width - 1])
    return {op: frozenset(shapes) for op, shapes in out.items()}


@once_per_log
def awaiting(log: OpLog) -> Bool:
    """bool[n]: the row waits for an earlier collective."""
    return rows_where(log, lambda law: law.waits)


@once_per_log
def unfinished(log: OpLog) -> Bool:
    """bool[n]: the row's numbers may have been read before the communication completed.

    torchtitan's tracer reads a collective's output as soon as the call returns; our own capture reads it at the wait.
    Both read the copied-in buffer before the collective fills it.
    """
    started = rows_where(log, lambda law: law.communicates and not law.waits)
    return rows_where(log, lambda law: law.bucket is Bucket.GATHERED) | (started & (not log.tells.awaited))


def read_by_collective(log: OpLog) -> Float64:
    """float64[n], L1 norm of the tensor that a collective reads; NaN for other rows and where the log has none.

    The in-place collectives of c10d list their result first and their input last; the functional ones do the reverse.
    The norm of the result, taken before the call, is that of uninitialised memory.
    """
    out = np.full(len(log), np.nan)
    count = log.inputs.count
    has = count > 0
    in_place = rows_where(log, lambda law: law.communicates and not (law.waits or law.lowered)) & has
    out[in_place] = log.inputs.value[log.inputs.start[1:][in_place] - 1]
    functional = rows_where(log, lambda law: bool(law.lowered)) & has
    out[functional] = log.inputs.value[log.inputs.start[:-1][functional]]
    return out


def find_chains(log: OpLog, chains: Sequence[Chain]) -> tuple[Int64, Int64]:
    """Find the chains in a log.

    Returns (lead, stands_for): lead[i] is the row that completes the chain in which row i is an earlier step, else -1;
    stands_for[i] is the index in `chains` if row i completes one, else -1.
    """
    lead, stands_for = np.full(len(log), -1, np.int64), np.full(len(log), -1, np.int64)
    for k, chain in enumerate(chains):
        ends = rows_named(log, {chain.ops[-1]}) & (stands_for < 0) & (lead < 0)
        if chain.shapes is not None:
            ends &= np.array([text in chain.shapes for text in log.shapes] + [False])[log.shape]
        if chain.phase is not None:
            ends &= log.phase == chain.phase
        last = np.flatnonzero(ends)
        if len(chain.ops) == 1:
            stands_for[last] = k
            continue
        earlier = [_Open(log, op) for op in chain.ops[-2::-1]]
        for row, start in earlier[0].read_by(last):
            found = [start]
            for steps in earlier[1:]:
                found.append(steps.before(found[-1]))
                if found[-1] < 0:
                    break
            else:
                stands_for[row] = k
                lead[found] = row
                for steps, step in zip(earlier, found, strict=True):
                    steps.take(step)
    return lead, stands_for


class _Open:
    """Rows of one op that no chain has taken yet."""

    def __init__(self, log: OpLog, op: str) -> None:
        self._producers = log.producers
        # by row: its module and shape
        self._place = log.module * (len(log.shapes) + 1) + log.shape
        rows = np.flatnonzero(rows_named(log, {op}))
        # by row of the op: its place
        self._free = dict(zip(rows.tolist(), self._place[rows].tolist(), strict=True))
        self._by_place: dict[int, list[int]] = {}
        for row, place in self._free.items():
            self._by_place.setdefault(place, []).append(row)
        self._other = set(
            np.flatnonzero(rows_where(log, lambda law: bool(law.lowered)) & ~rows_named(log, {op})).tolist()
        )

    def read_by(self, rows: Int64) -> Iterator[tuple[int, int]]:
        """Yield (row, the free row that it reads) for each row that has one.

        That is its producer. If the log names none, rows of one module and shape are matched in order, provided that
        there are as many starts as readers (communication is awaited in the order it was started, even where it was
        logged out of order); otherwise the nearest earlier row counts.
        """
        unknown: dict[int, list[int]] = {}
        lists = self._producers.taken(rows)
        made, start = lists.value.tolist(), lists.start.tolist()
        for k, (row, place) in enumerate(zip(rows.tolist(), self._place[rows].tolist(), strict=True)):
            producers = made[start[k] : start[k + 1]]
            mine = next((producer for producer in producers if producer in self._free), None)
            if mine is not None:
                yield row, mine
            elif self._other.isdisjoint(producers):
                unknown.setdefault(place, []).append(row)
        for place, readers in unknown.items():
            starts = [start for start in self._by_place.get(place, []) if start in self._free]
            if len(starts) == len(readers):
                yield from zip(readers, starts, strict=True)
            else:
                for row in readers:
                    nearest = self._nearest(row, place)
                    if nearest >= 0:
                        yield row, nearest

    def before(self, row: int) -> int:
        """The free row that `row` reads: its producer, else the nearest earlier row of its module and shape."""
        for producer in self._producers[row].tolist():
            if producer in self._free:
                return int(producer)
        return self._nearest(row, int(self._place[row]))

    def _nearest(self, row: int, place: int) -> int:
        rows = self._by_place.get(place, [])
        at = bisect_left(rows, row)
        return rows[at - 1] if at else -1

    def take(self, row: int) -> None:
        """Mark a row as taken."""
        if row in self._free:
            rows = self._by_place[self._free.pop(row)]
            del rows[bisect_left(rows, row)]
