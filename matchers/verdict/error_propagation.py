"""Tell differences that float arithmetic explains (own rounding, propagated error) from those it does not.

A fixed tolerance for each operation is wrong in both directions. Noise that grew over thirty layers exceeds it, though
every layer is right; and a float32 operation that reads bfloat16 values cannot be more exact than these. So an
operation is judged by its inputs (see tolerance.py for the coefficients):

    allowed = own rounding of its dtype + growth · largest error of its inputs

The errors of inputs are those *measured* at their producers, not the allowed ones, so nothing compounds: over a
hundred operations an error may grow a hundred times by a little, never once by much. Error from a red operation
excuses nothing, so everything that a bug reaches beyond noise stays red.

Where a third run has measured more noise at the operation (noise_floor.py), that replaces the second term.

Whole numbers do not round, but noise can decide them: which of two nearly equal scores is the larger. Ranks may differ
where the ranked values agree, and whole numbers where their sources differ by noise; values picked by them may differ
by anything. Whole numbers that nothing but whole numbers decides pick the same values, in parts and as a whole.

Equal values may be put in any order. What is picked in that order has other elements at each place, and norms as near
as ever; once it is put back, its elements agree again.

A choice, such as of the expert of a token, also decides how many rows the operations behind it have: results of other
rows, and operations of one run alone that compute with these, are not judged.

Size alone lets a bug hide behind noise of its size: 1 % in bfloat16 is one ε. But rounding points in all directions and
leaves norms nearly as they are, while a wrong factor moves them by all of its error. So the norm is judged too: a
change of it beyond the share that rounding can have (`systematic_share`), and beyond what the inputs' norms changed
by, is red whatever its size.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, columns, one_of
from matchers.ops.dataflow import decided_by_floats
from matchers.ops.laws import additions
from matchers.ops.values import further
from matchers.status import Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.expectation import Expect
from matchers.verdict.judge import Verdicts
from matchers.verdict.micro_batch_terms import terms_of_micro_batches
from matchers.verdict.propagation_columns import PropagationColumns
from matchers.verdict.reason import Reason
from matchers.verdict.received import Inputs, Nodes
from matchers.verdict.slots import SlotVerdict
from matchers.verdict.tolerance import (
    ANYTHING,
    DECIDED,
    EPSILON,
    GROWTH,
    MOST_ALLOWED,
    MOST_UNEARNED,
    NOISE,
    RESOLUTION,
    SAME_NUMBERS,
    TF32_EPSILON,
    UNKNOWN_SCORES,
    signs_differ,
)

__all__ = ["Arithmetic", "explain_by_arithmetic"]


@columns
class Arithmetic:
    """The outcome for each pair, and the errors it was judged by.

    Attributes:
        reason: int8, an outcome; PENDING where the pair was not judged here, or is within its tolerance anyway.
        own: the error that rounding in the operation itself can make.
        received: the largest error of its inputs that does not come from a red row.
        earned: the same of those that the logs show; the rest is supposed.
        growth: factor by which the operation may enlarge it.
        noise: the error that a third run shows here; NaN where it shows none.
        norm, norm_limit: the relative change of the norm, and the largest one that rounding explains.
        chosen: bool[n_a], bool[n_b], records without a partner that compute with what a choice picks otherwise.
    """

    reason: NDArray[np.int8]
    own: Float64
    received: Float64
    earned: Float64
    growth: Float64
    noise: Float64
    norm: Float64
    norm_limit: Float64
    chosen: tuple[Bool, Bool]


def explain_by_arithmetic(case: Case, found: Judgement) -> Judgement:
    """Judge the pairs that differ by their inputs, if the user expects rounding."""
    if not case.expectation.explains:
        return found
    verdicts, coarsest = found.verdicts, _coarsest(case)
    columns = PropagationColumns(case, found, coarsest)
    result, limit = _judged(case, found, columns, coarsest)
    still_open, told, reason = columns.open, verdicts, result.reason
    for outcome, status in _STATUS.items():
        told = told.claimed(reason == outcome, status, outcome)
    told = told.claimed(found.scaled & (reason == Reason.ROUNDING_EXPLAINED), Status.CLOSE, Reason.LOSS_SCALE)
    told = replace(told, limit=limit, tolerance=np.where(still_open, limit, verdicts.tolerance))
    slots = {
        k: replace(slot, status=Status(told.status[k]), reason=Reason(told.reason[k]), limit=float(limit[k]))
        if still_open[k]
        else slot
        for k, slot in verdicts.slots.items()
    }
    alone = {
        (side, record): SlotVerdict("", status, Reason.CHOSEN_OTHERWISE, math.nan)
        for side, chosen, status in zip("ab", result.chosen, (Status.ONLY_A, Status.ONLY_B), strict=True)
        for record in np.flatnonzero(chosen).tolist()
    }
    return replace(
        found, verdicts=replace(told, slots=slots), arithmetic=result, of_records={**found.of_records, **alone}
    )


def _coarsest(case: Case) -> float:
    """ε of the coarsest dtype that a run may round to anywhere; 0 for the dtypes of the rows."""
    coarsest = max((EPSILON[name] for names in case.policy for name in names), default=0.0)
    if case.expectation.preset != Expect.LOW_PRECISION:
        return coarsest
    # eight-bit dtypes only store values scaled elsewhere
    names = {name for name in (*case.a.dtypes, *case.b.dtypes) if not name.startswith("float8")}
    return max(coarsest, TF32_EPSILON, *(EPSILON[name] for name in names & EPSILON.keys()))


_STATUS = {
    Reason.ROUNDING_EXPLAINED: Status.CLOSE,
    Reason.ROUNDING_UNLIMITED: Status.NOT_JUDGED,
    Reason.CHOSEN_OTHERWISE: Status.NOT_JUDGED,
    Reason.REARRANGED: Status.NOT_JUDGED,
    Reason.MORE_THAN_ROUNDING: Status.DIVERGED,
    Reason.SYSTEMATIC: Status.DIVERGED,
}
"""The outcomes, and the status that each gives."""


class _Walk:
    """A pass over the nodes in the order of dispatch of a: producers before their consumers."""

    def __init__(self, inputs: Inputs, nodes: Nodes, blocked: Bool, *, guesses: bool, chooses: bool) -> None:
        """The nodes; until a pair is judged it brings no error: crossing pairs would excuse each other.

        Args:
            blocked: bool[p], the pair is red, so that its error explains nothing.
            chooses: a pair decides a choice otherwise.
            guesses: errors that the logs do not show are supposed; otherwise `earned` and `errors` are one.
        """
        self._start = np.searchsorted(inputs.node, np.arange(nodes.nothing + 1)).tolist()
        # element by element, numpy would take most of the time
        columns = (inputs.one, inputs.other, inputs.error, inputs.norm, inputs.unless, inputs.score)
        marks = (inputs.picked, inputs.crossed)
        self._inputs = list(zip(*(column.tolist() for column in (*columns, *marks)), strict=True))
        self.errors: list[float] = [0.0] * (nodes.nothing + 1)
        self.earned, self.norms = self.errors.copy() if guesses else self.errors, self.errors.copy()
        self.doubted: list[bool] = [False] * (nodes.nothing + 1)
        self.alone: list[bool] = [False] * (nodes.nothing + 1)
        self._chooses = chooses
        self.picked, self.chosen, self.moved = self.alone.copy(), self.alone.copy(), self.alone.copy()
        self.blocked: list[bool] = np.append(blocked, np.zeros(nodes.nothing + 1 - nodes.pairs, bool)).tolist()

    def received(self, node: int) -> _Received:
        """The largest error among the inputs of a node."""
        error = values = earned = norm = score = 0.0
        picked = other = red = doubted = alone = chosen = moved = False
        errors, shown, norms, blocked, chooses = self.errors, self.earned, self.norms, self.blocked, self._chooses
        guesses = shown is not errors
        for u, v, printed, change, unless, largest, decided, crossed in self._inputs[
            self._start[node] : self._start[node + 1]
        ]:
            if blocked[u] or blocked[v]:
                red = True
                continue
            if unless > errors[u]:
                printed = change = 0.0
            if self.moved[u] or self.moved[v]:
                moved, decided = True, False
            error, norm = max(error, printed, errors[u], errors[v]), max(norm, change, norms[u], norms[v])
            if chooses:
                decided = decided or self.picked[u] or self.picked[v]
                chosen = chosen or self.chosen[u] or self.chosen[v]
            if not decided:
                values = max(values, printed, errors[u], errors[v])
            if guesses:
                unproven = self.doubted[u] or self.doubted[v]
                earned = max(earned, 0.0 if unproven else printed, shown[u], shown[v])
                doubted = doubted or unproven
                alone = alone or self.alone[u] or self.alone[v]
            score, picked, other = max(score, largest), picked or decided, other or crossed
        earned = earned if guesses else error
        return _Received(error, values, earned, norm, score, picked, other, red, doubted, alone, chosen, moved)


def _judged(case: Case, found: Judgement, of: PropagationColumns, coarsest: float) -> tuple[Arithmetic, Float64]:
    """The outcome for each pair, and its limit: one pass, which judges producers before their consumers."""
    a, b, pairing, verdicts = case.a, found.b, case.pairing, found.verdicts
    status, n = verdicts.status, len(pairing)
    sketched = bool(a.texts("Sketch")) and bool(b.texts("Sketch"))
    # equal norms of parts hide what they received: a mask of huge numbers has nearly all of the norm
    alike = ((status == Status.SAME_PRINT) | ((status == Status.CLOSE) & (verdicts.error < SAME_NUMBERS))) & sketched
    settled = one_of(status, (Status.EQUAL, Status.SAME_PRINT)) & ~alike
    by_others = decided_by_floats(a)[case.i] | decided_by_floats(b)[case.j] | ~of.decided
    tied = verdicts.reason == Reason.TIED
    whole = of.whole & by_others & ~settled & ~tied
    masks = {"settled": settled, "parts": found.parts, "whole": whole}
    nodes = Nodes(a, b, pairing, of.own, coarsest, values=_of_values(case, found, of), **masks)
    # a term of each micro-batch differs by design, and hands on what it receives; positions in parts pick others
    terms = terms_of_micro_batches(case) & (status >= Status.SHAPE) & ~of.whole
    known = ~settled & np.isfinite(verdicts.error) & ~terms & ~tied
    measured: list[float] = np.where(known, verdicts.error, 0.0).tolist()
    # a norm shows little of an error that later sketches show in full
    unknown = (~np.isfinite(verdicts.error) | (of.by_norms & sketched) | terms) & ~alike
    # other positions that pick the same values bring no error of these
    same_values = ~of.whole & (~unknown | (known & (verdicts.error < RESOLUTION)))
    blocks = ~of.open & (status >= Status.SHAPE) & ~terms & ~of.other_rows
    # what no number tells apart is not known to be chosen otherwise
    chosen = of.chooses & whole & (status > Status.SAME_PRINT) & (status != Status.NO_VALUES)
    inputs = Inputs.of(a, b, pairing, case.flow, nodes)
    walk = _Walk(inputs, nodes, blocks, guesses=bool(unknown.any()), chooses=bool(chosen.any()))
    adds = (additions(a)[case.i] & additions(b)[case.j]).tolist()
    own, hides, is_open, changes, unseen, guessed, same_picked, other_rows, chooses, ties = (
        column.tolist()
        for column in (
            nodes.own,
            of.copies,
            of.open & ~terms,
            np.where(terms, 0.0, of.norm),
            of.unseen,
            unknown,
            same_values,
            of.other_rows,
            chosen,
            tied,
        )
    )
    counts = nodes.counts(a, b).tolist()
    judge = _Judge(of, verdicts)
    errors, earned, norms, blocked = walk.errors, walk.earned, walk.norms, walk.blocked
    for k in nodes.order.tolist():
        if k < n and blocked[k]:
            continue
        received = walk.received(k)
        if k >= n:
            # roundings of operations after each other are independent: a hundred of them make ten times one
            errors[k], norms[k], blocked[k] = math.hypot(received.error, own[k]), received.norm, received.blocked
            earned[k] = math.hypot(received.earned, own[k])
            walk.doubted[k], walk.moved[k] = received.doubted, received.moved
            walk.alone[k] = own[k] > 0 or received.alone  # what moves elements makes no error of rounding's size
            if received.of_others:
                walk.chosen[k] = True
                if counts[k - n]:
                    walk.picked[k] = True
                else:
                    errors[k] = earned[k] = ANYTHING
            continue
        if other_rows[k]:
            if received.of_others:
                judge.choose(k)
                walk.chosen[k] = True
                errors[k] = earned[k] = ANYTHING
            else:
                blocked[k] = True
            continue
        errors[k], earned[k], norms[k] = measured[k], measured[k], changes[k]
        walk.moved[k] = ties[k]
        explained = not is_open[k] or judge(k, received)
        if not explained and received.moved and judge.rearranged(k):
            walk.moved[k], errors[k], earned[k] = True, received.error, received.earned
            continue
        if is_open[k] and judge.unearned:  # what is not judged excuses nothing
            walk.doubted[k] = True
            earned[k] = min(earned[k], received.earned + own[k])
        if not explained:
            if received.other and adds[k]:
                # perhaps a partial sum in another order: then the total decides
                errors[k], earned[k], norms[k] = received.error, received.earned, received.norm
            else:
                blocked[k] = True
                continue
        walk.chosen[k] = chooses[k] or received.chosen
        if not explained:
            continue
        came = received.values if same_picked[k] else received.error
        if guessed[k]:
            errors[k] = max(errors[k], came + unseen[k])
        elif hides[k] or errors[k] < RESOLUTION:
            errors[k], earned[k] = max(errors[k], came), max(earned[k], min(came, received.earned))
    alone = np.array(walk.chosen) & (np.arange(nodes.nothing + 1) >= n)
    return replace(judge.result, chosen=(alone[nodes.a[:-1]], alone[nodes.b[:-1]])), judge.limit


def _of_values(case: Case, found: Judgement, of: PropagationColumns) -> Float64:
    """float64[v + 1], the errors of values of a that the verdicts of their pairs do not show: as of `Nodes.values`.

    The last entry is that of an unknown value.
    """
    values, n = further(case.a), len(case.a)
    out = np.full(n + len(values) + 1, np.nan)
    out[case.i] = of.ranked
    for (k, slot), error in found.beside.items():
        out[[n + v for v in values.of(int(case.i[k])) if values.slot[v] == slot]] = error
    return out


class _Judge:
    """Judges a pair by its inputs: True where arithmetic explains it."""

    def __init__(self, of: PropagationColumns, verdicts: Verdicts) -> None:
        n = len(of.own)
        self.unearned = False
        self.limit = verdicts.limit.copy()
        self.result = Arithmetic(
            reason=np.full(n, Reason.PENDING, np.int8),
            own=of.own,
            received=np.zeros(n),
            earned=np.zeros(n),
            growth=of.growth.copy(),
            noise=of.noise,
            norm=of.norm,
            norm_limit=np.full(n, np.nan),
            chosen=(np.zeros(0, bool), np.zeros(0, bool)),
        )
        # element by element, numpy would take most of the time
        sizes = (of.judged_by, of.norm, of.own, of.times, of.growth, of.noise, of.noise_norm, of.signs)
        self._sizes = list(zip(*(column.tolist() for column in (*sizes, of.own_norm, of.share)), strict=True))
        marks = (of.of_scores, of.decided, of.measured, of.sorts)
        self._marks = list(zip(*(column.tolist() for column in marks), strict=True))
        self._tolerated = (verdicts.status == Status.CLOSE).tolist()

    def choose(self, k: int) -> None:
        """Leave a pair unjudged whose sides have other rows by a choice."""
        self.result.reason[k] = Reason.CHOSEN_OTHERWISE

    def rearranged(self, k: int) -> bool:
        """Leave a pair unjudged whose elements are far apart one by one, and whose norms are not."""
        as_near = bool(self._sizes[k][1] <= self.limit[k])
        if as_near:
            self.result.reason[k] = Reason.REARRANGED
        return as_near

    def __call__(self, k: int, received: _Received) -> bool:
        error, norm, own, times, growth, noisy, noise_norm, signs, own_norm, share = self._sizes[k]
        of_scores, decided, measured, sorts = self._marks[k]
        growth = max(growth, (received.score or UNKNOWN_SCORES) if of_scores else 0.0)
        grown, norm_grown, noise = growth * received.error, GROWTH * received.norm, 0.0
        if noisy > 0:
            noise = NOISE * noisy
            grown, norm_grown = max(grown, noise), max(norm_grown, NOISE * noise_norm)
        limit = times * (own + grown)
        # one other number moves all that it comes before
        decided = decided and not (sorts and received.picked and received.error > received.values)
        if decided:
            limit = DECIDED * math.sqrt(received.error)
        elif received.picked:
            limit = max(limit, ANYTHING)
        elif received.error and signs > 0:
            limit = max(limit, signs_differ(received.error, signs))
        elif limit > MOST_ALLOWED >= received.error and noise > 0:
            # what was measured of so small an error judges, where the estimate would judge nothing
            limit = times * (own + noise)
        unlimited = limit > MOST_ALLOWED
        self.unearned = False
        most = 0.0 if received.doubted or received.alone else MOST_UNEARNED
        if most < limit <= MOST_ALLOWED and received.earned < received.error:
            earned = times * (own + max(growth * received.earned, noise))
            unlimited = self.unearned = error > (DECIDED * math.sqrt(received.earned) if decided else earned)
            if unlimited and received.alone:  # where it may come from, is known
                limit = earned
        if measured:
            norm_limit = own_norm + share * max(error, received.error) + norm_grown
        elif times > 1:  # a single element may be off by more; what came in is known as a lower bound, as a rule
            norm_limit = 2 * limit / times
            if received.alone:  # but of what one run alone computes, rounding points in all directions
                norm_limit = min(norm_limit, own_norm + share * limit / times + norm_grown)
        else:
            norm_limit = math.inf
        reason = Reason.ROUNDING_EXPLAINED
        if received.of_others and unlimited and not decided:
            reason = Reason.CHOSEN_OTHERWISE
        elif norm > norm_limit and error <= limit:
            reason = Reason.SYSTEMATIC
        elif self._tolerated[k] and (unlimited or not error <= limit):
            reason, limit = Reason.PENDING, self.limit[k].item()
        elif error > limit:
            reason = Reason.MORE_THAN_ROUNDING
        elif unlimited:
            reason = Reason.CHOSEN_OTHERWISE if received.chosen else Reason.ROUNDING_UNLIMITED
        result = self.result
        result.reason[k], result.received[k], result.norm_limit[k] = reason, received.error, norm_limit
        result.earned[k], result.growth[k] = received.earned, growth
        self.limit[k] = limit
        return reason not in (Reason.MORE_THAN_ROUNDING, Reason.SYSTEMATIC)


class _Received(NamedTuple):
    """The largest error, change of a norm, and size of a score, among the inputs that do not come from a red row.

    Attributes:
        values: the largest error of inputs that are no whole numbers which noise decided differently.
        earned: the largest error that the logs show; `error` has that which they do not show, too.
        picked: one of them holds whole numbers that noise decided differently.
        other: one of them is another tensor.
        blocked: one of them comes from a red row.
        doubted: one of them differs by more than the logs show a reason for, or follows from one that does.
        alone: one of them comes from an operation that one run alone computes with.
        chosen: one of them differs and follows from a choice that noise decided differently.
        moved: the elements of one of them lie in another order, of equal values.
    """

    error: float
    values: float
    earned: float
    norm: float
    score: float
    picked: bool
    other: bool
    blocked: bool
    doubted: bool
    alone: bool
    chosen: bool
    moved: bool

    @property
    def of_others(self) -> bool:
        """One of them holds what such a choice picks."""
        return self.chosen and (self.picked or self.error >= ANYTHING)
