"""Verdicts that are kept: after a change of the rules only the pairs that are new are judged.

A verdict is a function of one pair, of the tolerance that a rule gives it, and of the dtype policy of the two runs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int64
from matchers.logs.op_log import OpLog
from matchers.tolerance import DtypePolicy
from matchers.verdict import Verdicts, judge

__all__ = ["Judged", "judge_again"]


@dataclass(frozen=True, slots=True)
class Judged:
    """Pairs (i[k], j[k]), i ascending, and what was said about them; `rtol` as `judge` was given it."""

    i: Int64
    j: Int64
    rtol: Float64
    policy: DtypePolicy
    verdicts: Verdicts


def judge_again(
    a: OpLog, b: OpLog, i: Int64, j: Int64, rtol: Float64, policy: DtypePolicy, before: Judged | None
) -> Judged:
    """As `judge`, but verdicts that still hold are taken over from `before`, which is about the same logs."""
    if before is None or before.policy != policy:
        return Judged(i, j, rtol, policy, judge(a, b, i, j, rtol, policy))
    was = np.full(len(a), -1, np.int64)
    was[before.i] = np.arange(len(before.i))
    old = was[i]
    holds = (old >= 0) & (before.j[old] == j) if len(before.j) else np.zeros(len(i), bool)
    holds[holds] = _same(before.rtol[old[holds]], rtol[holds])
    new = np.flatnonzero(~holds)
    if not len(new) and len(i) == len(before.i):
        return Judged(i, j, rtol, policy, before.verdicts)
    fresh = judge(a, b, i[new], j[new], rtol[new], policy)
    columns: dict[str, NDArray[np.generic]] = {}
    for column in fields(Verdicts):
        if column.name != "slots":
            values = getattr(fresh, column.name)
            columns[column.name] = out = np.empty(len(i), values.dtype)
            out[holds], out[new] = getattr(before.verdicts, column.name)[old[holds]], values
    slots = {int(new[k]): slot for k, slot in fresh.slots.items()}
    if before.verdicts.slots:
        now = np.full(len(before.i), -1, np.int64)
        now[old[holds]] = np.flatnonzero(holds)
        slots |= {int(now[k]): slot for k, slot in before.verdicts.slots.items() if now[k] >= 0}
    verdicts = Verdicts(**columns, slots=dict(sorted(slots.items())))  # type: ignore[arg-type]
    return Judged(i, j, rtol, policy, verdicts)


def _same(x: Float64, y: Float64) -> Bool:
    return np.asarray((x == y) | (np.isnan(x) & np.isnan(y)))
