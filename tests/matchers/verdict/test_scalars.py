"""Scalar arguments, recovered from extremes: in shards as in whole tensors, and no nearer than rounding allows."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.comparison import compare
from matchers.explain.sentences import headline
from matchers.logs.op_log import OpLog
from matchers.status import Status
from tests.captured import Array, Step, captured_log, summary

RNG = np.random.default_rng(5)
X = RNG.uniform(0.5, 2.0, size=(8, 16)).astype(np.float32)


def sharded(values: Array, whole: tuple[int, ...]) -> object:
    placement = {"mesh": {"tp": 2}, "placements": ["Shard(0)"], "shape": list(whole), "offsets": [0, 0]}
    return summary(values, placement=placement)


def run(op: str, scalar: float, *, part: bool = False, off: float = 0.0) -> OpLog:
    """An operation with a scalar, of the whole or of its first half, on values that are off by so much."""
    x = (X * np.float32(1 + off))[: 4 if part else 8]
    scalar32 = np.float32(scalar)
    y = {"add": x + scalar32, "sub": x - scalar32, "mul": x * scalar32, "div": x / scalar32}[op]
    x_given, y_given = (sharded(x, X.shape), sharded(y, X.shape)) if part else (x, y)
    return captured_log(
        [
            Step(key="m/op_0_relu", reads=[X], gives=[x_given], made=[""]),  # type: ignore[list-item]
            Step(key=f"m/op_1_{op}", reads=[x], gives=[y_given], made=["m/op_0_relu"]),  # type: ignore[list-item]
        ]
    )


@pytest.mark.parametrize("part", [True, False])
@pytest.mark.parametrize(
    ("op", "a", "b"),
    [("mul", 0.25, 0.2525), ("mul", -0.25, -0.2525), ("add", 1e-5, 1e-4), ("sub", 0.1, 0.2), ("div", 3, 3.01)],
)
def test_another_scalar_is_red_and_told(op: str, a: float, b: float, part: bool) -> None:
    c = compare(run(op, a), run(op, b, part=part, off=1e-7))
    assert c.status[1] == Status.DIVERGED
    if part:
        told = headline(c, 1)
        assert told.startswith("FIRST CAUSE: the scalar argument, ")
        x, y = told.split("argument, ")[1].split(" in b")[0].split(" in a and ")
        assert float(x) == pytest.approx(abs(a), rel=0.02)
        assert float(y) == pytest.approx(abs(b), rel=0.02)


@pytest.mark.parametrize(("op", "scalar"), [("mul", 0.25), ("add", 1e-5), ("sub", 0.1), ("div", 3.0)])
@pytest.mark.parametrize("off", [0.0, 1e-7, 1e-3])
def test_the_same_scalar_on_other_values_is_not(op: str, scalar: float, off: float) -> None:
    c = compare(run(op, scalar), run(op, scalar, part=True, off=off))
    assert c.status[1] == Status.SHARDED


def scaled(factor: float, *, part: bool = False) -> OpLog:
    """A weight that is scaled in place, as decay does it."""
    x = X[: 4 if part else 8]
    y = x * np.float32(factor)
    after = sharded(y, X.shape) if part else y
    before = sharded(x, X.shape) if part else x
    return captured_log(
        [Step(key="optimizer/op_0__foreach_mul_", reads=[before], made=[""], changed={0: after})]  # type: ignore[dict-item,list-item]
    )


def test_another_factor_in_place_is_red_in_a_shard() -> None:
    assert compare(scaled(0.9999), scaled(0.9999, part=True)).status[0] == Status.SHARDED
    c = compare(scaled(0.9999), scaled(0.9998, part=True))
    assert c.status[0] == Status.DIVERGED
    assert "the scalar argument, 0.9999 in a and 0.9998 in b, differs" in headline(c, 0)


def test_a_factor_of_the_number_of_ranks_is_the_layout() -> None:
    assert compare(run("div", 3.0), run("div", 6.0, part=True)).status[1] == Status.SHARDED
    assert compare(run("div", 3.0), run("div", 7.0, part=True)).status[1] == Status.DIVERGED


def test_a_scalar_within_the_tolerance_is_red_as_well() -> None:
    """An eps of 1.1e-5 in place of 1e-5 changes the sum by less than the tolerance of float32."""
    c = compare(run("add", 1e-5), run("add", 1.3e-5, off=1e-7))
    assert c.status[1] == Status.DIVERGED
    assert "the scalar argument, " in headline(c, 1)
    assert c.error[1] < 1.5e-5


def test_a_scalar_that_makes_up_for_another_before_it_is_not_red() -> None:
    """One run divides twice, the other once: the results agree."""
    logs = []
    for first in (1.0, 0.25):
        y = X * np.float32(first)
        steps = [Step(key="m/op_0_relu", reads=[X], gives=[y], made=[""])]
        z = y * np.float32(0.5 / first) * np.float32(1 + 1e-7 * (first == 1))
        logs.append(captured_log([*steps, Step(key="m/op_1_mul", reads=[y], gives=[z], made=["m/op_0_relu"])]))
    assert compare(logs[0], logs[1]).status.tolist() == [Status.DIVERGED, Status.CLOSE]
