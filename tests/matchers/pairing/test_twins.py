"""Operations of other names with the same numbers are partners, but not across modules that both runs have."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.comparison import compare
from matchers.ops.shards import Shards
from matchers.pairing.assignment import State
from matchers.pairing.matching import NameRules
from matchers.pairing.pairing import Method
from matchers.pairing.twins import found_elsewhere
from tests.captured import Step, captured_log

RNG = np.random.default_rng(4)
X, Y, Z = (RNG.normal(size=(3, 4)) for _ in range(3))


@pytest.mark.parametrize(
    ("key", "paired"),
    [("layers.1.norm/op_1_cat", True), ("layers.0.mlp/op_1_cat", False), ("block.mlp/op_1_cat", True)],
)
def test_a_twin_is_in_the_same_module_where_both_runs_have_it(key: str, paired: bool) -> None:
    both = [
        Step(key="layers.0.mlp/op_0_mm", reads=[X], gives=[Y], made=[""]),
        Step(key="layers.1.norm/op_0_add", reads=[Y], gives=[Z], made=["layers.0.mlp/op_0_mm"]),
    ]
    one, other = (Step(key=k, reads=[Z, Y], gives=[Z + Y]) for k in ("layers.1.norm/op_1_add", key))
    c = compare(captured_log([*both, one]), captured_log([*both, other]))
    assert (c.pairing.of_a[2] >= 0) == paired


def test_updates_of_other_parameters_are_no_partners_although_their_norms_are_equal() -> None:
    """The first update of a bias by Adam has elements of one size."""

    def log(sizes: tuple[float, float], signs: list[float]) -> list[Step]:
        steps = []
        for layer, size in enumerate(sizes):
            update = size * np.array(signs)
            fields = {"parameters": [f"layers.{layer}.norm.bias", ""], "phase": "optimizer"}
            key, reads = f"layers.{layer}.norm/op_0_addcdiv_", [update / 3, update + 1]
            steps.append(Step(key=key, reads=reads, gives=[update], made=["", ""], changed={0: update}, fields=fields))
        return steps

    a, b = captured_log(log((0.7, 0.5), [1, -1, 1, 1])), captured_log(log((0.5, 0.3), [1, 1, 1, -1]))
    names, state = NameRules(tuple(a.modules), tuple(b.modules), (), ()), State(2, 2)
    state.pair(np.arange(2), np.arange(2), Method.ALIGNED, 0.9)
    assert not len(found_elsewhere(names.features(a, b, Shards.of(a, b)), state)[0])
