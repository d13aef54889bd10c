"""The parts of two logs that were not compared, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Int64, columns, marked
from matchers.coverage.cover import ENOUGH, Cover
from matchers.coverage.fused_weights import fused_names, on_weights
from matchers.laws.law import Form
from matchers.logs.op_log import OpLog, Phase, once_per_log
from matchers.ops.laws import collective, communicating, rows_named, rows_where
from matchers.ops.module_path import NO_MODULE, canonical
from matchers.ops.shapes import numel
from matchers.rows import Rows
from matchers.status import Status
from matchers.verdict.reason import Reason

__all__ = ["REASONS", "Part", "parts", "reasons"]

_STRETCH: Final = 0.9
"""The start or end of a log names what was not compared if it holds this fraction of it."""
_PHASES: Final = {
    Phase.FORWARD: "the forward pass",
    Phase.BACKWARD: "the backward pass",
    Phase.OPTIMIZER: "the optimizer step",
    Phase.OTHER: "what is outside the passes",
    Phase.PREPARE: "what prepares the forward pass",
    Phase.GRADIENTS: "the work on gradients",
    Phase.AFTER: "what follows the optimizer step",
}
REASONS: Final = (
    ("has no partner", "have no partner"),
    ("has no values", "have no values"),
    ("was not judged", "were not judged"),
    ("is sharded", "are sharded"),
    ("is a term of a micro-batch", "are terms of micro-batches"),
    ("only communicates", "only communicate"),
    ("is of rows chosen otherwise", "are of rows chosen otherwise"),
)
"""Reasons for not comparing an operation, for one and for several."""
_UNPAIRED, _NO_VALUES, _NOT_JUDGED, _SHARDED, _MICRO_BATCH, _COMMUNICATES, _CHOSEN = range(len(REASONS))
"""Shards that are read by the optimizer alone cannot be compared with the log of one rank: they are missing from a log,
but from no phase or module. Terms of micro-batches of another size are compared as their sums. Communication makes no
values: what it passes on is compared where it is used. What tokens make that rounding gives another expert cannot be
compared, which is said of the runs as a whole. They are missing nowhere.
"""
_REASON_OF: Final = np.full(len(Status), _NOT_JUDGED)
_REASON_OF[[Status.ONLY_A, Status.ONLY_B]] = _UNPAIRED
_REASON_OF[Status.NO_VALUES], _REASON_OF[Status.SHARDED] = _NO_VALUES, _SHARDED

_ALL, _MOST = "all", "most"
_FUSED = "the work on fused weights"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a log that was not compared, or ranks of a run.

    Attributes:
        name: `the optimizer step`, `layers.3`, `the second half`, `ranks 1–3`.
        side: `a`, `b`, or empty where it is a part of both logs.
        operations: number of operations in it that are neither compared nor covered.
        of: number of all operations in it.
        why: `has no partner`, `has no values`, `was not judged` or `is sharded`: what holds for most of them; of ranks
            that of `LeftOut`.
        ranks: which ones, if they are ranks.
        helps, layout: as of `LeftOut`.
    """

    name: str
    side: str
    operations: int
    of: int
    why: str
    ranks: tuple[int, ...] = ()
    helps: str = ""
    layout: bool = False

    def __str__(self) -> str:
        side = self.side or ("both logs" if self.name in (_ALL, _MOST) else "")
        many = f" ({self.operations:,})" if self.operations or not self.ranks else ""
        return f"{self.name}{f' of {side}' if side else ''}{many}"


def reasons(c: Rows) -> Int64:
    """int64[r]: why a row would not be compared, an index into `REASONS`."""
    why = _REASON_OF[c.verdict]
    buckets = _into_buckets(c.a, c.pairing.of_a), _into_buckets(c.b, c.pairing.of_b)
    for side, (log, other, at) in enumerate(((c.a, c.b, c.at_a), (c.b, c.a, c.at_b))):
        theirs = {other.ops[op] for op in set(other.op[buckets[1 - side]].tolist())}
        alone = buckets[side] & (~rows_named(log, theirs) | _out_of_collectives(log))
        why[at[communicating(log) | alone]] = _COMMUNICATES
        if log.folding is not None:
            why[at[log.folding.terms]] = _MICRO_BATCH
    why[c.reason == Reason.CHOSEN_OTHERWISE] = _CHOSEN
    return why


def parts(c: Rows, cover: NDArray[np.int8], why: Int64) -> tuple[Part, ...]:
    """The ranks that were left out, and the parts that were not compared, the largest first.

    Args:
        cover: int8[r] of `Cover`.
        why: as `reasons` gives it.
    """
    names = fused_names(c.a, c.b) if (cover == Cover.UNCOVERED).any() else (set[str](), set[str]())
    sides = ((c.a, "a", c.at_a, names[0]), (c.b, "b", c.at_b, names[1]))
    found = [part for log, side, at, of in sides for part in _parts(log, side, cover[at], why[at], of)]
    return (*_ranks_left_out(c), *_merged(found))


def _ranks_left_out(c: Rows) -> Iterator[Part]:
    for log, side in ((c.a, "a"), (c.b, "b")):
        for left in log.left_out:
            many = left.operations
            yield Part(left.name, side, many, many, left.why, left.ranks, left.helps, left.layout)


