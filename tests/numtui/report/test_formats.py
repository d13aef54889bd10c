"""The formats that programs read: each is accepted by a reader that is not ours, and says what the comparison says."""

from __future__ import annotations

import csv
import functools
import io
import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import junitparser
import numpy as np
import pytest

from matchers.comparison import Comparison, compare, noise_floor
from matchers.logs.op_log import Phase
from matchers.logs.parser import read_log
from matchers.pairing.pairing import Method
from matchers.rules.model import SECTIONS
from matchers.status import Role, Status
from matchers.verdict.expectation import Expect, Expectation
from numtui.cli.parser import parse
from numtui.report.csv import COLUMNS
from numtui.report.model import Report
from numtui.report.options import CONDITIONS, FORMATS, ReportOptions, format_of
from numtui.report.write import write
from tests.builders import Op, op, training_step, write_log
from tests.conftest import REPOSITORY
from tests.hostile import RAW_CONTROL
from tests.matchers.ops.test_training_scalars import clipping, step_of

DATA = REPOSITORY / "tests" / "data"
SCHEMA = json.loads((REPOSITORY / "docs" / "schema" / "report.schema.json").read_text(encoding="utf-8"))

HOSTILE = "=1+1,\"'#|`*[x](http://y)@you\\ ]]></failure><script>&%0A::error::\x1b[31m\u202e\u00e9"
"""A module name that means something to a spreadsheet, to CSV, Markdown, GitHub, XML, HTML or a terminal."""


@functools.cache
def real(a: str = "bug_base", b: str = "bug_neg_attn_l2") -> Comparison:
    return compare(read_log(DATA / f"{a}.log.gz"), read_log(DATA / f"{b}.log.gz"))


def with_wrong(ops: list[Op], at: int) -> list[Op]:
    return [*ops[:at], replace(ops[at], outputs=[1e3], l2=1e3), *ops[at + 1 :]]


@pytest.fixture
def hostile(tmp_path: Path) -> Comparison:
    """A red row, and rows of one side only, of a module with a hostile name and a hostile place."""
    ops = [replace(o, key=f"{HOSTILE}.{o.key}", location=f"{HOSTILE}.py:7") for o in training_step()]
    a = write_log(tmp_path / "a.log", ops)
    b = write_log(tmp_path / "b.log", [*with_wrong(ops, 2), replace(ops[0], key=f"{HOSTILE}/op_9_neg")])
    c = compare(read_log(a), read_log(b))
    assert c.red.any()
    assert c.counts[Status.ONLY_B]
    return c


def text_of(c: Comparison, form: str, **options: Any) -> str:
    out = io.StringIO()
    write(Report(c, ReportOptions(**{"names": ("base", "other")} | options)), out, form)
    return out.getvalue()


def pair_of_steps(tmp_path: Path) -> Comparison:
    """A step with a loss and a gradient norm, and one whose loss is NaN."""
    a, b = step_of(3.3202), step_of(math.nan)
    b[1].mean, b[1].extra = None, {"Counts": "numel=1 nan=1 inf=0 zero=0"}
    one, other = (
        read_log(write_log(tmp_path / f"{name}.log", [*ops, *clipping(norm)], run={"phases": 7}, exact=True))
        for name, ops, norm in (("a", a, 1.82), ("b", b, 1.95))
    )
    return compare(one, other)


# All of them


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_comparison_gives_the_same_bytes(form: str) -> None:
    """Nothing of the clock, of the machine, or of what was asked for before."""
    again = compare(read_log(DATA / "bug_base.log.gz"), read_log(DATA / "bug_neg_attn_l2.log.gz"))
    assert text_of(real(), form) == text_of(again, form)


@pytest.mark.parametrize("form", FORMATS)
def test_nothing_of_a_log_comes_through_raw(form: str, hostile: Comparison) -> None:
    text = text_of(hostile, form)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


@pytest.mark.parametrize("form", FORMATS)
def test_empty_logs_make_a_report(form: str, tmp_path: Path) -> None:
    log = read_log(write_log(tmp_path / "a.log", []))
    text_of(compare(log, log), form)


def test_the_end_of_a_name_tells_the_format() -> None:
    assert [format_of(f"x/r.{end}") for end in ("txt", "jsonl", "json", "csv", "md", "XML", "html", "log")] == [
        "text", "jsonl", "json", "csv", "markdown", "junit", "html", None,
    ]  # fmt: skip


