"""Weights that differ as the step begins while most are bitwise equal: no training rounds like that."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from matchers.arrays import marked
from matchers.ops.module_path import canonical
from matchers.ops.run_info import of_call, start_of
from matchers.ops.start import known_digests, weights_by_digest
from matchers.status import Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.reason import Reason
from matchers.verdict.slots import SlotVerdict

__all__ = ["judge_start"]


def judge_start(case: Case, found: Judgement) -> Judgement:
    """Claim the first pair that reads such a weight, or is in its module, if none before it is red; in the first step
    or in calls.

    Of the weights that both runs write to in the step: what is frozen, stays equal in any training. Where most differ,
    or by what rounding makes, or nobody knows by how much, or in a later step, training may have rounded otherwise.
    Calls train nothing, and one weight of another time may differ by no more than rounding.
    """
    a, b, pairing = case.a, case.b, case.pairing
    calls = all(of_call(log.header.run) for log in (a, b))
    later = not calls and any(log.header.run.get("step") != 1 for log in (a, b))
    if later or found.red_records:
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
    of_weights = np.array([digest for digest, name in weights_by_digest(a).items() if name in others], np.uint64)
    reads = inside & marked(a.input_digests.row[np.isin(a.input_digests.value, of_weights)], len(a))
    paired = pairing.of_a >= 0
    of_weight = np.flatnonzero((reads if (reads & paired).any() else inside) & paired)
    if not len(of_weight) or 2 * len(others) > len(trained):
        return found
    first = int(pairing.of_a[of_weight[0]])
    if (found.verdicts.status[: first + 1] >= Status.SHAPE).any():
        return found
    verdict = SlotVerdict(others[0], Status.DIVERGED, Reason.OTHER_START, differing.error, False, 0.0, read=True)
    return replace(found, verdicts=found.verdicts.entered({first: verdict}))
