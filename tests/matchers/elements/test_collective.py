"""Results of collectives from the parts of the ranks: each order and dtype is proved on the bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from matchers.elements.collective import put_together
from matchers.tensor import Tensor
from tests.matchers.elements.test_differences import bfloat16, tensor

PARTS = [np.random.default_rng(k).standard_normal(1000).astype(np.float32) for k in range(4)]


def told(given: list[Tensor], result: Tensor, member: int = 0, op: str | None = "sum", root: int | None = None) -> str:
    return put_together(given, result, member, op=op, root=root)


def added(order: list[int], parts: list[Any] = PARTS) -> Any:
    total = parts[order[0]]
    for k in order[1:]:
        total = total + parts[k]
    return total


def ring() -> Any:
    """Block k is added from rank k + 1 on."""
    whole = [added([(k + 1 + i) % 4 for i in range(4)]) for k in range(4)]
    return np.concatenate([whole[k][250 * k : 250 * (k + 1)] for k in range(4)])


GIVEN = list(map(tensor, PARTS))


@pytest.mark.parametrize(
    ("result", "way"),
    [
        (added([0, 1, 2, 3]), "sum of the ranks in rank order, in float32"),
        (added([3, 0, 1, 2]), "sum of the ranks along the ring from rank 3, in float32"),
        (added([2, 1, 0, 3]), "sum of the ranks along the ring from rank 2, in float32"),
        (ring(), "sum of the ranks in ring order, in float32"),
        ((PARTS[0] + PARTS[1]) + (PARTS[2] + PARTS[3]), "sum of the ranks in a tree, in float32"),
        (added([0, 1, 2, 3]) + np.float32(1e-3), ""),
    ],
)
def test_sums_are_told_by_their_order(result: Any, way: str) -> None:
    assert told(GIVEN, tensor(result)) == way


def test_a_mean_and_a_part_of_it() -> None:
    mean = added([0, 1, 2, 3]) / 4
    assert told(GIVEN, tensor(mean), op="avg") == "mean of the ranks in rank order, in float32"
    assert told(GIVEN, tensor(mean[500:750].copy()), 2, op="avg").endswith("in rank order, in float32, part 2 of 4")
    assert told(GIVEN, tensor(mean[500:750].copy()), 1, op="avg") == ""


def test_of_narrow_floats_the_dtype_of_the_sum_is_told() -> None:
    given = list(map(bfloat16, PARTS))
    wide = added([0, 1, 2, 3], [each.values for each in given])
    narrow: Any = given[0].values
    for each in given[1:]:
        narrow = bfloat16(narrow + each.values).values
    assert told(given, bfloat16(wide)) == "sum of the ranks in rank order, in float32"
    assert told(given, bfloat16(narrow)) == "sum of the ranks in rank order, in bfloat16"


def test_what_is_only_moved() -> None:
    def moved(result: Any, member: int = 0, root: int | None = None) -> str:
        return told(GIVEN, tensor(result), member, None, root)

    assert moved(np.concatenate(PARTS)) == "what the ranks gave, one after the other"
    assert moved(PARTS[2], root=2) == "what rank 2 of the group gave"
    assert moved(np.concatenate([part[250:500] for part in PARTS]), 1) == "piece 1 of what each rank gave"
    assert moved(np.concatenate(PARTS[::-1])) == ""


def test_the_largest_and_what_is_unknown() -> None:
    assert told(GIVEN, tensor(np.maximum.reduce(PARTS)), op="max") == "the max of the ranks"
    assert told(GIVEN, tensor(PARTS[0]), op="product") == ""
    assert told([*GIVEN[:3], tensor(PARTS[3][:9])], tensor(PARTS[0])) == ""
