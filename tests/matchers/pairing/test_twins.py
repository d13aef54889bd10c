"""Operations of other names with the same numbers are partners, but not across modules that both runs have."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.comparison import compare
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
