"""Which differences float arithmetic explains: an operation's own rounding, and what came in with its inputs.

A tolerance for each operation by itself is wrong in both directions. Noise that grew over thirty layers exceeds it,
though each of them did right; and a float32 operation that reads bfloat16 values cannot be more exact than these. Here
an operation is judged by its inputs (see tolerance.py for the coefficients):

    allowed = own rounding of its dtype + growth · largest error of its inputs

The errors of inputs are those *measured* at the operations that made them, not what these were allowed, so nothing
compounds: in a hundred operations an error may grow a hundred times by a little, never once by much. What came from a
red operation excuses nothing, so everything that a bug reaches beyond noise stays red.

Where a third run has measured more noise at the operation (noise.py), that takes the place of the second term.

Whole numbers do not round, but noise can decide them: which of two scores that are nearly equal is the larger. Ranks
may differ where the ranked values agree, and whole numbers where what they were made from differs by noise; what is
picked by them may differ by anything.

Size alone lets a bug hide behind noise of its size: 1 % in bfloat16 is one ε. But rounding points in all directions and
leaves norms nearly as they are, while a wrong factor moves them by all of its error. So the norm is judged too: a
change of it beyond the share that rounding can have (`systematic_share`), and beyond what the inputs' norms changed
by, is red whatever its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int64
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import NO_DIGEST, OpLog
from matchers.ops.dataflow import DataFlow
from matchers.pairing.pairing import Pairing
from matchers.status import Status
from matchers.verdict.judge import Verdicts, longer_sums
from matchers.verdict.noise_floor import NoiseFloor
from matchers.verdict.partial_sums import additions
from matchers.verdict.propagated import LogSide, PropagatedError
from matchers.verdict.relative_error import relative
from matchers.verdict.sketches import estimates
from matchers.verdict.tolerance import (
    ANYTHING,
    COPIES,
    DECIDED,
    EPSILON,
    EXTREMES,
    NOISE,
    NORM_GROWTH,
    RANKING,
    RESOLUTION,
    UNKNOWN_SCORES,
    UNSURE,
    counting,
    elementwise,
    growth,
    of_scores,
    rounding,
    systematic_share,
)

__all__ = ["Arithmetic", "Ground", "explain_by_arithmetic"]


class Ground(IntEnum):
    """Why a difference is or is not explained by float arithmetic. NONE: it was not asked."""

    NONE = 0
    EXPLAINED = 1
    TOO_LARGE = 2
    SYSTEMATIC = 3


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Per pair: int8 `ground`, and in float64 what it was judged by.

    `own`: what rounding in the operation itself can do. `received`: the largest error of its inputs that is no
    consequence of a red row. `noise`: the error that a third run shows here, NaN where it shows none.
    `norm`, `norm_limit`: relative change of the norm, and up to where it is rounding.
    """

    ground: NDArray[np.int8]
    own: Float64
    received: Float64
    noise: Float64
    norm: Float64
    norm_limit: Float64


def explain_by_arithmetic(
    a: OpLog,
    b: OpLog,
    pairing: Pairing,
    verdicts: Verdicts,
    flow: DataFlow,
    *,
    fixed: Bool,
    coarsest: float = 0.0,
    noise: NoiseFloor | None = None,
) -> tuple[Verdicts, Arithmetic]:
    """The verdicts with the pairs that differ judged anew, and what they were judged by.

    Args:
        fixed: bool[p], pairs whose tolerance a person has set: they stay as they are.
        coarsest: ε of what either run may round to anywhere; 0 for the dtypes of the rows.
        noise: of a third run.
    """
    judged = _Judged(a, b, pairing, verdicts, fixed, coarsest, noise)
    _Walk(judged, flow).run()
    found = np.where(judged.ground >= Ground.TOO_LARGE, np.int8(Status.DIVERGED), np.int8(Status.CLOSE))
    status = np.where(judged.open, found, verdicts.status)
    slots = {
        k: replace(slot, status=Status(status[k]), limit=float(judged.limit[k])) if judged.open[k] else slot
        for k, slot in verdicts.slots.items()
    }
    tolerance = np.where(judged.open, judged.limit, verdicts.tolerance)
    return (
        replace(verdicts, status=status, limit=judged.limit, tolerance=tolerance, slots=slots),
        Arithmetic(judged.ground, judged.own, judged.received, judged.noise, judged.norm, judged.norm_limit),
    )


