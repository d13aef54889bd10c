"""Weights for the evidence that two operations are partners, learned from the two logs themselves.

The value of an equal location, a norm that is off by one percent or a renamed module depends on the logs: two captures
of the same code agree in everything, an eager and a traced run have different locations throughout, and two dtypes
share no number. So no weight is set by hand. Each property of a candidate pair falls into a bin; the bin's weight is
the log odds of a pair being right, fitted on pairs that are certain and on candidates that are certainly wrong (a
logistic regression that trains on its own confident pairs, with a prior for rare bins). The weights of a candidate add
up to its log odds.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int64, columns
from matchers.pairing.features import Features, LogFeatures

__all__ = ["Flow", "Lesson", "Observed", "Order", "StructureEvidence", "ValueEvidence", "flow", "observe", "value_bins"]

ValueBins = tuple[Int64, Int64, Int64]

VALUE_BINS = 20
"""Number of bins over log10 of the difference from 1e-8 (equal printed values) to 5; one more bin means "no values"."""

_SHIFT_EDGES = np.array([1, 2, 3, 5, 9, 17, 33, 65, 129])
_NEAR = 8
_AROUND = 4
"""Distance within which the partners of a candidate's neighbours count as around it."""
_NOWHERE = -(1 << 40)
"""Row that is far from all."""
_CAP = 8.0
_FLOOR = 4.0
"""Limit on negative weights: the training pairs are easier than the rest, so no single disagreement excludes a pair."""
_BUCKETS = 1 << 18
_SIGNS = np.array([[(mask >> k) & 1 for mask in range(16)] for k in range(4)], np.float32)
"""Distance added per statistic for a differing sign, by the bit mask of differing signs."""

# Prior log odds of each bin; they matter when there is little training data.
_VALUE_PRIOR = np.append(np.linspace(4.0, -1.5, VALUE_BINS), 0.0)
# Bin edges of the log odds of two sites, or two contexts, being partners.
_SITE_EDGES = np.array([-3.0, -1.5, -0.7, 0.0, 0.7, 1.5, 2.5, 4.0])
_CONTEXT_EDGES = np.array([-2.0, -1.0, -0.3, 0.3, 1.0, 2.0])
# The bins of a site and its context are learned; the others are properties of `Observed`.
_CATEGORY_PRIOR = {
    "site": np.linspace(-2.5, 2.5, len(_SITE_EDGES) + 1),
    "context": np.linspace(-1.5, 1.5, len(_CONTEXT_EDGES) + 1),
    "name": np.array([1.5, -2.0, -1.5, -3.0, 0.0, -2.0, -0.3]),
    "words": np.array([-0.7, -0.3, 0.3, 1.0, 0.0]),
    "form": np.array([0.2, -1.5, -0.7, -2.0]),
    "location": np.array([0.7, -1.0, 0.0]),
    "shift": np.array([1.5, 1.0, 0.7, 0.3, 0.0, -0.3, -0.6, -1.0, -1.5, -2.0]),
    "repeat": np.array([0.0, 0.3, -1.0, 4.0, -4.0]),
    "flow": np.array([0.0, 1.5, -1.5, 0.3]),
    "near": np.array([0.0, 0.7, 1.5, -0.7, 0.0, 0.5]),
    "around": np.array([0.0, 0.5, 1.0, 1.5, -0.5, 0.0, 0.5, 1.0, -1.5, -1.0, -0.5, 0.0]),
}
_PULL = 1.0
"""Strength of the priors, in observations."""
_STEPS, _SETTLED = 20, 0.05
"""Maximum number of steps of the fit, and the change of a weight below which it has converged."""


