"""What follows from each first cause: the red rows downstream of it, where they are and how large they get.

Causes that one line of the program makes (a mistake in a loop over micro-batches or layers) are one cause. A row is
downstream of a cause when it reads, over any number of operations, what the cause made, and nothing on the way has
equal bits in both runs again; rows that only agree in print stay downstream, because a print cannot tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from matchers.arrays import Bool, Hash, Int32, Int64
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.module_path import canonical, template
from matchers.rows import Rows
from matchers.status import Status

__all__ = ["Cause", "Consequences", "ErrorGrowth", "consequences", "lasting_causes"]


_MAX_CAUSES: Final = 62
"""So many causes are followed, the earliest ones; each takes a bit of a 64-bit word, and all others one together."""
_ROUNDS: Final = 4
"""Passes over the rows. One is enough but for data that flows against the order of a, where pairs cross."""


@dataclass(frozen=True, slots=True)
class ErrorGrowth:
    """The largest error that a cause leads to in one part of the step.

    Attributes:
        phase: of the rows.
        place: the index in the module's name (`3` for `layers.3.attention`), empty for modules without.
        row: the one with the largest error.
        error: relative; inf where there is NaN or Inf.
    """

    phase: Phase
    place: str
    row: int
    error: float


@dataclass(frozen=True, slots=True)
class Cause:
    """One first cause.

    Attributes:
        rows: the rows of the comparison that start it, the first one first; several when they are of one place in the
            program.
        red: how many red rows are downstream, or start it.
        assumed: how many of them only because they come after one that is: what they read differs, and nothing that was
            captured made it.
        masked: how many rows read something red and agree in print all the same: nothing says that they are sound.
        modules: how many modules the red rows are in.
        growth: along the step, in the order of a.
        after: index of the first cause that it is itself downstream of, over rows that agree in print; -1 for none.
    """

    rows: tuple[int, ...]
    red: int
    assumed: int
    masked: int
    modules: int
    growth: tuple[ErrorGrowth, ...]
    after: int = -1


@dataclass(frozen=True, slots=True)
class Consequences:
    """The first causes that were followed, those that explain most first, and what they leave unexplained.

    Attributes:
        causes: the earliest ones, ranked: NaN and Inf first, then by the red rows that no earlier cause explains, then
            as in the step.
        further: the rows that start each of the others, which were not followed.
        cause_of: int32[r], for each red row the index of the earliest cause it is downstream of, -1 for none of them.
        unexplained: red rows that are downstream of neither.
    """

    causes: tuple[Cause, ...]
    further: tuple[tuple[int, ...], ...]
    cause_of: Int32
    unexplained: int

    @property
    def starts(self) -> list[tuple[int, ...]]:
        """The rows that start each first cause, whether it was followed or not."""
        return [*(cause.rows for cause in self.causes), *self.further]


def consequences(c: Rows) -> Consequences:
    """Follows the data flow from the first causes through both logs."""
    places = _places(c)
    groups, further = places[:_MAX_CAUSES], places[_MAX_CAUSES:]
    start = np.zeros(len(c), np.uint64)
    for k, rows in enumerate(places):
        start[list(rows)] |= np.uint64(1 << min(k, _MAX_CAUSES))
    reader, maker = _edges(c)
    flow, reach = _spread(c, start, reader, maker)
    masked = np.zeros(len(c), bool)
    masked[reader[c.red[maker]]] = True
    masked &= c.status == Status.SAME_PRINT

    parts = _Parts(c)
    bits = [np.uint64(1 << k) for k in range(len(groups))]
    causes = [
        _cause(c, parts, rows, reach & bit != 0, flow & bit != 0, masked)
        for rows, bit in zip(groups, bits, strict=True)
    ]
    earliest = np.full(len(c), -1, np.int64)
    for k in range(len(groups) - 1, -1, -1):
        earliest[c.red & (reach & bits[k] != 0)] = k
    credit = np.bincount(earliest[earliest >= 0], minlength=len(groups))
    rank = sorted(range(len(groups)), key=lambda k: (-_gravity(c, causes[k]), -credit[k], k))
    place = np.zeros(len(groups) + 1, np.int32)
    place[rank] = np.arange(len(rank))
    place[-1] = -1
    cause_of = place[earliest]
    ranked = []
    for k in rank:
        above = place[earliest[causes[k].rows[0]]]
        ranked.append(replace(causes[k], after=int(above)) if above >= 0 and rank[above] != k else causes[k])
    return Consequences(tuple(ranked), tuple(further), cause_of, int(np.count_nonzero(c.red & (reach == 0))))


def lasting_causes(c: Rows) -> Bool:
    """bool[r]: the first causes, without those that a rule ignores and another first cause makes up for.

    An ignored one stays while red rows follow from it that no first cause in force explains.
    """
    ignored = np.flatnonzero(c.cause & (c.status == Status.IGNORED))
    if not len(ignored):
        return c.cause
    bit = np.minimum(np.arange(1, len(ignored) + 1), _MAX_CAUSES)
    start = np.where(c.cause, np.uint64(1), np.uint64(0))
    start[ignored] = np.left_shift(np.uint64(1), bit.astype(np.uint64))
    _, reach = _spread(c, start, *_edges(c))
    left = np.bitwise_or.reduce(reach[c.red & (reach & np.uint64(1) == 0)], initial=np.uint64(0))
    lasting = c.cause.copy()
    lasting[ignored] = left & start[ignored] != 0
    return lasting


def _spread(c: Rows, start: Hash, reader: Int64, maker: Int64) -> tuple[Hash, Hash]:
    """The causes of each row as bits: by data flow alone, and with the red rows that no data flow leads to.

    Such a row shares the causes of the red row before it, or of an ignored first cause.
    """
    stops = c.status == Status.EQUAL
    flow = _downstream(start, reader, maker, stops)
    lost = c.red & (flow == 0)
    known = (c.red & ~lost) | (c.cause & (c.status == Status.IGNORED))
    last = np.maximum.accumulate(np.where(known, np.arange(len(c)), -1)) if len(c) else np.zeros(0, np.int64)
    adrift = np.flatnonzero(lost & (last >= 0))
    start = start.copy()
    start[adrift] = flow[last[adrift]]
    return flow, _downstream(start, reader, maker, stops)


def _gravity(c: Rows, cause: Cause) -> bool:
    """The cause itself made NaN or Inf."""
    return any(c.status[row] == Status.NAN for row in cause.rows)


def _places(c: Rows) -> list[tuple[int, ...]]:
    """The rows that are first causes, those of one place in the program together, in the order of the screen."""
    found: dict[tuple[object, ...], list[int]] = {}
    # what checkpointing runs again is of the forward pass
    again = {} if c.recomputed is None else {id(c.a): c.recomputed[0], id(c.b): c.recomputed[1]}
    for row in np.flatnonzero(c.cause).tolist():
        log, record = _shown(c, row)
        where = log.location_text(record) or template(canonical(log.module_name(record))).pattern
        lone = int(c.status[row]) if c.pair[row] < 0 else -1
        repeat = id(log) in again and again[id(log)][record]
        phase = Phase.FORWARD if repeat else Phase(log.phase[record])
        place = (where, log.op_name(record), phase, lone)
        found.setdefault(place, []).append(row)
    return [tuple(rows) for rows in found.values()]


def _shown(c: Rows, row: int) -> tuple[OpLog, int]:
    """The log and the record that a row shows: a's where it has one."""
    record = int(c.row_a[row])
    return (c.a, record) if record >= 0 else (c.b, int(c.row_b[row]))


