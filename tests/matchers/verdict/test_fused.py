"""An operation against its parts: red if their numbers together differ, whatever each of them is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import explain
from matchers.ops.shapes import side_by_side
from matchers.pairing.pairing import Method
from matchers.status import Status
from tests.captured import Step, captured_log

RNG = np.random.default_rng(3)
X = RNG.normal(size=(6, 4))
WEIGHTS = [RNG.normal(size=(4, n)) for n in (5, 3, 3)]


def fused(weights: Sequence[np.ndarray] = WEIGHTS) -> list[Step]:
    whole = np.concatenate(weights, axis=1)
    return [norm(), Step(key="attn.qkv/op_0_mm", reads=[X, whole], gives=[X @ whole], made=["norm/op_0_mul", ""])]


def separate() -> list[Step]:
    made = ["norm/op_0_mul", ""]
    return [
        norm(),
        *(
            Step(key=f"attention.w{name}/op_0_mm", reads=[X, w], gives=[X @ w], made=made)
            for name, w in zip("qkv", WEIGHTS, strict=True)
        ),
    ]


def norm() -> Step:
    return Step(key="norm/op_0_mul", reads=[X / 2], gives=[X], made=[""])


def only_group(c: Comparison) -> int:
    """The row of the only group."""
    (pair,) = np.flatnonzero(c.pairing.method == Method.PARTS).tolist()
    return int(np.flatnonzero(c.pair == pair)[0])


@pytest.mark.parametrize("turned", [False, True])
def test_parts_that_agree_together_are_close(turned: bool) -> None:
    logs = captured_log(separate()), captured_log(fused())
    c = compare(*(logs[::-1] if turned else logs))
    row = only_group(c)
    assert sorted(map(len, c.members(row))) == [1, 3]
    assert c.status[row] in (Status.CLOSE, Status.SAME_PRINT)
    assert not c.red.any()
    told = explain(c, row)
    assert told.pairing.endswith("mm + mm + mm together form this operation, compared as one tensor")
    assert next(fact for fact in told.facts if fact.name == "L1 together").difference in ("0", *["1.0e-16"])


@pytest.mark.parametrize("part", range(3))
def test_one_wrong_part_is_red(part: int) -> None:
    """The weights are others, so nothing but shape, place and what they read is left to find the group by."""
    weights = [w * (1.01 if k == part else 1.0) for k, w in enumerate(WEIGHTS)]
    c = compare(captured_log(separate()), captured_log(fused(weights)))
    row = only_group(c)
    assert c.status[row] == Status.DIVERGED
    assert c.cause[row]
    assert c.bound[row]
    assert explain(c, row).headline.endswith("no input comes from a diverged operation")


def test_readers_of_another_tensor_are_no_parts() -> None:
    steps = separate()
    other = Step(key=steps[2].key, reads=[X + 1, WEIGHTS[1]], gives=[(X + 1) @ WEIGHTS[1]], made=["", ""])
    c = compare(captured_log([*steps[:2], other, steps[3]]), captured_log(fused()))
    assert not c.pairing.grouped.any()


def test_a_part_in_a_module_that_both_runs_have_is_none_of_another_module() -> None:
    in_both = Step(key="attention.wk/op_0_neg", reads=[X], gives=[-X], made=["norm/op_0_mul"])
    c = compare(captured_log(separate()), captured_log([*fused(), in_both]))
    assert not c.pairing.grouped.any()


@pytest.mark.parametrize("slot", [0, 1])
def test_products_with_one_first_factor_are_no_parts_below_each_other(slot: int) -> None:
    """The gradients of a layer's input and of its weight read one tensor first; with one second factor, they are."""

    def product(name: str, weight: np.ndarray) -> Step:
        reads = [weight.T, X.T] if slot else [X.T, weight.T]
        made = ["", "norm/op_0_mul"] if slot else ["norm/op_0_mul", ""]
        return Step(key=name, reads=reads, gives=[weight.T @ X.T], made=made)

    weight = RNG.normal(size=(4, 9))
    parts = [product("head/op_0_mm", weight[:, :4]), product("head/op_1_mm", weight[:, 4:])]
    c = compare(captured_log([norm(), *parts]), captured_log([norm(), product("layer/op_0_mm", weight)]))
    assert c.pairing.grouped.any() == bool(slot)


def test_side_by_side() -> None:
    assert side_by_side([(4, 5), (4, 3)]) == [(4, 8)]
    assert side_by_side([(4, 5), (4, 5)]) == [(4, 10), (8, 5)]
    assert side_by_side([(4, 5), (3, 6)]) == []
    assert side_by_side([(4, 5), (4, 5, 1)]) == []
