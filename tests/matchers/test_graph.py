"""The walks over graphs: what C makes of any graph is what Python makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers import graph
from tests.needs import examples


@st.composite
def edges(draw: st.DrawFn) -> tuple[Any, ...]:
    """The lists of some nodes, which nodes hand on, and the marks of each: bits of a word, or flags."""
    size = draw(st.integers(1, 40))
    lists = draw(st.lists(st.lists(st.integers(-1, size - 1), max_size=20), min_size=size, max_size=size))
    start = np.cumsum([0, *map(len, lists)])
    value = np.array([node for of in lists for node in of], draw(st.sampled_from([np.int64, np.int32])))
    through = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    marks = draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, 1 << 63]), min_size=size, max_size=size))
    return start, value, np.array(marks, draw(st.sampled_from([np.uint64, bool]))), through


def test_c_is_at_hand() -> None:
    """Where this test runs; else the others would compare Python with itself."""
    assert graph._compiled() is not None


@settings(max_examples=examples(200))
@given(edges(), st.booleans(), st.sampled_from([1, 2, 40]))
def test_marks_spread_alike(of: tuple[Any, ...], back: bool, rounds: int) -> None:
    before = of[2].copy()
    found = graph.spread(*of, back=back, rounds=rounds)
    expected = graph._spread(*of, back=back, rounds=rounds)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(of[2], before, "what is given stays")


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)), max_size=200), st.integers(6, 8))
def test_lists_are_alike(pairs: list[tuple[int, int]], many: int) -> None:
    row, value = np.array(pairs, np.int64).reshape(-1, 2).T
    for found, expected in zip(graph.lists(row, value, many), graph._lists(row, value, many), strict=True):
        np.testing.assert_array_equal(found, expected)


@settings(max_examples=examples(200))
@given(edges(), st.data())
def test_owners_renamed_edges_and_unions_are_alike(of: tuple[Any, ...], data: st.DataObject) -> None:
    start, value, through, _ = of
    np.testing.assert_array_equal(graph.owners(start), graph._owners(start))
    rows = st.lists(st.integers(-1, 6), min_size=len(through), max_size=len(through))
    found, expected = [], []
    for at in (np.array(data.draw(rows)) for _ in range(2)):
        found.append(graph.renamed(start, value, at, 7))
        expected.append(graph._renamed(start, value, at, 7))
    found.append(graph.union(*found))
    expected.append(graph._union(*expected))
    for one, other in zip(found, expected, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@settings(max_examples=examples(200))
@given(edges(), edges(), st.data())
def test_edges_between_nodes_and_what_they_connect_are_alike(
    one: tuple[Any, ...], other: tuple[Any, ...], data: st.DataObject
) -> None:
    graphs, pairs = [], []
    group = np.array(data.draw(st.lists(st.integers(-1, 1), min_size=7, max_size=7)), np.int8)
    many = data.draw(st.integers(0, 9))
    for start, value, through, _ in (one, other):
        size = len(through)
        at = np.array(data.draw(st.lists(st.integers(0, 6), min_size=size, max_size=size)))
        graphs.append((start, value, at))
        pairs.append(np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=many, max_size=many)), np.int64))
    made, read = group >= 0, group != 1
    for mine, theirs in zip(graph.between(graphs, made, read), graph._between(graphs, made, read), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    (i, j), (of_one, of_other) = pairs, graphs
    found, expected = graph.connected(group, i, j, of_one, of_other), graph._connected(group, i, j, of_one, of_other)
    np.testing.assert_array_equal(found, expected)


@settings(max_examples=examples(200))
@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))))
def test_nodes_that_edges_connect_have_the_smallest_of_them(of: tuple[int, list[tuple[int, int]]]) -> None:
    size, edges = of
    label = list(range(size))
    for one, other in edges * size:
        label[one] = label[other] = min(label[one], label[other])
    read = [[other for one, other in edges if one == node] for node in range(size)]
    start, value = np.cumsum([0, *map(len, read)]), np.array([other for of in read for other in of], np.int64)
    none = np.zeros(0, np.int64)
    graphs = (start, value, np.arange(size)), (np.zeros(1, np.int64), none, none)
    assert graph.connected(np.zeros(size, np.int8), none, none, *graphs).tolist() == label