def _into_buckets(log: OpLog, of: Int64) -> Bool:
    """bool[n]: unpaired records that scale or copy gradients into buckets, which a run sends: nothing reads them.

    And those that write one number, such as the zeros of a gradient that a rank does not have, or scale one that ranks
    have summed up after the step, such as their loss.
    """
    if not collective(log).any():
        return np.zeros(len(log), bool)
    fills = rows_where(log, lambda law: law.form in (Form.FILL, Form.DIVIDE, Form.MULTIPLY))
    fills |= rows_where(log, lambda law: law.in_place and law.pointwise) & (log.stats[2] == log.stats[3])
    told = (log.phase == Phase.AFTER) & (numel(log)[log.shape] == 1) & _out_of_collectives(log)
    sent = (log.phase == Phase.GRADIENTS) & _into_collectives(log)
    return np.asarray(fills & ((log.phase == Phase.BACKWARD) | sent | told) & (of < 0))


@once_per_log
def _into_collectives(log: OpLog) -> Bool:
    """bool[n]: collectives read the record, and nothing else does."""
    known = log.producers.value >= 0
    maker, sends = log.producers.value[known], collective(log)[log.producers.row[known]]
    return marked(maker[sends], len(log)) & ~marked(maker[~sends], len(log))


@once_per_log
def _out_of_collectives(log: OpLog) -> Bool:
    """bool[n]: the record reads what a collective has brought."""
    made = log.producers.value >= 0
    return marked(log.producers.row[made & np.append(collective(log), False)[log.producers.value]], len(log))


def _parts(log: OpLog, side: str, cover: NDArray[np.int8], why: Int64, fused: set[str]) -> Iterator[Part]:
    """Yield the parts of a log that were not compared; modules only for what is in no other part.

    Args:
        why: by record, an index into `REASONS`.
        fused: the weights that one of the logs has fused.
    """
    missing = (cover == Cover.UNCOVERED) & ~np.isin(why, (_COMMUNICATES, _MICRO_BATCH, _CHOSEN))
    if not missing.any():
        return
    counted = missing | (cover == Cover.COMPARED) | (cover == Cover.COVERED)
    whole = _Counts.of(missing, counted, why, np.zeros(len(log), np.int8), 1)
    if whole.enough[0]:
        yield whole.part(_stretch(missing[counted]), side, 0)
    missing &= why != _SHARDED
    if (own := on_weights(log, fused, missing & (why == _UNPAIRED))).any():
        of = int(own.sum())
        yield Part(_FUSED, side, of, of, REASONS[_UNPAIRED][0])
        missing &= ~own
        counted &= ~own
    phases = _Counts.of(missing, counted, why, log.phase, len(Phase))
    told = [phase for phase in Phase if phases.enough[phase]]
    yield from (phases.part(_PHASES[phase], side, phase) for phase in told)
    if not whole.enough[0]:
        missing &= ~np.isin(log.phase, told)
        names = [*log.modules, NO_MODULE]
        modules = _Counts.of(missing, counted, why, np.where(log.module < 0, len(names) - 1, log.module), len(names))
        yield from _modules(names, side, modules)


@columns
class _Counts:
    """Operations by group: int64[groups, reasons] that are `missing`, int64[groups] that are `counted`."""

    missing: Int64
    counted: Int64

    @classmethod
    def of(cls, missing: Bool, counted: Bool, why: Int64, group: NDArray[Any], groups: int) -> _Counts:
        size = len(REASONS)
        code = group[missing].astype(np.int64) * size + why[missing]
        return cls(
            np.bincount(code, minlength=groups * size).reshape(groups, size),
            np.bincount(group[counted], minlength=groups),
        )

    @property
    def enough(self) -> Bool:
        """bool[groups]: the group is a part that was not compared."""
        return np.asarray((self.counted > 0) & (ENOUGH * self.counted <= self.missing.sum(1)))

    def part(self, name: str, side: str, group: int) -> Part:
        missing = self.missing[group]
        return Part(name, side, int(missing.sum()), int(self.counted[group]), REASONS[int(missing.argmax())][0])


def _modules(names: list[str], side: str, counts: _Counts) -> Iterator[Part]:
    """Yield the modules that were not compared, without those inside of another one."""
    if not counts.enough.any():  # where enough of a module is missing, so is enough of one inside of it
        return
    inside: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        for path in accumulate(canonical(name).split("."), lambda outer, part: f"{outer}.{part}"):
            inside.setdefault(path, []).append(at)
    found: tuple[str, ...] = ()
    for name, of in sorted(inside.items()):  # a module comes before what is inside of it
        total = _Counts(counts.missing[of].sum(0, keepdims=True), counts.counted[of].sum(keepdims=True))
        if total.enough[0] and not name.startswith(found):
            found += (f"{name}.",)
            yield total.part(name or "what is outside the modules", side, 0)


_FIRST, _SECOND, _START, _END = "the first half", "the second half", "the start", "the end"


def _stretch(missing: Bool) -> str:
    """Name the place of what is missing in a log; bool by counted operation, in order."""
    n, many = len(missing), int(np.count_nonzero(missing))
    present = np.flatnonzero(~missing)
    if not len(present):
        return _ALL
    start, end = int(present[0]), n - 1 - int(present[-1])
    if max(start, end) < _STRETCH * many:
        return _MOST
    half = many < 0.6 * n
    if end >= start:
        return _SECOND if half else _END
    return _FIRST if half else _START


def _merged(parts: list[Part]) -> tuple[Part, ...]:
    """The parts, largest first; one for a part of both logs, as it is in the log that has more of it."""
    by_name: dict[str, list[Part]] = {}
    for part in parts:
        by_name.setdefault(part.name, []).append(part)
    largest = [max(same, key=lambda part: part.operations) for same in by_name.values()]
    merged = [replace(part, side="") if len(by_name[part.name]) > 1 else part for part in largest]
    return tuple(sorted(merged, key=lambda part: -part.operations))
