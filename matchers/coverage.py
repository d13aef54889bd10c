"""The coverage of two logs: compared and covered operations, and the parts of a log that nothing vouches for.

An operation is *compared* if what it returned or wrote was, or if it is a covered copy of that: with the bits of its
input and the norm of what agrees (one layout copies to transpose where another need not). Any other is *covered* if one
that agrees reads its results or reads what such an operation makes of them, and no red one does, or if the named
tensors that it wrote agree at the end of the step: then an error in it would have shown. This does not hold for a half
of a log or a phase that the other log does not have. Copies that activation checkpointing computes again are not
counted, nor are micro-batches that other ranks of the other run have, nor results without elements that one run lacks,
nor what is around a call of a model, or around the forward pass of a step where the other log is that of a call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int32, Int64, columns, marked
from matchers.laws.law import Form
from matchers.logs.columns import Ragged
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import MARKS, NO_DIGEST, STATISTICS, OpLog, Phase
from matchers.ops.dataflow import upstream
from matchers.ops.laws import collective, communicating, copies, rows_named, rows_where
from matchers.ops.module_path import NO_MODULE, canonical
from matchers.ops.run_info import MERGED_RANKS, call_extent, of_call
from matchers.ops.shapes import numel
from matchers.ops.values import records_changes
from matchers.rows import Rows
from matchers.status import AGREE, Status
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative

__all__ = ["Cover", "Coverage", "Part", "Side", "coverage"]

_ENOUGH: Final = 0.5
"""A part of a log was not compared if this fraction of it is neither compared nor covered."""
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
_REASONS: Final = (
    ("has no partner", "have no partner"),
    ("has no values", "have no values"),
    ("was not judged", "were not judged"),
    ("is sharded", "are sharded"),
    ("is a term of a micro-batch", "are terms of micro-batches"),
    ("only communicates", "only communicate"),
)
"""Reasons for not comparing an operation, for one and for several."""
_UNPAIRED, _NO_VALUES, _NOT_JUDGED, _SHARDED, _MICRO_BATCH, _COMMUNICATES = range(len(_REASONS))
"""Shards that are read by the optimizer alone cannot be compared with the log of one rank: they are missing from a log,
but from no phase or module. Terms of micro-batches of another size are compared as their sums. Communication makes no
values: what it passes on is compared where it is used. They are missing nowhere.
"""
_REASON_OF: Final = np.full(len(Status), _NOT_JUDGED)
_REASON_OF[[Status.ONLY_A, Status.ONLY_B]] = _UNPAIRED
_REASON_OF[Status.NO_VALUES], _REASON_OF[Status.SHARDED] = _NO_VALUES, _SHARDED


_DIFFERS: Final = (Reason.CANCELLATION, Reason.ROUNDING_UNLIMITED, Reason.REARRANGED, Reason.UNSIZED)
"""Reasons for not judging a result of which both runs have the same kind, with other bits."""
_MEAN: Final = STATISTICS.index("Mean")
_SUMMED: Final = 64 * 2.0**-24
"""Relative difference of one number that is summed in float32, in another order."""
_ROUNDING: Final = 1e-12
"""Relative difference of the norms of the same numbers in another order, in double precision."""


_ALL, _MOST = "all", "most"


class Cover(IntEnum):
    """The outcome for one operation."""

    NOT_COUNTED = 0
    COMPARED = 1
    COVERED = 2
    UNCOVERED = 3
    IGNORED = 4


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
        layout: as of `LeftOut`.
    """

    name: str
    side: str
    operations: int
    of: int
    why: str
    ranks: tuple[int, ...] = ()
    layout: bool = False

    def __str__(self) -> str:
        side = self.side or ("both logs" if self.name in (_ALL, _MOST) else "")
        many = f" ({self.operations:,})" if self.operations or not self.ranks else ""
        return f"{self.name}{f' of {side}' if side else ''}{many}"


@dataclass(frozen=True, slots=True)
class Side:
    """Numbers of operations of one log."""

    compared: int
    covered: int
    uncovered: int
    ignored: int

    @property
    def operations(self) -> int:
        """All that are to be compared: not those that rules ignore."""
        return self.compared + self.covered + self.uncovered


