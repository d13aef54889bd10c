"""What is made of a log's columns and kept with the log."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from matchers.arrays import Bool
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog, once_per_log
from tests.matchers.rule_logs import log_of


def test_an_array_is_made_once_per_log_and_cannot_be_written_to() -> None:
    made = []

    @once_per_log
    def first(log: OpLog) -> Bool:
        made.append(log)
        return np.arange(len(log)) == 0

    log = log_of(["m/op_0_mm", "m/op_1_add"])
    found = first(log)
    assert found.tolist() == [True, False]
    assert first(log) is found
    with pytest.raises(ValueError, match="read-only"):
        found[0] = False
    # other columns, other arrays
    assert first(replace(log, path="other.log")) is not found
    assert len(made) == 2


def test_the_rows_of_lists_are_found_once_for_all_lists_of_these_lengths() -> None:
    lists = Ragged(np.array([0, 2, 2, 3]), np.array([5, 6, 7]))
    others = lists.with_values(np.array([1, 2, 3]))
    assert lists.row.tolist() == [0, 0, 2]
    assert others.row is lists.row
    assert others[0].tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        lists.row[0] = 1
