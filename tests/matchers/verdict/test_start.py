"""A weight that differs before the step, though its effect is no larger than rounding."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.logs.op_log import OpLog
from matchers.verdict.expectation import Expect, Expectation
from matchers.verdict.reason import Reason
from tests.captured import Step, captured_log

X = np.random.default_rng(6).normal(size=64).astype(np.float32)
NAMES = ("one", "two", "three")


def log(others: int, *, frozen: bool = False) -> OpLog:
    """Three modules and their updates; of the first weights, so many begin otherwise."""
    steps, digests = list[Step](), dict[str, str]()
    for n, name in enumerate(NAMES):
        off = np.float32(1e-6) * X[::-1] if n < others else np.float32(0)
        steps.append(Step(key=f"{name}/op_0_mul", gives=[X + off], reads=[X, X + off]))
        digests[f"{name}.weight"] = f"{n + 16 * (n < others):x}"
    for n, name in enumerate(NAMES):
        kept = frozen and n < others
        fields = {"phase": "optimizer", "parameters": ["" if kept else f"{name}.weight"]}
        steps.append(Step(key=f"{name}/op_1_mul_", gives=[2 * X], reads=[X], fields=fields))
    return captured_log(steps, parameter_digests=digests)


def compared(others: int, *, frozen: bool = False) -> Comparison:
    expectation = Expectation(Expect.REDUCTION_ORDER)
    return compare(log(0, frozen=frozen), log(others, frozen=frozen), expectation=expectation)


def test_it_is_the_first_cause_where_most_are_equal() -> None:
    c = compared(1)
    assert np.flatnonzero(c.cause).tolist() == [0]
    assert c.reason[0] == Reason.OTHER_START
    assert headline(c, 0) == "FIRST CAUSE: 1 of 3 parameters differs before the step: one.weight"


@pytest.mark.parametrize(("others", "frozen"), [(0, False), (2, False), (1, True)])
def test_it_is_not_where_training_may_have_made_it(others: int, frozen: bool) -> None:
    """Most of what is trained differs; or what differs is not trained, so that nothing is known of it."""
    assert not compared(others, frozen=frozen).red.any()