@dataclass(frozen=True)
class Coverage:
    """The coverage of a comparison.

    Attributes:
        cover: int8[r] of `Cover`, by row.
        a, b: numbers of operations of each log.
        parts: the parts that were not compared: ranks, then the largest first.
        left: why operations of the log with more of them are neither compared nor covered: (for one, for several,
            number).
        fewer: pairs that agree in fewer kinds of values than one of their records has: a line of the other is missing.
        unmerged: `a` or `b` if it alone is the log of one process, and the other one is merged of ranks; else empty.
    """

    cover: NDArray[np.int8]
    a: Side
    b: Side
    parts: tuple[Part, ...]
    left: tuple[tuple[str, str, int], ...]
    fewer: int = 0
    unmerged: str = ""

    @property
    def nothing(self) -> bool:
        """True if not one row was compared."""
        return not bool((self.cover == Cover.COMPARED).any())

    @property
    def enough(self) -> bool:
        """True if something was compared, no rank was left out, and no part of a log."""
        return not self.nothing and not self.parts

    @property
    def understood(self) -> bool:
        """False if ranks compute for each other what neither log shows, so that a difference need not be one."""
        return not any(part.layout for part in self.parts)

    @property
    def missing(self) -> str:
        """The parts without comparison, in words: all ranks that were left out, else the largest part; or none."""
        return " and ".join(str(part) for part in self.parts if part.ranks) or next(map(str, self.parts), "")

    @property
    def half(self) -> bool:
        """True if at least half of a log was not compared."""
        return any(2 * part.operations >= max(self.a.operations, self.b.operations) for part in self.parts)

    @property
    def larger(self) -> Side:
        """The log with more operations."""
        return max(self.a, self.b, key=lambda side: side.operations)

    @cached_property
    def sentence(self) -> str:
        """The number of compared operations, and the part or the reasons of those that were not."""
        side = self.larger
        told = f"{side.compared:,} of {side.operations:,} operation{'s' * (side.operations != 1)} compared"
        one = {"a": self.a, "b": self.b}.get(self.unmerged, side)
        if one is not side:  # what only communicates or arranges parts has no counterpart in one process
            other = "b" if one is self.a else "a"
            told = f"{one.compared:,} of {one.operations:,} operations of {self.unmerged} compared, "
            told += f"{side.compared:,} of {side.operations:,} of {other}"
        if self.fewer:
            told += f" ({self.fewer:,} by fewer values than one log has)"
        if side.covered and self.left:
            told += f", {side.covered:,} covered"
        if self.parts and not self.nothing:
            return f"{told}; {self.missing} {self.parts[0].why}"
        if self.left:
            return f"{told}; {', '.join(f'{n:,} {one if n == 1 else several}' for one, several, n in self.left)}"
        if side.covered:
            other = "one leads" if side.covered == 1 else f"{side.covered:,} lead"
            return f"{told}; what the other {other} to agrees"
        return told