class _Judged:
    """The columns of the judgement, per pair, that need no order."""

    def __init__(
        self,
        a: OpLog,
        b: OpLog,
        pairing: Pairing,
        verdicts: Verdicts,
        fixed: Bool,
        coarsest: float,
        noise: NoiseFloor | None,
    ) -> None:
        self.a, self.b, self.pairing, self.coarsest = a, b, pairing, coarsest
        i, j = pairing.lead_a.astype(np.int64), pairing.lead_b.astype(np.int64)
        self.i, self.j = i, j
        n = len(pairing)
        self.status, self.error = verdicts.status, verdicts.error
        self.open = np.isin(self.status, (Status.CLOSE, Status.DIVERGED)) & np.isfinite(self.error) & ~fixed
        by_slot = np.zeros(n, bool)
        by_slot[list(verdicts.slots)] = True
        self.open[[k for k, slot in verdicts.slots.items() if slot.only]] = False
        # bool[p]: what comes out are whole numbers, which do not round, but may be decided by what does
        self.whole = _whole(a)[a.dtype[i]] | _whole(b)[b.dtype[j]]
        ranked = by_slot & ~self.whole & np.array([name in RANKING for name in a.ops] + [False])[a.op[i]]
        self.judged_by = self.error.copy()
        self.judged_by[ranked] = np.nan_to_num(estimates(a, b, i[ranked], j[ranked], ranked[ranked])[1])
        self.whole |= ranked
        self.ranked = ranked

        by_element = np.array([elementwise(name) for name in a.ops] + [False])[a.op[i]]
        self.own = longer_sums(a, b, i, j) * np.where(by_element, self._rounding(True), self._rounding(False))
        first = relative(a.outputs.first(i), b.outputs.first(j))
        self.norm = np.fmax(np.nan_to_num(first, posinf=np.inf), _norm_change(a, b, i, j))
        # a bound that the norms do not show is that of a single element
        single = verdicts.bound & (self.error > self.norm) & ~by_slot
        self.times = np.where(single, EXTREMES, 1.0)
        elements = [counting(log.outputs.first(rows), log.stats[1][rows]) for log, rows in ((a, i), (b, j))]
        self.share = systematic_share(np.minimum(*elements))
        # a constant that two dtypes round differently moves a norm by all of its rounding
        self.copies = np.array([name in COPIES for name in a.ops] + [False])[a.op[i]]
        constant = self.copies | _other_dtype(a, b, i, j)
        self.own_norm = np.where(constant, self.own, self.share * self.own)
        self.growth = np.array([growth(name) for name in a.ops] + [growth("")])[a.op[i]]
        self.of_scores = np.array([of_scores(name) for name in a.ops] + [False])[a.op[i]]
        self.measured = ~verdicts.bound & ~by_slot
        self.noise = np.full(n, np.nan) if noise is None else noise.of(pairing)
        self.noise_norm = np.full(n, np.nan) if noise is None else noise.norm_of(pairing)
        self.ground = np.zeros(n, np.int8)
        self.received, self.limit, self.norm_limit = np.zeros(n), verdicts.limit.copy(), np.full(n, np.nan)

    def _rounding(self, by_element: bool) -> Float64:
        """What one operation may do to each pair's dtypes."""
        sides = []
        for log, rows in ((self.a, self.i), (self.b, self.j)):
            table = [rounding(name, by_element, log.ours, self.coarsest) for name in (*log.dtypes, "float32")]
            sides.append(np.array(table)[log.dtype[rows]])
        return np.maximum(*sides)


def _whole(log: OpLog) -> Bool:
    """bool[dtypes + 1], the dtypes that do not round."""
    return np.array([name not in EPSILON for name in log.dtypes] + [False])


