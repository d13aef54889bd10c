"""Recompute mismatches in reports and exit codes, of one log and of two."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from matchers.comparison import Comparison, compare
from numtui.cli.main import main
from numtui.report.gate import failing_rows
from numtui.report.model import Report
from numtui.report.options import ReportOptions
from numtui.report.write import write
from tests.captured import write_captured
from tests.matchers.ops import test_recomputation as made


def text_of(c: Comparison, form: str) -> str:
    out = io.StringIO()
    write(Report(c, ReportOptions(fail_on=("recompute-mismatch",))), out, form=form)
    return out.getvalue()


@pytest.fixture
def mismatching() -> Comparison:
    again = [made.layer(k, again=True, count=made.COUNT + made.HITS) for k in (1, 0)]
    return compare(made.run(), made.run(*again))


@pytest.fixture
def faithful() -> Comparison:
    return compare(made.run(), made.run(made.faithful(1), made.faithful(0)))


REASON = "layers.1.count was written to in the forward pass and again in the copy"


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_the_section(form: str, mismatching: Comparison, faithful: Comparison) -> None:
    told = " ".join(text_of(mismatching, form).split())
    assert "Recompute mismatches" in told
    assert REASON in told
    assert "layers.1/op_13_add_" in told
    assert "Recompute mismatches" not in text_of(faithful, form)


def test_json(mismatching: Comparison, faithful: Comparison) -> None:
    told = json.loads(text_of(mismatching, "json"))["recompute_mismatches"]
    assert [(m["side"], m["key"], m["original"], m["red"]) for m in told] == [
        ("b", "layers.1/op_13_add_", "layers.1/op_3_add_", True),
        ("b", "layers.0/op_13_add_", "layers.0/op_3_add_", True),
    ]
    assert json.loads(text_of(faithful, "json"))["recompute_mismatches"] == []


def test_the_gate(mismatching: Comparison, faithful: Comparison) -> None:
    report = Report(mismatching, ReportOptions(fail_on=("recompute-mismatch",)))
    assert [f.text for f in report.failures] == ["2 recomputed copies differ from their originals"]
    assert failing_rows(mismatching, ("recompute-mismatch",), report.allowed).sum() == 2
    assert not Report(faithful, ReportOptions(fail_on=("recompute-mismatch",))).failures


def test_both_runs_alike_fail_all_the_same() -> None:
    log = made.run(*(made.layer(k, again=True, count=made.COUNT + made.HITS) for k in (1, 0)))
    c = compare(log, log)
    assert not Report(c, ReportOptions(fail_on=("diverged",))).failures
    assert Report(c, ReportOptions(fail_on=("recompute-mismatch",))).failures
    told = text_of(c, "text")
    assert told.count("in both runs alike") == 1


class TestOneLog:
    @staticmethod
    def path(folder: Path, *, again: bool) -> str:
        copies = made.layer(0, again=True, count=made.COUNT + made.HITS) if again else made.faithful(0)
        path = folder / f"{again}.log"
        write_captured(path, [*made.layer(0), *copies, made.backward(0)])
        return str(path)

    @pytest.mark.parametrize("options", [[], ["--fail-on", "recompute-mismatch"]])
    def test_the_exit_code(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
        assert main(["diff", self.path(tmp_path, again=True), *options]) == 1
        assert "Recompute mismatches" in capsys.readouterr().out
        assert main(["diff", self.path(tmp_path, again=False), *options]) == 0
        assert "Recompute mismatches" not in capsys.readouterr().out

    def test_a_condition_that_does_not_hold(self, tmp_path: Path) -> None:
        assert main(["diff", self.path(tmp_path, again=True), "--fail-on", "incomplete"]) == 0

    @pytest.mark.parametrize("options", [["--fail-on", "unmatched"], ["--format", "json"], ["--rtol", "1"]])
    def test_what_is_about_two_logs(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
    ) -> None:
        assert main(["diff", self.path(tmp_path, again=True), *options]) == 2
        assert "only" in capsys.readouterr().err
