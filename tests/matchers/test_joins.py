"""Joins: what C finds is what Python finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers import joins
from matchers.logs.columns import TextTable
from tests.needs import examples

_KEYS = st.lists(st.sampled_from([0, 1, 2, 3, 4, 1 << 63, (1 << 64) - 1]) | st.integers(0, 500), max_size=40)


def test_c_is_at_hand() -> None:
    """Without C, the other tests would compare Python with itself."""
    assert joins._compiled() is not None


@settings(max_examples=examples(200))
@given(_KEYS, _KEYS)
def test_the_first_equal_key_is_found(keys: list[int], among: list[int]) -> None:
    given = np.array(keys, np.uint64), np.array(among, np.uint64)
    expected = [among.index(key) if key in among else -1 for key in keys]
    assert joins.first_equal(*given).tolist() == joins._first_equal(*given).tolist() == expected


@settings(max_examples=examples(200))
@given(st.data())
def test_texts_are_joined_to_lines(data: st.DataObject) -> None:
    rows, columns, expected = data.draw(st.integers(0, 5)), [], [b""] * 5
    for _ in range(data.draw(st.integers(1, 4))):
        texts = data.draw(st.lists(st.sampled_from([b"", b"x", b"\0y", b"long"]), min_size=1, max_size=4))
        numbers = data.draw(st.lists(st.integers(-1, len(texts) - 1), min_size=rows, max_size=rows))
        table = TextTable.of(texts)
        columns.append((table.blob, table.start, np.array(numbers, np.int64)))
        expected = [line + (texts[k] if k >= 0 else b"") for line, k in zip(expected, numbers, strict=False)]
    lines = b"".join(line + b"\n" for line in expected[:rows]).decode()
    assert joins.joined_lines(columns) == joins._joined_lines(columns) == lines
