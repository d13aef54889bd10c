"""A number on the way from the loss that one run multiplies otherwise is the cause of gradients off by that factor."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.logs.op_log import OpLog
from matchers.verdict.expectation import Expect, Expectation
from tests.captured import Step, captured_log

X = np.arange(1.0, 33.0, dtype=np.float32).reshape(4, 8) / 32
WEIGHT = 0.25


def step(batches: int, weight: float, bent: float = 1.0) -> OpLog:
    """The weighted mean of a batch, of micro-batches that share it out, and its gradient.

    Args:
        bent: factor of the first sample's gradient.
    """
    steps, batch = list[Step](), 0

    def add(op: str, value: object, phase: str, read: object, made: str, **asked: float) -> str:
        key = f"loss/op_{len(steps)}_{op}"
        fields = {"phase": phase, "micro_batch": batch, "arguments": asked}
        gives = [np.array(value, np.float32)]
        steps.append(Step(key=key, gives=gives, reads=[np.array(read, np.float32)], made=[made], fields=fields))
        return key

    for x in np.split(X, batches):
        y = np.tanh(x)
        made = add("tanh", y, "forward", x, "")
        made = add("mean", y.mean(), "forward", y, made)
        made = add("mul", y.mean() * weight, "forward", y.mean(), made, other=weight)
        loss = y.mean() * weight / batches
        made = add("div", loss, "forward", y.mean() * weight, made, other=float(batches))
        made = add("ones_like", 1.0, "backward", loss, made)
        made = add("div", 1.0 / batches, "backward", 1.0, made, other=float(batches))
        given = weight / batches
        made = add("mul", given, "backward", 1.0 / batches, made, other=weight)
        spread = np.full(x.shape, given / x.size)
        spread[0] *= bent
        made = add("div", spread, "backward", np.full(x.shape, given), made, other=float(x.size))
        add("tanh_backward", spread * (1 - y**2), "backward", spread, made)
        batch += 1
    return captured_log(steps)


def compared(b: OpLog) -> Comparison:
    return compare(step(1, WEIGHT), b, expectation=Expectation(Expect.REDUCTION_ORDER))


def first(c: Comparison) -> str:
    return headline(c, c.consequences.starts[0][0])


def test_micro_batches_of_the_same_loss_agree() -> None:
    c = compared(step(2, WEIGHT))
    assert not c.red.any()


@pytest.mark.parametrize("times", [2.0, 3.0])
def test_the_weight_of_a_part_of_the_loss_is_named(times: float) -> None:
    """At twice the weight, what each of two micro-batches begins with equals what the whole batch begins with."""
    c = compared(step(2, WEIGHT * times))
    assert first(c).startswith(f"FIRST CAUSE: other {WEIGHT} in a, {WEIGHT * times} in b")
    row = c.consequences.starts[0][0]
    assert c.a.op_name(int(c.row_a[row])) == "mul"
    assert c.consequences.unexplained == 0


def test_gradients_that_are_not_all_off_by_the_factor_are_their_own_cause() -> None:
    c = compared(step(2, WEIGHT, bent=3.0))
    row = c.consequences.starts[0][0]
    assert c.red[row]
    assert c.a.op_name(int(c.row_a[row])) == "div"
