"""Columns for judging pairs by their inputs, computed before the first pair is judged."""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Float64, Int64, columns
from matchers.laws.law import Form
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import STATISTICS, OpLog
from matchers.ops.laws import by_law, rows_where
from matchers.ops.values import first_outputs
from matchers.status import Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.judge import determined_by_copying, longer_sums, whole_numbers
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


@columns
class PropagationColumns:
    """The columns of all pairs that do not depend on the verdicts of other pairs.

    Attributes:
        open: the pair is judged here: it differs, by a finite error, and no user has set its tolerance.
        judged_by: the error that is compared with the limit; of what is ranked, the estimate of all values.
        whole: the results are whole numbers, or values and their ranks, of which the ranks were judged.
        decided: they are whole numbers, which do not round, but may be decided by numbers that do.
        own, own_norm: error, and change of a norm, that rounding in the operation itself can make.
        norm: relative change of the norm.
        times: factor of the limit: a bound that the norms do not show is that of a single element.
        share: share of a rounding error that shows in the norm.
        copies: the operation passes its inputs on.
        unseen: `own` as of a record that only one log has: what moves data between ranks, or adds a term of each, has
            no rounding of its own.
        growth: factor by which the operation may enlarge the error of its inputs.
        of_scores: this factor is the size of the argument.
        measured: the error is an estimate of the first output's.
        by_norms: it is a lower bound, from the norms of the first output.
        noise, noise_norm: error and change of a norm that a third run shows; NaN where it shows none.
    """

    open: Bool
    judged_by: Float64
    whole: Bool
    decided: Bool
    own: Float64
    own_norm: Float64
    norm: Float64
    times: Float64
    share: Float64
    copies: Bool
    unseen: Float64
    growth: Float64
    of_scores: Bool
    measured: Bool
    by_norms: Bool
    noise: Float64
    noise_norm: Float64

    @classmethod
    def of(
        cls,
        case: Case,
        found: Judgement,
        coarsest: float,
    ) -> PropagationColumns:
        """The columns of all pairs; arguments as `explain_by_arithmetic`."""
        a, b, i, j, noise = case.a, found.b, case.i, case.j, case.expectation.noise
        verdicts, x, y = found.verdicts, found.i, found.j
        status, error = verdicts.status, verdicts.error
        by_slot = np.zeros(len(i), bool)
        by_slot[[k for k, slot in verdicts.slots.items() if not slot.gathered]] = True
        is_open = (
            np.isin(status, (Status.CLOSE, Status.DIVERGED)) & np.isfinite(error) & np.isnan(case.rtol) & ~found.settled
        )
        is_open[[k for k, slot in verdicts.slots.items() if slot.only]] = False
        whole = whole_numbers(a)[a.dtype[i]] | whole_numbers(b)[b.dtype[j]]
        ranked = by_slot & ~whole & rows_where(a, lambda law: law.form is Form.RANK)[i]
        judged_by = error.copy()
        of_ranks = first_outputs(a, i[ranked]), first_outputs(b, j[ranked])
        judged_by[ranked] = np.nan_to_num(estimates(*of_ranks, ranked[ranked])[1])
        by_element = rows_where(a, lambda law: law.by_element)[i]
        own = np.maximum(*(own_rounding(log, rows, by_element, coarsest) for log, rows in ((a, i), (b, j))))
        own *= longer_sums(a, b, i, j)
        own[verdicts.inputs_equal & determined_by_copying(a, b, i, j)] = RESOLUTION
        norm = np.where(status == Status.SHARDED, 0.0, _norm_change(a, b, x, y))
        share = systematic_share(
            np.minimum(*(counting(log.outputs.first(rows), log.stats[1][rows]) for log, rows in ((a, x), (b, y))))
        )
        # what returns nothing and changes nothing passes its inputs on
        copies = rows_where(a, lambda law: law.passes_elements)[i] | ((a.outputs.count[i] == 0) & ~by_slot)
        # a constant that two dtypes round differently moves a norm by all of its rounding
        constant = copies | _other_dtype(a, b, i, j)
        unknown = np.full(len(i), np.nan)
        times = np.where(verdicts.bound & (error > norm) & ~by_slot, EXTREMES, 1.0)
        return cls(
            open=is_open,
            judged_by=np.where(
                verdicts.bound & ~by_slot, np.fmax(judged_by, times * _further_norms(a, b, x, y)), judged_by
            ),
            whole=whole | ranked,
            decided=whole & ~ranked,
            own=own,
            own_norm=np.where(constant, own, share * own),
            norm=norm,
            times=times,
            share=share,
            copies=copies,
            unseen=np.where(rows_where(a, lambda law: law.moves or law.communicates)[i], 0.0, own),
            growth=by_law(a, i, growth_factor) * _spread(a, i),
            of_scores=rows_where(a, lambda law: law.of_scores)[i],
            measured=~verdicts.bound & ~by_slot,
            by_norms=verdicts.bound & ~by_slot,
            noise=unknown if noise is None else noise.of(case.pairing),
            noise_norm=unknown if noise is None else noise.norm_of(case.pairing),
        )


def _spread(log: OpLog, rows: Int64) -> Float64:
    """float64[p], the root of the mean over the least argument of an optimizer's inverse roots; 1 for other operations.

    A square is off by as much more than most as its root is less: the largest result is that of the least argument.
    """
    of_root = rows_where(log, lambda law: law.form is Form.INVERSE_ROOT and not law.on_lists)[rows] & log.updates[rows]
    out = np.ones(len(rows))
    at = rows[of_root]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.sqrt(log.inputs.first(at) / log.counts[0, at]) * log.stats[STATISTICS.index("Max"), at]
    out[of_root] = np.where(np.isfinite(found), np.maximum(found, 1.0), 1.0)
    return out


def _other_dtype(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    ids_a, ids_b, _ = shared_ids(a.dtypes, b.dtypes)
    return np.asarray(ids_a[a.dtype[i]] != ids_b[b.dtype[j]])


def _norm_change(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Float64:
    """The larger relative change of L1 and L2."""
    first = relative(a.outputs.first(i), b.outputs.first(j))
    second = relative(a.stats[1][i], b.stats[1][j])
    return np.fmax(np.nan_to_num(first, posinf=np.inf), np.nan_to_num(second, posinf=np.inf))


def _further_norms(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Float64:
    """The largest relative change of the L1 of a further output; 0 without one."""
    out = np.zeros(len(i))
    count = np.minimum(a.outputs.count[i], b.outputs.count[j])
    for k in range(1, int(count.max(initial=0))):
        has = np.flatnonzero(count > k)
        x = a.outputs.value[a.outputs.start[i[has]] + k]
        y = b.outputs.value[b.outputs.start[j[has]] + k]
        out[has] = np.fmax(out[has], np.nan_to_num(relative(x, y), posinf=np.inf))
    return out
