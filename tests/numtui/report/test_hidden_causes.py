"""Beginnings of causes that no first cause leads to over rows that may differ."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from matchers.logs.columns import Ragged
from numtui.report.hidden_causes import first_apart


@given(st.data())
def test_only_rows_that_may_differ_hand_a_known_difference_on(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    reads = [data.draw(st.sets(st.integers(0, row - 1)) if row else st.just(set())) for row in range(size)]
    red, open_, known = (data.draw(st.lists(st.booleans(), min_size=size, max_size=size)) for _ in range(3))
    explained: set[int] = {row for row in range(size) if known[row]}
    wanted = []
    for row in range(size):
        if row not in explained and any(read in explained for read in reads[row]):
            explained.add(row)
        if row not in explained and red[row]:
            wanted.append(row)
            explained.add(row)
        elif not open_[row] and not known[row] and row in explained:
            explained.discard(row)  # it has the error, and does not hand it on
            red[row] = False
    pairs = [(row, read) for row in range(size) for read in sorted(reads[row])]
    rows, makers = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    flow = Ragged.distinct(rows, makers, size)
    found = first_apart(flow, *(np.array(column) for column in (red, open_, known)))
    assert np.flatnonzero(found).tolist() == wanted
