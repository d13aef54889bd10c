"""Losses divided by micro-batches in one run and by ranks in the other, and those that only look so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from matchers.comparison import compare
from matchers.logs.op_log import OpLog, Phase
from tests.captured import Step, as_parts, captured_log

RNG = np.random.default_rng(2)
LAYERS = 5
WEIGHTS = [RNG.normal(size=(6, 6)).astype(np.float32) for _ in range(LAYERS)]
BATCHES = [RNG.normal(size=(8, 6)).astype(np.float32) for _ in range(2)]


def log(
    batches: int,
    *,
    scale: float = 1.0,
    total: float = 1.0,
    only_first: bool = False,
    reduced: bool = False,
    undone: float = 1.0,
) -> OpLog:
    """The backward pass of layers in some micro-batches, and the optimizer that reads what all ranks make of it.

    Args:
        scale: factor of the gradients of a micro-batch; of the first one alone if `only_first`.
        total: factor of the gradients that the optimizer reads.
        reduced: a collective names the gradients, before they are totals.
        undone: factor by which an operation divides each gradient before the optimizer.
    """
    steps = []
    for batch in range(batches):
        for layer, weight in enumerate(WEIGHTS):
            fields = {"phase": "forward", "micro_batch": batch}
            x = BATCHES[batch]
            steps.append(Step(key=f"layers.{layer}/op_{2 * batch}_mm", gives=[x @ weight], reads=[x], fields=fields))
        for layer, weight in reversed([*enumerate(WEIGHTS)]):
            factor = np.float32(scale if layer == LAYERS - 1 or not only_first else 1)
            key = f"layers.{layer}/op_{2 * batch + 1}_mm"
            gradient = factor * (BATCHES[batch].T @ (BATCHES[batch] @ weight))
            reads = [BATCHES[batch] @ weight * factor]
            fields = {"phase": "backward", "micro_batch": batch}
            steps.append(Step(key=key, gives=[gradient], reads=reads, fields=fields))
    for layer, weight in enumerate(WEIGHTS):
        gradient = np.float32(total) * weight
        name = f"layers.{layer}.weight"
        if reduced:
            steps.append(
                Step(
                    key=f"reduce/op_{layer}_allreduce_",
                    gives=[gradient],
                    reads=[gradient * np.float32(scale)],
                    fields={"phase": "gradients", "parameters": [f"{name}.grad"], "micro_batch": -1},
                )
            )
        if undone != 1.0:
            given = {"phase": "gradients", "parameters": [f"{name}.grad"], "micro_batch": -1}
            scaled, changed = gradient * np.float32(undone), {0: gradient}
            steps.append(Step(key=f"layers.{layer}/op_8_div_", reads=[scaled], changed=changed, fields=given))
        fields = {"phase": "optimizer", "parameters": [name, f"{name}.grad"], "micro_batch": -1}
        key = f"layers.{layer}/op_9_add_"
        steps.append(Step(key=key, gives=[weight - gradient], reads=[weight, gradient], fields=fields))
    return captured_log(steps)


@pytest.mark.parametrize(
    ("b", "factor"),
    [
        ({"scale": 2.0}, 0.5),
        # whoever forgets the division has other totals
        ({"scale": 2.0, "total": 2.0}, 1.0),
        # the factor of one term of the loss
        ({"scale": 2.0, "only_first": True}, 1.0),
        ({}, 1.0),
    ],
)
def test_the_factor_between_gradients_before_they_are_reduced(b: dict[str, float], factor: float) -> None:
    c = compare(log(2), log(1, **b))  # type: ignore[arg-type]
    assert c.loss_scale == factor


@pytest.mark.parametrize(
    ("b", "factor"),
    [({"scale": 3.0}, 1 / 3), ({"scale": 3.0, "total": 3.0}, 1.0), ({"scale": 3.0, "only_first": True}, 1.0)],
)
def test_a_factor_that_no_layout_tells_is_one_of_all_gradients_but_the_totals(b: Any, factor: float) -> None:
    c = compare(log(1), log(1, **b))
    assert c.loss_scale == pytest.approx(factor)
    assert c.red.any() == (factor == 1)


def test_what_a_loop_reduces_by_itself_is_no_total_yet() -> None:
    c = compare(log(2, reduced=True), log(1, scale=2.0, reduced=True))
    assert c.loss_scale == 0.5


def test_gradients_of_which_only_sketches_are_known_are_scaled_too() -> None:
    a, b = log(2), log(1, scale=2.0)
    known = compare(a, b)
    c = compare(a, as_parts(b, b.phase == Phase.BACKWARD))
    assert c.loss_scale == known.loss_scale == 0.5
    assert not c.red.any()
    assert (c.status == known.status).all()


@pytest.mark.parametrize(
    ("b", "factor"),
    [
        ({"scale": 1024.0, "undone": 1024.0}, 2.0**-10),
        # nothing undoes it, or not all of it
        ({"scale": 1024.0, "total": 1024.0}, 1.0),
        ({"scale": 1024.0, "undone": 512.0, "total": 2.0}, 1.0),
        ({"scale": 1024.0, "undone": 1024.0, "only_first": True}, 1.0),
    ],
)
def test_a_loss_that_one_run_scales_lest_gradients_vanish(b: dict[str, float], factor: float) -> None:
    c = compare(log(1), log(1, **b))  # type: ignore[arg-type]
    assert c.loss_scale == pytest.approx(factor, rel=1e-6)
    assert bool(c.red.any()) == (factor == 1)
