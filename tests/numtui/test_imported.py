"""Logs of another tool say on every page what they are, and what their numbers do not show."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import explain
from matchers.logs.parser import read_log
from matchers.rules.file import RuleFile
from numtui.report.model import Report
from numtui.report.options import ReportOptions
from numtui.report.write import write
from numtui.session.session import Session
from numtui.views.run_summary import info
from tests.matchers.logs.imported.samples import STEP, Line, hashes, saved, text

MISSES = "which miss reordering, sign flips and changes that cancel in the sum"


def compared(folder: Path, form: Callable[[Sequence[Line]], str]) -> Comparison:
    paths = [folder / name for name in ("a.log", "b.log")]
    for path in paths:
        path.write_text(form([line for line in STEP if "nan" not in line.arguments]))
    a, b = map(read_log, paths)
    return compare(a, b)


def report(c: Comparison) -> str:
    out = io.StringIO()
    write(Report(c, ReportOptions(names=("a", "b"))), out, "text")
    return out.getvalue()


@pytest.mark.parametrize(
    ("form", "captured"),
    [
        (text, "by torch DebugMode (debug_string), completeness unknown"),
        (saved, "by torch DebugMode (save_logs), completeness unknown"),
        (
            hashes,
            (
                "by torch DebugMode (dump_tensor_hashes), without shapes and dtypes, judged as float32, "
                "completeness unknown"
            ),
        ),
    ],
)
def test_a_report_says_what_was_compared(form: Callable[[Sequence[Line]], str], captured: str, tmp_path: Path) -> None:
    c = compared(tmp_path, form)
    told = report(c)
    assert f"captured: {captured}\n" in told
    assert f"4 operations by L1 norms, {MISSES}." in " ".join(told.split())
    assert "bitwise" not in told


def test_pages_of_the_explorer_say_it_too(tmp_path: Path) -> None:
    c = compared(tmp_path, text)
    session = Session(c, RuleFile.empty(tmp_path / "rules.yaml"))
    page = ["".join(part for part, _ in line) for line in info(session)]
    assert f"   L1 norms are compared, {MISSES}" in page
    assert "   completeness unknown: the format has no end mark" in page
    assert any(MISSES.removeprefix("which ") in line for line in explain(c, 0).notes)
