"""An optimizer that updates shards in one run and whole parameters in the other: what no shard may do is red."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.logs.op_log import OpLog
from matchers.status import Status
from tests.captured import Array, Step, captured_log, summary
from tests.matchers.invariants import check

NAMES = ("emb.weight", "layers.0.w.weight", "layers.1.w.weight")
RNG = np.random.default_rng(23)
WEIGHTS = [RNG.standard_normal((8, 16)).astype(np.float32) for _ in NAMES]
GRADIENTS = [RNG.standard_normal((8, 16)).astype(np.float32) for _ in NAMES]


class Optimizer:
    """Operations on lists of tensors, of which a rank holds the first half of the rows."""

    def __init__(self, *, part: bool) -> None:
        self.steps: list[Step] = []
        self._part = part

    def held(self, whole: Array) -> Any:
        if not self._part or whole.ndim == 0:
            return whole
        placement = {"mesh": {"0": 2}, "placements": ["Shard(0)"], "shape": list(whole.shape), "offsets": [0, 0]}
        return summary(whole[: len(whole) // 2], placement=placement)

    def add(
        self,
        op: str,
        reads: Sequence[Array],
        names: Sequence[str] = (),
        made: Sequence[str] = (),
        *,
        changed: Sequence[Array] = (),
        gives: Sequence[Array] = (),
    ) -> str:
        key = f"optimizer/op_{len(self.steps)}_{op}"
        self.steps.append(
            Step(
                key=key,
                reads=[self.held(x) for x in reads],
                made=[*made] or [""] * len(reads),
                gives=[self.held(x) for x in gives],
                changed={slot: self.held(x) for slot, x in enumerate(changed)},
                fields={"phase": "optimizer", "location": "train.py:7", "parameters": [*names]},
            )
        )
        return key


def log(
    *, part: bool = False, count: int = 1, decay: float = 1e-4, lr: float = 0.1, eps: float = 1e-8, scale: float = 1.0
) -> OpLog:
    """A step like Adam's: it counts, decays, keeps the gradient and divides by it."""
    run, n = Optimizer(part=part), len(NAMES)
    counts = [np.array(count, np.float32)] * n
    run.add("_foreach_add_", counts, [f"{name}.step" for name in NAMES], changed=[x + np.float32(1) for x in counts])
    gradients = [np.float32(scale) * gradient for gradient in GRADIENTS]
    moments = [np.float32(0.1) * gradient for gradient in gradients]
    states = [f"{name}.exp_avg" for name in NAMES]
    kept = run.add(
        "_foreach_lerp_",
        [*map(np.zeros_like, moments), *gradients],
        [*states, *(f"{name}.grad" for name in NAMES)],
        changed=moments,
    )
    weights, made = WEIGHTS, [""] * n
    if decay:
        weights = [x * np.float32(1 - decay) for x in WEIGHTS]
        made = [run.add("_foreach_mul_", WEIGHTS, NAMES, changed=weights)] * n
    sizes = [np.abs(x) for x in moments]
    below = run.add("_foreach_abs", moments, states, [kept] * n, gives=sizes)
    corrected = [x / np.float32(count) for x in sizes]
    below = run.add("_foreach_div_", sizes, made=[below] * n, changed=corrected)
    divisors = [x + np.float32(eps) for x in corrected]
    below = run.add("_foreach_add_", corrected, made=[below] * n, changed=divisors)
    after = [x - np.float32(lr) * m / d for x, m, d in zip(weights, moments, divisors, strict=True)]
    reads, makers = [*weights, *moments, *divisors], [*made, *[kept] * n, *[below] * n]
    run.add("_foreach_addcdiv_", reads, [*NAMES, *states], makers, changed=after)
    return captured_log(run.steps)


def first(c: Comparison) -> str:
    """The sentence of the only first cause, and its operation."""
    check(c)
    [row] = np.flatnonzero(c.cause).tolist()
    return f"{c.a.op_name(int(c.row_a[row]))}: {headline(c, row)}"


def test_the_same_step_on_shards_is_quiet() -> None:
    c = compare(log(), log(part=True))
    check(c)
    assert not c.red.any()
    assert c.status[-1] == Status.SHARDED


@pytest.mark.parametrize("swapped", [False, True])
def test_an_operation_that_one_run_has_in_addition(swapped: bool) -> None:
    """Nothing red reads the decayed weight, whose update is not judged."""
    a, b = log(), log(part=True, decay=0.0)
    c = compare(b, a) if swapped else compare(a, b)
    [row] = np.flatnonzero(c.cause).tolist()
    side = "b" if swapped else "a"
    told = (
        rf"FIRST CAUSE: only {side} changes \S+\.weight here by ≥1\.0e-04.*; all else that writes to it has a partner"
    )
    assert re.fullmatch(told, headline(c, row))
    assert np.flatnonzero(c.red).tolist() == [row]


def test_a_factor_of_one_changes_nothing() -> None:
    steps = log(decay=1e-12)  # rounded away
    assert not compare(steps, log(part=True, decay=0.0)).red.any()


def test_shards_of_states_that_are_zero_are_quiet() -> None:
    assert not compare(log(scale=0.0), log(part=True, scale=0.0)).red.any()


def test_a_shard_that_exceeds_its_whole() -> None:
    c = compare(log(), log(part=True, lr=0.4))
    told = first(c)
    assert told.startswith("_foreach_addcdiv_: FIRST CAUSE: ")
    assert told.endswith("; a shard exceeds its whole")


def test_a_wrong_gradient_is_found_where_it_is_kept() -> None:
    assert first(compare(log(), log(part=True, scale=4.0))).startswith("_foreach_lerp_: ")


def test_a_term_of_a_list_of_shards() -> None:
    told = first(compare(log(eps=1e-3), log(part=True, eps=1e-4)))
    assert told.startswith("_foreach_add_: FIRST CAUSE: the scalar argument, 0.001 in a and 0.0001 in b, differs by ")


@pytest.mark.parametrize("part", [False, True])
def test_a_step_count_is_the_cause_of_what_is_computed_from_it(part: bool) -> None:
    c = compare(log(count=3), log(part=part))
    [row] = np.flatnonzero(c.cause).tolist()
    assert c.a.keys[c.row_a[row]] == "optimizer/op_0__foreach_add_"
    assert "emb.weight.step" in headline(c, row)
