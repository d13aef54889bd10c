"""Pairs that order chose, and that data flow and numbers exchange."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.logs.op_log import OpLog
from matchers.ops.shards import Shards
from matchers.pairing.assignment import State
from matchers.pairing.crossed import uncross
from matchers.pairing.evidence import ValueEvidence, value_bins
from matchers.pairing.features import Features
from matchers.pairing.pairing import Method
from tests.captured import Step, captured_log

RNG = np.random.default_rng(2)
ONE, OTHER = (RNG.normal(size=(4, 8)).astype(np.float32) * scale for scale in (1.0, 3.0))
MAKERS = np.array([0, 1])
READERS = np.array([2, 3])


def log(one: np.ndarray, other: np.ndarray, noise: float) -> OpLog:
    made = [values * np.float32(1 + noise) for values in (ONE, OTHER)]
    steps = [Step(key=f"{name}/op_0_mm", gives=[values]) for name, values in zip("mn", made, strict=True)]
    for name, read, gives in zip("mn", made, (one, other), strict=True):
        steps.append(Step(key=f"{name}/op_1_tanh", reads=[read], made=[f"{name}/op_0_mm"], gives=[gives]))
    return captured_log(steps)


@pytest.mark.parametrize("straight", [True, False])
def test_rows_are_exchanged_where_flow_and_numbers_agree(straight: bool) -> None:
    """The flow alone exchanges nothing: the numbers may speak for the present partners."""
    of_a, of_b = (np.tanh(ONE), np.tanh(OTHER)), (np.tanh(ONE), np.tanh(OTHER))[:: 1 if straight else -1]
    a, b = log(of_a[0], of_a[1], 0.0), log(of_b[0], of_b[1], 1e-6)
    f = Features(a, b, Shards.of(a, b), (tuple(a.modules), tuple(b.modules)), ((), ()))
    state = State(len(a), len(b))
    state.pair(MAKERS, MAKERS, Method.ALIGNED, 0.9)
    state.pair(READERS, READERS[::-1], Method.ALIGNED, 0.9)
    right, wrong = value_bins(f.a, f.b, MAKERS, MAKERS), value_bins(f.a, f.b, MAKERS, MAKERS[::-1])
    uncross(f, state, ValueEvidence(right, wrong))
    assert (state.of_a[READERS].tolist() == READERS.tolist()) == straight
