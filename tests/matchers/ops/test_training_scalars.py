"""The loss and the gradient norm of a step, found by what reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from matchers.comparison import compare
from matchers.explain.step_numbers import step_numbers
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.ops.training_scalars import training_scalars
from tests.builders import Op, op, write_log

LOSS, NORM = 3.3202, 1.82


def scalar(key: str, value: float, *made: Op, phase: str = "forward", **fields: Any) -> Op:
    """A record of one number, which reads the first results of others."""
    told: dict[str, Any] = {
        "shape": (),
        "mean": value,
        "outputs": [abs(value)],
        "inputs": [of.outputs[0] for of in made],
        "producers": [of.key for of in made],
        "phase": phase,
    }
    return op(key, **(told | fields))


def backward_of(loss: Op, batch: int = 0) -> list[Op]:
    """A fill and the first records of the backward pass."""
    fill = scalar(f"<none>/op_{batch}_ones_like", 1.0, loss)
    return [fill, op(f"head/op_{batch + 10}_mm", 5.0 + batch, inputs=[1.0], producers=[fill.key], phase="backward")]


def step_of(loss: float = LOSS) -> list[Op]:
    made = scalar("loss/op_0_mean", loss)
    return [op("head/op_0_mm", 7.0, phase="forward"), made, *backward_of(made)]


def clipping(norm: float = NORM, parts: Sequence[float] = (1.5, 1.03)) -> list[Op]:
    """Norms of parts, that of all, and what multiplies a gradient by what is made of it."""
    of_parts = [scalar(f"clip/op_{k}_linalg_vector_norm", n, phase="gradients") for k, n in enumerate(parts)]
    stacked = scalar("clip/op_2_stack", 1.26, *of_parts, phase="gradients", shape=(2,))
    total = scalar("clip/op_3_linalg_vector_norm", norm, stacked, phase="gradients")
    factor = scalar("clip/op_4_reciprocal", 1 / norm, total, phase="gradients")
    clipped = op("clip/op_5_mul_", 4.0, inputs=[15.0, factor.outputs[0]], producers=["head/op_10_mm", factor.key])
    clipped.phase = "gradients"
    return [*of_parts, stacked, total, factor, clipped]


@pytest.fixture
def log(tmp_path: Path) -> Any:
    def read(ops: Sequence[Op], name: str = "a", **run: Any) -> OpLog:
        return read_log(write_log(tmp_path / f"{name}.log", ops, run={"phases": 7, **run}, exact=True))

    return read


def test_the_loss_is_what_the_backward_pass_begins_with_and_the_norm_what_clipping_divides_by(log: Any) -> None:
    found = training_scalars(log([*step_of(), *clipping()]))
    assert found.losses == (LOSS,)
    assert found.gradient_norm == NORM


def test_a_log_without_the_fill_or_clipping_tells_neither(log: Any) -> None:
    ops = [one for one in step_of() if "ones_like" not in one.key]
    found = training_scalars(log([*ops, *clipping()[:-1]]))
    assert found.losses == ()
    assert found.gradient_norm is None


@pytest.mark.parametrize(("power", "told"), [(math.sqrt(NORM), math.sqrt(NORM)), (NORM**2, None)])
def test_a_power_is_the_norm_of_all_if_it_is_a_root(log: Any, power: float, told: float | None) -> None:
    """The square of a gradient of one element is a number, too."""
    made = scalar("clip/op_0_sum", NORM, phase="gradients")
    total = scalar("clip/op_1_pow", power, made, phase="gradients")
    clipped = op("clip/op_2_mul_", 4.0, inputs=[15.0, power], producers=["head/op_10_mm", total.key], phase="gradients")
    norm = training_scalars(log([*step_of(), made, total, clipped])).gradient_norm
    assert norm == (None if told is None else pytest.approx(told))


def test_parts_that_are_clipped_apart_have_no_norm_of_all(log: Any) -> None:
    first, again = clipping(), clipping(2.5)
    for one in again:
        one.key = one.key.replace("clip", "other")
        one.producers = [name.replace("clip", "other") for name in one.producers]
    assert training_scalars(log([*step_of(), *first, *again])).gradient_norm is None


@pytest.mark.parametrize(("undone", "told"), [(True, LOSS), (False, LOSS * 1024)])
def test_a_factor_that_the_gradients_lose_again_is_none_of_the_loss(log: Any, undone: bool, told: float) -> None:
    loss = scalar("loss/op_0_mean", LOSS, inputs=[21.0], producers=[""])
    product = scalar("<none>/op_9_mul", LOSS * 1024, loss)
    divided = op("<none>/op_20_div_", 5.0 / 1024, inputs=[15.0], producers=["head/op_10_mm"], phase="gradients")
    assert training_scalars(log([loss, product, *backward_of(product), *[divided] * undone])).losses == (told,)


def batches(*losses: float) -> list[Op]:
    ops = []
    for k, value in enumerate(losses):
        loss = scalar(f"loss/op_{k}_mean", value)
        passed = [op(f"head/op_{k}_mm", 7.0 + k, phase="forward"), loss, *backward_of(loss, k)]
        for one in passed:
            one.extra = {"Micro-batch": str(k)}
        ops += passed
    return ops


def test_each_micro_batch_has_a_loss_and_their_sum_is_told(log: Any) -> None:
    a, b = log(batches(1.5, 1.75)), log(batches(1.5, 1.8125), "b")
    assert training_scalars(a).losses == (1.5, 1.75)
    assert step_numbers(compare(a, b)) == ["sum of 2 losses 3.2500 | 3.3125"]
    assert step_numbers(compare(a, log(step_of(3.25), "c"))) == ["loss 3.2500 in both (sums of 2 | 1)"]


def test_a_micro_batch_whose_loss_is_unknown_leaves_no_sum(log: Any) -> None:
    ops = [one for one in batches(1.5, 1.75) if one.key != "<none>/op_1_ones_like"]
    assert training_scalars(log(ops)).losses == ()


def test_a_backward_pass_within_the_model_leaves_no_loss(log: Any) -> None:
    ops = step_of()
    penalty = op("penalty/op_0_linalg_vector_norm", 2.0, inputs=[15.0], producers=["head/op_10_mm"], phase="forward")
    assert training_scalars(log([*ops, penalty])).losses == ()


@pytest.mark.parametrize(("ranks", "told"), [((2, 2), ["loss 3.3202 | 3.3204"]), ((1, 2), [])])
def test_the_loss_of_a_rank_is_told_beside_that_of_a_rank_alone(log: Any, ranks: Any, told: list[str]) -> None:
    a, b = (log(step_of(loss), name, world_size=n) for loss, name, n in zip((LOSS, 3.3204), "ab", ranks, strict=True))
    assert step_numbers(compare(a, b)) == told


def test_as_many_digits_as_show_the_difference(log: Any) -> None:
    a, b = log([*step_of(), *clipping()]), log([*step_of(LOSS + 1e-6), *clipping(1.95)], "b")
    assert step_numbers(compare(a, b)) == ["loss 3.320200 | 3.320201", "gradient norm 1.8200 | 1.9500"]
    assert step_numbers(compare(a, a)) == ["loss 3.3202 in both", "gradient norm 1.8200 in both"]


def test_a_loss_that_is_no_number_is_told_as_it_is(log: Any) -> None:
    ops = step_of(math.nan)
    ops[1].mean, ops[1].extra = None, {"Counts": "numel=1 nan=1 inf=0 zero=0"}
    broken = log(ops, "b")
    assert math.isnan(training_scalars(broken).losses[0])
    assert step_numbers(compare(log(step_of()), broken)) == ["loss 3.3202 | NaN"]
