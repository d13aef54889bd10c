"""One process against ranks that divide its batch: what each computes of its samples says nothing, the rest does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import headline
from matchers.logs.op_log import OpLog
from matchers.ops.run_info import DividedBatch, divided_batch
from matchers.status import Status
from tests.captured import Array, Step, captured_log, summary
from tests.matchers.invariants import check

RNG = np.random.default_rng(5)
TOKENS = np.arange(8).reshape(4, 2)
TABLE, WEIGHT = RNG.normal(size=(8, 6)), RNG.normal(size=(6, 6))


def given(tokens: Array) -> list[dict[str, Any]]:
    return [{"shape": list(tokens.shape), "dtype": "int64", "digest": f"{summary(tokens).digest:016x}"}]


def embedded(tokens: Array) -> Array:
    return TABLE[tokens.ravel()]


def forward(tokens: Array, weight: Array, gathered: str = "") -> list[Step]:
    x = embedded(tokens)
    return [
        Step(key="embedding/op_0_embedding", reads=[TABLE, tokens], gives=[x], made=["", ""]),
        Step(
            key="layers.0/op_0_mm",
            reads=[x, weight],
            gives=[x @ weight],
            made=["embedding/op_0_embedding", gathered],
        ),
    ]


def gradient(tokens: Array, weight: Array) -> Array:
    x = embedded(tokens)
    return x.T @ (x @ weight)


def backward(tokens: Array, weight: Array) -> Step:
    return Step(
        key="layers.0/op_1_mm",
        reads=[embedded(tokens), embedded(tokens) @ weight],
        gives=[gradient(tokens, weight)],
        made=["embedding/op_0_embedding", "layers.0/op_0_mm"],
        fields={"phase": "backward"},
    )


def norm_of(grad: Array, made: str) -> Step:
    return Step(key="clip/op_0_linalg_vector_norm", reads=[grad], gives=[np.array(np.linalg.norm(grad))], made=[made])


def alone() -> OpLog:
    steps = [*forward(TOKENS, WEIGHT), backward(TOKENS, WEIGHT)]
    steps.append(norm_of(gradient(TOKENS, WEIGHT), "layers.0/op_1_mm"))
    return captured_log(steps, batch=given(TOKENS), world_size=1)


def one_of_two(weight: Array = WEIGHT, reduced: float = 1.0, scaled: int = 0) -> OpLog:
    """What one of two ranks logs, which scales its gradient so many times before it is reduced."""
    mine, total = TOKENS[:2], gradient(TOKENS, WEIGHT) * reduced
    key = "layers.0/op_0_all_gather_into_tensor"
    gather = Step(key=key, reads=[weight[:3]], gives=[weight], made=[""])
    local, phase = [backward(mine, weight)], {"phase": "backward"}
    for k in range(scaled):
        grad = gradient(mine, weight) / 1.1**k
        key_of = f"layers.0/op_{k}_div"
        local.append(Step(key=key_of, reads=[grad], gives=[grad / 1.1], made=[local[-1].key], fields=phase))
    reduce = Step(
        key="layers.0/op_0_all_reduce",
        reads=local[-1].gives,
        gives=[total],
        made=[local[-1].key],
        fields=phase,
    )
    steps = [gather, *forward(mine, weight, key), *local, reduce, norm_of(total, reduce.key)]
    return captured_log(steps, batch=given(mine), world_size=2)


def found(c: Comparison) -> dict[str, Status]:
    return {c.a.keys[c.row_a[row]]: Status(c.status[row]) for row in np.flatnonzero(c.pair >= 0)}


LOCAL = {
    "embedding/op_0_embedding": Status.SHARDED,
    "layers.0/op_0_mm": Status.SHARDED,
}


def reduced(status: Status) -> dict[str, Status]:
    """The gradient, by what ranks sum from their parts, and what is computed from it."""
    return {"layers.0/op_1_mm": status, "clip/op_0_linalg_vector_norm": status}


def test_only_what_all_ranks_have_together_is_judged() -> None:
    c = compare(alone(), one_of_two())
    assert found(c) == LOCAL | reduced(Status.EQUAL)
    assert not c.red.any()
    check(c)
    assert "each rank of b reads 2 samples where a reads 4" in c.comparability.sentence
    assert "(to compare every operation, run a with 2 micro-batches of 2)" in c.comparability.sentence


def test_a_gradient_that_was_reduced_wrongly_is_red() -> None:
    c = compare(alone(), one_of_two(reduced=0.5))
    assert found(c) == LOCAL | reduced(Status.DIVERGED)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_weight_that_was_gathered_wrongly_is_red_where_it_is_read(swapped: bool) -> None:
    """A stale gather, say: the sums that follow are those of the other weight, and only it says where it began."""
    one, other = alone(), one_of_two(WEIGHT * 1.01)
    c = compare(other, one) if swapped else compare(one, other)
    [row] = np.flatnonzero(c.red)
    assert c.a.keys[c.row_a[row]] == c.b.keys[c.row_b[row]] == "layers.0/op_0_mm"
    assert "input 1, a weight gathered from ranks, differs by ≥9.9e-03" in headline(c, int(row))
    assert found(c.with_rules(c.rules)) == found(c)


@pytest.mark.parametrize("scaled", [0, 20])
def test_a_reduced_gradient_follows_from_the_weight_over_any_number_of_operations(scaled: int) -> None:
    c = compare(alone(), one_of_two(WEIGHT * 1.01, reduced=0.5, scaled=scaled))
    assert found(c) == LOCAL | reduced(Status.DIVERGED) | {"layers.0/op_0_mm": Status.DIVERGED}
    assert [c.b.keys[c.row_b[row]] for row in np.flatnonzero(c.cause)] == ["layers.0/op_0_all_gather_into_tensor"]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (([8, 3], 1), ([4, 3], 2), DividedBatch("b", 2, by_all=True, sizes=(8, 4))),
        (([4, 3], 2), ([8, 3], 1), DividedBatch("a", 2, by_all=True, sizes=(4, 8))),
        (([8, 3], 2), ([4, 3], 8), DividedBatch("b", 2, by_all=False, sizes=(8, 4))),
        (([8, 3], 1), ([8, 3], 2), None),
        (([8, 3], 1), ([4, 5], 2), None),
        (([8, 3], 1), ([3, 3], 2), None),
        (([8, 3], 1), ([2, 3], 2), None),
        (([8, 3], 1), ([4, 3], 1), None),
        (([8, 3], 1), ([], 2), None),
        (([8, 3], 1), ("x", 2), None),
        (([8, 3], 1), ([4, 3], "two"), None),
        (([8, 3], 1), ([0, 3], 2), None),
    ],
)
def test_when_a_batch_is_divided(a: tuple[Any, Any], b: tuple[Any, Any], expected: DividedBatch | None) -> None:
    one, other = ({"batch": [{"shape": shape}], "world_size": ranks} for shape, ranks in (a, b))
    assert divided_batch(one, other) == expected
