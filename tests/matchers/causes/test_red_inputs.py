"""Inputs of red rows: of many at once the same is found as of each."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.arrays import marked, marked_at
from matchers.causes.red_inputs import fed_pairs, inputs_of_pairs
from matchers.comparison import compare
from tests.matchers.drifted_logs import pairs_of_logs
from tests.needs import examples


@settings(max_examples=examples(50))
@given(st.data())
def test_fed_pairs_read_another_value_that_was_handed_on(data: st.DataObject) -> None:
    c = compare(*data.draw(pairs_of_logs()))
    rows = np.flatnonzero(c.red & (c.pair >= 0))
    if not len(rows):
        return
    assert c.flow is not None
    flags = st.lists(st.booleans(), min_size=len(c), max_size=len(c))
    handed = [np.array(data.draw(flags), bool) for _ in "ab"]
    reads = inputs_of_pairs(c, c.flow.a, c.flow.b, rows, int(rows[0]))
    another = (marked_at(handed[0], reads.a) | marked_at(handed[1], reads.b)) & ~reads.equal
    found = fed_pairs(c, c.flow.a, c.flow.b, rows, *handed)
    assert not (found & ~marked(reads.row[another], len(c))[rows]).any()
    # inputs that both runs have tell all that they tell
    both = another & (reads.a >= 0) & (reads.b >= 0)
    assert not (marked(reads.row[both], len(c))[rows] & ~found & ~c.pairing.assembled[c.pair[rows]]).any()
