"""Joins: what C finds is what Python finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers import joins
from tests.needs import examples

_KEYS = st.lists(st.sampled_from([0, 1, 2, 3, 4, 1 << 63, (1 << 64) - 1]) | st.integers(0, 500), max_size=40)


def test_c_is_at_hand() -> None:
    """Where this test runs; else the others would compare Python with itself."""
    assert joins._compiled() is not None


@settings(max_examples=examples(200))
@given(_KEYS, _KEYS)
def test_the_first_equal_key_is_found(keys: list[int], among: list[int]) -> None:
    given = np.array(keys, np.uint64), np.array(among, np.uint64)
    expected = [among.index(key) if key in among else -1 for key in keys]
    assert joins.first_equal(*given).tolist() == joins._first_equal(*given).tolist() == expected
