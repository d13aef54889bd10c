"""Judge values of one run against those of the other, row by row, by all that is known of both.

One law for first and further outputs, for inputs changed in place, for lists and for last contents. Equal digests mean
equal tensors. Where both have sketches of the same part of a tensor, the error is an estimate of ‖a − b‖/‖b‖ of the
tensors themselves. Otherwise it is the largest of the relative differences of the statistics, each on its own scale:

* L1 and L2 norms by the larger norm;
* Min and Max by the largest magnitude of the tensor (a minimum near zero has no relative precision of its own);
* Mean by L1/numel, the mean magnitude (a mean near zero is cancellation, not divergence).

Each of them is a lower bound of the relative error of the tensors themselves, |‖a‖ − ‖b‖| ≤ ‖a − b‖ in its norm, so
the result is a lower bound too and is shown as "≥".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int64, columns, one_of
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import STATISTICS, OpLog
from matchers.ops.nonfinite import untaken
from matchers.ops.shapes import but_for_ones, dimensions, is_shard
from matchers.ops.values import Values
from matchers.status import Status
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative
from matchers.verdict.sketches import estimates
from matchers.verdict.tolerance import (
    ACCUMULATED,
    EPSILON,
    EXTREMES,
    RESOLUTION,
    DtypePolicy,
    by_dtype,
    default_tolerance,
    own_tolerance,
)

__all__ = ["Differences", "Limits", "ValueVerdicts", "judge_values", "other_dtypes", "untaken_in_both"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The tolerances of pairs of values; arrays have an entry for each.

    Attributes:
        rtol: the user's tolerance, NaN for the default; applied as written.
        alone: all inputs are bitwise equal, so any difference arises in the operation itself.
        by_element: the operation computes each element by itself.
        longer: factor for sums of many terms.
        policy: pairs of dtypes that are expected to differ.
        exact: what the operation reads decides each bit of the result.
        shards: the runs may hold unmarked shards.
        ordered: the order of the elements counts, so that other bits with equal norms are not judged.
        resolution: relative difference that the printing of numbers alone may make.
    """

    rtol: float | Float64 = math.nan
    alone: bool | Bool = False
    by_element: bool | Bool = False
    longer: float | Float64 = 1.0
    exact: bool | Bool = False
    policy: DtypePolicy = ()
    shards: bool = False
    ordered: bool = True
    resolution: float | Float64 = 0.0

    def of(self, x: Values, y: Values) -> Tolerances:
        """The tolerances of these pairs of values."""
        usual = self.longer * _coarser(x, y, default_tolerance)
        # a result is no finer than the coarser numbers it is computed from
        usual = np.maximum(usual, self.resolution)
        usual = np.maximum(usual, max((default_tolerance(name) for pair in self.policy for name in pair), default=0.0))
        far = ACCUMULATED * usual
        if np.any(self.alone):  # only the operation itself can make a difference
            of_elements = _coarser(x, y, partial(own_tolerance, by_element=True))
            of_sums = _coarser(x, y, partial(own_tolerance, by_element=False))
            own = self.longer * np.where(self.by_element, of_elements, of_sums)
            own = np.where(self.exact, RESOLUTION, own)
            usual, far = np.where(self.alone, own, usual), np.where(self.alone, own, far)
        given = ~np.isnan(np.broadcast_to(self.rtol, len(x)))
        norms, tensors = np.where(given, self.rtol, usual), np.where(given, self.rtol, far)
        return Tolerances(norms, tensors, np.where(given, 1.0, EXTREMES) * norms, given, self.policy, self.shards)

    def taken(self, rows: Int64) -> Limits:
        """Those of some pairs."""
        of = {name: getattr(self, name) for name in ("rtol", "alone", "by_element", "longer", "exact", "resolution")}
        taken: dict[str, Any] = {name: value[rows] for name, value in of.items() if isinstance(value, np.ndarray)}
        return replace(self, **taken)


@columns
class Tolerances:
    """The largest differences that are close.

    Attributes:
        norms, extremes: of norms and the mean, of Min and Max.
        tensors: of the tensors themselves.
        given: bool[v], the user gave them.
        policy, shards: as of `Limits`.
    """

    norms: Float64
    tensors: Float64
    extremes: Float64
    given: Bool
    policy: DtypePolicy = ()
    shards: bool = False

    @classmethod
    def of(cls, norms: Float64) -> Tolerances:
        """Those that follow from these of norms."""
        return cls(norms, ACCUMULATED * norms, EXTREMES * norms, np.zeros(len(norms), bool))


