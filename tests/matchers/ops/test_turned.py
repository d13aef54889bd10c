"""Weights that are stored transposed, told by the order of the factors of their gradients."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.ops.turned import turned
from matchers.status import Status
from tests.captured import Array, Step, captured_log

RNG = np.random.default_rng(8)
READ, GRADIENT = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))


def step(transposed: bool, times: float = 1.0, read: Array = READ) -> list[Step]:
    """A layer that reads `read`: its gradient, a mean of squares of it, and the decay of its weight."""
    product = (read.T @ GRADIENT if transposed else GRADIENT.T @ read) * times
    factors = [("norm/op_0_mul", read), ("loss/op_0_mul", GRADIENT)]
    keys, values = zip(*(factors if transposed else factors[::-1]), strict=True)
    optimizer = {"phase": "optimizer"}
    return [
        Step(key="norm/op_0_mul", gives=[read], reads=[read / 2], made=[""]),
        Step(key="loss/op_0_mul", gives=[GRADIENT], reads=[GRADIENT / 2], made=[""], fields={"phase": "backward"}),
        Step(key="layer/op_0_mm", gives=[product], reads=values, made=keys, fields={"phase": "backward"}),
        Step(key="optimizer/op_0_sqrt", gives=[product**2], reads=[product], made=["layer/op_0_mm"], fields=optimizer),
    ]


def compared(times: float = 1.0) -> Comparison:
    return compare(captured_log(step(False)), captured_log(step(True, times)))


@pytest.mark.parametrize("transposed", [False, True])
def test_the_activation_is_the_first_factor_where_the_weight_is_transposed(transposed: bool) -> None:
    assert turned(captured_log(step(transposed))).tolist() == [False, False, transposed, transposed]


def test_square_tensors_of_transposed_weights_agree_by_their_numbers() -> None:
    assert compared().status.tolist() == [Status.EQUAL] * 2 + [Status.CLOSE] * 2


def test_other_numbers_are_red() -> None:
    assert compared(1.01).status.tolist() == [Status.EQUAL] * 2 + [Status.DIVERGED] * 2


def test_another_order_of_elements_is_red_where_both_weights_have_one_layout() -> None:
    steps = step(False)
    steps[2] = Step(**{**vars(steps[2]), "gives": [np.ascontiguousarray(np.asarray(steps[2].gives[0]).T)]})
    assert compare(captured_log(step(False)), captured_log(steps)).status.tolist()[2] == Status.DIVERGED