def test_what_is_expected_is_said() -> None:
    """Who reads "nothing is red" has to know what was called red."""
    noise = noise_floor(real().a, real().b, real().a)
    c = compare(real().a, real().b, expectation=Expectation(Expect.REDUCTION_ORDER, rtol=1e-3, noise=noise))
    for form in ("text", "json", "markdown", "html"):
        assert f"--expect reduction-order --rtol 0.001 --noise {noise.path}" in text_of(c, form)
        assert "--expect" not in text_of(real(), form).partition("<script")[0]


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_the_loss_and_the_gradient_norm_of_both_runs_stand_in_reports(form: str, tmp_path: Path) -> None:
    c = pair_of_steps(tmp_path)
    assert "loss 3.3202 | NaN, gradient norm 1.8200 | 1.9500" in text_of(c, form).replace("\\|", "|")
    assert "gradient norm" not in text_of(real(), form)


def test_json_tells_the_loss_and_the_gradient_norm_of_each_run(tmp_path: Path) -> None:
    report = json.loads(text_of(pair_of_steps(tmp_path), "json"))
    jsonschema.validate(report, SCHEMA)
    assert (report["a"]["losses"], report["a"]["gradient_norm"]) == ([3.3202], 1.82)
    assert (report["b"]["losses"], report["b"]["gradient_norm"]) == (["nan"], 1.95)


# JSON


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("pair", [("bug_base", "bug_neg_attn_l2"), ("ac_none", "ac_full"), ("fsdp2", "fsdp2_traced")])
def test_json_is_what_its_schema_says(pair: tuple[str, str]) -> None:
    c = real(*pair)
    report = json.loads(text_of(c, "json", rules_path="r.yaml"))
    jsonschema.validate(report, SCHEMA)
    assert len(report["rows"]) == len(c)
    assert (
        report["red"]
        == int(c.red.sum())
        == sum(row["status"] in ("diverged", "shape", "nan") for row in report["rows"])
    )
    assert report["first_causes"] == len(report["causes"]) == sum(row["origin"] for row in report["rows"])


def test_the_schema_forgets_no_field() -> None:
    """What is written is described; so a new field comes with a line in the schema."""
    report = json.loads(text_of(real(), "json"))
    assert set(report) == set(SCHEMA["properties"])
    for name, value in (("log", report["a"]), ("row", report["rows"][0])):
        assert set(value) == set(SCHEMA["$defs"][name]["properties"]), name
    told = set(SCHEMA["$defs"]["told_row"]["properties"])
    assert set(report["causes"][0]) == told | set(SCHEMA["$defs"]["cause"]["properties"])


def test_the_schema_knows_every_word() -> None:
    words = SCHEMA["$defs"]
    assert set(words["status"]["enum"]) == {s.label for s in Status if s is not Status.PENDING}
    assert set(words["role"]["enum"]) == {None, *(r.label for r in Role if r)}
    assert words["phase"]["enum"] == [p.label for p in Phase]
    assert words["method"]["enum"] == [m.label for m in Method if m]
    assert words["condition"]["enum"] == list(CONDITIONS)
    rule = SCHEMA["properties"]["rules"]["properties"]["used"]["items"]["properties"]
    assert set(rule["section"]["enum"]) == {kind.section for kind in SECTIONS}


def test_json_of_a_hostile_log(hostile: Comparison) -> None:
    report = json.loads(text_of(hostile, "json"))
    jsonschema.validate(report, SCHEMA)
    assert HOSTILE.replace("\x1b", "\x1b") in report["rows"][0]["a_key"]


# CSV


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), strict=True))


def test_csv_says_what_json_lines_say() -> None:
    c = real()
    lines = [json.loads(line) for line in text_of(c, "jsonl").splitlines()]
    rows = rows_of(text_of(c, "csv"))
    assert len(rows) == len(lines)
    for row, line in zip(rows, lines, strict=True):
        assert row["a_key"] == (line["a_key"] or "")
        assert row["status"] == line["status"]
        assert row["role"] == (line["role"] or "")
        assert row["method"] == (line["method"] or "")
        assert row["phase"] == line["phase"]
        assert row["location"] == (line["location"] or "")
        assert row["first_cause"] == str(int(line["origin"]))
        assert int(row["a"]) == (-1 if line["a"] is None else line["a"])
        if line["error"] is not None:
            assert float(row["error"]) == pytest.approx(line["error"], rel=1e-5)


def test_groups_stand_in_one_field() -> None:
    rows = rows_of(text_of(real("fsdp2", "fsdp2_traced"), "csv"))
    assert any(" + " in row["b_key"] for row in rows)


@pytest.mark.parametrize("which", ["real", "hostile"])
def test_numpy_reads_csv(which: str, hostile: Comparison, tmp_path: Path) -> None:
    """Both of its readers, the one that knows no quotes among them, without being told of any."""
    c = real() if which == "real" else hostile
    path = tmp_path / "report.csv"
    path.write_text(text_of(c, "csv"), encoding="ascii")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="ascii")
        errors = np.loadtxt(path, delimiter=",", skiprows=1, usecols=COLUMNS.index("error"))
    assert table.dtype.names == COLUMNS
    np.testing.assert_allclose(table["error"], c.error, rtol=1e-5)
    np.testing.assert_allclose(errors, c.error, rtol=1e-5)
    np.testing.assert_array_equal(table["row"], np.arange(len(c)))
    assert table["status"].tolist() == [Status(s).label for s in c.status]


