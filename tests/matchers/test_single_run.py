"""One log by itself: where NaN and Inf begin, what is large, where dtypes change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchers.logs.parser import read_log
from matchers.rules.model import RuleSet
from matchers.single_run import SingleRun, dtype_changes, explain_single, explained, single_run
from matchers.status import Role, Status
from tests.builders import Op, op, training_step, write_log

INF, NAN = "inf", "nan"


def run_of(folder: Path, ops: list[Op], **options: Any) -> SingleRun:
    return single_run(read_log(str(write_log(folder / "a.log", ops, **options))))


def broken(key: str, *, value: str, inputs: tuple[float | str, ...], producers: tuple[str, ...] = ()) -> Op:
    return op(key, inputs=inputs, producers=producers, outputs=[value], max=value, l2=value, mean=value)


def test_a_run_without_nan_has_nothing_red(tmp_path: Path) -> None:
    c = run_of(tmp_path, training_step())
    assert len(c) == len(c.a)
    assert c.single
    assert not c.red.any()
    assert not c.cause.any()
    assert c.comparability.sentence == ""
    assert c.consequences.causes == ()
    assert c.with_rules(RuleSet()) is c
    assert explained(c, 0).headline.startswith("finite, up to ")


def test_an_operation_without_extremes_is_not_one_without_statistics(tmp_path: Path) -> None:
    only_l1 = op("add/op_0_add", 2.0)
    only_l1.min = only_l1.max = None
    c = run_of(tmp_path, [only_l1])
    assert explained(c, 0).headline == "no minimum or maximum logged"
    none = op("add/op_0_add")
    none.outputs, none.min, none.max, none.mean, none.l2 = [], None, None, None, None
    assert explained(run_of(tmp_path, [none]), 0).headline == "no statistics logged"


def test_inf_is_traced_to_what_made_it_and_nan_to_what_made_it_of_inf(tmp_path: Path) -> None:
    c = run_of(
        tmp_path,
        [
            op("scores/op_0_mul", 5.0),
            broken("softmax/op_0_exp", value=INF, inputs=(15.0,), producers=("scores/op_0_mul",)),
            broken("softmax/op_1_sum", value=INF, inputs=(INF,), producers=("softmax/op_0_exp",)),
            broken(
                "softmax/op_2_div", value=NAN, inputs=(INF, INF), producers=("softmax/op_0_exp", "softmax/op_1_sum")
            ),
            broken("out/op_0_mm", value=NAN, inputs=(NAN, 3.0), producers=("softmax/op_2_div", "")),
            op("loss/op_0_ones", 1.0),
        ],
    )
    assert np.flatnonzero(c.red).tolist() == [1, 2, 3, 4]
    assert np.flatnonzero(c.cause).tolist() == [1, 3]
    assert c.role.tolist() == [Role.NONE, Role.ORIGIN, Role.RECEIVER, Role.ORIGIN, Role.RECEIVER, Role.NONE]
    assert explain_single(c, 1).headline == "FIRST CAUSE: the output has Inf; all inputs are finite"
    assert explain_single(c, 3).headline == "TURNS Inf INTO NaN: the output has NaN; an input holds Inf, none NaN"
    assert explain_single(c, 4).headline == "NaN; input 0 from softmax/op_2_div is already non-finite"
    first = c.consequences.causes[0]
    assert (first.rows, first.red) == ((1,), 4)


def test_what_came_in_from_outside_made_nothing(tmp_path: Path) -> None:
    c = run_of(tmp_path, [broken("embed/op_0_add", value=NAN, inputs=(NAN,))])
    assert c.red.all()
    assert not c.cause.any()
    assert explain_single(c, 0).headline == "NaN; an input is already non-finite"


def test_counts_tell_how_many(tmp_path: Path) -> None:
    made = op("w/op_0_mm", inputs=(1.0,), extra={"Counts": "numel=4096 nan=3 inf=1 zero=0"})
    c = run_of(tmp_path, [made], run={"seed": 1}, footer=True)

    assert "3 NaN and 1 Inf of 4,096 numbers" in explain_single(c, 0).headline
    made.extra = {"Counts": "numel=1 nan=1 inf=0 zero=0"}
    c = run_of(tmp_path, [made], run={"seed": 1}, footer=True)
    assert "the output has NaN;" in explain_single(c, 0).headline


def test_the_largest_values_and_what_is_near_to_overflow(tmp_path: Path) -> None:
    c = run_of(
        tmp_path,
        [op("w/op_0_mm", 40_000.0, dtype="float16"), op("w/op_1_mm", 2.0), Op(key="w/op_2_x", min=None, max=None)],
    )
    assert c.error[:2].tolist() == [40_000.0, 2.0]
    assert np.isnan(c.error[2])
    assert "61% of the float16 maximum (65,504)" in explain_single(c, 0).notes[0]
    assert explain_single(c, 1).notes == ()


def test_dtype_boundaries(tmp_path: Path) -> None:
    c = run_of(
        tmp_path,
        [
            op("w/op_0_mm", 3.0),
            op("w/op_1_to", 4.0, dtype="bfloat16", inputs=(9.0,), producers=("w/op_0_mm",)),
            op("w/op_2_mm", 5.0, dtype="bfloat16", inputs=(12.0,), producers=("w/op_1_to",)),
            op("w/op_3_argmax", 6.0, dtype="int64", inputs=(15.0,), producers=("w/op_2_mm",)),
        ],
    )
    assert c.flow is not None
    assert np.flatnonzero(dtype_changes(c.a, c.flow.a)).tolist() == [1]
    assert explain_single(c, 1).notes == ("dtype boundary: input 0 is float32, the output bfloat16",)


def test_an_empty_log_is_a_run_of_nothing(tmp_path: Path) -> None:
    c = run_of(tmp_path, [])
    assert len(c) == 0
    assert c.consequences.causes == ()


@given(st.lists(st.sampled_from([1.0, INF, NAN]), min_size=1, max_size=8), st.data())
def test_a_first_cause_reads_nothing_that_is_as_bad(
    tmp_path_factory: pytest.TempPathFactory, values: list[float | str], data: st.DataObject
) -> None:
    ops, made = list[Op](), list[tuple[str, float | str]]()
    for i, value in enumerate(values):
        source = data.draw(st.sampled_from([None, *made])) if made else None
        key = f"w/op_{i}_mm"
        read, by = ((source[1],), (source[0],)) if source is not None else ((2.5,), ("",))
        whole = op(key, inputs=read, producers=by)
        ops.append(broken(key, value=value, inputs=read, producers=by) if isinstance(value, str) else whole)
        made.append((key, value))
    c = run_of(tmp_path_factory.mktemp("run"), ops)
    for row, (operation, value) in enumerate(zip(ops, values, strict=True)):
        given_in = operation.inputs[0]
        assert bool(c.red[row]) == (value != 1.0)
        fresh = value != 1.0 and given_in not in (INF, NAN)
        assert bool(c.cause[row]) == (fresh or (value == NAN and given_in == INF))
        assert (c.status[row] == Status.NAN) == (value != 1.0)
