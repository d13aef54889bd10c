"""Columns for judging pairs by their inputs, computed before the first pair is judged."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int64, marked, one_of
from matchers.laws.law import Amplifies, Form
from matchers.logs.columns import repeated
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import STATISTICS, OpLog
from matchers.ops.last_contents import Touch
from matchers.ops.laws import by_law, result_limit, rows_where
from matchers.ops.shapes import dimensions
from matchers.ops.values import first_outputs
from matchers.status import Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.judge import determined_by_copying, longer_sums, whole_numbers
from matchers.verdict.reason import Reason
from matchers.verdict.received import own_rounding
from matchers.verdict.relative_error import relative
from matchers.verdict.sketches import estimates
from matchers.verdict.tolerance import (
    EXTREMES,
    RESOLUTION,
    counting,
    growth_factor,
    systematic_share,
)

__all__ = ["PropagationColumns"]


class PropagationColumns:
    """The columns of all pairs that do not depend on the verdicts of other pairs.

    Attributes:
        open: bool, the pair is judged here: it differs, by a finite error, and no user has set its tolerance.
        judged_by: the error that is compared with the limit; of what is ranked, the estimate of all values.
        whole: bool, the results are whole numbers, or values and their ranks, of which the ranks were judged.
        decided: bool, they are whole numbers, which do not round, but may be decided by numbers that do.
        ranked: float64, the estimate of the values where the ranks were judged; NaN for others.
        sorts: bool, the results are whole numbers in an order, or their places in it.
        chooses: bool, the results say which elements are picked: places of the largest, or of what is not zero.
        other_rows: bool, their shapes differ in one dimension; they are open if a choice makes them differ.
        own, own_norm: error, and change of a norm, that rounding in the operation itself can make.
        unseen: `own` as of a record that only one log has: what moves data between ranks, or adds a term of each, has
            no rounding of its own.
        norm: relative change of the norm.
        times: factor of the limit: a bound that the norms do not show is that of a single element.
        share: share of a rounding error that shows in the norm.
        copies: bool, the operation passes its inputs on.
        growth: factor by which the operation may enlarge the error of its inputs.
        of_scores: bool, this factor is the size of the argument.
        signs: number of elements that signs decide: of what begins as zeros and is then little more than signs, and of
            what a sign lets pass; NaN for others.
        measured: bool, the error is an estimate of the first output's.
        by_norms: bool, it is a lower bound, from the norms of the first output.
        noise, noise_norm: error and change of a norm that a third run shows; NaN where it shows none.
    """

    def __init__(self, case: Case, found: Judgement, coarsest: float) -> None:
        """The columns of all pairs; arguments as `explain_by_arithmetic`."""
        a, b, i, j, noise = case.a, found.b, case.i, case.j, case.expectation.noise
        verdicts, x, y = found.verdicts, found.i, found.j
        status, error = verdicts.status, verdicts.error
        by_slot = marked([k for k, slot in verdicts.slots.items() if not slot.gathered], len(i))
        differs = one_of(status, (Status.CLOSE, Status.DIVERGED)) & np.isfinite(error)
        self.open = differs & np.isnan(case.rtol) & ~found.settled
        self.open[[k for k, slot in verdicts.slots.items() if slot.only]] = False
        whole = whole_numbers(a)[a.dtype[i]] | whole_numbers(b)[b.dtype[j]]
        ranked = by_slot & ~whole & rows_where(a, lambda law: law.form is Form.RANK, i)
        self.whole, self.decided = whole | ranked, whole & ~ranked
        sorts = rows_where(a, lambda law: law.form is Form.RANK, i)
        chooses = sorts | rows_where(a, lambda law: law.data_decides, i)
        self.chooses, self.sorts = chooses & self.whole, sorts & self.whole
        self.other_rows = np.isnan(case.rtol) & ~found.settled & _other_rows(a, b, i, j, verdicts.reason)
        by_element = rows_where(a, lambda law: law.by_element, i)
        own = np.maximum(*(own_rounding(log, rows, by_element, coarsest) for log, rows in ((a, i), (b, j))))
        own *= longer_sums(a, b, i, j)
        own[verdicts.inputs_equal & determined_by_copying(a, b, i, j)] = RESOLUTION
        moves = rows_where(a, lambda law: law.moves or law.communicates, i)
        self.own, self.unseen = own, np.where(moves, 0.0, own)
        self.norm = np.where(status == Status.SHARDED, 0.0, _norm_change(a, b, x, y))
        counted = (counting(log.outputs.first(rows), log.stats[1][rows]) for log, rows in ((a, x), (b, y)))
        self.share = systematic_share(np.minimum(*counted))
        # what returns nothing and changes nothing passes its inputs on
        self.copies = rows_where(a, lambda law: law.passes_elements, i) | ((a.outputs.count[i] == 0) & ~by_slot)
        # a constant that two dtypes round differently moves a norm by all of its rounding
        ids_a, ids_b, _ = shared_ids(a.dtypes, b.dtypes)
        constant = self.copies | (ids_a[a.dtype[i]] != ids_b[b.dtype[j]])
        self.own_norm = np.where(constant, own, self.share * own)
        self.growth = by_law(a, i, growth_factor) * _spread(a, i)
        self.of_scores = rows_where(a, lambda law: law.of_scores, i)
        self.signs = _signs(case, found, self.open & (status == Status.DIVERGED))
        self.measured, self.by_norms = ~verdicts.bound & ~by_slot, verdicts.bound & ~by_slot
        self.times = np.where(self.by_norms & (error > self.norm), EXTREMES, 1.0)
        self.judged_by = error.copy()
        of_ranks = first_outputs(a, i[ranked]), first_outputs(b, j[ranked])
        self.judged_by[ranked] = np.nan_to_num(estimates(*of_ranks, ranked[ranked])[1])
        self.ranked = np.where(ranked, self.judged_by, np.nan)
        further = np.fmax(self.judged_by, self.times * _further_norms(a, b, x, y))
        self.judged_by = np.where(self.by_norms, further, self.judged_by)
        unknown: Float64 = np.full(len(i), np.nan)
        self.noise, self.noise_norm = (
            (unknown, unknown) if noise is None else noise.of(case.pairing, a if noise.side == "a" else case.b)
        )


def _other_rows(a: OpLog, b: OpLog, i: Int64, j: Int64, reason: NDArray[np.int8]) -> Bool:
    """bool[p], pairs of results that are not alike, whose shapes differ in the size of one dimension."""
    out = np.zeros(len(i), bool)
    for k in np.flatnonzero(reason == Reason.OTHER_SHAPE).tolist():
        one, other = dimensions(a.shape_text(i[k])), dimensions(b.shape_text(j[k]))
        out[k] = len(one) == len(other) and sum(x != y for x, y in zip(one, other, strict=True)) == 1
    return out


def _signs(case: Case, found: Judgement, which: Bool) -> Float64:
    """float64[p], number of elements that signs decide; NaN for others.

    Those of tensors of zeros, of which Adam's first step makes signs, and those that a sign lets pass.
    """
    a, b = case.contents
    gates = rows_where(a.log, lambda law: law.gates, case.i) & which
    out = np.where(gates, a.log.counts[0, case.i], np.nan)
    near = rows_where(a.log, lambda law: law.amplifies is Amplifies.NEAR_A_SIGN, case.i) & which
    for k in np.flatnonzero(near).tolist():
        slot, touched = found.verdicts.slots.get(k), []
        for of, row in ((a, int(case.i[k])), (b, int(case.j[k]))):
            place = 0 if slot is None else (*of.names(row), slot.name).index(slot.name)
            touched.append((of, Touch(row, place)))
        if not any(of.before(touch).l1 for of, touch in touched):
            out[k] = a.after(touched[0][1]).numel
    return out


def _spread(log: OpLog, rows: Int64) -> Float64:
    """float64[p], the root of the mean over the least argument of an optimizer's inverse roots; 1 for other operations.

    A square is off by as much more than most as its root is less: the largest result is that of the least argument.
    """
    of_root = rows_where(log, lambda law: law.form is Form.INVERSE_ROOT and not law.on_lists, rows) & log.updates[rows]
    out = np.ones(len(rows))
    at = rows[of_root]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.sqrt(log.inputs.first(at) / log.counts[0, at]) * log.stats[STATISTICS.index("Max"), at]
    out[of_root] = np.where(np.isfinite(found), np.maximum(found, 1.0), 1.0)
    return out


def _norm_change(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Float64:
    """The larger relative change of L1 and L2."""
    first = relative(a.outputs.first(i), b.outputs.first(j))
    second = relative(a.stats[1][i], b.stats[1][j])
    return np.fmax(np.nan_to_num(first, posinf=np.inf), np.nan_to_num(second, posinf=np.inf))


def _further_norms(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Float64:
    """The largest relative change of the L1 of a further output; 0 without one."""
    out = np.zeros(len(i))
    k, place = repeated(np.arange(len(i)), np.minimum(a.outputs.count[i], b.outputs.count[j]))
    among = (place > 0) & (place < result_limit(a)[i[k]])
    k, place = k[among], place[among]
    change = relative(a.outputs.at(i[k], place), b.outputs.at(j[k], place))
    np.maximum.at(out, k, np.nan_to_num(change, posinf=np.inf))
    return out