def _rough_log2(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """log2 of positive numbers to within 0.09, from the bits of the float: precise enough to choose a bin."""
    return np.asarray(x.view(np.int32) * np.float32(2.0**-23) - np.float32(127.0))


def _binned(values: NDArray[Any], edges: NDArray[Any]) -> Int64:
    """Number of ascending edges that each value reaches: `np.digitize`, much slower for so few of them."""
    out = np.zeros(len(values), np.int8)
    for edge in edges:
        out += values >= edge
    return out.astype(np.int64)


def _bin(difference: NDArray[np.float32]) -> Int64:
    """Bin of the mean logarithm of some differences, NaN for unknown ones; float32[k, m]."""
    log = _rough_log2(difference + np.float32(1e-8))
    known = difference == difference
    if known.all():
        mean = log.sum(axis=0) / np.float32(len(log))
        n = None
    else:
        n = known.sum(axis=0, dtype=np.int32)
        mean = np.where(known, log, np.float32(0.0)).sum(axis=0) / np.maximum(n, 1).astype(np.float32)
    # log2 from -26.6 (equal printed values) to 2.3
    bins = ((mean + np.float32(26.6)) * np.float32(VALUE_BINS / 28.9)).astype(np.int32)
    np.minimum(np.maximum(bins, 0, out=bins), VALUE_BINS - 1, out=bins)
    return bins if n is None else np.where(n > 0, bins, VALUE_BINS)


@np.errstate(invalid="ignore")
def value_bins(a: LogFeatures, b: LogFeatures, i: Int64, j: Int64) -> ValueBins:
    """Bins of the distance between the numbers of rows i of a and j of b: outputs, inputs, and the ratios of the
    statistics of an output to the first one.

    The distance is logarithmic: two runs that diverged by half still differ less than two different operations do.
    """
    difference = a.stats.take(i, axis=1)
    difference -= b.stats.take(j, axis=1)
    # one error moves all norms of a tensor together; their ratios are more discriminating
    profile = np.abs(difference[1:] - difference[0])
    apart = np.abs(difference, out=difference)
    signs = a.signs[i] ^ b.signs[j]
    if signs.any():
        apart += _SIGNS[:, signs]
    read = a.inputs.take(i, axis=1)
    read -= b.inputs.take(j, axis=1)
    return _bin(apart), _bin(np.abs(read, out=read)), _bin(profile)


@columns
class Order:
    """The expected row of b for each row of a: `before` and `after` are int64[n_a], by the nearest anchor on either
    side.
    """

    before: Int64
    after: Int64

    def distance(self, i: Int64, j: Int64) -> Int64:
        """How many rows each of some rows of b is from where a row of a lets it be expected."""
        return np.minimum(np.abs(j - self.before[i]), np.abs(j - self.after[i]))


@columns
class Observed:
    """The bins of m candidate pairs, one array per property."""

    out: Int64
    profile: Int64
    inputs: Int64
    site_a: Int64
    site_b: Int64
    context: Int64
    same_pattern: Bool
    name: Int64
    words: Int64
    form: Int64
    location: Int64
    shift: Int64
    repeat: Int64
    flow: Int64
    near: Int64
    around: Int64

    @property
    def is_near(self) -> Bool:
        """bool[m]: the row of b is within a few rows of its expected position."""
        return self.shift <= np.searchsorted(_SHIFT_EDGES, _NEAR, side="right")

    @property
    def without_values(self) -> Bool:
        """bool[m]: the two rows have no comparable numbers, only names and order, which drift."""
        return (self.out == VALUE_BINS) & (self.inputs == VALUE_BINS)


@columns
class Lesson:
    """Training data: certain pairs, and certainly wrong candidates of the same rows."""

    right: Observed
    wrong: Observed


def observe(f: Features, i: Int64, j: Int64, order: Order, of_a: Int64, of_b: Int64) -> Observed:
    """The bins of the pairs (i[k], j[k]), given the partners known so far (-1: none)."""
    a, b = f.a, f.b
    loc_a, loc_b = a.location[i], b.location[j]
    location = np.where((loc_a < 0) | (loc_b < 0), 2, np.where(loc_a == loc_b, 0, 1))
    out, inputs, profile = value_bins(a, b, i, j)
    return Observed(
        out=out,
        profile=profile,
        inputs=inputs,
        site_a=a.site[i],
        site_b=b.site[j],
        context=_bucket(a.context[i], b.context[j]),
        same_pattern=a.pattern[i] == b.pattern[j],
        name=_name(a, b, i, j),
        words=f.names.words.bins(a.pattern[i], b.pattern[j]),
        form=_form(a, b, i, j),
        location=location,
        shift=_binned(order.distance(i, j), _SHIFT_EDGES),
        repeat=_repeat(a, b, i, j, of_a, of_b),
        flow=flow(a, b, i, j, of_a, of_b),
        near=_near(i, j, of_a, of_b),
        around=_around(i, j, of_a),
    )


def _name(a: LogFeatures, b: LogFeatures, i: Int64, j: Int64) -> Int64:
    """The difference between the modules' names.

    0 none, 1 other indices; 2 other names that both logs have, 3 with other indices too; 4 other names of which only
    one log has one, 5 with other indices too; 6 one of the two is unknown.
    """
    place_a, place_b = a.place[i], b.place[j]
    elsewhere = (place_a != place_b) & (place_a >= 0) & (place_b >= 0)
    known_a, known_b = a.known[i], b.known[j]
    other = np.where((known_a > 0) & (known_b > 0), 2, 4) + elsewhere
    name = np.where(a.pattern[i] == b.pattern[j], np.where(place_a == place_b, 0, 1), other)
    return np.where((known_a < 0) != (known_b < 0), 6, name)


def _form(a: LogFeatures, b: LogFeatures, i: Int64, j: Int64) -> Int64:
    """0 the same number of inputs and the same shape, 1 another number of inputs, 2 another shape, 3 both."""
    arity_a, arity_b = a.arity[i], b.arity[j]
    other = (arity_a != arity_b) & (arity_a > 0) & (arity_b > 0)
    return np.asarray(other + 2 * (a.shape[i] != b.shape[j]))


def _repeat(a: LogFeatures, b: LogFeatures, i: Int64, j: Int64, of_a: Int64, of_b: Int64) -> Int64:
    """0 neither was recomputed, 1 both were, 2 one was; if both, 3 their originals are partners, 4 they are not."""
    again_a, again_b = a.repeat[i], b.repeat[j]
    out = np.where(again_a | again_b, 2, 0)
    both = np.flatnonzero(again_a & again_b)
    first_a, first_b = a.original[i[both]], b.original[j[both]]
    partner, partner_of_b = of_a[first_a], of_b[first_b]
    known = (first_a >= 0) & (first_b >= 0) & ((partner >= 0) | (partner_of_b >= 0))
    out[both] = np.where(known, np.where(partner == first_b, 3, 4), 1)
    return out


class Flow(IntEnum):
    """The knowledge about the producers of two rows."""

    UNKNOWN = 0
    PARTNERS = 1
    ELSEWHERE = 2
    """They have other partners."""
    BOTH = 3


def flow(a: LogFeatures, b: LogFeatures, i: Int64, j: Int64, of_a: Int64, of_b: Int64) -> Int64:
    """A `Flow` for each of the pairs (i[k], j[k]), given the partners known so far (-1: none)."""
    agree = np.zeros(len(i), bool)
    conflict = np.zeros(len(i), bool)
    for made_a, made_b in zip(a.producers, b.producers, strict=True):
        p, q = made_a[i], made_b[j]
        known = (p >= 0) & (q >= 0)
        partner, partner_of_b = of_a[p], of_b[q]
        agree |= known & (partner == q)
        conflict |= known & (partner != q) & ((partner >= 0) | (partner_of_b >= 0))
    return np.where(
        agree, np.where(conflict, Flow.BOTH, Flow.PARTNERS), np.where(conflict, Flow.ELSEWHERE, Flow.UNKNOWN)
    )


def _near(i: Int64, j: Int64, of_a: Int64, of_b: Int64) -> Int64:
    """Number of the two direct neighbours that are partners (0–2), plus 3 if a neighbour's partner is elsewhere."""
    n_a, n_b = len(of_a), len(of_b)
    agree = np.zeros(len(i), np.int64)
    conflict = np.zeros(len(i), bool)
    for step in (-1, 1):
        p, q = i + step, j + step
        inside = (p >= 0) & (p < n_a) & (q >= 0) & (q < n_b)
        p, q = np.where(inside, p, 0), np.where(inside, q, 0)
        partner = of_a[p]
        agree += inside & (partner == q)
        conflict |= inside & (partner != q) & ((partner >= 0) | (of_b[q] >= 0))
    return agree + 3 * conflict


def _around(i: Int64, j: Int64, of_a: Int64) -> Int64:
    """Number of rows around i with partners around j, in any order.

    0 for none, 1 for 1–2, 2 for 3–4, 3 for 5–6; plus 4 if one or two have partners elsewhere, 8 if more have.
    """
    # rows without a partner, and those beyond the ends, are around nothing
    partner = np.full(len(of_a) + 6, _NOWHERE)
    partner[3:-3] = np.where(of_a >= 0, of_a, _NOWHERE)
    around = [partner[start : start + len(of_a)] for start in (0, 1, 2, 4, 5, 6)]
    known, agree = np.zeros(len(of_a), np.int8), np.zeros(len(i), np.int8)
    for partners in around:
        known += partners != _NOWHERE
        agree += np.abs(partners[i] - j) <= _AROUND
    away = known[i] - agree
    return ((agree + 1) // 2 + 4 * np.minimum((away + 1) // 2, 2)).astype(np.int64)


def _bucket(x: Int64, y: Int64) -> Int64:
    """Hash a pair of ids to one of `_BUCKETS` buckets."""
    code = x.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ y.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    return (code >> np.uint64(46)).astype(np.int64)


def _fit(right: Sequence[Int64], wrong: Sequence[Int64], priors: Sequence[Float64]) -> list[Float64]:
    """Fit the weights of the bins of several properties, which add up to the log odds of a candidate being right.

    Logistic regression rather than one property at a time, so that correlated properties (order, and neighbours that
    are partners) count once. Weights are drawn towards the priors, which they keep in bins without data.
    """
    size = tuple(len(prior) for prior in priors)
    code, which = np.unique(
        np.concatenate((np.ravel_multi_index(tuple(right), size), np.ravel_multi_index(tuple(wrong), size))),
        return_inverse=True,
    )
    n_right, n_wrong = len(right[0]), len(wrong[0])
    yes = np.bincount(which[:n_right], minlength=len(code)).astype(np.float64)
    # balanced classes: the rarity of right pairs among candidates must not enter the weights
    no = np.bincount(which[n_right:], minlength=len(code)) * ((n_right + 1.0) / (n_wrong + 1.0))
    total = yes + no
    start = np.concatenate(([0], np.cumsum(size)))
    at = [bins + first for bins, first in zip(np.unravel_index(code, size), start, strict=False)]
    prior = np.concatenate(priors)
    weights, many = prior.copy(), len(prior)
    # the matrix of second derivatives is symmetric
    above = np.concatenate([bins * many + others for k, bins in enumerate(at) for others in at[k:]])

    def logit(of: Float64) -> Float64:
        return np.asarray(sum((of[bins] for bins in at), np.zeros(len(code))))

    def loss(of: Float64) -> float:
        odds = logit(of)
        return float(total @ np.logaddexp(0.0, odds) - yes @ odds + 0.5 * _PULL * np.sum((of - prior) ** 2))

    for _ in range(_STEPS):  # Newton's method, with the step halved while it increases the loss
        chance = 1.0 / (1.0 + np.exp(-logit(weights)))
        left, spread = yes - total * chance, total * chance * (1.0 - chance)
        slope = _PULL * (prior - weights)
        for bins in at:
            slope += np.bincount(bins, left, many)
        bend = np.bincount(above, np.resize(spread, len(above)), many * many).reshape(many, many)
        step = np.linalg.solve(bend + np.triu(bend, 1).T + _PULL * np.eye(many), slope)
        now = loss(weights)
        while loss(weights + step) > now and np.abs(step).max() > _SETTLED:
            step *= 0.5
        weights += step
        if np.abs(step).max() <= _SETTLED:
            break
    return [np.clip(part, -_FLOOR, _CAP) for part in np.split(weights, start[1:-1])]


class ValueEvidence:
    """Evidence from the printed numbers, trained on pairs chosen by names and order."""

    NAMES = ("out", "inputs", "profile")

    def __init__(self, right: ValueBins, wrong: ValueBins) -> None:
        self.weights = dict(zip(self.NAMES, _fit(right, wrong, [_VALUE_PRIOR] * 3), strict=True))
        for weights in self.weights.values():
            # monotone: a larger difference never scores higher than a smaller one
            weights[:VALUE_BINS] = np.maximum.accumulate(weights[:VALUE_BINS][::-1])[::-1]

    def score(self, seen: Observed) -> Float64:
        """Log odds that each candidate is right, by its numbers alone."""
        return self.of((seen.out, seen.inputs, seen.profile))

    def of(self, bins: ValueBins) -> Float64:
        """The same, of `value_bins`."""
        return sum((w[of] for w, of in zip(self.weights.values(), bins, strict=True)), np.zeros(len(bins[0])))


class StructureEvidence:
    """Evidence from names, order and data flow, trained on pairs chosen by their numbers."""

    def __init__(self, lesson: Lesson) -> None:
        self._sites = _SiteWeights(lesson.right, lesson.wrong)
        right = self._bins(lesson.right, 1, 0)
        wrong = self._bins(lesson.wrong, 0, 1)
        self.weights = _fit(right, wrong, list(_CATEGORY_PRIOR.values()))

    def _bins(self, seen: Observed, right: int = 0, wrong: int = 0) -> list[Int64]:
        site, context = self._sites.bins(seen, right, wrong)
        return [site, context, *(getattr(seen, name) for name in [*_CATEGORY_PRIOR][2:])]

    def score(self, seen: Observed) -> Float64:
        """Log odds that each candidate is right, by everything but its numbers."""
        total: Float64 = sum(
            (w[b] for w, b in zip(self.weights, self._bins(seen), strict=True)), np.zeros(len(seen.out))
        )
        return total


class _SiteWeights:
    """Correspondence of the sites (module and op) of a and b, learned over all layers and micro-batches at once."""

    def __init__(self, right: Observed, wrong: Observed) -> None:
        self._right = np.bincount(_bucket(right.site_a, right.site_b), minlength=_BUCKETS)
        self._right_of_a = np.unique(right.site_a, return_counts=True)
        self._wrong = np.bincount(_bucket(wrong.site_a, wrong.site_b), minlength=_BUCKETS)
        self._wrong_of_a = np.unique(wrong.site_a, return_counts=True)
        self._context = np.bincount(right.context, minlength=_BUCKETS)
        self._wrong_context = np.bincount(wrong.context, minlength=_BUCKETS)

    def bins(self, seen: Observed, right: int, wrong: int) -> tuple[Int64, Int64]:
        """Bins of the log odds of a candidate's sites being partners, and of those of its contexts given the sites.

        `right`, `wrong`: the number of times that each candidate itself is in the training data, which is subtracted.
        """
        pair = _bucket(seen.site_a, seen.site_b)
        prior = np.where(seen.same_pattern, 0.8, 0.05)
        n_right, n_wrong = self._right[pair] - right, self._wrong[pair] - wrong
        of_right = (n_right + 3.0 * prior) / (_many(self._right_of_a, seen.site_a) - right + 3.0)
        of_wrong = (n_wrong + 3.0 * 0.3) / (_many(self._wrong_of_a, seen.site_a) - wrong + 3.0)
        # the context refines the site: its odds relative to those of the site alone
        odds = (n_right + 1.0) / (n_wrong + 1.0)
        fine = (self._context[seen.context] - right + 2.0 * odds) / (self._wrong_context[seen.context] - wrong + 2.0)
        return _binned(of_right / of_wrong, np.exp(_SITE_EDGES)), _binned(fine / odds, np.exp(_CONTEXT_EDGES))


def _many(counted: tuple[Int64, Int64], of: Int64) -> Int64:
    """Numbers of some values, by the values that were counted, ascending, and their numbers."""
    values, numbers = counted
    if not len(values):
        return np.zeros(len(of), np.int64)
    at = np.minimum(np.searchsorted(values, of), len(values) - 1)
    return np.where(values[at] == of, numbers[at], 0)