def _other_dtype(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    ids_a, ids_b, _ = shared_ids(a.dtypes, b.dtypes)
    return np.asarray(ids_a[a.dtype[i]] != ids_b[b.dtype[j]])


def _norm_change(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Float64:
    return np.nan_to_num(relative(a.stats[1][i], b.stats[1][j]), posinf=np.inf)


class _Walk:
    """Goes through the pairs in the order of dispatch of a, so that what made an input is judged before its readers."""

    def __init__(self, judged: _Judged, flow: DataFlow) -> None:
        self._judged = judged
        self._settled = np.isin(judged.status, (Status.EQUAL, Status.SAME_PRINT))
        known = ~self._settled & np.isfinite(judged.error)
        self._handed = PropagatedError(
            errors=np.where(known, judged.error, 0.0).tolist(),
            norms=np.where(self._settled, 0.0, judged.norm).tolist(),
            blocked=(~judged.open & (judged.status >= Status.SHAPE)).tolist(),
            whole=(judged.whole & ~self._settled).tolist(),
        )
        # of a doubtful pair it may be the pair that is wrong
        self._sure: list[bool] = (judged.pairing.confidence >= UNSURE).tolist()
        self._sketched = bool(judged.a.texts("Sketch")) and bool(judged.b.texts("Sketch"))
        pairing = judged.pairing
        self._a = LogSide(judged.a, pairing.of_a, flow.a, self._handed, judged.coarsest)
        self._b = LogSide(judged.b, pairing.of_b, flow.b, self._handed, judged.coarsest)

    def run(self) -> None:
        """Judge all pairs."""
        of = self._judged
        order = np.argsort(of.i, kind="stable")
        order = order[~self._settled[order]]
        # columns as lists: element by element, numpy would take most of the time
        hides = (of.copies | ~np.isfinite(of.error)).tolist()
        leads_a, leads_b, grouped = of.i.tolist(), of.j.tolist(), of.pairing.grouped.tolist()
        judge, scores, is_open = self._judge(), of.of_scores.tolist(), of.open.tolist()
        errors, norms, blocked = self._handed.errors, self._handed.norms, self._handed.blocked
        adds = (additions(of.a)[of.i] & additions(of.b)[of.j]).tolist()
        for k in order.tolist():
            i, j = leads_a[k], leads_b[k]
            self._a.catch_up(i)
            self._b.catch_up(j)
            if blocked[k]:
                continue
            received = self._received_by_group(k) if grouped[k] else self._received(i, j, scores[k], self._sure[k])
            if is_open[k] and not judge(k, received):
                if received.other and adds[k]:
                    # perhaps a part of a sum in another order: then the total says whether that is all
                    errors[k], norms[k] = received.error, received.norm
                else:
                    blocked[k] = True
            elif hides[k] or errors[k] < RESOLUTION:
                errors[k] = max(errors[k], received.error)

    def _judge(self) -> Callable[[int, _Received], bool]:
        """A function that judges a pair by what it received, and returns whether arithmetic explains it."""
        of = self._judged
        own, error, norm, share, own_norm, times, enlarges = (
            column.tolist() for column in (of.own, of.judged_by, of.norm, of.share, of.own_norm, of.times, of.growth)
        )
        noise, noise_norm, measured = of.noise.tolist(), of.noise_norm.tolist(), of.measured.tolist()
        decided = (of.whole & ~of.ranked).tolist()

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
            norm_limit = own_norm[k] + share[k] * max(error[k], received.error) + norm_grown
            ground = Ground.EXPLAINED
            if error[k] > limit:
                ground = Ground.TOO_LARGE
            elif measured[k] and norm[k] > norm_limit:
                ground = Ground.SYSTEMATIC
            of.ground[k], of.received[k], of.limit[k], of.norm_limit[k] = ground, received.error, limit, norm_limit
            return ground is Ground.EXPLAINED

        return judge

    def _received_by_group(self, k: int) -> _Received:
        """What the members of a group read of others; their sides do not list the same inputs."""
        error = norm = 0.0
        for side, members in zip((self._a, self._b), self._judged.pairing.members(k), strict=True):
            for maker in {maker for record in members for maker in side.makers(record)}:
                if maker >= 0 and side.pair_of[maker] != k and not side.is_blocked(maker):
                    error, norm = max(error, side.error_of(maker)), max(norm, side.norm_of(maker))
        return _Received(error, norm)

    def _made_elsewhere(self, a: int, b: int) -> bool:
        """Two records have partners, and are not each other's."""
        if a < 0 or b < 0:
            return False
        of_a, of_b = self._a.pair_of[a], self._b.pair_of[b]
        return of_a >= 0 and of_b >= 0 and of_a != of_b and self._sure[of_a] and self._sure[of_b]

    def _received(self, i: int, j: int, scores: bool, sure: bool) -> _Received:
        one, other = self._a, self._b
        x, y = one.values(i), other.values(j)
        digests_a, digests_b = one.digests(i), other.digests(j)
        made_a, made_b = one.makers(i), other.makers(j)
        digested, valued = min(len(digests_a), len(digests_b)), min(len(x), len(y))
        error = norm = score = 0.0
        picked = elsewhere = False
        for at in range(max(len(made_a), len(made_b))):
            if at < digested and digests_a[at] == digests_b[at] != _NO_DIGEST:
                continue
            a = made_a[at] if at < len(made_a) else -1
            b = made_b[at] if at < len(made_b) else -1
            if (a >= 0 and one.is_blocked(a)) or (b >= 0 and other.is_blocked(b)):
                continue
            # nothing came in with a difference that an operation of one run alone has made, or with another tensor
            crossed = sure and self._made_elsewhere(a, b)
            elsewhere |= crossed
            made = crossed or (sure and (one.is_alone(a) or other.is_alone(b)))
            change = _change(x[at], y[at]) if at < valued and not made else 0.0
            norm = max(norm, change)
            if a < 0 and b < 0:
                # a parameter, or what was not captured: how far it is off can only be guessed from its norm
                error = max(error, _UNSEEN * change if self._sketched else change)
                continue
            error = max(error, change)
            for side, maker in ((one, a), (other, b)):
                if maker >= 0:
                    error, norm = max(error, side.error_of(maker)), max(norm, side.norm_of(maker))
                    picked |= side.decided(maker)
                    if scores:
                        score = max(score, side.magnitude(maker))
        return _Received(error, norm, score if score or not scores else UNKNOWN_SCORES, picked, elsewhere)


@dataclass(frozen=True, slots=True)
class _Received:
    """The largest error, change of a norm, and size of a score, among the inputs that no red row explains.

    `picked`: one of them are whole numbers that noise has decided otherwise. `other`: one of them is another tensor.
    """

    error: float
    norm: float
    score: float = 0.0
    picked: bool = False
    other: bool = False


_NO_DIGEST = int(NO_DIGEST)
_UNSEEN = 8.0
"""An error in all directions is about so many times what a norm shows of it, at least."""


def _change(x: float, y: float) -> float:
    if x == y or not (math.isfinite(x) and math.isfinite(y)):
        return 0.0
    return abs(x - y) / max(abs(x), abs(y))
