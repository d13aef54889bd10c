"""Consequences of each first cause: the red rows downstream, their places, and the size of their errors.

Causes from one line of the program (a mistake in a loop over micro-batches or layers) count as one. A row is downstream
of a cause if a chain of operations leads from the cause to it without a row that is bitwise equal in both runs; rows
with merely equal printed values stay downstream, because print cannot prove equality.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from matchers.arrays import Bool, Hash, Int32, Int64, columns, marked
from matchers.causes.causes import MOST, Causes
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import Phase
from matchers.ops.arguments import argument_differences
from matchers.ops.module_path import canonical, template
from matchers.rows import Rows
from matchers.status import Role, Status
from matchers.verdict.reason import Reason

__all__ = [
    "Cause",
    "Consequences",
    "ErrorGrowth",
    "acquit_ignored",
    "adrift",
    "consequences",
    "given_fraction",
    "given_numbers",
    "places",
]

_MAX_CAUSES: Final = MOST - 1
"""Maximum number of causes followed, the earliest ones; all others share one bit."""


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
        causes: the earliest ones, ranked: NaN and Inf first, other shapes, dtypes, and numbers given with equal inputs
            next, then by the red rows that no earlier cause explains, then by their order in the step.
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
    begin = places(c, c.cause)
    groups, further = begin[:_MAX_CAUSES], begin[_MAX_CAUSES:]
    start = np.zeros(len(c), np.uint64)
    for k, rows in enumerate(begin):
        start[list(rows)] |= np.uint64(1 << min(k, _MAX_CAUSES))
    flow, reach = _spread(c, start, c.cause)
    masked = marked(c.edges.row[c.red[c.edges.value]], len(c)) & (c.status == Status.SAME_PRINT)

    parts, causes = _Parts.of(c), []
    bits = [np.uint64(1 << k) for k in range(len(groups))]
    for rows, bit in zip(groups, bits, strict=True):
        red = np.flatnonzero((reach & bit != 0) & c.red)
        assumed, hidden = (int(np.count_nonzero(of)) for of in (flow[red] & bit == 0, (reach & bit != 0) & masked))
        modules = len(np.unique(parts.module[red]))
        causes.append(Cause(rows, len(red), assumed, hidden, modules, tuple(parts.growth(c, red))))
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


def acquit_ignored(found: Causes) -> None:
    """Acquit first causes that a rule ignores and whose consequences another first cause explains.

    One stays while red rows follow from it that no other first cause explains.
    """
    c = found.c
    ignored = np.flatnonzero(found.cause & (c.status == Status.IGNORED))
    if not len(ignored):
        return
    bit = np.minimum(np.arange(1, len(ignored) + 1), _MAX_CAUSES)
    start = np.where(found.cause, np.uint64(1), np.uint64(0))
    start[ignored] = np.left_shift(np.uint64(1), bit.astype(np.uint64))
    _, reach = _spread(c, start, found.cause)
    left = np.bitwise_or.reduce(reach[c.red & (reach & np.uint64(1) == 0)], initial=np.uint64(0))
    found.cause[ignored] = left & start[ignored] != 0


def _spread(c: Rows, start: Hash, cause: Bool) -> tuple[Hash, Hash]:
    """The causes of each row as bits: by data flow alone, and including red rows that no data flow reaches.

    Such a row shares the causes of the red row before it, or of an ignored first cause.
    """
    flow = c.reached(start)
    lost, last = adrift(c, flow != 0, cause)
    start = start.copy()
    start[lost] = flow[last]
    return flow, c.reached(start)


def adrift(c: Rows, led: Bool, cause: Bool) -> tuple[Int64, Int64]:
    """Red rows to which no cause leads, and for each the row before it whose causes it shares.

    Args:
        led: bool[r], a cause leads to the row.
    """
    known = led & (c.red | (cause & (c.status == Status.IGNORED)))
    last = np.maximum.accumulate(np.where(known, np.arange(len(c)), -1)) if len(c) else np.zeros(0, np.int64)
    lost = np.flatnonzero(c.red & ~led & (last >= 0))
    return lost, last[lost]


def _gravity(c: Rows, cause: Cause) -> int:
    """0 for a cause that itself produced NaN or Inf, 1 for an origin of another shape or dtype, or that was given
    another fraction with equal inputs, 2 for others.
    """
    if any(c.status[row] == Status.NAN for row in cause.rows):
        return 0
    shape = any(c.status[row] == Status.SHAPE and c.role[row] == Role.ORIGIN for row in cause.rows)
    return 1 if shape or any(_given_otherwise(c, row) for row in cause.rows) else 2


def _given_otherwise(c: Rows, row: int) -> bool:
    """True for a pair that was given another fraction with equal inputs."""
    if c.pair[row] < 0 or c.reason[row] != Reason.ARGUMENTS or not c.inputs_equal[row]:
        return False
    return given_fraction(c, row)


def given_fraction(c: Rows, row: int) -> bool:
    """True if the sides of a pair were given other numbers that are not whole: those may count parts of the form."""
    return any(isinstance(n, float) and not n.is_integer() for n in given_numbers(c, row))


def given_numbers(c: Rows, row: int) -> list[int | float]:
    """The numbers in which a pair was asked something else, of both runs."""
    told = argument_differences(c.a, c.b, int(c.row_a[row]), int(c.row_b[row]))
    return [n for each in told for n in (each.a, each.b) if type(n) in (int, float)]


def places(c: Rows, starts: Bool) -> list[tuple[int, ...]]:
    """Rows that start causes (bool[r]), grouped by place in the program, in screen order."""
    found: dict[tuple[object, ...], list[int]] = {}
    # recomputed operations belong to the forward pass
    again = {} if c.recomputed is None else {id(c.a): c.recomputed[0], id(c.b): c.recomputed[1]}
    for row in np.flatnonzero(starts).tolist():
        log, record = c.shown(row)
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


@columns
class _Parts:
    """The parts of the step: int64[r], the number of each row's module and of its part; what the parts are."""

    module: Int64
    part: Int64
    names: list[tuple[Phase, str]]

    @classmethod
    def of(cls, c: Rows) -> _Parts:
        places = [template(canonical(name)).place for name in (*dict.fromkeys((*c.a.modules, *c.b.modules)), "")]
        ids, _, _ = shared_ids(places, ())
        names = [(phase, place) for place in dict.fromkeys(places) for phase in Phase]
        return cls(c.module, ids[c.module] * len(Phase) + c.phase, names)

    def growth(self, c: Rows, red: Int64) -> Iterator[ErrorGrowth]:
        """Yield the largest error of some red rows in each part, in the order of the step."""
        red = red[~np.isnan(c.error[red])]
        part = self.part[red]
        by_error = np.lexsort((red, -c.error[red], part))
        _, first = np.unique(part[by_error], return_index=True)
        _, met = np.unique(part, return_index=True)
        for row in red[by_error[first]][np.argsort(met)].tolist():
            phase, place = self.names[self.part[row]]
            yield ErrorGrowth(phase, place, row, float(c.error[row]))
