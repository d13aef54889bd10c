"""Judge casts that only one run has, to a dtype coarser than all that the other run computes in.

Where the numbers of what follows are hidden, as behind micro-batches or ranks, an error of that size looks like what
rounding may have become; the cast itself says that it is none. So does one of what a run was given, that is read in a
finer dtype: a table of rotations that was kept in bfloat16.
"""

from __future__ import annotations

import math

import numpy as np

from matchers.arrays import Bool, Hash, Int64, marked, one_of
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import downstream
from matchers.ops.laws import rows_where
from matchers.status import Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.expectation import Expect
from matchers.verdict.reason import Reason
from matchers.verdict.slots import SlotVerdict
from matchers.verdict.tolerance import EPSILON, RESOLUTION, by_dtype

__all__ = ["judge_casts"]

_MOST = 64
"""Places that are looked at: bits of a word."""


def judge_casts(case: Case, found: Judgement) -> dict[tuple[str, int], SlotVerdict]:
    """Return verdicts, by side and record, on the first cast of each line, unless other dtypes are expected.

    A cast has lost nothing if all that it reaches agrees, to the bit or within what float arithmetic always does.
    """
    if case.policy or case.expectation.preset in (Expect.LOW_PRECISION, Expect.BITWISE):
        return {}
    verdict = SlotVerdict("the cast", Status.DIVERGED, Reason.COARSER_DTYPE, math.nan)
    pairing, out = case.pairing, {}
    for side, log, other, of in (("a", case.a, case.b, pairing.of_a), ("b", case.b, case.a, pairing.of_b)):
        flow = case.flow.a if side == "a" else case.flow.b
        rows = _coarser(log, other, flow, of < 0)
        if len(rows):
            rows = rows[_lossy(flow, rows, of, _agrees(case, found))]
        out.update({(side, row): verdict for row in rows.tolist()})
    return out


def _agrees(case: Case, found: Judgement) -> Bool:
    verdicts, a = found.verdicts, case.a
    # of a lower bound, from norms, nearly any is too much: rounding moves a norm by a fraction of its error
    most = np.where(verdicts.bound, 10 * RESOLUTION, by_dtype(a.dtypes)[a.dtype[case.i]])
    alike = one_of(verdicts.status, (Status.EQUAL, Status.SAME_PRINT))
    return np.asarray(alike | ((verdicts.status == Status.CLOSE) & (verdicts.error <= most)))


def _coarser(log: OpLog, other: OpLog, flow: Ragged, alone: Bool) -> Int64:
    """int64[k], the first of such casts of each line and module."""
    casts = alone & rows_where(log, lambda law: law.casts)
    if not casts.any():
        return np.zeros(0, np.int64)
    epsilon = np.array([*(EPSILON.get(name, 0.0) for name in log.dtypes), 0.0])[log.dtype]
    coarsest = max((EPSILON[name] for name in other.dtypes if name in EPSILON), default=math.inf)
    made = flow.value >= 0
    maker, reader = flow.value[made], flow.row[made]
    widens = casts[reader] & (epsilon[reader] < epsilon[maker]) & (epsilon[reader] > 0)
    of_given = ~marked(reader, len(log)) & marked(maker[widens], len(log)) & ~marked(maker[~widens], len(log))
    rows = np.flatnonzero(casts & ((epsilon > coarsest) | of_given))
    _, first = np.unique(np.stack([log.module[rows], log.location[rows]]), axis=1, return_index=True)
    return rows[np.sort(first)][:_MOST]


def _lossy(flow: Ragged, rows: Int64, pair_of: Int64, agrees: Bool) -> Bool:
    """bool[k]: a pair that reads what a record has made, over other unpaired ones, does not agree."""
    bits = np.uint64(1) << np.arange(len(rows), dtype=np.uint64)
    marks: Hash = np.zeros(len(pair_of), np.uint64)
    marks[rows] = bits
    reached = np.append(downstream(flow, marks, pair_of < 0), np.uint64(0))
    differs = np.append(~agrees, False)[pair_of[flow.row]]
    return np.asarray(np.bitwise_or.reduce(reached[flow.value[differs]], initial=np.uint64(0)) & bits, bool)
