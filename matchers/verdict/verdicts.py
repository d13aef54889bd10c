"""Judge all pairs under the user's expectation, and reuse verdicts that still apply when only some pairs change."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int64, columns
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import DataFlow
from matchers.ops.shards import Shards
from matchers.pairing.pairing import Pairing
from matchers.status import Status
from matchers.verdict.cancellation import without_noise
from matchers.verdict.digests import other_bits
from matchers.verdict.error_propagation import Arithmetic, explain_by_arithmetic
from matchers.verdict.expectation import Expect, Expectation
from matchers.verdict.fused import judge_fused
from matchers.verdict.judge import Verdicts, dtype_policy, judge, other_layouts
from matchers.verdict.loss_scale import without_scale
from matchers.verdict.parts import judge_parts
from matchers.verdict.reason import UNSIZED, Reason
from matchers.verdict.tolerance import EPSILON, TF32_EPSILON, DtypePolicy

__all__ = ["Judged", "Judgement", "judge_again", "judge_all", "within_rules_only"]


@columns
class Judgement:
    """Verdicts, their dtype policy, and on request the differences that arithmetic explains.

    Attributes:
        b: log b as it was judged, without a factor of its losses and without noise.
        parts: bool[p], the two sides hold different parts of their tensors.
        judged: the verdict on each pair by itself, for the next judgement of the same logs.
        noise: names of parameters and states of an optimizer that are noise.
        loss_scale: the factor between the gradients of a and those of b before they are reduced.
    """

    verdicts: Verdicts
    b: OpLog
    parts: Bool
    policy: DtypePolicy
    arithmetic: Arithmetic | None
    judged: Judged
    noise: frozenset[str] = frozenset()
    loss_scale: float = 1.0


def judge_all(
    a: OpLog,
    b: OpLog,
    shards: Shards,
    pairing: Pairing,
    flow: DataFlow,
    expectation: Expectation,
    rtol: Float64,
    before: Judged | None = None,
) -> Judgement:
    """Judge every pair.

    Args:
        shards: the parts of tensors that the records hold.
        flow: used only if differences are to be explained, or if the sides hold different parts.
        rtol: tolerances from the user's rules per pair, NaN for none; they apply under any expectation.
        before: an earlier judgement of the same logs, with other pairs.
    """
    i, j = pairing.lead_a.astype(np.int64), pairing.lead_b.astype(np.int64)
    if expectation.rtol is not None:
        rtol = np.where(np.isnan(rtol), expectation.rtol, rtol)
    fixed = ~np.isnan(rtol)
    preset = expectation.preset
    policy = () if preset == Expect.BITWISE else dtype_policy(a, b, i, j, every=preset == Expect.LOW_PRECISION)
    judged = judge_again(a, b, i, j, rtol, policy, other_layouts(a, b, i, j), before)
    verdicts, noise, scale = judged.verdicts, frozenset[str](), 1.0
    if preset != Expect.BITWISE:
        verdicts, b, scale = without_scale(a, b, pairing, rtol, policy, verdicts, flow)
    verdicts = judge_fused(a, b, pairing, verdicts)
    if preset != Expect.BITWISE:
        verdicts, b, noise = without_noise(a, b, pairing, rtol, policy, verdicts, flow)
    found = judge_parts(a, b, shards, pairing, verdicts, flow, rtol, policy)
    if preset == Expect.BITWISE:
        other = other_bits(a, b, i, j)
        other[[k for k, slot in found.verdicts.slots.items() if slot.reason in UNSIZED]] = True
        verdicts = _bitwise(found.verdicts, ~fixed, a.ours and b.ours, other)
        return Judgement(verdicts, b, found.parts, policy, None, judged)
    if not expectation.explains:
        return Judgement(found.verdicts, b, found.parts, policy, None, judged, noise, scale)
    coarsest = max((EPSILON[name] for names in policy for name in names), default=0.0)
    if preset == Expect.LOW_PRECISION:
        coarsest = max(coarsest, TF32_EPSILON, *_epsilons(a), *_epsilons(b))
    verdicts, arithmetic = explain_by_arithmetic(
        a, b, pairing, found, flow, fixed=fixed, coarsest=coarsest, noise=expectation.noise
    )
    return Judgement(verdicts, b, found.parts, policy, arithmetic, judged, noise, scale)


def _bitwise(verdicts: Verdicts, strict: Bool, exact: bool, other: Bool) -> Verdicts:
    """Turn differences red where `strict`: any at all if the logs have digests (`exact`), else any printed one.

    Args:
        other: the digests of the results differ, by however much.
    """
    red = (verdicts.status == Status.CLOSE) & ((verdicts.error > 0) | exact)
    red = (red | ((verdicts.status == Status.NOT_JUDGED) & other)) & strict
    verdicts = verdicts.claimed(red, Status.DIVERGED, Reason.NOT_BITWISE)
    limit, tolerance = (np.where(strict, 0.0, values) for values in (verdicts.limit, verdicts.tolerance))
    return replace(verdicts, limit=limit, tolerance=tolerance)


def within_rules_only(a: OpLog, b: OpLog, i: Int64, j: Int64, close: Bool, rtol: Float64, policy: DtypePolicy) -> Bool:
    """bool[p]: pairs that are close within a tolerance from the user's rules, and would be red without it."""
    found = np.zeros(len(i), bool)
    k = np.flatnonzero(close & ~np.isnan(rtol))
    if len(k):
        found[k] = judge(a, b, i[k], j[k], None, policy).status >= Status.SHAPE
    return found


def _epsilons(log: OpLog) -> list[float]:
    """ε of the dtypes that a run computes in; eight-bit dtypes only store values scaled elsewhere."""
    return [EPSILON[name] for name in log.dtypes if name in EPSILON and not name.startswith("float8")]


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
    if before is None or before.policy != policy or before.layouts != layouts:
        return Judged(i, j, rtol, policy, layouts, judge(a, b, i, j, rtol, policy, layouts))
    was = np.full(len(a), -1, np.int64)
    was[before.i] = np.arange(len(before.i))
    old = was[i]
    holds = (old >= 0) & (before.j[old] == j) if len(before.j) else np.zeros(len(i), bool)
    holds[holds] = _same(before.rtol[old[holds]], rtol[holds])
    new = np.flatnonzero(~holds)
    if not len(new) and len(i) == len(before.i):
        return Judged(i, j, rtol, policy, layouts, before.verdicts)
    fresh = judge(a, b, i[new], j[new], rtol[new], policy, layouts)
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
    return Judged(i, j, rtol, policy, layouts, verdicts)


def _same(x: Float64, y: Float64) -> Bool:
    return np.asarray((x == y) | (np.isnan(x) & np.isnan(y)))