def coverage(c: Rows, kept: tuple[Bool, Bool] | None = None, allowed: Bool | None = None) -> Coverage:
    """Return the coverage of a comparison.

    Args:
        kept: bool[n_a], bool[n_b], the records that wrote named tensors whose last contents all agree; may be
            empty for none.
        allowed: bool[r], rows that the user allows not to be compared; they count as ignored.
    """
    agrees = np.isin(c.verdict, (*AGREE, Status.PARTIAL))  # of partial sums, the total was compared
    cover = np.full(len(c), Cover.UNCOVERED, np.int8)
    cover[agrees | c.red | c.cause] = Cover.COMPARED  # a first cause of one run only was found without a partner
    cover[c.status == Status.PARTIAL] = Cover.COVERED
    cover[c.status == Status.RECOMPUTE] = Cover.NOT_COUNTED
    cover[c.of_other_ranks] = Cover.NOT_COUNTED
    for log, at in ((c.a, c.at_a), (c.b, c.at_b)):  # an expert without tokens, which the other run may skip
        cover[at[(numel(log)[log.shape] == 0) & (c.pair[at] < 0)]] = Cover.NOT_COUNTED
    for log, at, other in ((c.a, c.at_a, c.b), (c.b, c.at_b, c.a)):
        around = np.zeros(len(log), bool)
        if (call := call_extent(log.header.run)) is not None:
            around[: call[0]] = around[call[1] :] = True
        if of_call(other.header.run):
            around |= (log.phase != Phase.FORWARD) & ~np.isin(log.phase, other.phase)
        cover[at[around & (cover[at] == Cover.UNCOVERED)]] = Cover.NOT_COUNTED
    cover[c.status == Status.IGNORED] = Cover.IGNORED
    left = cover == Cover.UNCOVERED
    if left.any() and agrees.any() and c.flow is not None:
        vouched, absent = np.ones(len(c), bool), _absent(c, cover)
        for side, (log, at, flow) in enumerate(((c.a, c.at_a, c.flow.a), (c.b, c.at_b, c.flow.b))):
            wrote = kept[side] if kept is not None and len(kept[side]) else np.zeros(len(log), bool)
            holds = _vouched(log, flow, at, agrees[at], c.red[at], wrote, np.isin(c.reason, _DIFFERS)[at])
            vouched[at[~holds]] = False
            absent[at[wrote]] = False
        cover[left & vouched & ~absent] = Cover.COVERED
        cover[_same_totals(c, cover == Cover.UNCOVERED)] = Cover.COVERED
        for log, at, flow in ((c.a, c.at_a, c.flow.a), (c.b, c.at_b, c.flow.b)):
            cover[at[_exact_copies(log, flow, cover[at] == Cover.COVERED, agrees[at])]] = Cover.COMPARED
    if allowed is not None:
        cover[(cover == Cover.UNCOVERED) & allowed] = Cover.IGNORED
    why = _REASON_OF[c.verdict]
    buckets = _into_buckets(c.a, c.pairing.of_a), _into_buckets(c.b, c.pairing.of_b)
    for side, (log, other, at) in enumerate(((c.a, c.b, c.at_a), (c.b, c.a, c.at_b))):
        theirs = {other.ops[op] for op in set(other.op[buckets[1 - side]].tolist())}
        alone = buckets[side] & (~rows_named(log, theirs) | _out_of_collectives(log))
        why[at[communicating(log) | alone]] = _COMMUNICATES
        if log.folding is not None:
            why[at[log.folding.terms]] = _MICRO_BATCH
    a, b = _side(cover[c.at_a]), _side(cover[c.at_b])
    at = max(((a, c.at_a), (b, c.at_b)), key=lambda side: side[0].operations)[1]
    many = np.bincount(why[at][cover[at] == Cover.UNCOVERED], minlength=len(_REASONS)).tolist()
    return Coverage(
        cover=cover,
        a=a,
        b=b,
        parts=(
            *_ranks_left_out(c),
            *_merged([*_parts(c.a, "a", cover[c.at_a], why[c.at_a]), *_parts(c.b, "b", cover[c.at_b], why[c.at_b])]),
        ),
        left=tuple((*reason, n) for reason, n in zip(_REASONS, many, strict=True) if n),
        fewer=_by_fewer_values(c),
        unmerged=_unmerged(c),
    )


def _ranks_left_out(c: Rows) -> Iterator[Part]:
    for log, side in ((c.a, "a"), (c.b, "b")):
        for left in log.left_out:
            yield Part(left.name, side, left.operations, left.operations, left.why, left.ranks, left.layout)


def _unmerged(c: Rows) -> str:
    """As of `Coverage`."""
    of_ranks = [MERGED_RANKS in log.header.run for log in (c.a, c.b)]
    return "" if of_ranks[0] == of_ranks[1] else "b" if of_ranks[0] else "a"


def _by_fewer_values(c: Rows) -> int:
    """Count the pairs that agree though one side alone has a kind of value: a shape, a number, a change in place."""
    p = c.pairing
    i, j = p.lead_a.astype(np.int64), p.lead_b.astype(np.int64)
    verdict = c.status[c.row_of_pair]
    a, b = c.a, c.b
    shape = (a.shape[i] >= 0) != (b.shape[j] >= 0)
    norms = (a.outputs.count[i] > 0) != (b.outputs.count[j] > 0)
    numbers = np.isin(verdict, (Status.SAME_PRINT, Status.CLOSE)) & (norms | (a.present[i] != b.present[j]))
    # equal bits that only one of the two made: the other read them already, or does not say what it changed
    op_a, op_b, _ = shared_ids(a.ops, b.ops)
    changes = (_says_changes(a)[i] != _says_changes(b)[j]) & (op_a[a.op[i]] == op_b[b.op[j]])
    changes &= (verdict == Status.EQUAL) & (records_changes(a) and records_changes(b))
    return int(np.count_nonzero(~p.grouped & (np.isin(verdict, list(AGREE)) & shape | numbers | changes)))


