"""Weights that differ as the step begins while most are bitwise equal: no training rounds like that."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from matchers.ops.module_path import canonical
from matchers.ops.run_info import of_call, start_of
from matchers.ops.start import known_digests
from matchers.status import Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.reason import Reason
from matchers.verdict.slots import SlotVerdict

__all__ = ["judge_start"]


def judge_start(case: Case, found: Judgement) -> Judgement:
    """Claim the first pair of the module that holds such a weight, if nothing is red, in the first step or in calls.

    Of the weights that both runs write to in the step: what is frozen, stays equal in any training. Where most differ,
    or by what rounding makes, or nobody knows by how much, or in a later step, training may have rounded otherwise.
    Calls train nothing, and one weight of another time may differ by no more than rounding.
    """
    a, b, pairing = case.a, case.b, case.pairing
    calls = all(of_call(log.header.run) for log in (a, b))
    later = not calls and any(log.header.run.get("step") != 1 for log in (a, b))
    if later or (found.verdicts.status >= Status.SHAPE).any() or found.red_records:
        return found
    differing = start_of(a.header.run, b.header.run).parameters
    if differing is None or (differing.rounding and not calls) or math.isnan(differing.error):
        return found
    trained = set.intersection(*(set(known_digests(log.header.run, "parameter_digests")) for log in (a, b)))
    if not calls:
        trained.intersection_update(*(of.writers for of in case.contents))
    others = [name for name in differing.names if name in trained]
    owners = {name.rpartition(".")[0] for name in others}
    inside = np.array([canonical(module) in owners for module in a.modules] + [False])[a.module]
    pairs = pairing.of_a[inside & (pairing.of_a >= 0)]
    if not len(pairs) or 2 * len(others) > len(trained):
        return found
    verdict = SlotVerdict(others[0], Status.DIVERGED, Reason.OTHER_START, differing.error, False, 0.0, read=True)
    return replace(found, verdicts=found.verdicts.entered({int(pairs.min()): verdict}))
