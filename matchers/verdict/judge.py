"""Judge every pair by its numbers: a status and a relative error.

Where both logs have digests, equal digests mean equal tensors. Where both have sketches of the same part of a tensor,
the error is an estimate of ‖a − b‖/‖b‖ of the tensors themselves. Otherwise it is the largest of the relative
differences of the printed statistics, each on its own scale:

* L1 and L2 norms by the larger norm;
* Min and Max by the largest magnitude of the tensor (a minimum near zero has no relative precision of its own);
* Mean by L1/numel, the mean magnitude (a mean near zero is cancellation, not divergence).

Each of them is a lower bound of the relative error of the tensors themselves, |‖a‖ − ‖b‖| ≤ ‖a − b‖ in its norm, so
the result is a lower bound too and is shown as "≥".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int64, columns
from matchers.logs.columns import repeated
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import STATISTICS, OpLog, Phase
from matchers.ops.collectives import unfinished
from matchers.ops.laws import law_of, on_lists, rows_where
from matchers.ops.outputs import records_changes
from matchers.ops.shapes import dimensions, is_shard, numel, reduction_length, sharded_runs
from matchers.ops.turned import turned
from matchers.status import Status
from matchers.verdict.digests import DigestComparison, altered_by_one_run, compare_digests, returns_nothing
from matchers.verdict.lists import judge_lists
from matchers.verdict.reason import UNSIZED, Reason
from matchers.verdict.relative_error import relative
from matchers.verdict.sketches import estimates
from matchers.verdict.slots import Limits, SlotVerdict, judge_slots, worst
from matchers.verdict.tolerance import (
    ACCUMULATED,
    EPSILON,
    EXTREMES,
    RESOLUTION,
    DtypePolicy,
    default_tolerance,
    longer_sum,
    own_tolerance,
)
from matchers.verdict.user_hash import user_differences

__all__ = [
    "Verdicts",
    "determined_by_copying",
    "dtype_policy",
    "judge",
    "longer_sums",
    "other_dtypes",
    "other_layouts",
    "replaced",
    "whole_numbers",
]


def _by_dtype(log: OpLog, of: Callable[[str], float]) -> Float64:
    """float64[dtypes + 1], a tolerance for each entry of the dtype table; that of float32 for no dtype."""
    return np.array([of(name) for name in log.dtypes] + [of("float32")])


def whole_numbers(log: OpLog) -> Bool:
    """bool[dtypes + 1], the dtypes that do not round."""
    return np.array([name not in EPSILON for name in log.dtypes] + [False])


@columns
class Verdicts:
    """The verdicts of all pairs.

    Attributes:
        status, reason: int8 of `Status`, and of `Reason`, the finding that decided it.
        error: relative error; NaN where nothing can be compared.
        bound: the error is a lower bound, not an estimate.
        tolerance: the limit for norms.
        limit: the limit for the value that differs most, whose error is `error`.
        inputs_equal: all inputs are bitwise equal.
        slots: the output or input that differs most, by pair, where it is not the first output.
    """

    status: NDArray[np.int8]
    reason: NDArray[np.int8]
    error: Float64
    bound: Bool
    tolerance: Float64
    limit: Float64
    inputs_equal: Bool
    slots: Mapping[int, SlotVerdict]

    def claimed(
        self,
        which: Bool | Int64,
        status: Status | NDArray[np.int8],
        reason: Reason | NDArray[np.int8],
        *,
        slots: Mapping[int, SlotVerdict] | None = None,
        **columns: Any,
    ) -> Verdicts:
        """The verdicts with another status and its reason for some pairs, and other values in further columns.

        Args:
            slots: all slots; None where they stay.
        """
        changed = {}
        for name, values in (("status", status), ("reason", reason), *columns.items()):
            changed[name] = getattr(self, name).copy()
            changed[name][which] = values
        return replace(self, **changed, slots=self.slots if slots is None else slots)

    def entered(self, slots: Mapping[int, SlotVerdict]) -> Verdicts:
        """The verdicts with those of some slots, which decide about their pairs."""
        if not slots:
            return self
        status, reason, error, bound, limit = (
            np.array([getattr(slot, name) for slot in slots.values()])
            for name in ("status", "reason", "error", "bound", "limit")
        )
        all_slots = dict(sorted({**self.slots, **slots}.items()))
        return self.claimed(
            np.array(list(slots)), status, reason, slots=all_slots, error=error, bound=bound, limit=limit
        )


def replaced(verdicts: Verdicts, which: Int64, fresh: Verdicts) -> Verdicts:
    """The verdicts with those of some pairs replaced."""
    columns: dict[str, Any] = {}
    for column in fields(Verdicts):
        if column.name != "slots":
            columns[column.name] = getattr(verdicts, column.name).copy()
            columns[column.name][which] = getattr(fresh, column.name)
    gone = set(which.tolist())
    slots = {k: slot for k, slot in verdicts.slots.items() if k not in gone}
    slots |= {int(which[k]): slot for k, slot in fresh.slots.items()}
    return Verdicts(**columns, slots=dict(sorted(slots.items())))


def dtype_policy(a: OpLog, b: OpLog, i: Int64, j: Int64, *, every: bool = False) -> DtypePolicy:
    """Pairs of dtypes that differ throughout: another precision policy, reported once for all rows.

    A combination is a policy when it is at least a tenth of the pairs; a single cast that moved is not.

    Args:
        every: take any combination of two float dtypes for a policy.
    """
    da, db = a.dtype[i], b.dtype[j]
    names_a, names_b = list(a.dtypes), list(b.dtypes)
    both = (da >= 0) & (db >= 0)
    codes, counts = np.unique(da[both] * (len(names_b) + 1) + db[both], return_counts=True)
    out = []
    for code, n in zip(codes.tolist(), counts.tolist(), strict=True):
        x, y = names_a[code // (len(names_b) + 1)], names_b[code % (len(names_b) + 1)]
        if x != y and x in EPSILON and y in EPSILON and (every or n >= max(3, len(i) // 10)):
            out.append((x, y))
    return tuple(out)


def judge(
    a: OpLog,
    b: OpLog,
    i: Int64,
    j: Int64,
    rtol: Float64 | None = None,
    policy: DtypePolicy = (),
    layouts: bool = False,
) -> Verdicts:
    """Judge the pairs (i[k], j[k]).

    Args:
        rtol: tolerances from the user's rules per pair, NaN for the default.
        policy: combinations of dtypes that are expected, see `dtype_policy`; judged at the coarser ε.
        layouts: the runs lay tensors out differently, see `other_layouts`.
    """
    bits = compare_digests(a, b, i, j)
    alone = bits.inputs_equal | altered_by_one_run(a, b, i, j, bits.inputs_equal)
    tolerance, far = _limits(a, b, i, j, alone, policy)
    allowance = np.full(len(i), EXTREMES)
    if rtol is None:
        rtol = np.full(len(i), np.nan)
    given = ~np.isnan(rtol)  # a user's tolerance is applied as written
    tolerance, far = np.where(given, rtol, tolerance), np.where(given, rtol, far)
    allowance[given] = 1.0

    columns = ErrorColumns(a, b, i, j)
    columns.add_all(bits.changed, bits.slots)
    own_error, own_differs = user_differences(a, b, i, j)
    norms, extremes, compared = np.maximum(columns.norms, own_error), columns.extremes, columns.compared
    error = np.maximum(norms, extremes)
    limit = np.where((extremes > norms) & (norms <= tolerance), allowance * tolerance, tolerance)
    status = np.full(len(i), Status.SAME_PRINT, np.int8)
    reason = np.full(len(i), Reason.SAME_NUMBERS, np.int8)

    def settle(which: Bool, to: Status, why: Reason) -> None:
        status[which], reason[which] = to, why

    beyond = (norms > tolerance) | (extremes > allowance * tolerance)
    settle(error > 0, Status.CLOSE, Reason.WITHIN_TOLERANCE)
    settle(beyond, Status.DIVERGED, Reason.BEYOND_TOLERANCE)
    settle(columns.uncounted & (status == Status.SAME_PRINT), Status.CLOSE, Reason.INFINITE_NORM)
    bound = np.ones(len(i), bool)

    same = status == Status.SAME_PRINT
    settle((bits.differ | own_differs) & same, Status.CLOSE, Reason.OTHER_BITS_SAME_NORMS)
    elsewhere, estimate = estimates(a, b, i, j, bits.first_differs)
    op_a, op_b, _ = shared_ids(a.ops, b.ops)
    # two ops are partners for the sake of their numbers
    other_op = op_a[a.op[i]] != op_b[b.op[j]]
    moved = other_op | layouts
    if moved.any():
        moved &= _rearranged(a, b, i, j)
    moved |= _transposed(a, b, i, j)
    with np.errstate(invalid="ignore"):
        moved |= _reads_in_another_order(a, b, i, j, (estimate > far) & ~beyond)
    estimate[moved & ~(estimate <= far)] = np.nan  # a sketch depends on the order of the elements
    with np.errstate(invalid="ignore"):
        measured = (estimate > far) | (~np.isnan(estimate) & ~beyond)
        settle(measured, Status.CLOSE, Reason.WITHIN_TOLERANCE)
        settle(estimate > far, Status.DIVERGED, Reason.BEYOND_TOLERANCE)
    error[measured], bound[measured], limit[measured] = estimate[measured], False, far[measured]
    compared |= measured
    # integers do not round: any difference is real
    whole = whole_numbers(a)[a.dtype[i]] & whole_numbers(b)[b.dtype[j]]
    settle(bits.first_differs & whole & ~given & ~moved, Status.DIVERGED, Reason.OTHER_WHOLE_NUMBERS)
    settle(bits.equal, Status.EQUAL, Reason.EQUAL_BITS)
    error[bits.equal], bound[bits.equal] = 0.0, False

    settle(columns.nonfinite, Status.NAN, Reason.NON_FINITE)
    error[columns.nonfinite] = np.inf
    other_dtype, finite = other_dtypes(a, b, i, j, policy), ~columns.nonfinite
    other_shape, shard = _other_shapes(a, b, i, j, moved)
    settle(other_dtype & finite, Status.SHAPE, Reason.OTHER_DTYPE)
    settle(other_shape & finite, Status.SHAPE, Reason.OTHER_SHAPE)
    # a shard has the dtype of the whole
    shard = (shard | (elsewhere & (status != Status.EQUAL))) & ~other_dtype & finite
    settle(shard, Status.SHARDED, Reason.SHARD_OF_WHOLE)
    slots = _slots(a, b, i, j, bits, alone, rtol, policy)
    slots = _deciding(slots, bits, status, reason, error, bound, limit, compared)
    lists = on_lists(a)[i]
    lists &= np.isin(status, (Status.DIVERGED, Status.SHAPE)) | _of_other_lengths(a, b, i, j)
    for k in np.flatnonzero(lists).tolist():
        limits = Limits(float(rtol[k]), bool(alone[k]), True, policy, sharded_runs(a, b))
        slot = judge_lists(a, b, int(i[k]), int(j[k]), limits)
        if slot is not None:
            status[k] = max(slot.status, Status.CLOSE)
            reason[k] = slot.reason if slot.status > Status.CLOSE else Reason.SAME_ELEMENTS
            error[k], bound[k], compared[k] = slot.error, True, True
            limit[k] = tolerance[k] if math.isnan(slot.limit) else slot.limit
            slots.pop(k, None)
            if slot.status.red:
                slots[k] = slot
    loose = unfinished(a)[i] | unfinished(b)[j]
    settle(loose & (status >= Status.SHAPE), Status.UNFINISHED, Reason.UNFINISHED)
    compared |= status == Status.EQUAL
    # inputs that were not written are what an operation leaves
    unwritten = columns.by_inputs & returns_nothing(a, i) & returns_nothing(b, j)
    results = (compared & (~columns.by_inputs | unwritten)) | columns.uncounted | bits.differ | own_differs
    nothing = ~results & np.isin(status, (Status.SAME_PRINT, Status.CLOSE))  # equal inputs alone compare nothing
    settle(nothing, Status.NO_VALUES, Reason.NO_NUMBERS)
    open_ = np.isin(status, (Status.SAME_PRINT, Status.CLOSE))
    # nothing says how far the results are apart
    unsized = open_ & bits.differ & (~compared | columns.by_inputs)
    # an error of 0 says nothing of elements that were moved
    ordered = open_ & bits.differ & ~measured & ~given & (error <= _moved(a)[i])
    ordered &= (other_op | ~moved) & (reason != Reason.SAME_ELEMENTS)  # another layout is known there
    settle(ordered, Status.NOT_JUDGED, Reason.REARRANGED)
    ordered &= bits.inputs_equal & ~other_op & _in_one_order(a)[i] & _in_one_order(b)[j]
    settle(ordered, Status.DIVERGED, Reason.OTHER_ORDER)
    settle(unsized, Status.NOT_JUDGED, Reason.UNSIZED)
    nothing |= np.isin(reason, (*UNSIZED, Reason.OTHER_ORDER))
    error[nothing], compared[nothing] = 0.0, False
    error[(~compared & (error == 0)) | np.isin(status, (Status.SHAPE, Status.SHARDED))] = np.nan
    bound &= np.isfinite(error)
    return Verdicts(status, reason, error, bound, tolerance, limit, bits.inputs_equal, slots)


def _moved(log: OpLog) -> Float64:
    """float64[n], the largest error of numbers over all elements if none of these changed: what adding them up rounds.

    0 in dtypes so fine that rounding of the elements is as small.
    """
    return _by_dtype(log, lambda name: RESOLUTION if EPSILON.get(name, 1.0) > RESOLUTION else 0.0)[log.dtype]


def _in_one_order(log: OpLog) -> Bool:
    """bool[n], the inputs determine each element, and rounding of one would show in the norms: other bits are moved.

    It would not among millions of elements, nor would the sign of a zero.
    """
    epsilon = _by_dtype(log, lambda name: EPSILON.get(name, 0.0))[log.dtype]
    shows = (log.counts[0] > 1) & (log.counts[3] == 0) & (epsilon > RESOLUTION * log.counts[0])
    told = (log.present & _WHOLLY == _WHOLLY) & (log.outputs.count > 0) & log.ours
    return np.asarray(rows_where(log, lambda law: law.determined) & shows & told)


def _of_other_lengths(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    """Mask of the pairs that have more inputs in one run than in the other, as far as both logs list them."""
    n_a, n_b = (np.maximum(log.inputs.count[r], log.input_digests.count[r]) for log, r in ((a, i), (b, j)))
    return np.asarray((n_a != n_b) & (n_a > 0) & (n_b > 0))


def _limits(a: OpLog, b: OpLog, i: Int64, j: Int64, alone: Bool, policy: DtypePolicy) -> tuple[Float64, Float64]:
    """Tolerances per pair: for norms, and for the tensors themselves."""
    longer = longer_sums(a, b, i, j)
    dtype_a, dtype_b = _dtypes(a)[i], _dtypes(b)[j]
    usual = np.maximum(_by_dtype(a, default_tolerance)[dtype_a], _by_dtype(b, default_tolerance)[dtype_b])
    usual *= longer
    for names in policy:  # a result is no finer than the coarser numbers it is computed from
        usual = np.maximum(usual, max(map(default_tolerance, names)))
    far = ACCUMULATED * usual
    # with bitwise equal inputs, only the operation itself can make a difference
    by_element = rows_where(a, lambda law: law.by_element)[i]
    for which in (False, True):
        rows = alone & (by_element == which)
        if rows.any():

            def own(name: str, which: bool = which) -> float:
                return own_tolerance(name, which)

            limit = longer * np.maximum(_by_dtype(a, own)[dtype_a], _by_dtype(b, own)[dtype_b])
            usual, far = np.where(rows, limit, usual), np.where(rows, limit, far)
    exact = alone & determined_by_copying(a, b, i, j)
    usual[exact], far[exact] = RESOLUTION, RESOLUTION
    return usual, far


def determined_by_copying(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    """bool[p]: both copy or pick elements into one dtype: what they read decides each bit of the result."""
    ids_a, ids_b, _ = shared_ids(a.dtypes, b.dtypes)
    alike = rows_where(a, lambda law: law.exact)[i] & rows_where(b, lambda law: law.exact)[j]
    return np.asarray(alike & (ids_a[a.dtype[i]] == ids_b[b.dtype[j]]))


def _dtypes(log: OpLog) -> Int64:
    """int64[n], the dtype of each result; without a result that of the record that made the first input."""
    dtype = log.dtype.copy()
    nothing = np.flatnonzero(dtype < 0)
    maker = log.producers.first(nothing, -1).astype(np.int64)
    known = maker >= 0
    dtype[nothing[known]] = dtype[maker[known]]
    return dtype


def longer_sums(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Float64:
    """float64[p], factors of the tolerances of pairs that sum many terms."""
    factors = []
    for log, rows in ((a, i), (b, j)):
        terms, dtype = reduction_length(log)[rows], log.dtype[rows]
        factor = np.ones(len(rows))
        for code, name in enumerate(log.dtypes):
            which = (dtype == code) & (terms > 1)
            factor[which] = longer_sum(name, terms[which])
        factors.append(factor)
    return np.maximum(*factors)


def _slots(
    a: OpLog,
    b: OpLog,
    i: Int64,
    j: Int64,
    bits: DigestComparison,
    alone: Bool,
    rtol: Float64,
    policy: DtypePolicy,
) -> dict[int, SlotVerdict]:
    """The slots that differ most beside the first outputs, by pair."""
    out: dict[int, SlotVerdict] = {}
    if not len(bits.slots):
        return out
    shards, recorded = sharded_runs(a, b), records_changes(a) and records_changes(b)
    for k in bits.slots.tolist():
        row_a, row_b = int(i[k]), int(j[k])
        limits = Limits(float(rtol[k]), bool(alone[k]), law_of(a, row_a).by_element, policy, shards, recorded)
        found = worst(judge_slots(a, b, row_a, row_b, limits))
        if found is not None:
            out[k] = found
    return out


def _deciding(
    slots: Mapping[int, SlotVerdict],
    bits: DigestComparison,
    status: NDArray[np.int8],
    reason: NDArray[np.int8],
    error: Float64,
    bound: Bool,
    limit: Float64,
    compared: Bool,
) -> dict[int, SlotVerdict]:
    """Return the slots that decide about their pairs; write their verdicts into the columns."""
    out = {}
    for k, slot in slots.items():
        compared[k] = True
        mine = SlotVerdict("", Status(status[k]), Reason(reason[k]), float(error[k]))
        if slot.status == Status.EQUAL:
            if bits.outputs_equal[k]:
                status[k], reason[k], error[k], bound[k] = Status.EQUAL, Reason.EQUAL_BITS, 0.0, False
        elif worst([mine, slot]) is slot:
            status[k], reason[k] = slot.status, slot.reason
            error[k], bound[k], limit[k] = slot.error, slot.bound, slot.limit
            out[k] = slot
    return out


class ErrorColumns:
    """Differences of the printed statistics of all pairs (i[k], j[k]), entered one kind of statistic after the other.

    Attributes:
        norms: float64, the largest relative difference of norms and mean.
        extremes: float64, the largest relative difference of Min and Max.
        nonfinite: bool, NaN or Inf on one side, or NaN on both, where a number is printed or counted.
        uncounted: bool, one side counts infinite values and the other has an infinite norm: no number is comparable.
        compared: bool, any number was compared.
        by_inputs: bool, these numbers are of inputs only.
    """

    def __init__(self, a: OpLog, b: OpLog, i: Int64, j: Int64) -> None:
        self._a, self._b, self._i, self._j = a, b, i, j
        self.norms, self.extremes = np.zeros(len(i)), np.zeros(len(i))
        self.nonfinite, self.uncounted, self.compared, self.by_inputs = np.zeros((4, len(i)), bool)
        self._nan_a, self._inf_a = a.counts[1][i], a.counts[2][i]
        self._nan_b, self._inf_b = b.counts[1][j], b.counts[2][j]
        self._counted_a, self._counted_b = self._nan_a >= 0, self._nan_b >= 0
        # one side's statistics are of all values, the other's of the finite ones, and there are infinite ones
        self._hidden = (self._counted_a != self._counted_b) & (np.maximum(self._inf_a, self._inf_b) > 0)

    def add_all(self, changed: Bool, slots: Int64) -> None:
        """Compare all printed numbers.

        Args:
            changed: pairs that are judged by the inputs they changed in place.
            slots: pairs of which further outputs or changed inputs are judged one by one.
        """
        self.add_counts()
        self.add_outputs(slots)
        self.add_inputs(changed)
        self.add_statistics()

    def add_counts(self) -> None:
        """Compare the numbers of NaN and Inf; those of Inf, as masks have them, in proportion to the size."""
        both = self._counted_a & self._counted_b
        share_a = self._inf_a / np.maximum(self._a.counts[0][self._i], 1)
        share_b = self._inf_b / np.maximum(self._b.counts[0][self._j], 1)
        self.nonfinite |= both & ((self._nan_a != self._nan_b) | (share_a != share_b))
        self.nonfinite |= (self._counted_a & (self._nan_a > 0)) | (self._counted_b & (self._nan_b > 0))
        l1 = np.where(self._counted_a, self._b.outputs.first(self._j), self._a.outputs.first(self._i))
        self.uncounted |= self._hidden & np.isinf(l1)
        self.nonfinite |= self._hidden & ~np.isinf(l1)

    def add_outputs(self, slots: Int64) -> None:
        """Compare the L1 norms of all outputs; of the pairs in `slots` the first, if the others have more numbers."""
        a, b, i, j = self._a, self._b, self._i, self._j
        count = np.minimum(a.outputs.count[i], b.outputs.count[j])
        further_a, further_b = a.texts("Output 1"), b.texts("Output 1")
        if further_a and further_b:
            told = [k for k in slots.tolist() if int(i[k]) in further_a and int(j[k]) in further_b]
            count[told] = np.minimum(count[told], 1)
        pairs, place = repeated(np.arange(len(i)), count)
        x = a.outputs.value[a.outputs.start[i[pairs]] + place]
        y = b.outputs.value[b.outputs.start[j[pairs]] + place]
        self._add(pairs, x, y, self.norms)

    def add_inputs(self, changed: Bool) -> None:
        """Compare the L1 norms of the inputs, position by position, of operations with no other numbers."""
        a, b, i, j = self._a, self._b, self._i, self._j
        nothing = (a.outputs.count[i] == 0) & (b.outputs.count[j] == 0) & (a.present[i] == 0) & (b.present[j] == 0)
        rows = np.flatnonzero(nothing & ~changed)
        if not len(rows):
            return
        count = np.minimum(a.inputs.count[i[rows]], b.inputs.count[j[rows]])
        owner, place = repeated(rows, count)
        x = a.inputs.value[a.inputs.start[i[owner]] + place]
        y = b.inputs.value[b.inputs.start[j[owner]] + place]
        unread = (np.isnan(x) & a.ours) | (np.isnan(y) & b.ours)
        odd = (~np.isfinite(x) | ~np.isfinite(y)) & ~(np.isinf(x) & (x == y)) & ~unread
        self.nonfinite[owner[odd]] = True
        np.maximum.at(self.norms, owner, np.nan_to_num(relative(x, y), nan=0.0, posinf=0.0))
        self.compared[owner] = self.by_inputs[owner] = True

    def add_statistics(self) -> None:
        """Compare L2, Min, Max and Mean, each on its own scale."""
        a, b, i, j = self._a, self._b, self._i, self._j
        present = a.present[i] & b.present[j]
        for k, name in enumerate(STATISTICS):
            scale = self._magnitude if name in ("Min", "Max") else self._mean_size if name == "Mean" else None
            into = self.extremes if name in ("Min", "Max") else self.norms
            pairs = np.flatnonzero((present >> k) & 1)
            self._add(pairs, a.stats[k][i[pairs]], b.stats[k][j[pairs]], into, scale)

    def _magnitude(self, at: Int64) -> Float64:
        """The largest magnitude in the tensors of some pairs."""
        extremes = [np.abs(log.stats[2:4, of[at]]) for log, of in ((self._a, self._i), (self._b, self._j))]
        return np.asarray(np.fmax.reduce(np.concatenate(extremes)))

    def _mean_size(self, at: Int64) -> Float64:
        """The mean magnitude in the tensors of some pairs."""
        a, b, i, j = self._a, self._b, self._i[at], self._j[at]
        size = np.fmax(numel(a)[a.shape[i]], numel(b)[b.shape[j]])
        return np.asarray(np.fmax(a.outputs.first(i), b.outputs.first(j)) / size)

    def _add(
        self, pairs: Int64, x: Float64, y: Float64, into: Float64, scale: Callable[[Int64], Float64] | None = None
    ) -> None:
        """Enter the relative difference of a number of a and one of b; a pair may have several.

        Args:
            scale: what the difference of some pairs is relative to; default: the larger of the two.
        """
        # with counts, the statistics are those of the finite values, and NaN stands where there are none
        empty = (self._counted_a[pairs] & np.isnan(x)) | (self._counted_b[pairs] & np.isnan(y))
        known = ~self._hidden[pairs] & ~empty
        self.compared[pairs[known]] = True
        unlike = known & (x != y)
        odd = unlike & ~(np.isfinite(x) & np.isfinite(y))
        self.nonfinite[pairs[odd]] = True
        at = np.flatnonzero(unlike & ~odd)
        pairs, x, y = pairs[at], x[at], y[at]
        larger = None
        if scale is not None:
            with np.errstate(invalid="ignore", divide="ignore"):
                larger = scale(pairs)
            larger = np.where((larger > 0) & np.isfinite(larger), larger, np.maximum(np.abs(x), np.abs(y)))
        difference = np.nan_to_num(relative(x, y, larger), nan=0.0, posinf=np.inf)
        np.maximum.at(into, pairs, difference)


_WHOLLY = sum(1 << STATISTICS.index(name) for name in ("L2 norm", "Min", "Max", "Mean"))
"""Bits of `OpLog.present`: statistics that, beside the L1 norm, show a change of any element."""
_ORDERLESS = sum(1 << STATISTICS.index(name) for name in ("L2 norm", "Min", "Max"))
"""Bits of `OpLog.present`: statistics that do not depend on the order of the elements."""


_ALIKE = 1e-3
"""Largest relative difference of numbers that are the same in two layouts."""
_LAYOUTS = 3
"""Least number of pairs with other shapes and the same numbers that show another layout throughout."""


def other_layouts(a: OpLog, b: OpLog, i: Int64, j: Int64) -> bool:
    """True if tensors have one layout in a and another in b: several pairs have other shapes and the same numbers.

    Then numbers decide where shapes of one size differ. A single shape that changed is a difference.
    """
    k = np.flatnonzero(_rearranged(a, b, i, j))
    if len(k) < _LAYOUTS:
        return False
    columns = ErrorColumns(a, b, i[k], j[k])
    columns.add_statistics()
    alike = columns.compared & ~columns.nonfinite & (np.maximum(columns.norms, columns.extremes) <= _ALIKE)
    return int(np.count_nonzero(alike)) >= _LAYOUTS


def _reads_in_another_order(a: OpLog, b: OpLog, i: Int64, j: Int64, among: Bool) -> Bool:
    """bool[p]: the two read the same tensors, three or more, in another order: a stack of all gradients' norms."""
    out = np.zeros(len(i), bool)
    for k in np.flatnonzero(among & (a.inputs.count[i] >= _LAYOUTS)).tolist():
        x, y = a.inputs[int(i[k])], b.inputs[int(j[k])]
        if len(x) == len(y) and not np.allclose(x, y, _ALIKE, 0.0):
            out[k] = np.allclose(np.sort(x), np.sort(y), _ALIKE, 0.0)
    return out


