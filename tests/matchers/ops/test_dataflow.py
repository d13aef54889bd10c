"""The record that made what an operation reads, where the log does not name it."""

from __future__ import annotations

import numpy as np
import pytest

from matchers.ops.dataflow import sources
from tests.captured import Step, captured_log


@pytest.mark.parametrize(("op", "made"), [("embedding", -1), ("mul", 0)])
def test_positions_are_no_result_that_rounds_though_their_norms_are_equal(op: str, made: int) -> None:
    """A sum of messages and the indices of edges, 12 each."""
    total, indices = np.array([7.5, 4.5], np.float32), np.array([5, 4, 3])
    table = np.arange(12.0, dtype=np.float32).reshape(6, 2) - 5
    log = captured_log(
        [
            Step(key="a/op_0_index_add", gives=[total]),
            Step(key=f"a/op_1_{op}", gives=[table[indices]], reads=[table, indices]),
        ]
    )
    assert sources(log)[1].tolist() == [-1, made]
