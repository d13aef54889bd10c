"""Parts of tensors between the records that a log places: followed to where ranks put them together again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from capture.log_writer import TensorSummary
from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.ops.shards import infer_shards
from matchers.status import Status
from tests.builders import op
from tests.captured import Array, Step, captured_log, summary
from tests.matchers.drifted_logs import made_up_log
from tests.matchers.invariants import check

RNG = np.random.default_rng(3)
X, Q, K = RNG.normal(size=(6, 4)), RNG.normal(size=(4, 8)), RNG.normal(size=(4, 4))


def shard(values: Array, of: Sequence[int], kind: str = "Shard(1)") -> TensorSummary:
    placement = {"mesh": {"tp": 2}, "placements": [kind], "shape": list(of), "offsets": [0] * len(of)}
    return summary(values, placement=placement, sketch=False)


def step(key: str, gives: Array | TensorSummary, *made: str, reads: Array | None = None, **fields: Any) -> Step:
    read = np.ones(1) * len(key) if reads is None else reads
    return Step(key=key, gives=[gives], reads=[read] * len(made), made=made, fields=fields)


def rotated(q: Array, k: Array, by: float = 2.0) -> list[Step]:
    """The rotary embedding of two products, which says nothing of who holds what."""
    return [
        step("layers.0.attention.rope/op_0_mul", q * by, "layers.0.attention.wq/op_0_mm", reads=q),
        step("layers.0.attention.rope/op_1_mul", k * by, "layers.0.attention.wk/op_0_mm", reads=k),
    ]


WHOLE = [
    step("layers.0.attention.wq/op_0_mm", X @ Q),
    step("layers.0.attention.wk/op_0_mm", X @ K),
    *rotated(X @ Q, X @ K),
]


def heads_of_one_rank(by: float = 2.0) -> list[Step]:
    q, k = (X @ Q)[:, :4], (X @ K)[:, :2]
    return [
        step("layers.0.attention.wq/op_0_mm", shard(q, (6, 8))),
        step("layers.0.attention.wk/op_0_mm", shard(k, (6, 4))),
        *rotated(q, k, by),
    ]


def partners(c: Comparison) -> dict[str, str]:
    pairs = zip(c.pairing.lead_a.tolist(), c.pairing.lead_b.tolist(), strict=True)
    return {c.a.keys[i]: c.b.keys[j] for i, j in pairs}


@pytest.mark.parametrize("swapped", [False, True])
def test_a_part_that_is_as_large_as_another_tensor_is_not_taken_for_it(swapped: bool) -> None:
    """What one rank holds of the queries has the shape of all keys."""
    whole, parts = captured_log(WHOLE), captured_log(heads_of_one_rank())
    c = compare(parts, whole) if swapped else compare(whole, parts)
    assert partners(c) == {key: key for key in c.a.keys}
    assert set(c.status) == {Status.SHARDED}
    assert np.isnan(c.error).all()
    check(c)


def test_two_ranks_that_hold_the_same_parts_are_compared() -> None:
    c = compare(captured_log(heads_of_one_rank()), captured_log(heads_of_one_rank(2.5)))
    assert [c.b.keys[c.row_b[row]] for row in np.flatnonzero(c.red)] == [s.key for s in rotated(X, X)]


def added_up(total: Array) -> list[Step]:
    part = X @ Q * 0.4
    return [
        step("w1/op_0_mm", shard(part, part.shape, "Partial(sum)")),
        step("w1/op_1_add", part + 1, "w1/op_0_mm"),
        step("w1/op_2_all_reduce", total, "w1/op_1_add"),
        step("w1/op_3_neg", -total, "w1/op_2_all_reduce"),
    ]


@pytest.mark.parametrize("right", [True, False])
def test_a_part_of_a_sum_is_not_judged_and_the_sum_is(right: bool) -> None:
    total = X @ Q + 1
    alone = [
        step("w1/op_0_mm", X @ Q),
        step("w1/op_1_add", total, "w1/op_0_mm"),
        step("w1/op_2_neg", -total, "w1/op_1_add"),
    ]
    c = compare(captured_log(alone), captured_log(added_up(total if right else total * 1.1)))
    check(c)
    found = {c.a.keys[c.row_a[row]]: Status(c.status[row]) for row in np.flatnonzero(c.pair >= 0)}
    assert found == {
        "w1/op_0_mm": Status.SHARDED,
        "w1/op_1_add": Status.SHARDED,
        "w1/op_2_neg": Status.EQUAL if right else Status.DIVERGED,
    }
    assert [headline(c, row) for row in np.flatnonzero(c.cause).tolist()] == (
        [] if right else ["LIKELY CAUSE: the first of 3 unjudged operations before w1/op_2_neg, which diverges"]
    )


def test_what_is_gathered_scattered_and_summed() -> None:
    log = captured_log(
        [
            step("m/op_0_mm", shard(np.ones((4, 2)), (4, 4))),
            step("m/op_1_mul", np.ones((4, 2)), "m/op_0_mm"),
            step("m/op_2_sum", np.ones(()), "m/op_1_mul"),
            step("m/op_3_all_reduce", np.ones(()), "m/op_2_sum"),
            step("m/op_4_all_gather_into_tensor", np.ones((8, 2)), "m/op_1_mul"),
            step("m/op_5_wait_tensor", np.ones((8, 2)), "m/op_4_all_gather_into_tensor"),
            step("m/op_6_reduce_scatter_tensor", np.ones((2, 2)), "m/op_5_wait_tensor"),
            step("m/op_7_add", np.ones((2, 2)), "m/op_6_reduce_scatter_tensor", "m/op_5_wait_tensor"),
        ]
    )
    found = infer_shards(log)
    assert found.share.tolist() == [2, 2, 1, 1, 1, 1, 4, 4]
    assert found.partial.tolist() == [False, False, True, False, False, False, False, False]


@pytest.mark.parametrize(
    "shape", ["[0, 4]", "[-1, 4]", "[" + "9" * 4000 + "]", "[4611686018427387904, 4]", "[]", "[1e5]", "7", '"x"']
)
def test_a_placement_that_no_tensor_has_is_none(shape: str) -> None:
    text = '{"mesh": {"tp": 2}, "placements": ["Shard(0)"], "shape": SHAPE, "offsets": [0, 0]}'.replace("SHAPE", shape)
    log = made_up_log([op("m/op_0_mm", extra={"Placement": text}), op("m/op_1_mul", producers=["m/op_0_mm"])], run={})
    assert set(infer_shards(log).share) == {1.0}
    check(compare(log, log))


def test_a_log_that_places_nothing_holds_all_of_everything() -> None:
    found = infer_shards(captured_log(WHOLE))
    assert set(found.share) == {1.0}
    assert not found.partial.any()
