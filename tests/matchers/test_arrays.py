"""Orders and numbers of integers: as numpy's, for any keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from matchers.arrays import numbered, numbered_together, stable_order

_WORD = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3) | st.integers(2**16 - 2, 2**16 + 2)
_SIGNED = st.lists(_WORD)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32])
@given(keys=st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 3)))
def test_it_is_the_order_of_a_stable_sort(dtype: type, keys: list[int]) -> None:
    of: NDArray[Any] = np.array(keys, dtype)
    assert stable_order(of).tolist() == np.argsort(of, kind="stable").tolist()


@given(keys=_SIGNED)
def test_negative_keys_come_first(keys: list[int]) -> None:
    of = np.array(keys, np.int64)
    assert stable_order(of).tolist() == np.argsort(of, kind="stable").tolist()


def test_hashes_of_64_bits() -> None:
    keys = np.array([2**64 - 1, 0, 2**63, 2**64 - 1, 0], np.uint64)
    assert stable_order(keys).tolist() == [1, 4, 2, 0, 3]


@given(codes=_SIGNED | st.lists(st.integers(-5, 5)))
def test_codes_are_numbered_in_ascending_order(codes: list[int]) -> None:
    number, many = numbered(np.array(codes, np.int64))
    distinct = sorted(set(codes))
    assert (number.tolist(), many) == ([distinct.index(code) for code in codes], len(distinct))


@given(rows=st.lists(st.tuples(st.integers(-3, 3), _WORD, st.integers(0, 2))))
def test_rows_are_numbered_in_ascending_order(rows: list[tuple[int, int, int]]) -> None:
    number = numbered_together(*np.array(rows, np.int64).reshape(-1, 3).T)
    distinct = sorted(set(rows))
    assert number.tolist() == [distinct.index(row) for row in rows]
