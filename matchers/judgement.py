"""The verdicts of all pairs, under what the user expects of the two runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from matchers.arrays import Bool, Float64
from matchers.expectation import Expect, Expectation
from matchers.growth import Arithmetic, explain_by_arithmetic
from matchers.judged import Judged, judge_again
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import DataFlow
from matchers.pairing.pairing import Pairing
from matchers.status import Status
from matchers.tolerance import EPSILON, TF32_EPSILON, DtypePolicy
from matchers.verdict import Verdicts, dtype_policy

__all__ = ["Judgement", "judge_all"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdicts, the dtype policy they were made under, and, where it was asked, what arithmetic explains.

    `judged`: what is known of each pair by itself, for the next judgement of the same logs.
    """

    verdicts: Verdicts
    policy: DtypePolicy
    arithmetic: Arithmetic | None
    judged: Judged


def judge_all(
    a: OpLog,
    b: OpLog,
    pairing: Pairing,
    flow: DataFlow,
    expectation: Expectation,
    rtol: Float64,
    before: Judged | None = None,
) -> Judgement:
    """Judges every pair.

    Args:
        flow: asked only where differences are to be explained.
        rtol: tolerances from the user's rules per pair, NaN where there is none; these hold whatever is expected.
        before: an earlier judgement of the same logs, with other pairs.
    """
    i, j = pairing.lead_a.astype(np.int64), pairing.lead_b.astype(np.int64)
    if expectation.rtol is not None:
        rtol = np.where(np.isnan(rtol), expectation.rtol, rtol)
    fixed = ~np.isnan(rtol)
    preset = expectation.preset
    policy = () if preset == Expect.BITWISE else dtype_policy(a, b, i, j, every=preset == Expect.LOW_PRECISION)
    judged = judge_again(a, b, i, j, rtol, policy, before)
    if preset == Expect.BITWISE:
        return Judgement(_bitwise(judged.verdicts, ~fixed, a.ours and b.ours), policy, None, judged)
    if not expectation.explains:
        return Judgement(judged.verdicts, policy, None, judged)
    coarsest = max((EPSILON[name] for names in policy for name in names), default=0.0)
    if preset == Expect.LOW_PRECISION:
        coarsest = max(coarsest, TF32_EPSILON, *_epsilons(a), *_epsilons(b))
    verdicts, arithmetic = explain_by_arithmetic(
        a, b, pairing, judged.verdicts, flow, fixed=fixed, coarsest=coarsest, noise=expectation.noise
    )
    return Judgement(verdicts, policy, arithmetic, judged)


def _bitwise(verdicts: Verdicts, strict: Bool, exact: bool) -> Verdicts:
    """Any difference is red where `strict`; without digests (`exact`), any that is printed."""
    red = (verdicts.status == Status.CLOSE) & strict & ((verdicts.error > 0) | exact)
    return replace(
        verdicts,
        status=np.where(red, np.int8(Status.DIVERGED), verdicts.status),
        limit=np.where(strict, 0.0, verdicts.limit),
        tolerance=np.where(strict, 0.0, verdicts.tolerance),
    )


def _epsilons(log: OpLog) -> list[float]:
    """ε of the dtypes that a run computes in; those of eight bits only hold what is scaled elsewhere."""
    return [EPSILON[name] for name in log.dtypes if name in EPSILON and not name.startswith("float8")]
