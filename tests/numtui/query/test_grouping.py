"""Rows in groups: the fast code against a slow one, and words that list what a group says it has."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from matchers.status import Status
from numtui.query.grouping import By, grouped
from numtui.query.query import parse_query
from numtui.views.panels import group_entries
from tests.numtui.fakes import comparison_of

KEYS = ["layers.0.wq/op_0_mm", "layers.1.wq/op_0_mm", "layers.1/op_0_add", "/op_0_mul", "out put/op_1_mm"]


@given(st.lists(st.tuples(st.sampled_from(list(Status)), st.sampled_from(KEYS)), min_size=1, max_size=30), st.data())
def test_groups_agree_with_the_slow_ones(rows: list[tuple[Status, str]], data: st.DataObject) -> None:
    n = len(rows)
    errors = data.draw(st.lists(st.sampled_from([math.nan, 0.0, 1e-5, 2.0, math.inf]), min_size=n, max_size=n))
    passing = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    c = comparison_of([status for status, _ in rows], errors=errors, keys=[key for _, key in rows])
    expected: dict[str, list[int]] = {}
    for row in np.flatnonzero(passing).tolist():
        expected.setdefault(rows[row][1].rpartition("/")[0], []).append(row)
    found = {group.name: group for group in grouped(c, passing, By.MODULE)}
    assert set(found) == set(expected)
    for name, members in expected.items():
        group = found[name]
        assert group.rows == len(members)
        assert group.red == sum(bool(c.red[row]) for row in members)
        size = {row: -1.0 if math.isnan(errors[row]) else errors[row] for row in members}
        assert group.worst == max(members, key=lambda row: (c.red[row], size[row], -row))


def test_a_group_lists_its_rows() -> None:
    c = comparison_of([Status.DIVERGED, Status.EQUAL, Status.CLOSE, Status.EQUAL, Status.ONLY_B], keys=KEYS)
    everything = np.ones(5, bool)
    for by in By:
        for group in grouped(c, everything, by):
            if group.query:
                assert np.count_nonzero(parse_query(group.query).mask(c)) == group.rows, group
    over = grouped(c, everything, By.LAYERS)[0]
    assert (over.name, over.rows, over.red, over.worst) == ("layers.#.wq", 2, 1, 0)
    assert next(group.name for group in grouped(c, everything, By.OP)) == "mm"
    assert [group.name for group in grouped(c, everything, By.LINE)] == ["model.py:1"]


def test_more_groups_than_anybody_reads_are_counted() -> None:
    c = comparison_of([Status.DIVERGED] * 305, keys=[f"m{i}/op_0_mm" for i in range(305)])
    entries = group_entries(grouped(c, np.ones(305, bool), By.MODULE), 80, single=False)
    assert len(entries) == 301
    assert "5 groups with less in them" in entries[-1].lines[0][0][0]
