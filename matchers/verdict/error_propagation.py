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
by anything.

Size alone lets a bug hide behind noise of its size: 1 % in bfloat16 is one ε. But rounding points in all directions and
leaves norms nearly as they are, while a wrong factor moves them by all of its error. So the norm is judged too: a
change of it beyond the share that rounding can have (`systematic_share`), and beyond what the inputs' norms changed
by, is red whatever its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, columns
from matchers.logs.op_log import NO_DIGEST, OpLog
from matchers.ops.dataflow import DataFlow
from matchers.ops.laws import additions
from matchers.pairing.pairing import Pairing
from matchers.status import Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.expectation import Expect
from matchers.verdict.propagated import LogSide, PropagatedError
from matchers.verdict.propagation_columns import PropagationColumns
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative_difference
from matchers.verdict.tolerance import (
    ANYTHING,
    DECIDED,
    EPSILON,
    MOST_ALLOWED,
    NOISE,
    NORM_GROWTH,
    RESOLUTION,
    TF32_EPSILON,
    UNKNOWN_SCORES,
    UNSEEN,
    UNSURE,
)

__all__ = ["Arithmetic", "explain_by_arithmetic"]


@columns
class Arithmetic:
    """The outcome for each pair, and the errors it was judged by.

    Attributes:
        reason: int8, an outcome; PENDING where the pair was not judged here, or is within its tolerance anyway.
        own: the error that rounding in the operation itself can make.
        received: the largest error of its inputs that does not come from a red row.
        noise: the error that a third run shows here; NaN where it shows none.
        norm, norm_limit: the relative change of the norm, and the largest one that rounding explains.
    """

    reason: NDArray[np.int8]
    own: Float64
    received: Float64
    noise: Float64
    norm: Float64
    norm_limit: Float64


def explain_by_arithmetic(case: Case, found: Judgement) -> Judgement:
    """Judge the pairs that differ by their inputs, if the user expects rounding."""
    if not case.expectation.explains:
        return found
    verdicts, coarsest = found.verdicts, _coarsest(case)
    columns = PropagationColumns.of(case, found, coarsest)
    walk = _Walk(case.a, found.b, case.pairing, columns, found.parts, case.flow, coarsest)
    walk.run()
    limit, still_open = walk.limit, columns.open
    told, reason = verdicts, walk.result.reason
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
    return replace(found, verdicts=replace(told, slots=slots), arithmetic=walk.result)


def _coarsest(case: Case) -> float:
    """ε of the coarsest dtype that a run may round to anywhere; 0 for the dtypes of the rows."""
    coarsest = max((EPSILON[name] for names in case.policy for name in names), default=0.0)
    if case.expectation.preset != Expect.LOW_PRECISION:
        return coarsest
    return max(coarsest, TF32_EPSILON, *(epsilon for log in (case.a, case.b) for epsilon in _epsilons(log)))


def _epsilons(log: OpLog) -> list[float]:
    """ε of the dtypes that a run computes in; eight-bit dtypes only store values scaled elsewhere."""
    return [EPSILON[name] for name in log.dtypes if name in EPSILON and not name.startswith("float8")]


_STATUS = {
    Reason.ROUNDING_EXPLAINED: Status.CLOSE,
    Reason.ROUNDING_UNLIMITED: Status.NOT_JUDGED,
    Reason.MORE_THAN_ROUNDING: Status.DIVERGED,
    Reason.SYSTEMATIC: Status.DIVERGED,
}
"""The outcomes, and the status that each gives."""


