"""First causes between two whole tensors, where ranks compute with shards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.logs.op_log import OpLog
from matchers.status import Status
from tests.captured import Array, Step, captured_log, summary
from tests.matchers.invariants import check

RNG = np.random.default_rng(17)
X = RNG.normal(size=(8, 16)).astype(np.float32)
TURN = RNG.normal(size=(8, 16)).astype(np.float32)
LAYERS = 3


def log(*, ranks: int = 1, bug: str = "", layers: int = LAYERS, other: Array = TURN[::-1]) -> OpLog:
    """Layers: a rotation by a buffer, tanh, and what the ranks gather. In the middle one the bug."""
    steps: list[Step] = []
    x: Array = X
    made = ""

    def add(key: str, gives: Array, *reads: tuple[str, Array]) -> tuple[str, Array]:
        out: Any = gives
        if ranks > 1 and "gather" not in key:
            gives, reads = gives[:4], tuple((maker, value[:4]) if maker else (maker, value) for maker, value in reads)
            placement = {"mesh": {"tp": 2}, "placements": ["Shard(0)"], "shape": [8, 16], "offsets": [0, 0]}
            out = summary(gives, placement=placement)
        steps.append(Step(key=key, gives=[out], reads=[v for _, v in reads], made=[m for m, _ in reads]))
        return key, out if ranks == 1 or "gather" in key else gives

    for layer in range(layers):
        here = bug if layer == layers // 2 else ""
        turn = other.copy() if here == "buffer" else TURN
        whole = x * turn
        add(f"layers.{layer}.rope/op_0_mul", whole, (made, x), ("", turn))
        made = f"layers.{layer}.rope/op_0_mul"
        if here == "roll":
            whole, before = np.roll(whole, 1, axis=1), whole
            add(f"layers.{layer}.attention/op_0_roll", whole, (made, before))
            made = f"layers.{layer}.attention/op_0_roll"
        before, whole = whole, np.tanh(whole) * (1.5 if here == "kernel" else 1)
        add(f"layers.{layer}.attention/op_0_tanh", whole, (made, before))
        made = f"layers.{layer}.attention/op_0_tanh"
        if ranks > 1:
            add(f"layers.{layer}.mlp/op_0_all_gather_into_tensor", whole, (made, whole[:4]))
            made = f"layers.{layer}.mlp/op_0_all_gather_into_tensor"
        x, whole = whole, np.exp(whole)
        key = f"layers.{layer}.mlp/op_1_exp"
        steps.append(Step(key=key, gives=[whole], reads=[x], made=[made]))
        x, made = whole, key
    return captured_log(steps)


def first_causes(c: Comparison) -> list[str]:
    return [
        c.a.keys[c.row_a[row]] if c.row_a[row] >= 0 else c.b.keys[c.row_b[row]]
        for row in np.flatnonzero(c.cause).tolist()
    ]


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("bug", "cause", "told"),
    [
        ("roll", "layers.1.attention/op_0_roll", "has this operation; its consumers diverge"),
        ("buffer", "layers.1.rope/op_0_mul", "LIKELY CAUSE: input 1, which no operation made, differs; "),
        (
            "kernel",
            "layers.1.rope/op_0_mul",
            "LIKELY CAUSE: the only unjudged operation before layers.1.attention/op_0_tanh",
        ),
    ],
)
def test_the_most_telling_operation_of_the_stretch_is_the_only_first_cause(
    bug: str, cause: str, told: str, swapped: bool
) -> None:
    one, two = log(), log(ranks=2, bug=bug)
    c = compare(two, one) if swapped else compare(one, two)
    check(c)
    assert c.red.any()
    assert first_causes(c) == [cause]
    [row] = np.flatnonzero(c.cause).tolist()
    assert told in headline(c, row)
    assert c.consequences.unexplained == 0


@pytest.mark.parametrize(("factor", "told"), [(1.005, True), (1.02, False)])
def test_without_other_layers_a_buffer_of_another_size_may_be_another_layout(factor: float, told: bool) -> None:
    other = TURN[::-1] * np.float32(factor)
    c = compare(log(layers=1), log(ranks=2, bug="buffer", layers=1, other=other))
    (row,) = np.flatnonzero(c.cause).tolist()
    assert ("input 1, which no operation made, differs" in headline(c, row)) == told


def test_without_a_bug_nothing_is_red() -> None:
    c = compare(log(), log(ranks=2))
    check(c)
    assert not c.red.any()
    assert np.count_nonzero(c.status == Status.EQUAL) == 2 * LAYERS, "tanh by its whole, and exp"
