"""All tensors of a log as columns, from text that may be anything."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from matchers.logs.op_log import NO_DIGEST
from matchers.logs.parser import read_log
from matchers.ops.values import Values, further, results
from tests.builders import Op, write_log

GOOD = json.dumps({"shape": [2, 3], "dtype": "float32", "l1": 6.0, "counts": [6, 1, 0, 0], "digest": "00ff"})


def values_of(folder: Path, *records: dict[str, str]) -> Values:
    """The columns of a log whose records have these fields."""
    ops = [Op(key=f"net/op_{k}_mul", extra=fields) for k, fields in enumerate(records)]
    return further(read_log(write_log(folder / "log", ops, run={})))


def test_outputs_come_before_inputs_in_the_order_of_records(tmp_path: Path) -> None:
    changed = json.dumps([{"input": 3, "l1": 1.0}, {"input": 0, "l1": 2.0, "name": "w"}])
    found = values_of(tmp_path, {"Mutated": changed}, {"Mutated": changed, "Output 2": GOOD, "Output 1": GOOD})
    assert found.maker.tolist() == [0, 0, 1, 1, 1, 1]
    assert found.slot.tolist() == [-1, -4, 1, 2, -1, -4]
    assert found.name == ["w", "input 3", "output 1", "output 2", "w", "input 3"]
    assert [list(found.of(record)) for record in (0, 1, 2)] == [[0, 1], [2, 3, 4, 5], []]


def test_what_a_log_says_of_a_tensor_is_a_row(tmp_path: Path) -> None:
    found = values_of(tmp_path, {"Output 1": GOOD}, {"Output 1": "{}"})
    assert found.digest.tolist() == [255, NO_DIGEST]
    assert found.counts.T.tolist() == [[6, 1, 0, 0], [-1] * 4]
    assert found.present.tolist() == [1, 0]
    assert found.l1[0] == 6.0
    assert np.isnan(found.l1[1])
    assert found.numel[0] == 6


ODD = ("{", "[1", '2]"', "1, 2", "null", "[[[]]]", '{"shape": [1e99], "digest": []}', '[{"input": [0]}]')
HUGE = '[{"input": 1000000000000000000000, "l1": 1.0}]'


@pytest.mark.parametrize("broken", [*ODD, HUGE])
def test_a_broken_text_costs_only_itself(tmp_path: Path, broken: str) -> None:
    found = values_of(tmp_path, {"Output 1": broken}, {"Output 1": GOOD}, {"Mutated": broken}, {"Output 1": "2]"})
    assert found.l1[found.maker == 1].tolist() == [6.0]


def test_of_an_input_that_is_told_twice_the_last_counts(tmp_path: Path) -> None:
    found = values_of(tmp_path, {"Mutated": '[{"input": 0, "l1": 1.0}, {"input": true}, {"input": 0, "l1": 2.0}]'})
    assert found.l1.tolist() == [2.0]


def test_a_log_of_first_outputs_has_no_others(tmp_path: Path) -> None:
    log = read_log(write_log(tmp_path / "log", [Op(key="net/op_0_mul", outputs=[3.0], inputs=[1.0])]))
    assert not len(further(log))
    assert [(one.name, one.l1, one.shape) for one in results(log, 0)] == [("input 0", 3.0, (4, 8))]
