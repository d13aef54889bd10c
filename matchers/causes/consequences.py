"""Consequences of each first cause: the red rows downstream, their places, and the size of their errors.

Causes from one line of the program (a mistake in a loop over micro-batches or layers) count as one. A row is downstream
of a cause if a chain of operations leads from the cause to it without a row that is bitwise equal in both runs; rows
with merely equal printed values stay downstream, because print cannot prove equality.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from matchers.arrays import Bool, Hash, Int32, Int64, columns
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.module_path import canonical, template
from matchers.rows import Rows
from matchers.status import Role, Status

__all__ = ["Cause", "Consequences", "ErrorGrowth", "consequences", "lasting_causes", "reached"]

_MAX_CAUSES: Final = 62
"""Maximum number of causes followed, the earliest ones: each takes one bit of a 64-bit word, and all others share one.
"""
_ROUNDS: Final = 4
"""Passes over the rows. One suffices unless data flows against the order of a, at crossing pairs."""


@dataclass(frozen=True, slots=True)
class ErrorGrowth:
    """The largest downstream error of a cause in one part of the step.

    Attributes:
        phase: of the rows.
        place: the index in the module's name (`3` for `layers.3.attention`), empty for modules without.
        row: the row with the largest error.
        error: relative; inf for NaN or Inf.
    """

    phase: Phase
    place: str
    row: int
    error: float


@dataclass(frozen=True, slots=True)
class Cause:
    """One first cause.

    Attributes:
        rows: the comparison rows that start it, the first one first; several if they come from one place in the
            program.
        red: number of red rows that are downstream or start it.
        assumed: number of those attributed by position only: their inputs differ, and the producers were not captured.
        masked: number of downstream rows that read a red row but match in every printed digit; they may still differ.
        modules: number of modules with red rows.
        growth: along the step, in the order of a.
        after: index of a first cause upstream of this one, over rows with equal printed values; -1 for none.
    """

    rows: tuple[int, ...]
    red: int
    assumed: int
    masked: int
    modules: int
    growth: tuple[ErrorGrowth, ...]
    after: int = -1


@columns
class Consequences:
    """The first causes that were followed, those that explain most first, and the unexplained rest.

    Attributes:
        causes: the earliest ones, ranked: NaN and Inf first, other shapes and dtypes next, then by the red rows that no
            earlier cause explains, then by their order in the step.
        further: the starting rows of each further cause, which was not followed.
        cause_of: int32[r], the index of the earliest cause upstream of each red row, -1 for none.
        unexplained: number of red rows downstream of no cause.
    """

    causes: tuple[Cause, ...]
    further: tuple[tuple[int, ...], ...]
    cause_of: Int32
    unexplained: int

    @property
    def starts(self) -> list[tuple[int, ...]]:
        """The starting rows of each first cause, followed or not."""
        return [*(cause.rows for cause in self.causes), *self.further]


def consequences(c: Rows) -> Consequences:
    """Follow the data flow from the first causes through both logs."""
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
    rank = sorted(range(len(groups)), key=lambda k: (_gravity(c, causes[k]), -credit[k], k))
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
    """bool[r]: the first causes, without ignored ones whose consequences another first cause explains.

    An ignored cause stays while red rows follow from it that no other first cause explains.
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
    """The causes of each row as bits: by data flow alone, and including red rows that no data flow reaches.

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


def reached(c: Rows, start: Hash) -> Hash:
    """The bits of `start` (by row) that arrive at each row over rows that are not bitwise equal."""
    return _downstream(start, *_edges(c), c.status == Status.EQUAL)


def _gravity(c: Rows, cause: Cause) -> int:
    """0 for a cause that itself produced NaN or Inf, 1 for an origin of another shape or dtype, 2 for other values."""
    if any(c.status[row] == Status.NAN for row in cause.rows):
        return 0
    return 1 if any(c.status[row] == Status.SHAPE and c.role[row] == Role.ORIGIN for row in cause.rows) else 2


def _places(c: Rows) -> list[tuple[int, ...]]:
    """The rows of first causes, grouped by place in the program, in screen order."""
    found: dict[tuple[object, ...], list[int]] = {}
    # recomputed operations belong to the forward pass
    again = {} if c.recomputed is None else {id(c.a): c.recomputed[0], id(c.b): c.recomputed[1]}
    for row in np.flatnonzero(c.cause).tolist():
        log, record = _shown(c, row)
        where = log.location_text(record)
        unpaired = int(c.status[row]) if c.pair[row] < 0 else -1
        repeat = id(log) in again and again[id(log)][record]
        phase = Phase.FORWARD if repeat else Phase(log.phase[record])
        # what a line leaves in parameters and states is one cause, whichever of its operations wrote it
        op = "" if unpaired == Status.DIVERGED else log.op_name(record)
        # the line of the model is that of the gradient, too; one line is the whole optimizer
        module = "" if where else template(canonical(log.module_name(record))).pattern
        line = bool(where) and phase != Phase.OPTIMIZER and len(c.b) > 0  # in one run, Inf and NaN are two causes
        place = (where,) if line else (where or module, op, phase, unpaired)
        found.setdefault(place, []).append(row)
    return [tuple(rows) for rows in found.values()]


def _shown(c: Rows, row: int) -> tuple[OpLog, int]:
    """The log and record that a row shows: a's if it has one."""
    record = int(c.row_a[row])
    return (c.a, record) if record >= 0 else (c.b, int(c.row_b[row]))


def _edges(c: Rows) -> tuple[Int64, Int64]:
    """(consumer row, producer row) of all recorded data flow, sorted by consumer."""
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
    """The causes upstream of each row as bits. Rows in `stops` propagate nothing."""
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
    """The part of the step and the module of each row, as numbers."""

    def __init__(self, c: Rows) -> None:
        self.names: list[tuple[Phase, str]] = []
        numbers: dict[tuple[Phase, str], int] = {}
        modules: dict[str, int] = {}
        self.part, self.module = np.zeros(len(c), np.int64), np.zeros(len(c), np.int64)
        for log, row in ((c.b, c.row_b), (c.a, c.row_a)):  # a last: its record takes precedence
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
    """The largest error of some red rows in each part of the step, in order."""
    red = red[~np.isnan(c.error[red])]
    part = parts.part[red]
    by_error = np.lexsort((red, -c.error[red], part))
    _, first = np.unique(part[by_error], return_index=True)
    _, met = np.unique(part, return_index=True)
    for row in red[by_error[first]][np.argsort(met)].tolist():
        phase, place = parts.names[parts.part[row]]
        yield ErrorGrowth(phase, place, row, float(c.error[row]))
