"""Find where a divergence starts: the role of every red pair, and the first causes.

* receiver: an input already differs, or comes from a red row (also over rows that are close, unpaired or not judged),
or from an unpaired operation; * origin: every input agrees, the output differs; * unknown: no upstream row is red, but
an input differs (or has no hash) and no captured operation produced it: look one hop upstream.

Before the first red row an input agrees if it is within the tolerance. After it only an equal one does: there, a small
difference is more likely propagated divergence than noise. If both logs have digests, equal means bitwise equal; an
input whose bits differ although its producers' outputs are equal was changed on the way by something uncaptured (a view
of something else), and the row that reads it is unknown wherever it is.

First causes are the red rows that no other red row explains: origins and unknowns. Unpaired operations are first causes
too, if their own inputs are sound and a red row reads their result in place of another value (an inserted `neg` leaves
every norm unchanged), or if they produce the first NaN or Inf that a red row reads. So is a draw of random numbers
behind such an input, if only one run draws there: dropout that is off in the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int32, Int64
from matchers.causes.handed_on import Causes, acquit_copies
from matchers.causes.red_inputs import Inputs, inputs_of_pairs, is_alone, marked, marked_at, of_red_tensors
from matchers.causes.unjudged_stretch import Stretches, behind_parts
from matchers.causes.unpaired_branches import Branches, Side
from matchers.logs.columns import Ragged
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import NO_DIGEST, OpLog, Phase
from matchers.ops.collectives import awaiting
from matchers.ops.dataflow import DataFlow, downstream
from matchers.ops.laws import copies, drawing, law_of, rows_where
from matchers.ops.nonfinite import broken, where_broken_begins
from matchers.ops.shapes import numel
from matchers.ops.values import first_outputs
from matchers.pairing.pairing import Pairing
from matchers.rows import Origins, Stretch
from matchers.status import Role, Status
from matchers.verdict.judge import Verdicts
from matchers.verdict.judge_values import Differences
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative
from matchers.verdict.sketches import estimates

__all__ = ["Origins", "find_origins"]


_GROWTH = 4.0
"""Factor by which an operation may enlarge the error of what unpaired operations made."""


def find_origins(
    a: OpLog,
    b: OpLog,
    pairing: Pairing,
    verdicts: Verdicts,
    parts: Bool,
    flow: DataFlow,
    unpaired: tuple[NDArray[np.int8], NDArray[np.int8]],
    gradients: Sequence[tuple[int, int]] = (),
) -> Origins:
    """Determine roles and first causes.

    Args:
        parts: bool[p], the two sides hold different parts of their tensors.
        flow: used only if something is red.
        unpaired: int8[n_a], int8[n_b], the red records among the unpaired ones: RECEIVER where other reds explain them,
            ORIGIN otherwise; NONE for all other records.
        gradients: the records of a and b that made gradients which differ, of what the red ones update.
    """
    role = np.zeros(len(pairing), np.int8)
    cause = np.zeros(len(pairing), bool)
    red = verdicts.status >= Status.SHAPE
    if not red.any() and not (unpaired[0].any() or unpaired[1].any()):
        none = np.zeros(len(a), np.int8), np.zeros(len(b), np.int8)
        return Origins(role, cause, *none, np.zeros(len(a), bool), np.zeros(len(b), bool))
    flow_a, flow_b = (
        of_red_tensors(log, of, lead, verdicts)
        for log, of, lead in ((a, flow.a, pairing.lead_a), (b, flow.b, pairing.lead_b))
    )
    one = _Half.of("a", a, pairing.of_a, flow_a, verdicts, unpaired[0])
    other = _Half.of("b", b, pairing.of_b, flow_b, verdicts, unpaired[1])
    begin = _begin_of_gradient(one, other, gradients)
    role_a, role_b = (
        np.where((role == Role.ORIGIN) & half.side.log.updates & bool(begin), np.int8(Role.RECEIVER), role)
        for half, role in ((one, one.unpaired_roles(unpaired[0])), (other, other.unpaired_roles(unpaired[1])))
    )
    one.cause, other.cause = role_a == Role.ORIGIN, role_b == Role.ORIGIN
    for half, record in begin:
        half.cause[record] = True
    found: dict[int, Stretch] = {}
    if red.any():
        search = _Search(one, other, pairing, verdicts, parts, red, cause)
        search.follow()
        role, found = search.roles(), search.unjudged
        acquit_copies(a, b, pairing, verdicts, flow, role, Causes(cause, one.cause, other.cause))
        if not (cause.any() or one.cause.any() or other.cause.any()):
            # crossing pairs let red rows explain each other: take the earliest
            cause[np.flatnonzero(red)[np.argmin(pairing.lead_a[red])]] = True
    elif not (one.cause.any() or other.cause.any()):  # each explains another: take the earliest
        for half, roles in ((one, role_a), (other, role_b)):
            half.cause[np.flatnonzero(roles)[:1]] = True
    return Origins(role, cause, role_a, role_b, one.cause, other.cause, found)


def _begin_of_gradient(one: _Half, other: _Half, gradients: Sequence[tuple[int, int]]) -> list[tuple[_Half, int]]:
    """Beginning of a term of a gradient that one run alone adds; nothing red leads to it."""
    for made in gradients:
        for half, k in ((one, 0), (other, 1)):
            maker, theirs = made[k], np.array([made[1 - k]])
            of_other = (other, one)[k].side.of
            if _extra(np.array([maker]), theirs, half.side.of, of_other)[0] and not half.fed[maker]:
                name, record = Branches(one.side, other.side).start((half.side.name, maker))
                return [(one if name == "a" else other, record)]
    return []


@dataclass
class _Half:
    """One log in the search for first causes.

    Attributes:
        side: the log, its pairs and its data flow.
        red: bool[n], red records.
        passive: bool[n], records whose results may differ though they are not red: not judged (unpaired, or logged
            before completion), or within the tolerance.
        cause: bool[n], the unpaired records that are first causes.
    """

    side: Side
    red: Bool
    passive: Bool
    cause: Bool

    @classmethod
    def of(
        cls, name: str, log: OpLog, of: Int32, flow: Ragged, verdicts: Verdicts, unpaired: NDArray[np.int8]
    ) -> _Half:
        red = _red_records(verdicts.status >= Status.SHAPE, of) | (unpaired != Role.NONE)
        passive = np.append((verdicts.status >= Status.CLOSE) & (verdicts.status < Status.SHAPE), True)
        side = Side(name, log, of.astype(np.int64), flow)
        return cls(side, red, np.asarray(passive[of]), np.zeros(len(log), bool))

    @cached_property
    def fed(self) -> Bool:
        """bool[n]: an input was produced by a red record, directly or over passive records."""
        return _fed_by_red(self.side.flow, self.red, self.passive)

    @property
    def carries(self) -> Bool:
        """bool[n]: the record is red, or hands on what a red one made."""
        return self.red | (self.passive & self.fed)

    @cached_property
    def alone(self) -> Bool:
        """bool[n]: unpaired records."""
        return self.side.of < 0

    def unpaired_roles(self, role: NDArray[np.int8]) -> NDArray[np.int8]:
        """The roles of red unpaired records: a first cause is none that reads what a red record made."""
        return np.where((role == Role.ORIGIN) & self.fed, np.int8(Role.RECEIVER), role) if role.any() else role

    def carried(self, red: Bool, over: Bool) -> Bool:
        """bool[n]: the record reads the result of one of some pairs, directly or over other pairs; both bool[p]."""
        of = self.side.of
        return _fed_by_red(self.side.flow, _red_records(red, of), _red_records(over, of))


class _Search:
    """The search for what explains each red pair.

    Attributes:
        explained: bool[p], a red record, or a first cause among unpaired ones, is upstream.
        unjudged: by pair, the stretch for which a first cause stands that is not judged itself.
    """

    def __init__(
        self, one: _Half, other: _Half, pairing: Pairing, verdicts: Verdicts, parts: Bool, red: Bool, cause: Bool
    ) -> None:
        """`cause`: bool[p], the pairs that are first causes; filled in."""
        self._one, self._other, self._halves = one, other, (one, other)
        self._pairing, self._verdicts, self._parts, self._red, self._cause = pairing, verdicts, parts, red, cause
        a, b = one.side, other.side
        self._folded = a.log.folding is not None or b.log.folding is not None
        # norms of micro-batches hide a difference that a mask, say, is larger than
        self._hides = verdicts.bound & (verdicts.status <= Status.CLOSE)
        if self._folded:
            for half in self._halves:
                hidden = _red_records(self._hides, half.side.of)
                carried = _fed_by_red(half.side.flow, half.red, hidden)
                half.red = half.red | (hidden & carried)
                half.__dict__.pop("fed", None)
        reads = inputs_of_pairs(a.log, b.log, pairing, verdicts, a.flow, b.flow, np.flatnonzero(red))
        from_red = (marked_at(one.carries, reads.maker_a) | marked_at(other.carries, reads.maker_b)) & ~reads.equal
        from_red |= _equal_nan(reads, verdicts, a.of, b.of)
        self.explained = marked(reads.pair[from_red], len(pairing))
        by_weight = [k for k, slot in verdicts.slots.items() if slot.read]
        by_scalar = [k for k, slot in verdicts.slots.items() if slot.scalars is not None]
        self._by_scalar = marked(np.array(by_scalar, int), len(red))
        if self._folded:  # they read terms, which differ by design
            reads = replace(reads, differs=reads.differs & ~self._by_scalar[reads.pair])
        self._reads, self._reads_parts = _without_parts(reads, parts, by_weight, a, b)
        self.unjudged: dict[int, Stretch] = {}

    def follow(self) -> None:
        """Find the first causes among records that are not red pairs, each kind among what is left to explain."""
        self._random_draws()
        self._kept_sizes()
        self._unpaired_producers()
        self._broken_producers()
        self._insertions()
        self._behind_parts()

    def roles(self) -> NDArray[np.int8]:
        """int8[p] of `Role`; the pairs among the first causes are entered."""
        reads, red, explained = self._reads, self._red, self.explained
        first = _first_red(self._pairing, red, self._one.cause, self._other.cause)
        differs, unhashed, hidden = (
            marked(reads.pair[which], len(red)) for which in (reads.differs, reads.unhashed, reads.hidden)
        )
        role = np.zeros(len(red), np.int8)
        role[red] = Role.ORIGIN
        # of what was asked for it is known that the inputs agree, fresh memory among them
        role[red & unhashed & (self._verdicts.reason != Reason.ARGUMENTS)] = Role.UNKNOWN
        # what Python put into a tensor may follow from what it has read
        computed = rows_where(self._one.side.log, lambda law: law.enters)[self._pairing.lead_a] & ~first
        role[red & (differs | explained | computed)] = Role.RECEIVER
        role[red & (first | hidden) & differs & ~explained] = Role.UNKNOWN
        self._cause |= (role == Role.ORIGIN) | ((role == Role.UNKNOWN) & (first | hidden) & ~explained)
        return role

    def _random_draws(self) -> None:
        """Random numbers that one run alone draws."""
        reads = self._reads
        makers = reads.maker_a, reads.maker_b
        draws = [
            _draws(half.side.log, half.side.flow, half.side.of)[maker]
            for half, maker in zip(self._halves, makers, strict=True)
        ]
        random = ((draws[0] >= 0) != (draws[1] >= 0)) & ~reads.equal & ~self.explained[reads.pair]
        for half, draw in zip(self._halves, draws, strict=True):
            half.cause[draw[random & (draw >= 0)]] = True
        self._explain(reads.pair[random])

    def _unpaired_producers(self) -> None:
        """Unpaired producers of another value, or of one that agrees in L1 only."""
        one, other = self._one, self._other
        a, b = one.side, other.side
        reads = self._over_moved(self._over_unjudged(self._reads))
        extra_a, extra_b = (
            _extra(reads.maker_a, reads.maker_b, a.of, b.of),
            _extra(reads.maker_b, reads.maker_a, b.of, a.of),
        )
        # other operations made it in each run: what differs is known by its numbers only
        both = marked_at(one.alone, reads.maker_a) & marked_at(other.alone, reads.maker_b)
        both &= self._verdicts.status[reads.pair] != Status.NAN
        suspect = (extra_a | extra_b | both) & ~reads.equal & ~self.explained[reads.pair] & ~self._reads_parts
        suspect &= ~(marked_at(_given(a), reads.maker_a) | marked_at(_given(b), reads.maker_b))
        unshown = np.flatnonzero(suspect & ~reads.differs & both)
        hidden = _hidden_error(a.log, b.log, reads.maker_a[unshown], reads.maker_b[unshown])
        suspect[unshown] = self._verdicts.error[reads.pair[unshown]] <= _GROWTH * hidden
        alike = np.flatnonzero(suspect & ~reads.differs & ~both)
        maker_a, maker_b = reads.maker_a[alike], reads.maker_b[alike]
        suspect[alike] = _altered(a.log, b.log, maker_a, maker_b, self._verdicts.tolerance[reads.pair[alike]])
        if self._folded:
            # the norms of micro-batches do not show that elements were moved
            moved_a, moved_b = marked_at(~copies(a.log), maker_a), marked_at(~copies(b.log), maker_b)
            suspect[alike] |= (extra_a[alike] & moved_a) | (extra_b[alike] & moved_b)
        suspect &= ~((extra_a | both) & one.fed[np.maximum(reads.maker_a, 0)])
        suspect &= ~((extra_b | both) & other.fed[np.maximum(reads.maker_b, 0)])
        self._explain(reads.pair[suspect])
        # a row that reads hundreds of tensors (an optimizer's) names one suspect, not hundreds
        named = np.flatnonzero(suspect)
        named = named[np.unique(reads.pair[named], return_index=True)[1]]
        branches = Branches(a, b)
        for k in named.tolist():
            ends = [("a", int(reads.maker_a[k]))] * bool(extra_a[k] | both[k])
            ends += [("b", int(reads.maker_b[k]))] * bool(extra_b[k] | both[k])
            name, begin = branches.start(*ends)
            (one if name == "a" else other).cause[begin] = True

    def _over_unjudged(self, reads: Inputs) -> Inputs:
        """The inputs, but what a pair reads in place of its result, if it is not judged and no partners make that."""
        a, b = self._one.side, self._other.side
        unjudged = np.append(self._verdicts.status == Status.NOT_JUDGED, False)
        at = np.flatnonzero(marked_at(unjudged[a.of], reads.maker_a) & marked_at(unjudged[b.of], reads.maker_b))
        i, j = reads.maker_a[at], reads.maker_b[at]
        known = (a.flow.count[i] > 0) & (b.flow.count[j] > 0) & (a.of[i] == b.of[j])
        at, i, j = at[known], i[known], j[known]
        before_a, before_b = a.flow.value[a.flow.start[i]], b.flow.value[b.flow.start[j]]
        alone = is_alone(before_a, a.of) & is_alone(before_b, b.of)
        maker_a, maker_b = reads.maker_a.copy(), reads.maker_b.copy()
        maker_a[at[alone]], maker_b[at[alone]] = before_a[alone], before_b[alone]
        return replace(reads, maker_a=maker_a, maker_b=maker_b)

    def _over_moved(self, reads: Inputs) -> Inputs:
        """The inputs, but what one run alone moves between its ranks, where the other reads the partner of that."""
        behind_a = _behind_moves(self._one, reads.maker_a, np.append(self._other.side.of, -1)[reads.maker_b])
        behind_b = _behind_moves(self._other, reads.maker_b, np.append(self._one.side.of, -1)[reads.maker_a])
        return replace(reads, maker_a=behind_a, maker_b=behind_b)

    def _kept_sizes(self) -> None:
        """Backward operations with another shape or scalar, of a line whose forward operations differ: autograd keeps
        sizes.
        """
        shapes = np.flatnonzero(((self._verdicts.status == Status.SHAPE) | self._by_scalar) & ~self.explained)
        log, lead = self._one.side.log, self._pairing.lead_a
        shapes = shapes[log.phase[lead[shapes]] == Phase.BACKWARD]
        if not len(shapes):
            return
        differs = (self._one.red | self._one.alone) & (log.phase == Phase.FORWARD) & (log.location >= 0)
        places = {(m, x) for m, x in zip(log.module[differs].tolist(), log.location[differs].tolist(), strict=True)}
        found = [(int(log.module[i]), int(log.location[i])) in places for i in lead[shapes].tolist()]
        self._explain(shapes[np.array(found, bool)])

    def _broken_producers(self) -> None:
        """Unpaired producers of the first NaN or Inf."""
        reads = self._reads
        wanted = (self._verdicts.status == Status.NAN) & ~self.explained
        if not wanted.any():
            return
        odd = [np.logical_or(*broken(half.side.log)) for half in self._halves]
        makers = reads.maker_a, reads.maker_b
        for n, half in enumerate(self._halves):
            # computations by different operations (a softmax written out) have no pair that could be red
            alone = odd[n] & half.alone
            led = wanted[reads.pair] & ~marked_at(odd[1 - n], makers[1 - n]) & marked_at(alone, makers[n])
            begins = where_broken_begins(half.side.flow, makers[n][led], alone)
            half.cause[begins[~half.fed[begins]]] = True
            self._explain(reads.pair[led])

    def _insertions(self) -> None:
        """Operations between partners, whose effect the norms of folded micro-batches do not show."""
        if not self._folded:
            return
        open_pairs = self._red & ~self.explained
        leads = self._pairing.lead_a, self._pairing.lead_b
        for n, half in enumerate(self._halves):
            for record, pairs in _insertions(half.side, self._halves[1 - n].side, self._hides, leads[1 - n]).items():
                led = open_pairs & half.carried(marked(pairs, len(self._red)), self._hides)[leads[n]]
                if led.any():
                    half.cause[record], self.explained[led] = True, True

        # of the terms of micro-batches, the same value does not mean the same share: a loss divided by one
        reads, (a, b) = self._reads, (half.side for half in self._halves)
        same = (self._red & ~self.explained & ~marked(reads.pair[reads.differs], len(self._red)))[reads.pair]
        for half, maker, extra in (
            (self._one, reads.maker_a, _extra(reads.maker_a, reads.maker_b, a.of, b.of)),
            (self._other, reads.maker_b, _extra(reads.maker_b, reads.maker_a, b.of, a.of)),
        ):
            led = same & extra & marked_at(~copies(half.side.log) & ~half.fed, maker)
            half.cause[maker[led]] = True
            self._explain(reads.pair[led])

    def _behind_parts(self) -> None:
        """Operations on parts of tensors."""
        if not self._reads_parts.any():
            return
        sides, red = (self._one.side, self._other.side), self._red
        stretches = Stretches(*sides, self._pairing, self._verdicts, self._parts, red)
        reads_parts = marked(self._reads.pair[self._reads_parts], len(red))
        stretches.follow(np.flatnonzero(red & reads_parts & ~self.explained))
        self.explained[stretches.consequence] = True
        for name, record in stretches.causes:
            {"": self._cause, "a": self._one.cause, "b": self._other.cause}[name][record] = True
        self.unjudged = stretches.unjudged

    def _explain(self, pairs: Int64) -> None:
        self.explained[pairs] = True


def _without_parts(reads: Inputs, parts: Bool, by_weight: list[int], a: Side, b: Side) -> tuple[Inputs, Bool]:
    """The inputs, where those that are parts of tensors do not count as different; and bool, these inputs.

    Args:
        by_weight: pairs that were judged by a whole weight which they read.
    """
    if not parts.any():
        return reads, np.zeros(len(reads.pair), bool)
    found = parts[reads.pair] & ~marked(np.array(by_weight, int), len(parts))[reads.pair]
    for side, maker in ((a, reads.maker_a), (b, reads.maker_b)):
        found |= marked_at(np.append(parts, False)[side.of] | behind_parts(side, parts), maker)
    return replace(reads, differs=reads.differs & ~found, hidden=reads.hidden & ~found), found


def _first_red(pairing: Pairing, red: Bool, cause_a: Bool, cause_b: Bool) -> Bool:
    """bool[p]: no red pair and no suspect precedes the pair in either dispatch order."""
    first_a = int(pairing.lead_a[red].min())
    if cause_a.any():
        first_a = min(first_a, int(np.flatnonzero(cause_a)[0]))
    first_b = int(np.flatnonzero(cause_b)[0]) if cause_b.any() else len(cause_b)
    return np.asarray((pairing.lead_a <= first_a) & (pairing.lead_b < max(first_b, 1)))


def _equal_nan(reads: Inputs, verdicts: Verdicts, of_a: Int64, of_b: Int64) -> Bool:
    """bool: NaN with equal bits in both runs that a pair reads, which has such NaN itself: it begins earlier."""
    both = verdicts.reason == Reason.NAN_IN_BOTH
    made = (marked_at(_red_records(both, of), maker) for of, maker in ((of_a, reads.maker_a), (of_b, reads.maker_b)))
    return both[reads.pair] & (reads.broken | np.logical_or(*made))


def _red_records(red: Bool, of: Int32 | Int64) -> Bool:
    return np.asarray((of >= 0) & red[np.maximum(of, 0)])


def _behind_moves(half: _Half, maker: Int64, wanted: Int64) -> Int64:
    """Records, but those of a pair (`wanted`, -1 for none) whose result unpaired ones have only moved between ranks.

    Of these the norm is not known: what merged ranks have of it cannot be put together.
    """
    side = half.side
    moved = awaiting(side.log).copy()
    moved[[row for row in side.log.texts("Group") if not law_of(side.log, row).reduces]] = True
    moved &= half.alone & np.isnan(side.log.outputs.first())
    behind = np.append(np.arange(len(side.log)), -1)
    for row in np.flatnonzero(moved).tolist():
        read = {record for record in side.flow[row].tolist() if 0 <= record < row}
        behind[row] = behind[read.pop()] if len(read) == 1 else -1
    at = behind[maker]
    return np.where((at >= 0) & (wanted >= 0) & (np.append(side.of, -1)[at] == wanted), at, maker)


def _extra(maker: Int64, other: Int64, of: Int64, of_other: Int64) -> Bool:
    """bool: the input's producer is unpaired, while that of the other side is paired or unknown."""
    alone = is_alone(maker, of)
    placed = (other < 0) | (of_other[np.maximum(other, 0)] >= 0) if len(of_other) else np.ones(len(maker), bool)
    return np.asarray(alone & placed)