def _rearranged(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    """bool[p]: another shape with as many elements, such as (batch, heads, …) and (…, heads, …).

    These may be layouts of one tensor. Numbers that do not depend on the order of the elements decide.
    """
    shape_a, shape_b, _ = shared_ids(a.shapes, b.shapes)
    out = shape_a[a.shape[i]] != shape_b[b.shape[j]]
    k = np.flatnonzero(out)
    if len(k):
        same_size = numel(a)[a.shape[i[k]]] == numel(b)[b.shape[j[k]]]
        out[k] = same_size & (a.present[i[k]] & b.present[j[k]] & _ORDERLESS == _ORDERLESS)
    return np.asarray(out)


def _transposed(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    """bool[p]: tensors of a weight that one of the runs stores transposed."""
    turned_a, turned_b = turned(a), turned(b)
    found = turned_a[i] != turned_b[j]
    if turned_a.any() != turned_b.any():  # lists of an optimizer do not tell what became of which of them
        k = np.flatnonzero((a.phase[i] == Phase.OPTIMIZER) & (b.phase[j] == Phase.OPTIMIZER) & ~found)
        shapes, which = np.unique(np.stack((a.shape[i[k]], b.shape[j[k]])), axis=1, return_inverse=True)
        dims = [(dimensions(a.shapes[x]), dimensions(b.shapes[y])) for x, y in shapes.T.tolist()]
        found[k] = np.array([len(x) == 2 and x == y[::-1] for x, y in dims], bool)[which.ravel()]
    return np.asarray(found)


def _other_shapes(a: OpLog, b: OpLog, i: Int64, j: Int64, moved: Bool) -> tuple[Bool, Bool]:
    """bool[p], shapes that differ, and those that are of shards of one tensor.

    `moved`: pairs that may be layouts of one tensor.
    """
    ids_a, ids_b, _ = shared_ids(a.shapes, b.shapes)
    shape_a, shape_b = ids_a[a.shape[i]], ids_b[b.shape[j]]
    both = (shape_a >= 0) & (shape_b >= 0)
    other_shape = both & (shape_a != shape_b) & ~moved
    shard = np.zeros(len(i), bool)
    if other_shape.any():
        dims = [dimensions(text) for text in dict.fromkeys([*a.shapes, *b.shapes])]
        # dimensions of length 1 change nothing in the order of the elements
        first: dict[tuple[int, ...], int] = {}
        alike = np.array([first.setdefault(tuple(n for n in shape if n != 1), k) for k, shape in enumerate(dims)])
        other_shape[other_shape] = alike[shape_a[other_shape]] != alike[shape_b[other_shape]]
        if sharded_runs(a, b):
            for x, y in np.unique(np.stack((shape_a[other_shape], shape_b[other_shape])), axis=1).T.tolist():
                if is_shard(dims[x], dims[y]):
                    shard |= (shape_a == x) & (shape_b == y)
    return other_shape, shard & other_shape


def other_dtypes(a: OpLog, b: OpLog, i: Int64, j: Int64, policy: DtypePolicy) -> Bool:
    """bool[p], the results of the pairs (i[k], j[k]) have different dtypes, and none that the policy expects."""
    ids_a, ids_b, _ = shared_ids(a.dtypes, b.dtypes)
    dtype_a, dtype_b = ids_a[a.dtype[i]], ids_b[b.dtype[j]]
    differ = (dtype_a >= 0) & (dtype_b >= 0) & (dtype_a != dtype_b)
    number = dict(zip([*a.dtypes, *b.dtypes], [*ids_a[:-1].tolist(), *ids_b[:-1].tolist()], strict=True))
    for x, y in policy:
        differ &= ~((dtype_a == number[x]) & (dtype_b == number[y]))
    return np.asarray(differ)
