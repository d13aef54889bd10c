"""What holds for every comparison, and when two of them are the same."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Any

import numpy as np

from matchers.comparison import Comparison
from matchers.explain.sentences import explain
from matchers.pairing.pairing import Method, Pairing
from matchers.status import RED, Role, Status
from tests.matchers.reasons import check_reasons

__all__ = ["check", "same"]


def check(c: Comparison) -> None:
    """What holds for every comparison."""
    p = c.pairing
    n_a, n_b, rows, pairs = len(c.a), len(c.b), np.arange(len(c)), np.arange(len(p))

    # pairs: the leads are members, no record is in two, and `grouped` says which have more than two members
    np.testing.assert_array_equal(p.of_a[p.lead_a], pairs)
    np.testing.assert_array_equal(p.of_b[p.lead_b], pairs)
    assert len(p.of_a) == n_a
    assert len(p.of_b) == n_b
    size = np.bincount(p.of_a[p.of_a >= 0], minlength=len(p)) + np.bincount(p.of_b[p.of_b >= 0], minlength=len(p))
    np.testing.assert_array_equal(p.grouped, size > 2)
    assert ((p.confidence >= 0) & (p.confidence <= 1)).all()
    assert ((p.runner_up_score >= 0) & (p.runner_up_score <= 1)).all()
    assert ((p.runner_up >= -1) & (p.runner_up < max(n_b, 1))).all()
    assert (p.method != Method.NONE).all()

    # rows: every record is shown once, on the row that `at_a` and `at_b` name
    for records, at, side in ((n_a, c.at_a, 0), (n_b, c.at_b, 1)):
        shown = [(record, row) for row in rows.tolist() for record in c.members(row)[side]]
        assert sorted(shown) == list(enumerate(at.tolist()))
        assert len(at) == records
    for row, lead in ((c.row_a, p.lead_a), (c.row_b, p.lead_b)):
        np.testing.assert_array_equal(row[c.pair >= 0], lead[c.pair[c.pair >= 0]])
    assert sorted(c.pair[c.pair >= 0].tolist()) == pairs.tolist()
    assert ((c.row_a >= 0) | (c.row_b >= 0)).all()
    np.testing.assert_array_equal((c.row_a >= 0) & (c.row_b >= 0), c.pair >= 0)

    # their order: those of a as dispatched; one that only b has right behind what came before it in b
    assert (np.diff(c.row_a[c.row_a >= 0]) > 0).all()
    for row in np.flatnonzero(c.row_a < 0).tolist():
        before = np.flatnonzero(p.of_b[: c.row_b[row]] >= 0)
        anchor = int(c.at_b[before[-1]]) if len(before) else -1
        between = c.row_b[anchor + 1 : row + 1]
        assert (c.row_a[anchor + 1 : row] < 0).all()
        assert (np.diff(between) > 0).all()

    # verdicts
    red = np.isin(c.status, RED)
    np.testing.assert_array_equal(c.red, red)
    np.testing.assert_array_equal(c.role != Role.NONE, red)
    alone = np.isin(c.status, (Status.ONLY_A, Status.ONLY_B))
    unjudged = np.isin(np.arange(len(c)), list(c.stretches))
    assert (red | alone | unjudged | (c.status == Status.IGNORED))[c.cause].all()
    assert not (alone & (c.pair >= 0)).any()
    assert not (red & (c.pair < 0)).any()
    assert red.any() or not c.cause.any()
    # pairs that cross, and members of a group, can explain each other in a circle: see test_origin.py
    if (np.diff(p.lead_b) > 0).all() and not p.grouped.any():
        assert c.cause.any() or not red.any()
    assert np.isnan(c.error[c.pair < 0]).all()
    assert not (c.error < 0).any()
    copies = c.status == Status.RECOMPUTE
    copies[c.pair >= 0] |= p.method[c.pair[c.pair >= 0]] == Method.DATAFLOW
    assert (c.original[~copies] == -1).all()
    assert (c.status != Status.PENDING).all()
    check_reasons(c)
    assert sum(c.counts.values()) == len(c)
    for row in rows.tolist():
        assert explain(c, row).headline


def same(x: Any, y: Any, but: Collection[str] = ()) -> None:
    """Two comparisons (or parts of them) agree in every column, but for those named."""
    for field in fields(x):
        if field.name in but:
            continue
        left, right = getattr(x, field.name), getattr(y, field.name)
        if field.name in ("a", "b"):
            assert left is right
        elif isinstance(left, Pairing):
            same(left, right, but)
        elif isinstance(left, np.ndarray):
            assert left.dtype == right.dtype, field.name
            np.testing.assert_array_equal(left, right, field.name)
        elif field.compare:
            assert left == right, field.name