def test_no_name_is_a_formula(hostile: Comparison) -> None:
    text = text_of(hostile, "csv")
    assert '"' not in text
    for row in rows_of(text):
        for name in ("a_key", "b_key", "location"):
            assert not row[name].startswith(("=", "+", "-", "@", "\t", "\r", "'"))
    assert rows_of(text)[0]["a_key"].startswith("\\x3d1+1\\x2c\\x22'\\x23|`")


# JUnit


def suites_of(text: str) -> dict[str, list[Any]]:
    xml = junitparser.JUnitXml.fromstring(text.encode())
    assert xml.tests == sum(suite.tests for suite in xml)
    for suite in xml:
        assert suite.tests == len(list(suite))
        assert suite.failures == sum(
            bool(case.result) and isinstance(case.result[0], junitparser.Failure) for case in suite
        )
    return {suite.name: list(suite) for suite in xml}


def failed(cases: list[Any]) -> list[str]:
    return [case.name for case in cases if case.result and isinstance(case.result[0], junitparser.Failure)]


def test_junit_names_the_planted_module_first() -> None:
    suites = suites_of(text_of(real(), "junit"))
    assert list(suites) == ["gate", "first causes", "forward", "backward"]
    assert failed(suites["gate"]) == ["diverged: a row is red"]
    assert failed(suites["first causes"]) == ["layers.2.attention.inner_attention/op_1_neg (only in b)"]
    assert "layers.1" not in failed(suites["forward"])
    assert "layers.2.attention.inner_attention" in failed(suites["forward"])


def test_junit_has_a_case_for_all_rows_of_one_source_line(tmp_path: Path) -> None:
    """A mistake in a loop over micro-batches is one failure."""
    right, wrong = (
        [op(f"m/op_{k}_mm", times * (1.0 + k), inputs=[7.0 + k], producers=[""]) for k in range(3)] for times in (1, 2)
    )
    paths = [write_log(tmp_path / f"{side}.log", ops) for side, ops in (("a", right), ("b", wrong))]
    c = compare(read_log(paths[0]), read_log(paths[1]))
    assert c.cause.sum() == 3
    (case,) = suites_of(text_of(c, "junit"))["first causes"]
    assert case.name == "m/op_0_mm and 2 more rows at the same place"
    assert case.result[0].text.count("m/op_") == 3


def test_junit_of_equal_runs_passes() -> None:
    suites = suites_of(text_of(real("ac_none", "ac_none"), "junit"))
    assert not any(failed(cases) for cases in suites.values())
    assert "first causes" not in suites


def test_junit_fails_on_what_is_asked_for() -> None:
    suites = suites_of(text_of(real(), "junit", fail_on=("unmatched", "incomplete")))
    assert failed(suites["gate"]) == ["unmatched: an operation is unpaired"]
    assert failed(suites["forward"]) == ["layers.2.attention.inner_attention"]


def test_junit_of_a_hostile_log(hostile: Comparison) -> None:
    suites = suites_of(text_of(hostile, "junit", fail_on=("diverged", "unmatched")))
    assert any("]]></failure><script>" in name for name in failed(suites["forward"]))


def test_junit_stays_small(tmp_path: Path) -> None:
    """A case per module, and a few rows for each, however many operations a module has."""
    ops = [replace(o, key=f"m/op_{i}_mm", phase="forward") for i, o in enumerate(training_step(20))]
    a, b = (write_log(tmp_path / f"{n}.log", ops) for n in "ab")
    c = compare(read_log(a), read_log(b))
    n = len(c)
    c = replace(c, verdict=np.full(n, Status.DIVERGED, np.int8), role=np.full(n, Role.RECEIVER, np.int8))
    suites = suites_of(text_of(c, "junit"))
    assert [len(cases) for name, cases in suites.items() if name != "gate"] == [1]
    assert "… and 297 more" in suites["forward"][0].result[0].text


# Markdown


def test_what_cannot_be_compared_is_said_before_any_row(tmp_path: Path) -> None:
    a = read_log(write_log(tmp_path / "a.log", training_step()))
    b = read_log(write_log(tmp_path / "b.log", []))
    heading, _, warning, *_ = text_of(compare(a, b), "markdown").splitlines()
    assert heading.startswith("## ")
    assert warning == "**Not comparable: b has no operations.**"
    page = text_of(compare(a, b), "html")
    assert page.index("Not comparable: b has no operations.") < page.index("<table ")