def _coarser(x: Values, y: Values, tolerance: Callable[[str], float]) -> Float64:
    """float64[v], the larger tolerance of the two dtypes; that of float32 for none."""
    known = (np.append(by_dtype(values.dtypes, tolerance)[:-1], np.nan)[values.dtype] for values in (x, y))
    return np.nan_to_num(np.fmax(*known), nan=tolerance("float32"))


def untaken_in_both(a: OpLog, b: OpLog, x: Values, y: Values) -> Bool:
    """bool[v]: as many NaN in both runs, of which no result takes any in either: no finding.

    The other numbers are judged as always; they may have other bits.
    """
    out = (x.counts[1] > 0) & (x.counts[:3] == y.counts[:3]).all(0)
    for k in np.flatnonzero(out).tolist():
        out[k] = (x.maker[k], x.slot[k]) in untaken(a) and (y.maker[k], y.slot[k]) in untaken(b)
    return np.asarray(out)


@columns
class ValueVerdicts:
    """The verdicts on pairs of values, or of records.

    Attributes:
        status, reason: int8 of `Status`, and of `Reason`, the finding that decided it.
        error: relative error; NaN where nothing can be compared.
        bound: the error is a lower bound, not an estimate.
        tolerance: the limit for norms.
        limit: the limit for the value that differs most, whose error is `error`.
        compared: there was anything to compare.
    """

    status: NDArray[np.int8]
    reason: NDArray[np.int8]
    error: Float64
    bound: Bool
    tolerance: Float64
    limit: Float64
    compared: Bool

    def settle(
        self, which: Bool | Int64, status: Status | NDArray[np.int8], reason: Reason | NDArray[np.int8], **columns: Any
    ) -> None:
        """Write a status and its reason, and values of other columns, for some pairs."""
        for name, values in {"status": status, "reason": reason, **columns}.items():
            getattr(self, name)[which] = values


def judge_values(x: Values, y: Values, limits: Limits, untaken: bool | Bool = False) -> ValueVerdicts:
    """Judge each value of x against that of y in the same row.

    Args:
        untaken: as of `untaken_in_both`.
    """
    differences = Differences(x, y)
    differences.nonfinite &= ~np.asarray(untaken)
    found = differences.verdicts(limits.of(x, y))
    # one part of a mask may have more infinite numbers than another
    of_masks = differences.apart & (found.status == Status.NAN) & (x.counts[1] == 0) & (y.counts[1] == 0)
    found.settle(of_masks, Status.SHARDED, Reason.SHARD_OF_WHOLE, error=np.nan)
    moved = limits.ordered & np.isnan(limits.rtol) & (found.reason == Reason.OTHER_BITS_SAME_NORMS)
    found.settle(moved, Status.NOT_JUDGED, Reason.REARRANGED, error=np.nan)
    return found