def _edges(c: Rows) -> tuple[Int64, Int64]:
    """(reading row, making row) of all values that a record reads and another one made, sorted by the reading row."""
    if c.flow is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    codes = []
    for flow, at in ((c.flow.a, c.at_a), (c.flow.b, c.at_b)):
        known = flow.value >= 0
        reader, maker = at[flow.row[known]].astype(np.int64), at[flow.value[known]].astype(np.int64)
        other = reader != maker
        codes.append(reader[other] * len(c) + maker[other])
    code = np.unique(np.concatenate(codes))
    return code // max(len(c), 1), code % max(len(c), 1)


def _downstream(start: Hash, reader: Int64, maker: Int64, stops: Bool) -> Hash:
    """The causes upstream of each row as bits. Rows in `stops` pass nothing on."""
    reach: list[int] = start.tolist()
    through = (~stops | (start != 0)).tolist()
    first = int(np.flatnonzero(start)[0]) if start.any() else len(start)
    later = np.flatnonzero(maker >= first)
    edges = list(zip(reader[later].tolist(), maker[later].tolist(), strict=True))
    against = bool((maker[later] > reader[later]).any())
    for _ in range(_ROUNDS if against else 1):
        changed = False
        for row, made in edges:
            bits = reach[made]
            if bits and through[row] and bits & ~reach[row]:
                reach[row] |= bits
                changed = True
        if not changed:
            break
    return np.array(reach, np.uint64)


class _Parts:
    """For each row the part of the step and the module it is in, as numbers."""

    def __init__(self, c: Rows) -> None:
        self.names: list[tuple[Phase, str]] = []
        numbers: dict[tuple[Phase, str], int] = {}
        modules: dict[str, int] = {}
        self.part, self.module = np.zeros(len(c), np.int64), np.zeros(len(c), np.int64)
        for log, row in ((c.b, c.row_b), (c.a, c.row_a)):  # a's last: its record is the one that counts
            has = np.flatnonzero(row >= 0)
            names = [*log.modules, ""]
            places = [template(canonical(name)).place for name in names]
            code = (log.module[row[has]] % len(names)) * len(Phase) + log.phase[row[has]]
            distinct, which = np.unique(code, return_inverse=True)
            part = [
                numbers.setdefault((Phase(k % len(Phase)), places[k // len(Phase)]), len(numbers))
                for k in distinct.tolist()
            ]
            module = [modules.setdefault(names[k // len(Phase)], len(modules)) for k in distinct.tolist()]
            self.part[has] = np.array(part, np.int64)[which]
            self.module[has] = np.array(module, np.int64)[which]
        self.names = list(numbers)


def _cause(
    c: Rows,
    parts: _Parts,
    rows: Sequence[int],
    reached: Bool,
    flown: Bool,
    masked: Bool,
) -> Cause:
    red = np.flatnonzero(reached & c.red)
    return Cause(
        rows=tuple(rows),
        red=len(red),
        assumed=int(np.count_nonzero(~flown[red])),
        masked=int(np.count_nonzero(reached & masked)),
        modules=len(np.unique(parts.module[red])),
        growth=tuple(_error_growth(c, parts, red)),
    )


def _error_growth(c: Rows, parts: _Parts, red: Int64) -> Iterator[ErrorGrowth]:
    """The largest error of each part of the step that some red rows are in, in their order."""
    red = red[~np.isnan(c.error[red])]
    part = parts.part[red]
    by_error = np.lexsort((red, -c.error[red], part))
    _, first = np.unique(part[by_error], return_index=True)
    _, met = np.unique(part, return_index=True)
    for row in red[by_error[first]][np.argsort(met)].tolist():
        phase, place = parts.names[parts.part[row]]
        yield ErrorGrowth(phase, place, row, float(c.error[row]))
