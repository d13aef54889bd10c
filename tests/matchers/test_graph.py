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
@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))))
def test_components_are_alike(of: tuple[int, list[tuple[int, int]]]) -> None:
    size, pairs = of
    one, other = np.array(pairs, np.int64).reshape(-1, 2).T
    np.testing.assert_array_equal(graph.components(size, one, other), graph._components(size, one, other))


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)), max_size=200), st.integers(6, 8))
def test_lists_are_alike(pairs: list[tuple[int, int]], many: int) -> None:
    row, value = np.array(pairs, np.int64).reshape(-1, 2).T
    for found, expected in zip(graph.lists(row, value, many), graph._lists(row, value, many), strict=True):
        np.testing.assert_array_equal(found, expected)


@settings(max_examples=examples(200))
@given(edges(), st.data())
def test_renamed_edges_and_unions_are_alike(of: tuple[Any, ...], data: st.DataObject) -> None:
    start, value, through, _ = of
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
def test_edges_between_nodes_and_common_ones_are_alike(
    one: tuple[Any, ...], other: tuple[Any, ...], data: st.DataObject
) -> None:
    graphs, pairs = [], []
    flags = [np.array(data.draw(st.lists(st.booleans(), min_size=7, max_size=7)), bool) for _ in range(2)]
    many = data.draw(st.integers(0, 9))
    for start, value, through, _ in (one, other):
        size = len(through)
        at = np.array(data.draw(st.lists(st.integers(0, 6), min_size=size, max_size=size)))
        graphs.append((start, value, at))
        pairs.append(np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=many, max_size=many)), np.int64))
    (i, j), (of_one, of_other) = pairs, graphs
    found = [graph.between(*of_one, *flags), graph.common(i, j, of_one, of_other, flags[0])]
    expected = [graph._between(*of_one, *flags), graph._common(i, j, of_one, of_other, flags[0])]
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine[0], theirs[0])
        np.testing.assert_array_equal(mine[1], theirs[1])