class Differences:
    """The differences of all that is known of pairs of values.

    Attributes:
        norms: float64, the largest relative difference of norms and mean.
        extremes: float64, the largest relative difference of Min and Max.
        nonfinite: bool, NaN or Inf on one side, or NaN on both, where a number is printed or counted.
        uncounted: bool, one side counts infinite values and the other has an infinite norm: no number is comparable.
        compared: bool, any number was compared.
        differ: bool, the digests are known and differ.
        equal: bool, they are known and equal.
        apart: bool, the two are different parts of one tensor; known with the verdicts.
    """

    def __init__(self, x: Values, y: Values) -> None:
        self._x, self._y = x, y
        self.norms, self.extremes = np.zeros(len(x)), np.zeros(len(x))
        self.nonfinite, self.uncounted, self.compared, self.apart = np.zeros((4, len(x)), bool)
        known = x.known & y.known
        self.equal, self.differ = known & (x.digest == y.digest), known & (x.digest != y.digest)
        self._counted_x, self._counted_y = x.counts[1] >= 0, y.counts[1] >= 0
        # one side's statistics are of all values, the other's of the finite ones, and there are infinite ones
        self._hidden = (self._counted_x != self._counted_y) & (np.maximum(x.counts[2], y.counts[2]) > 0)
        self._add_counts()
        self._add_statistics()

    def _add_counts(self) -> None:
        """Compare the numbers of NaN and Inf; those of Inf, as masks have them, in proportion to the size."""
        (numel_x, nan_x, inf_x, _), (numel_y, nan_y, inf_y, _) = self._x.counts, self._y.counts
        both = self._counted_x & self._counted_y
        other_share = inf_x / np.maximum(numel_x, 1) != inf_y / np.maximum(numel_y, 1)
        self.nonfinite |= (both & ((nan_x != nan_y) | other_share)) | (nan_x > 0) | (nan_y > 0)
        l1 = np.where(self._counted_x, self._y.l1, self._x.l1)
        self.uncounted |= self._hidden & np.isinf(l1)
        self.nonfinite |= self._hidden & ~np.isinf(l1)

    def _add_statistics(self) -> None:
        x, y = self._x, self._y
        present = x.present & y.present
        for k, name in enumerate(STATISTICS):
            scale = self._magnitude if name in ("Min", "Max") else self._mean_size if name == "Mean" else None
            at = np.flatnonzero((present >> k) & 1)
            self.add(at, x.stats[k][at], y.stats[k][at], self.extremes if name in ("Min", "Max") else self.norms, scale)

    def _magnitude(self, at: Int64) -> Float64:
        """The largest magnitude in the tensors of some pairs."""
        extremes = [np.abs(values.stats[2:4, at]) for values in (self._x, self._y)]
        return np.asarray(np.fmax.reduce(np.concatenate(extremes)))

    def _mean_size(self, at: Int64) -> Float64:
        """The mean magnitude in the tensors of some pairs; their root mean square where no L1 norm is known."""
        numel = np.fmax(*(values.numel[at] for values in (self._x, self._y)))
        l1, l2 = (np.fmax(self._x.stats[k, at], self._y.stats[k, at]) for k in (0, 1))
        return np.where(np.isnan(l1), l2 / np.sqrt(numel), l1 / numel)

    def add(
        self,
        at: Int64,
        x: Float64,
        y: Float64,
        into: Float64,
        scale: Callable[[Int64], Float64] | None = None,
    ) -> None:
        """Enter the relative difference of a number of x and one of y; a pair may have several.

        Args:
            scale: what the difference of some pairs is relative to; default: the larger of the two.
        """
        # with counts, the statistics are those of the finite values, and NaN stands where there are none
        empty = (self._counted_x[at] & np.isnan(x)) | (self._counted_y[at] & np.isnan(y))
        known = ~self._hidden[at] & ~empty
        self.compared[at[known]] = True
        unlike = known & (x != y)
        odd = unlike & ~(np.isfinite(x) & np.isfinite(y))
        self.nonfinite[at[odd]] = True
        left = np.flatnonzero(unlike & ~odd)
        at, x, y = at[left], x[left], y[left]
        larger = None
        if scale is not None:
            with np.errstate(invalid="ignore", divide="ignore"):
                larger = scale(at)
            larger = np.where((larger > 0) & np.isfinite(larger), larger, np.maximum(np.abs(x), np.abs(y)))
        np.maximum.at(into, at, np.nan_to_num(relative(x, y, larger), nan=0.0, posinf=np.inf))

    @cached_property
    def whole(self) -> Bool:
        """bool: both are of dtypes that do not round: any difference is real."""
        return np.asarray(np.logical_and(*(_whole(values) for values in (self._x, self._y))))

    @cached_property
    def _by_sketch(self) -> tuple[Bool, Float64]:
        """(the placements name different parts of one tensor, estimated relative error; NaN without one)."""
        return estimates(self._x, self._y, self.differ | ~(self.equal | self.whole))

    @property
    def estimate(self) -> Float64:
        """float64, the estimated error of the tensors themselves; NaN without one."""
        return self._by_sketch[1]

    def beyond(self, most: Tolerances) -> Bool:
        """bool: a number differs by more than its tolerance."""
        return np.asarray((self.norms > most.norms) | (self.extremes > most.extremes))

    def verdicts(self, most: Tolerances, moved: bool | Bool = False) -> ValueVerdicts:
        """The verdicts.

        Args:
            moved: bool, the two may have one tensor's elements in another order: only numbers that do not depend on it
                tell.
        """
        beyond, far = self.beyond(most), most.tensors
        error = np.maximum(self.norms, self.extremes)
        by_extremes = (self.extremes > self.norms) & (self.norms <= most.norms)
        found = ValueVerdicts(
            status=np.full(len(error), Status.SAME_PRINT, np.int8),
            reason=np.full(len(error), Reason.SAME_NUMBERS, np.int8),
            error=error,
            bound=np.ones(len(error), bool),
            tolerance=most.norms,
            limit=np.where(by_extremes, most.extremes, most.norms),
            compared=self.compared | self.equal,
        )
        found.settle(self.differ, Status.CLOSE, Reason.OTHER_BITS_SAME_NORMS)
        found.settle(self.uncounted, Status.CLOSE, Reason.INFINITE_NORM)
        found.settle(error > 0, Status.CLOSE, Reason.WITHIN_TOLERANCE)
        found.settle(beyond, Status.DIVERGED, Reason.BEYOND_TOLERANCE)
        with np.errstate(invalid="ignore"):
            estimate = np.where(moved & ~(self.estimate <= far), np.nan, self.estimate)
            measured = (estimate > far) | (~np.isnan(estimate) & ~beyond)
            sketched = {"error": estimate[measured], "bound": False, "limit": far[measured], "compared": True}
            found.settle(measured, Status.CLOSE, Reason.WITHIN_TOLERANCE, **sketched)
            found.settle(estimate > far, Status.DIVERGED, Reason.BEYOND_TOLERANCE)
        exact = self.differ & self.whole & ~most.given & ~np.asarray(moved)
        found.settle(exact, Status.DIVERGED, Reason.OTHER_WHOLE_NUMBERS, limit=0.0)
        found.settle(self.equal, Status.EQUAL, Reason.EQUAL_BITS, error=0.0, bound=False)
        # nothing says how far the two are apart
        unsized = self.differ & ~found.compared & (found.status == Status.CLOSE)
        found.settle(unsized, Status.NOT_JUDGED, Reason.UNSIZED)
        other_shape, other_dtype, self.apart = self._kinds(most, moved)
        found.settle(other_dtype, Status.SHAPE, Reason.OTHER_DTYPE)
        found.settle(other_shape, Status.SHAPE, Reason.OTHER_SHAPE)
        found.settle(self.apart & (found.status != Status.EQUAL), Status.SHARDED, Reason.SHARD_OF_WHOLE)
        error[one_of(found.status, (Status.SHAPE, Status.SHARDED, Status.NOT_JUDGED))] = np.nan
        found.settle(self.nonfinite, Status.NAN, Reason.NON_FINITE, error=np.inf)
        found.settle(self.nonfinite & self.equal & (self._x.counts[1] > 0), Status.NAN, Reason.NAN_IN_BOTH)
        found.bound[~np.isfinite(error)] = False
        return found

    def _kinds(self, most: Tolerances, moved: bool | Bool) -> tuple[Bool, Bool, Bool]:
        """Masks: shapes differ; dtypes differ; the two are different parts of one tensor."""
        x, y = self._x, self._y
        other_dtype = other_dtypes(x, y, most.policy)
        ids_x, ids_y, _ = shared_ids(x.shapes, y.shapes)
        shape_x, shape_y = ids_x[x.shape], ids_y[y.shape]
        other_shape = (shape_x >= 0) & (shape_y >= 0) & (shape_x != shape_y) & ~np.asarray(moved)
        shard = np.zeros(len(x), bool)
        if other_shape.any():
            dims = [dimensions(text) for text in dict.fromkeys([*x.shapes, *y.shapes])]
            first: dict[tuple[int, ...], int] = {}
            alike = np.array([first.setdefault(but_for_ones(shape), k) for k, shape in enumerate(dims)])
            other_shape[other_shape] = alike[shape_x[other_shape]] != alike[shape_y[other_shape]]
            # nor does another view of equal bits
            size = np.array([math.prod(shape) for shape in dims])
            other_shape &= ~(self.equal & (size[shape_x] == size[shape_y]))
            if most.shards:
                for one, other in {*zip(shape_x[other_shape].tolist(), shape_y[other_shape].tolist(), strict=True)}:
                    if is_shard(dims[one], dims[other]):
                        shard |= (shape_x == one) & (shape_y == other)
        # a shard has the dtype of the whole
        return other_shape, other_dtype, (self._by_sketch[0] | (shard & other_shape)) & ~other_dtype


def _whole(values: Values) -> Bool:
    """bool[v]: the dtype is known, and does not round."""
    return np.asarray(np.array([name not in EPSILON for name in values.dtypes] + [False])[values.dtype])


def other_dtypes(x: Values, y: Values, policy: DtypePolicy) -> Bool:
    """bool[v]: the two have different dtypes, and none that the policy expects."""
    ids_x, ids_y, _ = shared_ids(x.dtypes, y.dtypes)
    dtype_x, dtype_y = ids_x[x.dtype], ids_y[y.dtype]
    differ = (dtype_x >= 0) & (dtype_y >= 0) & (dtype_x != dtype_y)
    number = dict(zip([*x.dtypes, *y.dtypes], [*ids_x[:-1].tolist(), *ids_y[:-1].tolist()], strict=True))
    for one, other in policy:
        if one in number and other in number:
            differ &= ~((dtype_x == number[one]) & (dtype_y == number[other]))
    return np.asarray(differ)