class _Walk:
    """A pass over the pairs in the order of dispatch of a, which judges producers before their consumers."""

    def __init__(
        self,
        a: OpLog,
        b: OpLog,
        pairing: Pairing,
        columns: PropagationColumns,
        parts: Bool,
        flow: DataFlow,
        coarsest: float,
    ) -> None:
        self._columns, self._pairing = columns, pairing
        # the norms of different parts of a tensor cannot be compared
        self._parts: list[bool] = parts.tolist()
        n = len(pairing)
        self.limit = columns.limit.copy()
        self.result = Arithmetic(
            reason=np.full(n, Reason.PENDING, np.int8),
            own=columns.own,
            received=np.zeros(n),
            noise=columns.noise,
            norm=columns.norm,
            norm_limit=np.full(n, np.nan),
        )
        self._sketched = bool(a.texts("Sketch")) and bool(b.texts("Sketch"))
        # equal norms of parts hide what they received: a mask of huge numbers has nearly all of the norm
        self._alike = (columns.status == Status.SAME_PRINT) & self._sketched
        self._settled = np.isin(columns.status, (Status.EQUAL, Status.SAME_PRINT)) & ~self._alike
        known = ~self._settled & np.isfinite(columns.error)
        self._measured: list[float] = np.where(known, columns.error, 0.0).tolist()
        # until a pair is judged it brings no error: crossing pairs would excuse each other
        self._propagated = PropagatedError(
            errors=[0.0] * n,
            norms=[0.0] * n,
            blocked=(~columns.open & (columns.status >= Status.SHAPE)).tolist(),
            whole=(columns.whole & ~self._settled).tolist(),
        )
        # a doubtful pair may be a wrong pair
        self._sure: list[bool] = (pairing.confidence >= UNSURE).tolist()
        self._adds: list[bool] = (additions(a)[columns.i] & additions(b)[columns.j]).tolist()
        self._a = LogSide(a, pairing.of_a, flow.a, self._propagated, b.dtypes, coarsest)
        self._b = LogSide(b, pairing.of_b, flow.b, self._propagated, a.dtypes, coarsest)

    def run(self) -> None:
        """Judge all pairs."""
        of = self._columns
        order = np.argsort(of.i, kind="stable")
        order = order[~self._settled[order]]
        # columns as lists: element by element, numpy would take most of the time
        # a norm shows little of an error that later sketches show in full
        unknown = ((~np.isfinite(of.error) | (of.by_norms & self._sketched)) & ~self._alike).tolist()
        hides = of.copies.tolist()
        leads_a, leads_b, grouped = of.i.tolist(), of.j.tolist(), self._pairing.assembled.tolist()
        judge, scores, is_open = self._judge(), of.of_scores.tolist(), of.open.tolist()
        unseen = np.where(of.moves, 0.0, of.own).tolist()  # as of a record that only one log has
        errors, norms, blocked = self._propagated.errors, self._propagated.norms, self._propagated.blocked
        measured, changes = self._measured, of.norm.tolist()
        for k in order.tolist():
            i, j = leads_a[k], leads_b[k]
            self._a.catch_up(i)
            self._b.catch_up(j)
            if blocked[k]:
                continue
            received = self._received_by_group(k) if grouped[k] else self._received(k, i, j, scores[k])
            errors[k], norms[k] = measured[k], changes[k]
            if is_open[k] and not judge(k, received):
                if received.other and self._adds[k]:
                    # perhaps a partial sum in another order: then the total decides
                    errors[k], norms[k] = received.error, received.norm
                else:
                    blocked[k] = True
            elif unknown[k]:
                errors[k] = max(errors[k], received.error + unseen[k])
            elif hides[k] or errors[k] < RESOLUTION:
                errors[k] = max(errors[k], received.error)

    def _judge(self) -> Callable[[int, _Received], bool]:
        """A function that judges a pair by its inputs, and returns True where arithmetic explains it."""
        of, result, limits = self._columns, self.result, self.limit
        own, error, norm, share, own_norm, times, enlarges = (
            column.tolist() for column in (of.own, of.judged_by, of.norm, of.share, of.own_norm, of.times, of.growth)
        )
        noise, noise_norm, measured = of.noise.tolist(), of.noise_norm.tolist(), of.measured.tolist()
        decided = (of.whole & ~of.ranked).tolist()
        tolerated = (of.status == Status.CLOSE).tolist()

        def judge(k: int, received: _Received) -> bool:
            grown = max(enlarges[k], received.score) * received.error
            norm_grown = NORM_GROWTH * received.norm
            if noise[k] > 0:
                grown, norm_grown = max(grown, NOISE * noise[k]), max(norm_grown, NOISE * noise_norm[k])
            limit = times[k] * (own[k] + grown)
            if decided[k]:
                limit = DECIDED * math.sqrt(received.error)
            elif received.picked:
                limit = max(limit, ANYTHING)
            if measured[k]:
                norm_limit = own_norm[k] + share[k] * max(error[k], received.error) + norm_grown
            else:  # a single element may be off by more; what came in is known as a lower bound, as a rule
                norm_limit = 2 * limit / times[k] if times[k] > 1 else math.inf
            reason = Reason.ROUNDING_EXPLAINED
            if norm[k] > norm_limit and error[k] <= limit:
                reason = Reason.SYSTEMATIC
            elif tolerated[k] and not error[k] <= limit <= MOST_ALLOWED:
                reason, limit = Reason.PENDING, limits[k]
            elif error[k] > limit:
                reason = Reason.MORE_THAN_ROUNDING
            elif limit > MOST_ALLOWED:
                reason = Reason.ROUNDING_UNLIMITED
            result.reason[k], result.received[k] = reason, received.error
            limits[k], result.norm_limit[k] = limit, norm_limit
            return reason not in (Reason.MORE_THAN_ROUNDING, Reason.SYSTEMATIC)

        return judge

    def _received_by_group(self, k: int) -> _Received:
        """The largest error among the inputs of a group from outside; its sides do not list the same inputs."""
        error = norm = 0.0
        for side, members in zip((self._a, self._b), self._pairing.members(k), strict=True):
            for maker in {maker for record in members for maker in side.makers(record)}:
                if maker >= 0 and side.pair_of[maker] != k and not side.is_blocked(maker):
                    error, norm = max(error, side.error_of(maker)), max(norm, side.norm_of(maker))
        return _Received(error, norm)

    def _made_elsewhere(self, a: int, b: int) -> bool:
        """True where both records have partners, surely, and are not each other's."""
        if a < 0 or b < 0:
            return False
        of_a, of_b = self._a.pair_of[a], self._b.pair_of[b]
        return of_a >= 0 and of_b >= 0 and of_a != of_b and self._sure[of_a] and self._sure[of_b]

    def _is_part(self, a: int, b: int) -> bool:
        """True where one of the two records, -1 for none, is in a pair of different parts."""
        sides = ((self._a, a), (self._b, b))
        return any(
            record >= 0 and side.pair_of[record] >= 0 and self._parts[side.pair_of[record]] for side, record in sides
        )

    def _equal(self, a: int, b: int) -> bool:
        """True where both records are partners, and were found equal."""
        of = self._a.pair_of[a] if a >= 0 else -1
        return of >= 0 and b >= 0 and self._b.pair_of[b] == of and bool(self._settled[of])

    def _of_another_part(self, a: int, b: int, value: float, change: float) -> bool:
        """True where two partners' results are too much alike for parts of them to differ by this: so they are others.

        Args:
            value: the norm of the part.
            change: of this norm.
        """
        of = self._a.pair_of[a] if a >= 0 else -1
        if of < 0 or b < 0 or self._b.pair_of[b] != of or not self._sure[of]:
            return False
        results, own = self._a.results(a), self._columns.own[of]
        return len(results) == 1 and change * value > UNSEEN * max(own, self._a.error_of(a)) * results[0]

    def _received(self, k: int, i: int, j: int, scores: bool) -> _Received:
        """The largest error among the inputs of pair k of i and j, position by position."""
        one, other, sure, part = self._a, self._b, self._sure[k], self._parts[k]
        x, y = one.values(i), other.values(j)
        digests_a, digests_b = one.digests(i), other.digests(j)
        made_a, made_b = one.makers(i), other.makers(j)
        digested, valued = min(len(digests_a), len(digests_b)), min(len(x), len(y))
        error = norm = score = 0.0
        picked = elsewhere = False
        own = float(self._columns.own[k])
        for at in range(max(len(made_a), len(made_b))):
            if at < digested and digests_a[at] == digests_b[at] != _NO_DIGEST:
                continue
            a = made_a[at] if at < len(made_a) else -1
            b = made_b[at] if at < len(made_b) else -1
            if (a >= 0 and one.is_blocked(a)) or (b >= 0 and other.is_blocked(b)):
                continue
            # an input from an unpaired operation, another tensor, or another part, brings no error to compare with
            crossed = sure and self._made_elsewhere(a, b)
            elsewhere |= crossed
            made = part or crossed or (sure and (one.is_alone(a) or other.is_alone(b))) or self._is_part(a, b)
            change = _change(x[at], y[at]) if at < valued and not made else 0.0
            if change > 0 and self._of_another_part(a, b, x[at], change):
                change = 0.0
            if (a < 0 and b < 0) or (change > 0 and self._equal(a, b)):
                # a parameter, an uncaptured tensor, or one of a list that was left as it was: its error can only be
                # guessed from its norm, which may agree by chance
                guess = max(UNSEEN * change, own if change else 0.0) if self._sketched else change
                whole = at < valued and float(x[at]).is_integer() and float(y[at]).is_integer()
                if guess <= MOST_ALLOWED and not whole:  # another batch or mask is no rounding and excuses nothing
                    error, norm = max(error, guess), max(norm, change)
                continue
            error, norm = max(error, change), max(norm, change)
            for side, maker in ((one, a), (other, b)):
                if maker >= 0:
                    error, norm = max(error, side.error_of(maker)), max(norm, side.norm_of(maker))
                    picked |= side.decided(maker)
                    if scores:
                        score = max(score, side.magnitude(maker))
        return _Received(error, norm, score if score or not scores else UNKNOWN_SCORES, picked, elsewhere)


class _Received(NamedTuple):
    """The largest error, change of a norm, and size of a score, among the inputs that do not come from a red row.

    `picked`: one of them holds whole numbers that noise decided differently. `other`: one of them is another tensor.
    """

    error: float
    norm: float
    score: float = 0.0
    picked: bool = False
    other: bool = False


_NO_DIGEST = int(NO_DIGEST)


def _change(x: float, y: float) -> float:
    """The relative difference of two norms; 0 where one is not finite."""
    if x == y or not (math.isfinite(x) and math.isfinite(y)):
        return 0.0
    return relative_difference(x, y)
