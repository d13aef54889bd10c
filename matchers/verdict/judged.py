"""Verdicts on pairs by themselves, which still apply when only some pairs change."""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Float64, Int64, columns
from matchers.logs.op_log import OpLog
from matchers.verdict.judge import Verdicts, judge
from matchers.verdict.tolerance import DtypePolicy

__all__ = ["Judged", "judge_again"]


@columns
class Judged:
    """Pairs (i[k], j[k]), i ascending, with the verdict on each by itself; the others as passed to `judge`."""

    i: Int64
    j: Int64
    rtol: Float64
    policy: DtypePolicy
    layouts: bool
    verdicts: Verdicts


def judge_again(
    a: OpLog,
    b: OpLog,
    i: Int64,
    j: Int64,
    rtol: Float64,
    policy: DtypePolicy,
    layouts: bool = False,
    before: Judged | None = None,
) -> Judged:
    """Like `judge`, but reuse verdicts that still apply from `before`, which is about the same logs."""
    if before is None or not len(before.j) or before.policy != policy or before.layouts != layouts:
        return Judged(i, j, rtol, policy, layouts, judge(a, b, i, j, rtol, policy, layouts))
    was = np.full(len(a), -1, np.int64)
    was[before.i] = np.arange(len(before.i))
    old = was[i]
    holds = (old >= 0) & (before.j[old] == j)
    holds[holds] = _same(before.rtol[old[holds]], rtol[holds])
    new = np.flatnonzero(~holds)
    if not len(new) and len(i) == len(before.i):
        return Judged(i, j, rtol, policy, layouts, before.verdicts)
    fresh = judge(a, b, i[new], j[new], rtol[new], policy, layouts)
    verdicts = before.verdicts.taken(old).replaced(new, fresh)
    return Judged(i, j, rtol, policy, layouts, verdicts)


def _same(x: Float64, y: Float64) -> Bool:
    return np.asarray((x == y) | (np.isnan(x) & np.isnan(y)))