def _says_changes(log: OpLog) -> Bool:
    """bool[n]: the record says what the operation changed in place."""
    return marked(log.texts("Mutated").rows, len(log))


def _into_buckets(log: OpLog, of: Int32) -> Bool:
    """bool[n]: unpaired records that scale or copy gradients into buckets, which a run sends: nothing reads them.

    And those that write one number, such as the zeros of a gradient that a rank does not have, or scale one that ranks
    have summed up after the step, such as their loss.
    """
    if not collective(log).any():
        return np.zeros(len(log), bool)
    fills = rows_where(log, lambda law: law.form in (Form.FILL, Form.DIVIDE, Form.MULTIPLY))
    fills |= rows_where(log, lambda law: law.in_place and law.pointwise) & (log.stats[2] == log.stats[3])
    told = (log.phase == Phase.AFTER) & (numel(log)[log.shape] == 1) & _out_of_collectives(log)
    return np.asarray(fills & ((log.phase == Phase.BACKWARD) | told) & (of < 0))


def _same_totals(c: Rows, left: Bool) -> Bool:
    """bool[r]: unpaired rows that lead to a result with whose total both runs end, and which no other row reads.

    Such is a loss that is added up to be told, or whose terms are told one by one.

    Args:
        left: bool[r], rows that are not compared.
    """
    assert c.flow is not None
    alone, ends = list[tuple[Bool, Int32, Ragged]](), list[tuple[Int64, Float64]]()
    for log, at, flow, of in ((c.a, c.at_a, c.flow.a, c.pairing.of_a), (c.b, c.at_b, c.flow.b, c.pairing.of_b)):
        own = (of < 0) & left[at] & ~log.updates
        read = np.zeros(len(log), bool)
        blind = rows_where(log, lambda law: law.blind) | communicating(log)
        read[flow.value[(flow.value >= 0) & ~blind[flow.row]]] = True
        rows = np.flatnonzero(own & ~read & (log.inputs.count > 0))
        alone.append((own, at, flow))
        ends.append((rows, log.stats[_MEAN, rows] * numel(log)[log.shape[rows]]))
    found = np.zeros(len(c), bool)
    if not (len(ends[0][0]) and len(ends[1][0])):
        return found
    off = relative(ends[0][1][:, None], ends[1][1][None, :])
    same = (off <= _SUMMED) & (ends[0][1] % 1 != 0)[:, None]  # many things are 1, or a count
    for (own, at, flow), (rows, _), matched in zip(alone, ends, (same.any(axis=1), same.any(axis=0)), strict=True):
        leads = upstream(flow, marked(rows[matched], len(own)), own)
        found[at[leads & own]] = True
    return found


def _out_of_collectives(log: OpLog) -> Bool:
    """bool[n]: the record reads what a collective has brought."""
    made = log.producers.value >= 0
    return marked(log.producers.row[made & np.append(collective(log), False)[log.producers.value]], len(log))


def _side(cover: NDArray[np.int8]) -> Side:
    many = np.bincount(cover, minlength=len(Cover)).tolist()
    return Side(many[Cover.COMPARED], many[Cover.COVERED], many[Cover.UNCOVERED], many[Cover.IGNORED])


def _absent(c: Rows, cover: NDArray[np.int8]) -> Bool:
    """bool[r]: rows of a phase that the other log does not have, or beyond its start or end if that is half of a log.

    No other form of them can be in the other log, and what reads them may have been read from anywhere.
    """
    absent = np.zeros(len(c), bool)
    counted = (cover == Cover.COMPARED) | (cover == Cover.UNCOVERED)
    common = np.flatnonzero(c.pair >= 0)
    ends = (slice(0, common[0]), slice(common[-1] + 1, None)) if len(common) else ()
    for log, mine, other, theirs in ((c.a, c.row_a, c.b, c.row_b), (c.b, c.row_b, c.a, c.row_a)):
        counts = counted & (mine >= 0)
        for end in ends:
            if 0 < _ENOUGH * counts.sum() <= counts[end].sum() and not (theirs[end] >= 0).any():
                absent[end] = True
        of_phase = np.append(log.phase, -1)[mine]
        for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.AFTER):
            rows = of_phase == phase
            if not (other.phase == phase).any() and not (rows & (cover == Cover.COMPARED)).any():
                absent |= rows
    return absent


