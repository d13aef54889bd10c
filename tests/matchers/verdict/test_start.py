"""A weight that differs before the step, though its effect is no larger than rounding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.facts import inputs_of
from matchers.explain.limits import limit_of
from matchers.explain.red_rows import difference
from matchers.explain.sentences import headline
from matchers.explain.subject import Subject
from matchers.logs.op_log import OpLog
from matchers.ops.sketch import encode_sketch
from matchers.verdict.expectation import Expect, Expectation
from matchers.verdict.reason import Reason
from tests.captured import Step, captured_log, summary

RNG = np.random.default_rng(6)
X = RNG.normal(size=64).astype(np.float32)
WEIGHTS = RNG.normal(size=(3, 64)).astype(np.float32)
NAMES = ("one", "two", "three")


def log(
    others: int,
    *,
    frozen: bool = False,
    step: int = 1,
    known: bool = True,
    call: bool = False,
    resolution: float = 1e-9,
    result: int = 4,
) -> OpLog:
    """Three modules and their updates, or a call of them; of the first weights, so many begin otherwise.

    `result`: elements of what is summed up at the end.
    """
    steps, digests, sketches = list[Step](), dict[str, str](), dict[str, list[Any]]()
    for n, name in enumerate(NAMES):
        off = np.float32(1e-6) * X[::-1] if n < others else np.float32(0)
        steps.append(Step(key=f"{name}/op_0_pow", gives=[X**2], reads=[X]))
        steps.append(Step(key=f"{name}/op_1_mul", gives=[X + off], reads=[X, WEIGHTS[n] + off]))
        digests[f"{name}.weight"] = f"{summary(WEIGHTS[n] + off).digest:016x}"
        if known:
            sums = np.arange(1.0, 17.0) * (1 + 1e-4 * (n < others) * np.arange(16))
            sketches[f"{name}.weight"] = [encode_sketch(sums).decode(), 64, resolution]
    for n, name in enumerate(() if call else NAMES):
        kept = frozen and n < others
        fields = {"phase": "optimizer", "parameters": ["" if kept else f"{name}.weight"]}
        steps.append(Step(key=f"{name}/op_2_mul_", gives=[2 * X], reads=[X], fields=fields))
    steps.append(Step(key="end/op_0_log", gives=[X[:result]], reads=[X[:result]]))
    coverage = {"forward": [0, len(steps)]} if call else {}
    return captured_log(steps, parameter_digests=digests, start_sketches=sketches, step=step, coverage=coverage)


def compared(others: int, *, result: int = 4, **more: Any) -> Comparison:
    expectation = Expectation(Expect.REDUCTION_ORDER)
    a, b = (log(many, result=size, **more) for many, size in ((0, 4), (others, result)))
    return compare(a, b, expectation=expectation)


def cause(c: Comparison) -> int:
    """The row of the only first cause, which reads a weight that differs."""
    (row,) = np.flatnonzero(c.cause).tolist()
    assert c.a.keys[int(c.row_a[row])] == "one/op_1_mul"
    assert c.reason[row] == Reason.OTHER_START
    return int(row)


@pytest.mark.parametrize("end", [{}, {"result": 3}])
def test_it_is_the_first_cause_where_most_are_equal(end: Mapping[str, Any]) -> None:
    """Whatever is red behind it."""
    c = compared(1, **end)
    first = cause(c)
    row = Subject(c, first, inputs_of(c, first))
    assert [*limit_of(row)] == ["Limit 0: no step was made in between, and most weights are bitwise equal"]
    assert difference(row).startswith("one.weight differs before the step by ≈")
    assert headline(c, first).startswith("FIRST CAUSE: 1 of 3 parameters differs before the step: one.weight, by ≈")


@pytest.mark.parametrize(
    ("others", "more"), [(0, {}), (2, {}), (1, {"frozen": True}), (1, {"step": 2}), (1, {"known": False})]
)
def test_it_is_not_where_training_may_have_made_it(others: int, more: Mapping[str, Any]) -> None:
    """Most of what is trained differs; what differs is not trained; in a later step; nobody knows by how much."""
    assert not compared(others, **more).red.any()


@pytest.mark.parametrize("resolution", [1e-9, 1.0])
def test_in_a_call_one_of_another_time_is_the_cause_though_it_may_be_rounding(resolution: float) -> None:
    """bfloat16 tells a stale weight from the next number no better than rounding does."""
    cause(compared(1, call=True, step=3, resolution=resolution))
    assert not compared(1, resolution=1.0).red.any()  # a training may have rounded so