def _draws(log: OpLog, flow: Ragged, of: Int64) -> Int64:
    """int64[n + 1]: the draw of random numbers behind each unpaired record, itself or over unpaired ones; -1 for none.

    The last entry stands for "no record".
    """
    own = drawing(log) & (of < 0)
    if not own.any():
        return np.full(len(log) + 1, -1)
    draw = np.where(own, np.arange(len(log)), -1).tolist()
    further = (flow.value >= 0) & (of[flow.row] < 0)
    # in dispatch order, so that one pass follows chains of any length
    for row, made in zip(flow.row[further].tolist(), flow.value[further].tolist(), strict=True):
        if draw[row] < 0:
            draw[row] = draw[made]
    return np.array([*draw, -1], np.int64)


def _altered(a: OpLog, b: OpLog, maker_a: Int64, maker_b: Int64, tolerance: Float64) -> Bool:
    """bool: the outputs of the two producers differ by their further statistics or sketches, although L1 may agree."""
    out = np.zeros(len(maker_a), bool)
    known = np.flatnonzero((maker_a >= 0) & (maker_b >= 0))
    found = Differences(first_outputs(a, maker_a[known]), first_outputs(b, maker_b[known]))
    with np.errstate(invalid="ignore"):
        out[known] = np.fmax(np.maximum(found.norms, found.extremes), found.estimate) > tolerance[known]
    return out


