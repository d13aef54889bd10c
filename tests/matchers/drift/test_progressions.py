"""Runs of pairs whose numbers go on in equal steps."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from matchers.drift.progressions import progressions

NUMBERS = st.lists(st.tuples(*(st.integers(0, 9) for _ in range(3))), max_size=40)


@given(NUMBERS)
def test_each_pair_is_in_one_progression_at_most_and_all_steps_are_equal(rows: list[tuple[int, int, int]]) -> None:
    numbers = np.array(rows, np.int64).reshape(len(rows), 3)
    found = progressions(numbers, 2)
    seen = [row for progression in found for row in progression.rows.tolist()]
    assert len(seen) == len(set(seen))
    for progression in found:
        assert len(progression.rows) >= 3
        assert tuple(numbers[progression.rows[0]]) == progression.start
        assert (np.diff(numbers[progression.rows], axis=0) == progression.step).all()
        assert any(progression.step[:2]), "what all of a have in common tells none of them apart"


def test_two_progressions_that_are_woven_into_each_other() -> None:
    numbers = np.array([[2, 5], [3, 5], [6, 4], [7, 4], [10, 3], [11, 3]])
    found = progressions(numbers, 1)
    assert [progression.rows.tolist() for progression in found] == [[0, 2, 4], [1, 3, 5]]
    assert {progression.step for progression in found} == {(4, -1)}


def test_numbers_without_a_pattern_and_numbers_that_come_twice_have_none() -> None:
    squares = np.array([[k * k, k] for k in range(30)])
    assert progressions(squares, 1) == []
    assert progressions(np.array([[1, 1], [1, 2], [2, 2], [3, 3], [4, 4]]), 1) == []


def test_a_few_equal_steps_among_many_are_an_accident() -> None:
    numbers = np.array([[k, (k * k * 7) % 101] for k in range(60)] + [[100, 0], [101, 1], [102, 2]])
    assert progressions(numbers, 1) == []
