"""Judge every pair by its numbers: a status and a relative error.

Each value by the law of `judge_values.py`, and the one that differs most decides about its pair.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int64, columns, distinct, one_of
from matchers.logs.columns import repeated
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import STATISTICS, OpLog, Phase
from matchers.ops.collectives import unfinished
from matchers.ops.laws import by_law, on_lists, result_limit, rows_where
from matchers.ops.shapes import dimensions, numel, reduction_length, sharded_runs
from matchers.ops.turned import turned
from matchers.ops.values import first_outputs, further, records_changes
from matchers.status import Status
from matchers.verdict.digests import DigestComparison, altered_by_one_run, compare_digests, returns_nothing
from matchers.verdict.judge_values import Differences, Limits, ValueVerdicts, untaken_in_both
from matchers.verdict.lists import ALIKE, judge_lists, reordered
from matchers.verdict.other_order import of_reordered_weights
from matchers.verdict.reason import UNSIZED, Reason
from matchers.verdict.relative_error import relative
from matchers.verdict.slots import SlotVerdict, deciding, worst
from matchers.verdict.tolerance import EPSILON, RESOLUTION, DtypePolicy, by_dtype, longer_sum
from matchers.verdict.user_hash import user_differences

__all__ = [
    "Verdicts",
    "determined_by_copying",
    "dtype_policy",
    "judge",
    "longer_sums",
    "other_layouts",
    "print_resolution",
    "whole_numbers",
]


def whole_numbers(log: OpLog) -> Bool:
    """bool[dtypes + 1], the dtypes that do not round."""
    return np.array([name not in EPSILON for name in log.dtypes] + [False])


@columns
class Verdicts(ValueVerdicts):
    """The verdicts of all pairs.

    Attributes:
        inputs_equal: all inputs are bitwise equal.
        slots: the output or input that differs most, by pair, where it is not the first output.
    """

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
        copies = {name: getattr(self, name).copy() for name in ("status", "reason", *columns)}
        found = replace(self, **copies, slots=self.slots if slots is None else dict(sorted(slots.items())))
        found.settle(which, status, reason, **columns)
        return found

    def entered(self, slots: Mapping[int, SlotVerdict]) -> Verdicts:
        """The verdicts with those of some slots, which decide about their pairs."""
        if not slots:
            return self
        status, reason, error, bound, limit = (
            np.array([getattr(slot, name) for slot in slots.values()])
            for name in ("status", "reason", "error", "bound", "limit")
        )
        of_slots = {"error": error, "bound": bound, "limit": limit, "compared": True}
        return self.claimed(np.array(list(slots)), status, reason, slots={**self.slots, **slots}, **of_slots)

    def taken(self, rows: Int64) -> Verdicts:
        """Those of some pairs, in this order."""
        columns = {name: getattr(self, name)[rows] for name in _COLUMNS}
        slots = {k: self.slots[row] for k, row in enumerate(rows.tolist()) if row in self.slots} if self.slots else {}
        return Verdicts(**columns, slots=slots)

    def replaced(self, which: Int64, fresh: Verdicts) -> Verdicts:
        """The verdicts with those of some pairs replaced."""
        columns = {name: getattr(self, name).copy() for name in _COLUMNS}
        for name, values in columns.items():
            values[which] = getattr(fresh, name)
        gone = set(which.tolist())
        slots = {k: slot for k, slot in self.slots.items() if k not in gone}
        slots |= {int(which[k]): slot for k, slot in fresh.slots.items()}
        return Verdicts(**columns, slots=dict(sorted(slots.items())))


_COLUMNS = tuple(column.name for column in fields(Verdicts) if column.name != "slots")


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
    if rtol is None:
        rtol = np.full(len(i), np.nan)
    x, y = first_outputs(a, i), first_outputs(b, j)
    alone = bits.inputs_equal | altered_by_one_run(a, b, i, j, bits.inputs_equal)
    shards = sharded_runs(a, b)
    limits = Limits(
        rtol,
        alone=alone,
        by_element=rows_where(a, lambda law: law.by_element, i),
        longer=longer_sums(a, b, i, j),
        exact=determined_by_copying(a, b, i, j),
        policy=policy,
        shards=shards,
        resolution=print_resolution(a, b, i, j),
    )
    differences = Differences(x, y)
    differences.nonfinite &= ~untaken_in_both(a, b, x, y)
    by_inputs = _add_norms(differences, a, b, i, j, bits.slots, bits.changed)
    own_error, own_differs = user_differences(a, b, i, j)
    np.maximum(differences.norms, own_error, out=differences.norms)
    most = limits.of(replace(x, dtype=_dtypes(a, i)), replace(y, dtype=_dtypes(b, j)))
    op_a, op_b, _ = shared_ids(a.ops, b.ops)
    # two ops are partners for the sake of their numbers
    other_op = op_a[a.op[i]] != op_b[b.op[j]]
    moved = other_op | layouts
    if moved.any():
        moved &= _rearranged(a, b, i, j)
    moved |= _transposed(a, b, i, j)
    with np.errstate(invalid="ignore"):
        far = differences.estimate > most.tensors
    moved |= _reads_in_another_order(a, b, i, j, far & ~differences.beyond(most))
    moved |= of_reordered_weights(a, b, i, j, far & np.isnan(rtol))
    of_values = differences.verdicts(most, moved)
    found = Verdicts(
        **{column.name: getattr(of_values, column.name) for column in fields(of_values)},
        inputs_equal=bits.inputs_equal,
        slots={},
    )
    measured = ~found.bound & one_of(found.status, (Status.CLOSE, Status.DIVERGED))
    others = (found.status == Status.EQUAL) & ~bits.equal  # of several results
    found.settle(others, Status.SAME_PRINT, Reason.SAME_NUMBERS, bound=True)
    different = (bits.differ | own_differs) & (found.status == Status.SAME_PRINT)
    found.settle(different, Status.CLOSE, Reason.OTHER_BITS_SAME_NORMS)
    equal = bits.equal & ~one_of(found.status, (Status.NAN, Status.SHAPE, Status.SHARDED))
    found.settle(equal, Status.EQUAL, Reason.EQUAL_BITS, error=0.0, bound=False)
    odd = _further_nan(a)[i] | _further_nan(b)[j] | (_further_by_numbers(a)[i] & _further_by_numbers(b)[j])
    at = distinct(np.concatenate((bits.slots, np.flatnonzero(odd))))
    recorded = records_changes(a) and records_changes(b) if len(at) else True
    slots = deciding(a, b, i[at], j[at], replace(limits, longer=1.0).taken(at), recorded)
    found = _by_slots(found, {int(at[k]): slot for k, slot in slots.items()}, bits)
    lists = on_lists(a)[i]
    lists &= one_of(found.status, (Status.DIVERGED, Status.SHAPE)) | _of_other_lengths(a, b, i, j)
    for k in np.flatnonzero(lists).tolist():
        of_list = Limits(float(rtol[k]), bool(alone[k]), True, policy=policy, shards=shards)
        slot = judge_lists(a, b, int(i[k]), int(j[k]), of_list)
        if slot is not None:
            reason = slot.reason if slot.status > Status.CLOSE else Reason.SAME_ELEMENTS
            limit = found.tolerance[k] if math.isnan(slot.limit) else slot.limit
            known = {"error": slot.error, "bound": True, "limit": limit, "compared": True}
            found.settle(np.array([k]), max(slot.status, Status.CLOSE), reason, **known)
            rest = {n: other for n, other in found.slots.items() if n != k}
            found = replace(found, slots={**rest, k: slot} if slot.status.red else rest)
    loose = unfinished(a)[i] | unfinished(b)[j]
    found.settle(loose & (found.status >= Status.SHAPE), Status.UNFINISHED, Reason.UNFINISHED)
    found.compared[found.status == Status.EQUAL] = True
    # inputs that were not written are what an operation leaves
    unwritten = by_inputs & returns_nothing(a, i) & returns_nothing(b, j)
    results = (found.compared & (~by_inputs | unwritten)) | differences.uncounted | bits.differ | own_differs
    nothing = ~results & one_of(found.status, (Status.SAME_PRINT, Status.CLOSE))  # equal inputs alone compare nothing
    found.settle(nothing, Status.NO_VALUES, Reason.NO_NUMBERS)
    open_ = one_of(found.status, (Status.SAME_PRINT, Status.CLOSE))
    # nothing says how far the results are apart
    unsized = open_ & (bits.differ | own_differs) & (~found.compared | by_inputs)
    open_ &= bits.differ
    # an error of 0 says nothing of elements that were moved
    ordered = open_ & ~measured & np.isnan(rtol) & (found.error <= _moved(a)[i])
    ordered &= (other_op | ~moved) & (found.reason != Reason.SAME_ELEMENTS)  # another layout is known there
    found.settle(ordered, Status.NOT_JUDGED, Reason.REARRANGED)
    ordered &= bits.inputs_equal & ~other_op
    ordered[ordered] = _in_one_order(a, i[ordered]) & _in_one_order(b, j[ordered])
    found.settle(ordered, Status.DIVERGED, Reason.OTHER_ORDER)
    found.settle(unsized, Status.NOT_JUDGED, Reason.UNSIZED)
    nothing |= one_of(found.reason, (*UNSIZED, Reason.OTHER_ORDER))
    found.error[nothing], found.compared[nothing] = 0.0, False
    without = (~found.compared & (found.error == 0)) | one_of(found.status, (Status.SHAPE, Status.SHARDED))
    found.error[without] = np.nan
    found.bound[~np.isfinite(found.error)] = False
    return found


def _moved(log: OpLog) -> Float64:
    """float64[n], the largest error of numbers over all elements if none of these changed: what adding them up rounds.

    0 in dtypes so fine that rounding of the elements is as small.
    """
    return by_dtype(log.dtypes, lambda name: RESOLUTION if EPSILON.get(name, 1.0) > RESOLUTION else 0.0)[log.dtype]


def _in_one_order(log: OpLog, rows: Int64) -> Bool:
    """bool[k], the inputs determine each element, and rounding of one would show in the norms: other bits are moved.

    It would not among millions of elements, nor would the sign of a zero.
    """
    epsilon = by_dtype(log.dtypes, lambda name: EPSILON.get(name, 0.0))[log.dtype[rows]]
    size, _, _, zeros = log.counts[:, rows]
    shows = (size > 1) & (zeros == 0) & (epsilon > RESOLUTION * size)
    told = (log.present[rows] & _WHOLLY == _WHOLLY) & (log.outputs.count[rows] > 0) & log.tells.exact
    return np.asarray((by_law(log, rows, lambda law: law.determined) > 0) & shows & told)


def _of_other_lengths(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    """Mask of the pairs that have more inputs in one run than in the other, as far as both logs list them."""
    n_a, n_b = (np.maximum(log.inputs.count[r], log.input_digests.count[r]) for log, r in ((a, i), (b, j)))
    return np.asarray((n_a != n_b) & (n_a > 0) & (n_b > 0))


def determined_by_copying(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    """bool[p]: both copy or pick elements into one dtype: what they read decides each bit of the result."""
    ids_a, ids_b, _ = shared_ids(a.dtypes, b.dtypes)
    alike = rows_where(a, lambda law: law.exact, i) & rows_where(b, lambda law: law.exact, j)
    return np.asarray(alike & (ids_a[a.dtype[i]] == ids_b[b.dtype[j]]))


def _dtypes(log: OpLog, rows: Int64) -> Int64:
    """int64[k], the dtype of the results of some rows; without one that of what the maker of the first input made."""
    dtype = log.dtype[rows]
    nothing = np.flatnonzero(dtype < 0)
    maker = log.producers.first(rows[nothing], -1).astype(np.int64)
    known = maker >= 0
    dtype[nothing[known]] = log.dtype[maker[known]]
    return dtype


def print_resolution(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Float64:
    """float64[pairs], the relative difference that the printing of their numbers alone may make."""
    sides = ((a, i), (b, j))
    return np.max([np.where(log.digests.count[rows] == 0, log.tells.resolution, 0.0) for log, rows in sides], axis=0)


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


def _by_slots(found: Verdicts, slots: Mapping[int, SlotVerdict], bits: DigestComparison) -> Verdicts:
    """The verdicts with those of the slots that decide about their pairs."""
    decide = {}
    for k, slot in slots.items():
        found.compared[k] = True
        if slot.status == Status.EQUAL:
            if bits.outputs_equal[k]:
                found.settle(np.array([k]), Status.EQUAL, Reason.EQUAL_BITS, error=0.0, bound=False)
        elif worst([SlotVerdict.of("", found, k), slot]) is slot:
            decide[k] = slot
    return found.entered(decide)


def _further_nan(log: OpLog) -> Bool:
    """bool[n]: a further output, or an input changed in place, has NaN."""
    values, out = further(log), np.zeros(len(log), bool)
    out[values.maker[values.counts[1] > 0]] = True
    return out


def _further_by_numbers(log: OpLog) -> Bool:
    """bool[n]: a further output has numbers and no digest: other tools' logs of several results."""
    values, out = further(log), np.zeros(len(log), bool)
    out[values.maker[(values.slot > 0) & ~values.known]] = True
    return out


