"""Logs of our own capture in the reports and on the screen's pages."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.logs.parser import read_log
from matchers.rules.file import RuleFile
from numtui.report.jsonl import write_jsonl
from numtui.report.model import Report
from numtui.report.options import ReportOptions
from numtui.report.write import write
from numtui.session.session import Session
from numtui.views.run_summary import info
from tests.captured import Step, write_captured
from tests.matchers.test_captured import AFTER, WEIGHTS, X, Y, mm, optimizer

NEAR = Y * np.float32(1 + 2e-6)


def compared(folder: Path, a: Sequence[Step], b: Sequence[Step], **run_of_b: object) -> Comparison:
    write_captured(folder / "a.log", a)
    write_captured(folder / "b.log", b, **run_of_b)
    return compare(read_log(folder / "a.log"), read_log(folder / "b.log"))


def report(c: Comparison) -> str:
    out = io.StringIO()
    write(Report(c, ReportOptions(names=("a", "b"))), out, "text")
    return out.getvalue()


def test_an_estimate_is_no_bound(tmp_path: Path) -> None:
    text = report(compared(tmp_path, [mm(Y)], [mm(-Y)]))
    assert "diverged, error ~2" in text or "diverged, error ~1" in text
    assert "error >=" not in text


def test_the_report_lists_where_differences_begin_within_the_tolerance(tmp_path: Path) -> None:
    reader = Step(key="m/op_1_mul", reads=[Y], gives=[Y * 2], made=["layers.0.wq/op_0_mm"])
    other = Step(key="m/op_1_mul", reads=[NEAR], gives=[NEAR * 2], made=["layers.0.wq/op_0_mm"])
    text = report(compared(tmp_path, [mm(Y), reader], [mm(NEAR), other]))
    assert "No divergence" in text
    assert "Differences within tolerance begin in 1 row with bitwise equal inputs" in text
    assert text.index("Differences within tolerance begin") < text.rindex("  layers.0.wq/op_0_mm\n")
    assert "m/op_1_mul" not in text


def test_a_step_that_died_is_said_to_have_died(tmp_path: Path) -> None:
    c = compared(tmp_path, [mm(Y)], [mm(Y)], incomplete="RuntimeError: out of memory")
    assert c.b.complete is False
    assert "the log is cut off, operations at its end are missing: RuntimeError: out of memory" in report(c)
    assert "b is cut off after 1 operation (RuntimeError: out of memory)" in c.comparability.sentence
    session = Session(c, RuleFile.empty(tmp_path / "rules.yaml"))
    page = "\n".join("".join(text for text, _ in line) for line in info(session))
    assert "cut off: the capture did not finish: RuntimeError: out of memory" in page


@pytest.mark.parametrize("factor", [1.0, 1 - 1e-4])
def test_one_line_of_json_names_the_parameter(tmp_path: Path, factor: float) -> None:
    after = [*AFTER[:2], AFTER[2] * np.float32(factor), AFTER[3]]
    out = io.StringIO()
    write_jsonl(compared(tmp_path, [optimizer(WEIGHTS, AFTER)], [optimizer(WEIGHTS, after)]), out)
    (row,) = map(json.loads, out.getvalue().splitlines())
    assert row["inputs_equal"] is True
    assert row["error_is_bound"] is False
    assert row["differs_in"] == (None if factor == 1.0 else "layers.2.weight")
    assert row["status"] == ("equal" if factor == 1.0 else "diverged")
    assert row["error"] == (0.0 if factor == 1.0 else pytest.approx(1e-4, rel=0.5))


def test_a_log_without_its_captures_footer_is_cut_off(tmp_path: Path) -> None:
    write_captured(tmp_path / "a.log", [mm(Y), mm(X)])
    text = (tmp_path / "a.log").read_text()
    (tmp_path / "a.log").write_text(text[: text.index("End of capture")])
    assert read_log(tmp_path / "a.log").complete is False