def _vouched(log: OpLog, flow: Ragged, at: Int32, agrees: Bool, red: Bool, kept: Bool, differs: Bool) -> Bool:
    """bool[n]: the record agrees, or an error in it would have shown.

    What it made is read by one that agrees, directly or through others, and by no red one; or nothing reads it, and it
    is a constant or a copy of what agrees. Of what differs, all that read it must agree; and an update by a gradient
    that differs says nothing of it.

    Args:
        flow: the record that made each input of each record.
        at: by record, the row; the members of a group do not vouch for each other.
        agrees, red: by record, its row was compared and agrees; is red.
        kept: by record, what it wrote agrees at the end of the step.
        differs: by record, its result differs, by what could not be judged.
    """
    n, every = len(at), np.ones(len(at), bool)
    unknown, makers, readers = ~(agrees | red), flow.value, flow.row
    holds = agrees | (unknown & kept)
    blind = rows_where(log, lambda law: law.blind)
    asked = (makers >= 0) & (unknown & ~holds)[makers] & (at[makers] != at[readers]) & ~blind[readers]
    told = asked & (red[readers] | ((differs & (log.phase == Phase.BACKWARD))[makers] & log.updates[readers]))
    asked &= ~marked(makers[told], n)[makers]
    while True:
        vouched = upstream(Ragged(flow.start, np.where(asked, makers, -1)), holds, every)
        waits = vouched & ~holds & differs & marked(makers[asked & ~vouched[readers]], n)
        if not waits.any():
            break
        asked &= ~waits[makers]
    made = makers >= 0
    makers, readers = makers[made], readers[made]
    read = np.bincount(makers[~communicating(log)[readers]], minlength=n) > 0  # a buffer to receive in is no result
    doubted = np.bincount(readers[~vouched[makers]], minlength=n) > 0
    # made for a log or a metric as a rule
    simple = rows_where(log, lambda law: law.constant or law.copies or law.form is Form.JOIN)
    return vouched | (unknown & simple & ~read & ~doubted)


def _exact_copies(log: OpLog, flow: Ragged, asked: Bool, agrees: Bool) -> Int64:
    """The records, of those asked for, that copy the whole of what agrees, bit by bit, perhaps in another order.

    Args:
        flow: the record that made each input of each record.
        asked, agrees: by record.
    """
    rows = np.flatnonzero(asked & copies(log) & (log.inputs.count == 1) & (log.input_digests.count == 1))
    maker, made = flow.first(rows, -1), log.digests.first(rows, NO_DIGEST)
    known = (made == log.input_digests.first(rows, NO_DIGEST)) & ~np.isin(made, MARKS) & (maker >= 0)
    rows, maker = rows[known], maker[known]
    off = relative(log.outputs.first(rows), log.outputs.first(maker))
    rows, maker = rows[off <= _ROUNDING], maker[off <= _ROUNDING]
    found = agrees.copy()
    for row, source in zip(rows.tolist(), maker.tolist(), strict=True):  # of a copy of a copy, too
        found[row] |= found[source]
    return rows[found[rows]]


def _parts(log: OpLog, side: str, cover: NDArray[np.int8], why: Int64) -> Iterator[Part]:
    """Yield the parts of a log that were not compared; modules only for what is in no other part.

    Args:
        why: by record, an index into `_REASONS`.
    """
    missing = (cover == Cover.UNCOVERED) & ~np.isin(why, (_COMMUNICATES, _MICRO_BATCH))
    if not missing.any():
        return
    counted = missing | (cover == Cover.COMPARED) | (cover == Cover.COVERED)
    whole = _Counts.of(missing, counted, why, np.zeros(len(log), np.int8), 1)
    if whole.enough[0]:
        yield whole.part(_stretch(missing[counted]), side, 0)
    missing &= why != _SHARDED
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
        size = len(_REASONS)
        code = group[missing].astype(np.int64) * size + why[missing]
        return cls(
            np.bincount(code, minlength=groups * size).reshape(groups, size),
            np.bincount(group[counted], minlength=groups),
        )

    @property
    def enough(self) -> Bool:
        """bool[groups]: the group is a part that was not compared."""
        return np.asarray((self.counted > 0) & (_ENOUGH * self.counted <= self.missing.sum(1)))

    def part(self, name: str, side: str, group: int) -> Part:
        missing = self.missing[group]
        return Part(name, side, int(missing.sum()), int(self.counted[group]), _REASONS[int(missing.argmax())][0])


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