def _add_norms(found: Differences, a: OpLog, b: OpLog, i: Int64, j: Int64, slots: Int64, changed: Bool) -> Bool:
    """Enter printed norms, those of further outputs, and of the inputs of operations without other numbers.

    Return bool[p], the pairs with such inputs only.

    Args:
        slots: pairs of which further outputs are judged one by one, if both logs have more numbers of them.
        changed: pairs that are judged by the inputs they changed in place.
    """
    count = np.minimum(np.minimum(a.outputs.count[i], b.outputs.count[j]), result_limit(a)[i])
    told = slots[np.isin(i[slots], a.texts("Output 1").rows) & np.isin(j[slots], b.texts("Output 1").rows)]
    count[told] = np.minimum(count[told], 1)
    pairs, place = repeated(np.arange(len(i)), count)
    pairs, place = pairs[place > 0], place[place > 0]
    x, y = a.outputs.at(i[pairs], place), b.outputs.at(j[pairs], place)
    known = ~((np.isnan(x) & a.tells.unread) | (np.isnan(y) & b.tells.unread))
    found.add(pairs[known], x[known], y[known], found.norms)
    printed = np.flatnonzero(a.present[i] & b.present[j] & 1)
    found.add(printed, a.stats[0][i[printed]], b.stats[0][j[printed]], found.norms)
    nothing = (a.outputs.count[i] == 0) & (b.outputs.count[j] == 0) & (a.present[i] == 0) & (b.present[j] == 0)
    rows = np.flatnonzero(nothing & ~changed)
    owner, place = repeated(rows, np.minimum(a.inputs.count[i[rows]], b.inputs.count[j[rows]]))
    x, y = a.inputs.at(i[owner], place), b.inputs.at(j[owner], place)
    unread = (np.isnan(x) & a.tells.unread) | (np.isnan(y) & b.tells.unread)
    odd = (~np.isfinite(x) | ~np.isfinite(y)) & ~(np.isinf(x) & (x == y)) & ~unread
    found.nonfinite[owner[odd]] = True
    np.maximum.at(found.norms, owner, np.nan_to_num(relative(x, y), nan=0.0, posinf=0.0))
    by_inputs = np.zeros(len(i), bool)
    found.compared[owner] = by_inputs[owner] = True
    return by_inputs


