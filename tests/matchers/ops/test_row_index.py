"""Indices of rows name what numpy's own indexing takes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchers.ops.row_index import normal_index, picked

PARTS = st.sampled_from(["0", "1", "3", ":", "1:", ":2", "2:4"])


@given(st.lists(st.tuples(PARTS, st.integers(1, 5)), min_size=1, max_size=3))
def test_an_index_picks_what_numpy_does(given_parts: list[tuple[str, int]]) -> None:
    index, of = ", ".join(part for part, _ in given_parts), tuple(size for _, size in given_parts)
    rows = picked(normal_index(f"[{index}]"), of)
    try:
        taken = np.arange(math.prod(of)).reshape(of)[eval(f"np.s_[{index}]")]
    except IndexError:
        assert rows is None
        return
    inside = all(int(part.partition(":")[2] or 0) <= size for part, size in given_parts)
    if rows is None:
        assert not taken.size or not inside
    else:
        assert rows.tolist() == taken.ravel().tolist()


def test_an_index_of_other_dimensions_picks_none() -> None:
    assert picked("0", (2, 3)) is None


@pytest.mark.parametrize("text", ["", "x", "0,,1", "-1", "0:4:2", "1" * 10])
def test_what_is_no_index(text: str) -> None:
    with pytest.raises(ValueError, match="must be an index of rows"):
        normal_index(text)
