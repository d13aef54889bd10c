"""The verdict in one line, at any width."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from matchers.comparison import Comparison, compare
from matchers.logs.parser import read_log
from matchers.single_run import single_run
from numtui.report.model import Report
from numtui.report.options import ReportOptions
from numtui.text.lines import line_width
from numtui.views.banner import banner
from tests.builders import Op, training_step, write_log
from tests.numtui.query.test_flow import diverging

CAUSE = "layers.1.attention.wk/op_0_mm"


def compared(folder: Path, ops_a: list[Op], ops_b: list[Op]) -> Comparison:
    a, b = (read_log(write_log(folder / f"{s}.log", ops)) for s, ops in (("a", ops_a), ("b", ops_b)))
    return compare(a, b)


def told(c: Comparison, width: int) -> str:
    return "".join(text for text, _ in banner(c, width)).rstrip()


def test_it_says_how_much_is_red_where_it_begins_and_why(tmp_path: Path) -> None:
    c = compared(tmp_path, *diverging(CAUSE))
    row = c.cause.tolist().index(True) + 1
    whole = told(c, 200)
    assert whole.startswith(f" red: {c.red.sum()} of {len(c)} · begins at row {row}, {CAUSE}, the output differs by ")
    assert " · model/wk.py:" in whole
    assert told(c, 80).endswith(" · wk.py:14"), "the file's name outlasts its folder and the reason"
    assert f"row {row}, layers.1…wk/op_0_mm" in told(c, 50)


def test_rows_of_one_line_of_the_program_are_one_cause_as_in_reports(tmp_path: Path) -> None:
    a = training_step()
    for one in a:
        one.inputs, one.producers = [1.0], [""]
    b = [replace(one, outputs=[2e3], l2=2e3) if one.key.endswith("wk/op_0_mm") else one for one in a]
    c = compared(tmp_path, a, b)
    assert c.cause.sum() == 2
    assert " · begins at row " in told(c, 200)
    assert Report(c, ReportOptions(names=("a", "b"))).cause_count == 1


@pytest.mark.parametrize("width", [20, 59, 80, 120, 200])
def test_it_is_one_line(tmp_path: Path, width: int) -> None:
    assert line_width(banner(compared(tmp_path, *diverging(CAUSE)), width)) <= width


def test_it_says_nothing_where_nothing_is_red(tmp_path: Path) -> None:
    assert banner(compared(tmp_path, training_step(), training_step()), 120) == []


def test_of_one_run_it_says_where_nan_or_inf_begins(tmp_path: Path) -> None:
    ops = training_step()
    ops[7].outputs = ["inf"]
    c = single_run(read_log(write_log(tmp_path / "a.log", ops)))
    assert told(c, 200).startswith(f" NaN or Inf: 1 of {len(ops)} · begins at row 8, {ops[7].key}, the output has Inf")


def test_a_part_that_was_not_compared_is_no_agreement(tmp_path: Path) -> None:
    ops = training_step()
    c = compared(tmp_path, ops, ops[: len(ops) // 2])
    rest = len(ops) - len(ops) // 2
    assert told(c, 200).startswith(
        f" no red row, {rest} not compared (exit 1), chiefly the second half of a ({rest}) · I, "
    )
    assert told(c, 59).startswith(f" no red row, {rest} not compared (exit 1) · I")


def test_a_log_beside_itself_is_named_so(tmp_path: Path) -> None:
    log = read_log(write_log(tmp_path / "a.log", training_step()))
    assert told(compare(log, log), 80) == " a and b are the same file"
