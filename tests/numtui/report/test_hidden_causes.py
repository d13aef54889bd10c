"""Beginnings of causes that no first cause leads to over rows that may differ."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from matchers.logs.columns import Ragged
from numtui.report.hidden_causes import first_apart


@given(st.data())
def test_a_red_row_begins_a_cause_unless_it_is_explained_or_behind_another(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    reads = [data.draw(st.sets(st.integers(0, row - 1)) if row else st.just(set())) for row in range(size)]
    red, open_, known = (data.draw(st.lists(st.booleans(), min_size=size, max_size=size)) for _ in range(3))
    wanted: list[int] = []
    hands_on: set[int] = set()
    for row in range(size):
        behind = open_[row] and not reads[row].isdisjoint(hands_on)
        if red[row] and not known[row] and not behind:
            wanted.append(row)
        if row in wanted or behind:
            hands_on.add(row)
    pairs = [(row, read) for row in range(size) for read in sorted(reads[row])]
    rows, makers = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    flow = Ragged.distinct(rows, makers, size)
    found = first_apart(flow, *(np.array(column) for column in (red, open_, known)))
    assert np.flatnonzero(found).tolist() == wanted