def test_markdown_is_a_bug_report() -> None:
    text = text_of(real(), "markdown")
    assert text.startswith("## 339 of 410 rows are red, 1 first cause\n")
    assert "1. `layers.2.attention.inner_attention/op_1_neg` (only in b)" in text
    assert (
        "| 49 | `layers.2.attention.wo/op_0_mm` | diverged | consequence | ≥2.3e-01 | 2e6 | `common/attention.py:945` |"
        in text
    )
    assert "… and 289 more" in text
    assert len(text) < 65_536, "what GitHub takes for an issue"


def outside_code(text: str) -> str:
    """Markdown without its code spans, which nothing in them can leave."""
    return re.sub(r"(?<![\\`])(`+)(?!`).*?(?<!`)\1(?!`)", "", text)


def check_nothing_raw(text: str, form: str, schema: Mapping[str, Any], columns: Sequence[str]) -> None:
    """A report on a run, whose tables in Markdown have three columns, keeps its form whatever a log says."""
    assert RAW_CONTROL.search(text) is None
    if form == "json":
        jsonschema.validate(json.loads(text), schema)
    elif form == "csv":
        assert {len(line.split(",")) for line in text.splitlines()} == {len(columns)}
    elif form == "github":
        assert all(re.match(r"::(error|warning) (\w+=[^:,]*,?)+::", line) for line in text.splitlines())
    elif form == "markdown":
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("|")} == {4}
        assert "<script" not in outside_code(text)
        assert "@you" not in outside_code(text)
    elif form == "html":
        assert "<script" not in text


def test_markdown_of_a_hostile_log(hostile: Comparison) -> None:
    """Every table keeps its columns; no mark-up, no link and no mention comes from a log."""
    text = text_of(hostile, "markdown", names=(HOSTILE, "b"))
    rest = outside_code(text)
    assert "<script" not in rest
    assert "@you" not in rest
    assert not re.search(r"(?<!\\)(?:\\\\)*\]\(", rest), "a link"
    assert "://y" not in rest
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("|")]
    assert set(widths) == {6, 4, 8}


def test_rules_are_named_with_what_they_matched(tmp_path: Path) -> None:
    from matchers.rules.file import parse_rules

    rules = parse_rules("version: 1\nignore:\n  - op: neg\n    why: known\n  - op: no_such\n", "r.yaml")
    text = text_of(real().with_rules(rules), "markdown", rules_path="r.yaml")
    assert "### Rules in force from `r.yaml`, and what they matched" in text
    assert "- ignore: `{op: neg, why: known}`: " in text
    assert "matches nothing" in text


# GitHub


def test_github_marks_the_first_cause_in_its_file() -> None:
    assert text_of(real(), "github") == (
        "::error title=numtui%3A base <-> other::diverged: 339 rows are red\n"
        "::error file=scripts/bugs.py,line=28,title=layers.2.attention.inner_attention/op_1_neg (only in b)::"
        "layers.2.attention.inner_attention/op_1_neg (only in b): "
        "FIRST CAUSE: only b has this operation; its consumers diverge\n"
    )


def test_github_is_told_when_all_is_well() -> None:
    assert text_of(real("ac_none", "ac_none"), "github").startswith(
        "::notice title=numtui%3A base <-> other::405 of 408 operations compared; 3 have no values. No divergence: 405"
    )


def test_no_name_is_a_command_of_a_workflow(hostile: Comparison) -> None:
    for line in text_of(hostile, "github", names=(HOSTILE, "b")).splitlines():
        found = re.fullmatch(r"::(error|notice|warning) ([^:]*)::(.*)", line)
        assert found, line
        assert len(re.findall(r"[=,]", re.sub(r"(title|file)=[^,]*", "", found[2]))) <= 3
        assert "%0A" not in found[3]


# The next commands


def test_the_next_commands_are_understood() -> None:
    """For the logs of each kind of outcome; without logs that can be read again there are none."""
    paths = ("a b.log", "c.log")
    for pair in (("bug_base", "bug_neg_attn_l2"), ("ac_none", "ac_full"), ("order_f32_a", "order_f32_b")):
        c = real(*pair)
        found = json.loads(text_of(c, "json", paths=paths, rules_found="mine.yaml"))["next"]
        assert found[0]["command"] == ["numtui", "diff", *paths, "-r", "mine.yaml"]
        for step in found:
            assert callable(parse(step["command"][1:]).run)
            assert len(step["why"].split()) <= 15
        assert any("--format" in step["command"] or "-o" in step["command"] for step in found) == bool(c.red.any())
        assert json.loads(text_of(c, "json"))["next"] == []
