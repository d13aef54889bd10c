"""A reassurance is earned: every report says first how much was compared, and what was not fails."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.logs.parser import read_log
from numtui.cli.main import main
from numtui.report.evidence_basis import why_nothing
from numtui.report.gate import fails
from numtui.report.model import Report
from numtui.report.options import FAIL_ON, FORMATS, ReportOptions
from numtui.report.write import write
from tests.builders import log_text, training_step
from tests.captured import Step, write_captured
from tests.matchers.logs.imported.dumps import determinism

_PRINTED = "L1 norm|L2 norm|Min|Max|Mean|Output hash|Digest|Sketch|Counts"


def torchtitan() -> str:
    return log_text(training_step(2))


def ours(folder: Path) -> str:
    rng = np.random.default_rng(3)
    x, steps, made = rng.normal(size=(4, 4)).astype(np.float32), [], ""
    for k in range(20):
        y = (x * np.float32(1.5 + k)).astype(np.float32)
        phase = "forward" if k < 10 else "backward"
        steps.append(Step(key=f"m.{k % 3}/op_{k}_mul", reads=[x], gives=[y], made=[made], fields={"phase": phase}))
        x, made = y, steps[-1].key
    write_captured(folder / "made.log", steps)
    return (folder / "made.log").read_text()


def silent(text: str) -> str:
    return re.sub(rf"^  ({_PRINTED}): .*\n", "", text, flags=re.MULTILINE)


def unknown(text: str) -> str:
    return re.sub(rf"^  ({_PRINTED}|Input hashes|Input digests)(?=: )", r"  New \1", text, flags=re.MULTILINE)


def empty(_text: str) -> str:
    return "Total captured activations: 0\n====\n\n"


def part(text: str, which: slice) -> str:
    """Some of the records of a log, with a header that promises as many."""
    head, *records = re.split(r"(?m)^(?=\[)", text)
    records[-1] = re.sub(r"(?m)^End of capture.*\n", "", records[-1])
    return re.sub(r"(activations: )\d+", rf"\g<1>{len(records[which])}", head) + "".join(records[which])


def first_half(text: str) -> str:
    return part(text, slice(0, text.count("\n[") // 2))


def second_half(text: str) -> str:
    return part(text, slice(text.count("\n[") // 2, None))


def same(text: str) -> str:
    return text


CASES = (
    (silent, silent, "Nothing was compared: neither log has values under a known name."),
    (same, silent, "Nothing was compared: b has no known values."),
    (unknown, same, "Nothing was compared: a has no known values."),
    (unknown, unknown, "Nothing was compared: neither log has values under a known name."),
    (empty, empty, "Nothing was compared: both logs are empty."),
    (same, empty, "Nothing was compared: b is empty."),
    (same, first_half, "Not compared: the second half of a"),
    (second_half, same, "Not compared: the first half of b"),
)
Change = Callable[[str], str]


@pytest.fixture(params=["torchtitan", "ours"])
def text(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return torchtitan() if request.param == "torchtitan" else ours(tmp_path)


def written(folder: Path, *texts: str) -> list[str]:
    paths = [folder / name for name in ("a.log", "b.log")]
    for path, content in zip(paths, texts, strict=True):
        path.write_text(content)
    return list(map(str, paths))


def _compared(paths: list[str]) -> Comparison:
    return compare(read_log(paths[0]), read_log(paths[1]))


def comparison(folder: Path, *texts: str) -> Comparison:
    return _compared(written(folder, *texts))


def test_equal_hashes_of_samples_are_no_agreement(tmp_path: Path) -> None:
    trace = "".join(line for line in determinism("sampled").splitlines(keepends=True) if '"sampled"' in line)
    c = comparison(tmp_path, trace, trace)
    assert why_nothing(c).startswith(
        "the logs have hashes alone, which show that tensors differ, never that they agree"
    )


def formatted(c: Comparison, form: str) -> str:
    out = io.StringIO()
    write(Report(c, ReportOptions()), out, form=form)
    return out.getvalue()


@pytest.mark.parametrize(("a", "b", "said"), CASES)
def test_what_was_not_compared_leads_and_fails(tmp_path: Path, text: str, a: Change, b: Change, said: str) -> None:
    paths = written(tmp_path, a(text), b(text))
    out = tmp_path / "report.json"
    assert main(["diff", *paths, "--rules", os.devnull, "-o", str(out)]) == 1
    report = json.loads(out.read_text())
    assert report["result"].startswith(said)
    assert not report["coverage"]["enough"]
    assert "not-compared" in {failure["condition"] for failure in report["gate"]["failures"]}
    always = main(["diff", *paths, "--rules", os.devnull, "--fail-on", "stale-rule", "-o", str(out)])
    assert always == int(said.startswith("Nothing")), "only a comparison of nothing fails whatever the list says"
    assert fails(_compared(paths)), "the explorer's exit code"


def test_rules_that_ignore_everything_compare_nothing(tmp_path: Path, text: str) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("version: 1\nignore:\n  - match: '*'\n")
    out = tmp_path / "report.json"
    paths = written(tmp_path, text, text)
    assert main(["diff", *paths, "--rules", str(rules), "--fail-on", "diverged", "-o", str(out)]) == 1
    report = json.loads(out.read_text())
    assert report["result"] == "Nothing was compared: rules ignore every operation."
    assert report["coverage"]["a"] == {
        "operations": 0,
        "compared": 0,
        "covered": 0,
        "uncovered": 0,
        "ignored": report["a"]["operations"],
    }


def test_a_log_and_itself_pass(tmp_path: Path, text: str) -> None:
    c = comparison(tmp_path, text, text)
    assert Report(c, ReportOptions()).result.startswith("No divergence: ")
    assert not fails(c)
    assert main(["diff", *written(tmp_path, text, text), "--rules", os.devnull, "--fail-on", ",".join(FAIL_ON)]) == 0


@pytest.mark.parametrize("form", ["text", "markdown", "html", "github", "json"])
def test_every_report_says_how_much_was_compared(tmp_path: Path, form: str) -> None:
    whole, cut = torchtitan(), first_half(torchtitan())
    assert "32 of 32 operations compared." in formatted(comparison(tmp_path, whole, whole), form)
    half = formatted(comparison(tmp_path, whole, cut), form)
    assert "the second half of a (16) has no partner" in half
    assert "No divergence" not in half


def test_coverage_comes_first(tmp_path: Path) -> None:
    c = comparison(tmp_path, torchtitan(), torchtitan())
    for form, word in (("text", "same-print"), ("markdown", "same-print"), ("html", "same printed values")):
        text = formatted(c, form)
        assert text.index("32 of 32 operations compared.") < text.index(word)
    text = formatted(c, "text")
    assert text.index("32 of 32 operations compared.") < text.index("No divergence")


def test_ci_is_told(tmp_path: Path) -> None:
    c = comparison(tmp_path, torchtitan(), first_half(torchtitan()))
    told = "the second half of a (16) has no partner"
    assert f"not-compared: {told}" in formatted(c, "github")
    assert formatted(c, "github").startswith("::error ")
    page = formatted(c, "junit")
    assert re.search(rf'name="not-compared: [^"]*" time="0"><failure message="{re.escape(told)}[";]', page)
    assert "<failure" not in formatted(comparison(tmp_path, torchtitan(), torchtitan()), "junit")


def test_junit_fails_where_nothing_was_compared_even_if_it_is_not_asked_for(tmp_path: Path) -> None:
    c = comparison(tmp_path, silent(torchtitan()), silent(torchtitan()))
    out = io.StringIO()
    write(Report(c, ReportOptions(fail_on=("origin",))), out, form="junit")
    assert "nothing was compared: neither log has values" in out.getvalue()


def test_rows_stay_rows(tmp_path: Path) -> None:
    """Programs that read rows find what they found: a summary is no row."""
    c = comparison(tmp_path, torchtitan(), silent(torchtitan()))
    assert [json.loads(line)["status"] for line in formatted(c, "jsonl").splitlines()] == ["no-values"] * 32
    assert len(formatted(c, "csv").splitlines()) == 33
    assert set(FORMATS) >= {"jsonl", "csv"}


def test_the_reason_goes_to_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = written(tmp_path, torchtitan(), first_half(torchtitan()))
    assert main(["diff", *paths, "--rules", os.devnull, "--format", "jsonl"]) == 1
    assert "fails on not-compared: the second half of a (16) has no partner" in capsys.readouterr().err


def test_known_differences_may_be_what_was_not_compared(tmp_path: Path) -> None:
    paths = written(tmp_path, torchtitan(), part(torchtitan(), slice(0, 26)))
    assert main(["diff", *paths, "--rules", os.devnull]) == 1
    allow = tmp_path / "allow.yaml"
    allow.write_text("version: 1\nallow:\n  - match: '*'\n    why: b has no backward pass\n    status: [only-a]\n")
    assert main(["diff", *paths, "--rules", os.devnull, "--allow", str(allow)]) == 0


def test_rows_within_the_tolerance_of_a_rule_are_said_first(tmp_path: Path) -> None:
    text = torchtitan()
    wrong = re.sub(r"(?m)^(\[output/op_0_mm\]\n(?:  .*\n)*?  Output hash: )(\S+)", _larger, text)
    assert wrong != text
    rules = tmp_path / "rules.yaml"
    rules.write_text("version: 1\ntolerance:\n  - match: output/*\n    rtol: 0.5\n")
    paths, out = written(tmp_path, text, wrong), tmp_path / "report.json"
    assert main(["diff", *paths, "--rules", os.devnull]) == 1
    assert main(["diff", *paths, "--rules", str(rules), "-o", str(out)]) == 0
    result = json.loads(out.read_text())["result"]
    assert result == "1 row is within a tolerance that rules set; 32 operations agree."


def _larger(found: re.Match[str]) -> str:
    return f"{found[1]}{float(found[2]) * 1.1:.6e}"
