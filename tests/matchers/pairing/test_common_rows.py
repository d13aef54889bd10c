"""Common rows of two runs are found by their values, also where kernels round otherwise."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from matchers.arrays import Float64, Int64
from matchers.ops.sketch import PROJECTIONS
from matchers.ops.tensor_rows import TensorRows
from matchers.pairing import common_rows as module
from matchers.pairing.common_rows import common_rows, rows_told


def rows(values: Float64, digests: Int64, of: tuple[int, ...] | None = None) -> TensorRows:
    """Rows of which the values serve as sketches."""
    l2 = np.sqrt(np.mean(values**2, axis=1))
    return TensorRows(of or (len(values),), digests.astype(np.uint64), l2 * 3, l2, l2 * 0, values)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(7, 12), st.sampled_from([0.0, 1e-7, 1e-3]))
def test_a_part_of_the_rows_in_any_order_is_found(seed: int, fewer: int, more: int, noise: float) -> None:
    random = np.random.default_rng(seed)
    which = random.permutation(more)[:fewer]
    pairs = []
    for _ in range(3):
        values = random.standard_normal((more, PROJECTIONS))
        part = values[which] * (1 + noise * random.standard_normal((fewer, PROJECTIONS)))
        bits = random.integers(1 << 62, size=more)
        other = bits[which] if noise == 0 else random.integers(1 << 62, size=fewer)
        pairs.append((rows(values, bits), rows(part, other)))
    found, *others = common_rows(pairs)
    assert found is not None
    assert others == [found] * 2
    assert found.b.tolist() == list(range(fewer))
    assert found.a.tolist() == which.tolist()
    turned = common_rows([(y, x) for x, y in pairs])[0]
    assert turned is not None
    assert (turned.a.tolist(), turned.b.tolist()) == (found.b.tolist(), found.a.tolist())


def test_rows_without_a_like_have_no_partner() -> None:
    random = np.random.default_rng(0)
    x = rows(random.standard_normal((4, PROJECTIONS)), np.arange(4))
    y = rows(random.standard_normal((2, PROJECTIONS)), np.arange(10, 12))
    assert common_rows([(x, y)]) == [None]


def test_single_numbers_that_are_near_by_chance_do_not_decide() -> None:
    random = np.random.default_rng(1)
    values = random.standard_normal((3, PROJECTIONS))
    telling = rows(values, np.arange(3)), rows(values[[2, 0]], np.array([2, 0]))
    near = np.ones((3, PROJECTIONS))
    single = [TensorRows(r.of, r.digest, np.abs(r.sketch[:, 0]), np.abs(r.sketch[:, 0]), r.sketch[:, 0], r.sketch)
              for r in (rows(near, np.arange(5, 8)), rows(near[:2] * 1.001, np.arange(2)))]  # fmt: skip
    found = common_rows([telling, *[(single[0], single[1])] * 5])[0]
    assert found is not None
    assert found.a.tolist() == [2, 0]


def test_many_rows_are_found_by_digests_alone() -> None:
    many = int(np.sqrt(module._MOST)) + 1
    values = np.zeros((many, PROJECTIONS))
    x, y = rows(values, np.arange(many)), rows(values[:-1], np.arange(many)[:0:-1])
    (found,) = common_rows([(x, y)])
    assert found is not None
    assert found.a.tolist() == list(range(many - 1, 0, -1))


def test_rows_that_are_told_need_not_be_near_and_are_the_same_numbered_through() -> None:
    random = np.random.default_rng(4)
    x, y = random.standard_normal((6, PROJECTIONS)), random.standard_normal((2, PROJECTIONS))
    pairs = [
        (rows(x, np.arange(6), (2, 3)), rows(y, np.arange(9, 11), (2, 1))),
        (rows(x, np.arange(6)), rows(y, np.arange(9, 11))),
    ]
    told = rows_told([(":, 2", ":, 0"), ("0, 7", "0, 0")], [(one.of, other.of) for one, other in pairs])
    assert [which.tolist() for _, which in told.values()] == [[0], [0]]
    for found in common_rows(pairs, {of: common for of, (common, _) in told.items()}):
        assert found is not None
        assert (found.a.tolist(), found.b.tolist()) == ([2, 5], [0, 1])


def test_rows_of_the_same_dimensions_are_all_common() -> None:
    values = np.random.default_rng(2).standard_normal((4, PROJECTIONS))
    (found,) = common_rows([(rows(values, np.arange(4)), rows(-values, np.arange(4, 8)))])
    assert found is not None
    assert found.a.tolist() == found.b.tolist() == [0, 1, 2, 3]


def test_rows_that_one_result_has_in_its_own_order_are_believed_where_they_fit() -> None:
    random = np.random.default_rng(3)
    values = random.standard_normal((4, 6, PROJECTIONS))
    pairs = [(rows(each, np.arange(6)), rows(each[[0, 4]], np.array([0, 4]))) for each in values[:3]]
    pairs.append((rows(values[3], np.arange(6)), rows(values[3][[5, 1]], np.array([5, 1]))))
    assert [found.a.tolist() for found in common_rows(pairs) if found is not None] == [[0, 4]] * 3 + [[5, 1]]


def test_equal_rows_go_where_those_beside_them_are() -> None:
    """Sequences of a batch that begin with the same token; later results differ, and are alike by chance."""
    random = np.random.default_rng(4)
    values = random.standard_normal((12, PROJECTIONS))
    values[[0, 4, 8]] = values[0]
    digests = np.arange(12)
    digests[[0, 4, 8]] = 0
    pairs = [(rows(values, digests, (3, 4)), rows(values[4:8], digests[4:8], (1, 4)))]
    for _ in range(5):
        other, bits = random.standard_normal((12, PROJECTIONS)), random.integers(1 << 62, size=12)
        part, part_bits = random.standard_normal((4, PROJECTIONS)), random.integers(1 << 62, size=4)
        part[0], part_bits[0] = other[8], bits[8]
        pairs.append((rows(other, bits, (3, 4)), rows(part, part_bits, (1, 4))))
    (found, *_) = common_rows(pairs)
    assert found is not None
    assert found.a.tolist() == [4, 5, 6, 7]