_WHOLLY = sum(1 << STATISTICS.index(name) for name in ("L2 norm", "Min", "Max", "Mean"))
"""Bits of `OpLog.present`: statistics that, beside the L1 norm, show a change of any element."""
_ORDERLESS = sum(1 << STATISTICS.index(name) for name in ("L2 norm", "Min", "Max"))
"""Bits of `OpLog.present`: statistics that do not depend on the order of the elements."""


_LAYOUTS = 3
"""Least number of pairs with other shapes and the same numbers that show another layout throughout."""


def other_layouts(a: OpLog, b: OpLog, i: Int64, j: Int64) -> bool:
    """True if tensors have one layout in a and another in b: several pairs have other shapes and the same numbers.

    Then numbers decide where shapes of one size differ. A single shape that changed is a difference, but between
    functions and what they dispatch.
    """
    if a.tells.functions != b.tells.functions:
        return True
    k = np.flatnonzero(_rearranged(a, b, i, j))
    if len(k) < _LAYOUTS:
        return False
    found = Differences(first_outputs(a, i[k]), first_outputs(b, j[k]))
    alike = found.compared & ~found.nonfinite & (np.maximum(found.norms, found.extremes) <= ALIKE)
    return int(np.count_nonzero(alike)) >= _LAYOUTS


def _reads_in_another_order(a: OpLog, b: OpLog, i: Int64, j: Int64, among: Bool) -> Bool:
    """bool[p]: the two read the same tensors, three or more, in another order: a stack of all gradients' norms."""
    out = np.zeros(len(i), bool)
    for k in np.flatnonzero(among & (a.inputs.count[i] >= _LAYOUTS)).tolist():
        x, y = a.inputs[int(i[k])], b.inputs[int(j[k])]
        out[k] = reordered(x, y, a.dtype_text(int(i[k])))
    return out


def _rearranged(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    """bool[p]: another shape with as many elements, such as (batch, heads, …) and (…, heads, …).

    These may be layouts of one tensor. Numbers that do not depend on the order of the elements decide, if any may
    be there.
    """
    shape_a, shape_b, _ = shared_ids(a.shapes, b.shapes)
    out = shape_a[a.shape[i]] != shape_b[b.shape[j]]
    k = np.flatnonzero(out)
    if len(k):
        same_size = numel(a)[a.shape[i[k]]] == numel(b)[b.shape[j[k]]]
        told = a.present[i[k]] & b.present[j[k]] & _ORDERLESS == _ORDERLESS
        out[k] = same_size & (told | (a.tells.functions != b.tells.functions))
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