def _hidden_error(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Float64:
    """The relative error that the results of some records of a and b may have against each other.

    By their sketches, or by their norms where the shapes are not the same: errors of random signs change the norm of n
    numbers by 1/√n of their size.
    """
    shape_a, shape_b, _ = shared_ids(a.shapes, b.shapes)
    _, error = estimates(first_outputs(a, i), first_outputs(b, j), shape_a[a.shape[i]] == shape_b[b.shape[j]])
    change = np.fmax(relative(a.outputs.first(i), b.outputs.first(j)), relative(a.stats[1][i], b.stats[1][j]))
    return np.where(np.isnan(error), change * np.sqrt(numel(a)[a.shape[i]]), error)


def _insertions(side: Side, other: Side, hides: Bool, other_lead: Int32) -> dict[int, Int64]:
    """Unpaired operations between two that are partners in both logs, and the pairs that read their results.

    Args:
        hides: bool[p], only these pairs are looked at.
        other_lead: int32[p], the records of the other log.
    """
    stands = True if side.log.folding is None else side.log.folding.into < 0
    alone = np.flatnonzero((side.of < 0) & ~copies(side.log) & stands)
    edges = np.flatnonzero(np.isin(side.flow.value, alone) & marked_at(hides, side.of[side.flow.row]))
    found: dict[int, Int64] = {}
    for record in np.unique(side.flow.value[edges]).tolist():
        makers = side.flow[record]
        before = side.of[makers[makers >= 0]]
        readers = side.of[side.flow.row[edges[side.flow.value[edges] == record]]]
        pairs = []
        for pair in readers.tolist():
            theirs = other.flow[int(other_lead[pair])]
            if np.isin(other.of[theirs[theirs >= 0]], before[before >= 0]).any():
                pairs.append(pair)
        if pairs:
            found[record] = np.array(pairs, np.int64)
    return found


def _given(side: Side) -> Bool:
    """bool[n]: unpaired copies of what the step was given: ranks send each other buffers that they have already."""
    given = side.log.input_digests.value[side.flow.value < 0] if _listed(side) else np.zeros(0, np.uint64)
    found = copies(side.log) & (side.of < 0)
    found[found] = np.isin(side.log.digests.first(np.flatnonzero(found), NO_DIGEST), given[given != NO_DIGEST])
    return found


def _listed(side: Side) -> bool:
    """True if the log has a digest, perhaps unknown, of each input."""
    return np.array_equal(side.log.input_digests.start, side.flow.start)


def _fed_by_red(flow: Ragged, red: Bool, passive: Bool) -> Bool:
    """bool[n]: an input was produced by a red record, directly or over passive records."""
    carries = np.append(downstream(flow, red, passive), False)
    fed = np.zeros(len(red), bool)
    fed[flow.row[carries[flow.value]]] = True
    return fed
