"""The stable order: as numpy's, for any keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from matchers.arrays import stable_order


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32])
@given(keys=st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 3)))
def test_it_is_the_order_of_a_stable_sort(dtype: type, keys: list[int]) -> None:
    of: NDArray[Any] = np.array(keys, dtype)
    assert stable_order(of).tolist() == np.argsort(of, kind="stable").tolist()


def test_hashes_of_64_bits() -> None:
    keys = np.array([2**64 - 1, 0, 2**63, 2**64 - 1, 0], np.uint64)
    assert stable_order(keys).tolist() == [1, 4, 2, 0, 3]
