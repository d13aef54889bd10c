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


def test_the_maker_of_a_value_is_a_twin_and_not_its_copy() -> None:
    """One run rotates by a sum and clones it for the product; the other puts the halves beside each other."""

    def log(*steps: tuple[str, list[np.ndarray], np.ndarray], shape: tuple[int, ...]) -> list[Step]:
        rotated = [
            Step(key=f"rope/op_{k}_{op}", reads=reads, gives=[gives.reshape(shape)])
            for k, (op, reads, gives) in enumerate(steps)
        ]
        scores = Step(key="scores/op_0_bmm", reads=[steps[-1][2]], gives=[Y @ Y.T], made=[rotated[-1].key])
        return [Step(key="queries/op_0_mm", reads=[X], gives=[Y], made=[""]), *rotated, scores]

    half = np.concatenate((-X[:, 2:], X[:, :2]), axis=1)
    c = compare(
        captured_log(log(("cat", [X], half), ("add", [X, half], Z), ("clone", [Z], Z), shape=(1, 3, 4))),
        captured_log(log(("sub", [X], Z[:, :2]), ("cat", [Z[:, :2], Z[:, 2:]], Z), shape=(3, -1))),
    )
    partner = {c.a.keys[i]: c.b.keys[int(j)] for i, j in enumerate(c.pairing.partner_of_a) if j >= 0}
    assert partner.get("rope/op_1_add") == "rope/op_1_cat"
    assert "rope/op_0_cat" not in partner
