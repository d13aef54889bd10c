"""The walk over the data flow: what arrives at nodes, in both directions."""

from __future__ import annotations

import numpy as np

from matchers.logs.columns import Ragged
from matchers.ops.dataflow import downstream, fed_by, upstream


def flow(*reads: list[int]) -> Ragged:
    """The makers of what each node reads; -1 for none."""
    start = np.cumsum([0, *map(len, reads)])
    return Ragged(start, np.array([maker for makers in reads for maker in makers], np.int64))


def marks(size: int, *nodes: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    out = np.zeros(size, bool)
    out[list(nodes)] = True
    return out


CHAIN = flow([], [0], [1, -1], [2], [1])
EVERY = np.ones(5, bool)


def test_marks_go_downstream_over_nodes_that_hand_on() -> None:
    np.testing.assert_array_equal(downstream(CHAIN, marks(5, 1), EVERY), marks(5, 1, 2, 3, 4))
    np.testing.assert_array_equal(downstream(CHAIN, marks(5, 1), EVERY & ~marks(5, 2)), marks(5, 1, 4))
    np.testing.assert_array_equal(downstream(CHAIN, marks(5), EVERY), marks(5))


def test_each_bit_of_a_word_goes_its_own_way() -> None:
    start = np.array([0, 1, 0, 0, 2], np.uint64)
    np.testing.assert_array_equal(downstream(CHAIN, start, EVERY), [0, 1, 1, 1, 3])


def test_edges_against_the_order_are_followed_too() -> None:
    """Rows of crossing pairs read what stands below them."""
    crossing = flow([3], [], [0], [1])
    np.testing.assert_array_equal(downstream(crossing, marks(4, 1), np.ones(4, bool)), np.ones(4, bool))


def test_upstream_is_the_way_back() -> None:
    np.testing.assert_array_equal(upstream(CHAIN, marks(5, 3), EVERY), marks(5, 0, 1, 2, 3))
    np.testing.assert_array_equal(upstream(CHAIN, marks(5, 3), EVERY & ~marks(5, 2)), marks(5, 2, 3))


def test_a_node_that_reads_nothing_of_a_set_is_not_fed_by_it() -> None:
    np.testing.assert_array_equal(fed_by(CHAIN, marks(5, 1), EVERY), marks(5, 2, 3, 4))
    np.testing.assert_array_equal(fed_by(CHAIN, marks(5, 1, 2), ~EVERY), marks(5, 2, 3, 4))


def test_distinct_values_of_each_row_ascend() -> None:
    lists = Ragged.distinct(np.array([2, 0, 2, 2]), np.array([5, 1, 3, 5]), 4)
    assert [lists[k].tolist() for k in range(4)] == [[1], [], [3, 5], []]
