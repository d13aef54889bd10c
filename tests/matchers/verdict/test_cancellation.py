"""Sums that cancel among the further outputs of an operation: the gradient of a norm's bias."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.comparison import compare
from matchers.logs.op_log import OpLog
from tests.captured import Step, captured_log

RNG = np.random.default_rng(4)
TERMS = RNG.normal(size=(64, 8)).astype(np.float32)
GRADIENT, WEIGHT = RNG.normal(size=(64, 8)).astype(np.float32), RNG.normal(size=8).astype(np.float32)


def log(bias: np.ndarray, weight: np.ndarray = WEIGHT) -> OpLog:
    """The gradients of a norm, and what an optimizer makes of that of its bias."""
    back = {"phase": "backward"}
    key = "norm/op_1_native_layer_norm_backward"
    return captured_log(
        [
            Step(key="next/op_0_mm", gives=[TERMS], fields=back),
            Step(key=key, reads=[TERMS], gives=[GRADIENT, weight, bias], made=["next/op_0_mm"], fields=back),
            Step(key="norm/op_2_sign", reads=[bias], gives=[np.sign(bias)], made=[key], fields={"phase": "optimizer"}),
        ]
    )


@pytest.mark.parametrize(("size", "red"), [(1e-6, False), (1.0, True)])
def test_the_gradient_of_a_bias_that_is_rounding_is_not_judged(size: float, red: bool) -> None:
    one, other = (np.float32(size) * RNG.normal(size=8).astype(np.float32) for _ in range(2))
    assert compare(log(one), log(other)).red.any() == red


def test_the_other_gradients_of_the_norm_are() -> None:
    bias = np.float32(1e-6) * WEIGHT
    assert compare(log(bias), log(-bias, 1.01 * WEIGHT)).red.any()


def keys_gradient(bias: np.ndarray) -> OpLog:
    """The gradients of attention's queries, keys and values, and that of the bias of the keys."""
    back, maker = {"phase": "backward"}, "attn/op_1_attention_backward"
    gradients = [GRADIENT, TERMS, -GRADIENT]
    return captured_log(
        [
            Step(key="proj/op_0_mm", gives=[TERMS], fields=back),
            Step(key=maker, reads=[TERMS], gives=gradients, made=["proj/op_0_mm"], fields=back),
            Step(key="attn.k/op_2_sum", reads=[TERMS], gives=[bias], made=[maker], fields=back),
        ]
    )


@pytest.mark.parametrize(("size", "red"), [(1e-8, False), (1.0, True)])
def test_the_sum_of_a_further_output_that_cancels_is_not_judged(size: float, red: bool) -> None:
    one, other = (np.float32(size) * RNG.normal(size=8).astype(np.float32) for _ in range(2))
    assert compare(keys_gradient(one), keys_gradient(other)).red.any() == red
