"""Logs of torch's context parallel attention on a GPU (tests/data): a ring of two ranks, and one process."""

from __future__ import annotations

import numpy as np

from matchers.status import Status
from tests.conftest import DATA
from tests.matchers.runs.layouts.ranks import compared

RUNS = DATA / "context_parallel"
ONE = str(RUNS / "one" / "numerics" / "rank_0_activations.log.gz")


def test_a_ring_of_two_ranks_is_the_attention_of_one() -> None:
    """The ranks end the ring with different operations; what they make for the backward pass of torch is no result."""
    c = compared(ONE, str(RUNS / "two"))
    assert not c.red.any()
    product = c.a.keys.index("blocks.0.attention.out/op_2_mm")
    assert Status(c.status[np.flatnonzero(c.row_a == product)[0]]) == Status.CLOSE, "the terms of both ranks are added"


def test_a_bug_on_one_rank_is_the_cause_and_the_ring_is_none() -> None:
    c = compared(ONE, str(RUNS / "late_rank"))
    causes = [row for row in range(len(c)) if c.cause[row]]
    assert [c.b.keys[int(c.row_b[row])] for row in causes] == ["blocks.1/op_1_mul"]
