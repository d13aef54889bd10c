"""Reports on a run that was checked against itself: every form says the same, and nothing of a log comes through."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from typing import Any

import jsonschema
import junitparser
import pytest

from matchers.runs.finding import Check, CheckedRun, Finding, Made, Place, Unmade
from numtui.report.check.csv import COLUMNS
from numtui.report.check.model import CheckReport
from numtui.report.options import CONDITIONS_OF_RUN, FORMATS
from numtui.report.write import write
from tests.checked import checked_run, place, run_of
from tests.conftest import REPOSITORY
from tests.hostile import NASTY
from tests.numtui.report.test_formats import HOSTILE, check_nothing_raw, failed, suites_of

SCHEMA = json.loads((REPOSITORY / "docs" / "schema" / "check.schema.json").read_text(encoding="utf-8"))

NOTHING = CheckedRun(run_of(ranks=1), (), (), (Unmade(Check.REPLICAS, "one rank holds no replicas"),))
AGREES = checked_run(findings=())


def text_of(checked: CheckedRun, form: str = "text", **options: Any) -> str:
    out = io.StringIO()
    write(CheckReport(checked, **options), out, form)
    return out.getvalue()


def object_of(checked: CheckedRun, **options: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(text_of(checked, "json", **options))
    return told


# Text


def test_the_text_says_where_how_much_and_what_to_type() -> None:
    assert text_of(checked_run(run_of(ranks=3, cut={1: "killed by signal 9"}))) == (
        "run_x: 3 of 4 ranks, step 2, mesh dp 2 × tp 2: 2 findings; rank 1 left no whole log\n"
        "\n"
        "1. 2 parameters differ before the step on rank 2\n"
        "   layers.0.attention.wq.weight, layers.0.attention.wk.weight\n"
        "   rank 2 of ranks 0, 2 · dp, relative error 0.0012\n"
        "   run_x/numerics/rank_2_activations.log:80   model.py:45\n"
        "   they were loaded, not computed\n"
        "\n"
        "2. NaN made of finite values\n"
        "   layers.0.feed_forward.w1/op_0_mm\n"
        "   rank 1\n"
        "   run_x/numerics/rank_1_activations.log:128\n"
        "\n"
        "Checked\n"
        f"  held       same-collectives: {Check.SAME_COLLECTIVES.holds} (120 collectives)\n"
        f"  1 finding  replicas: {Check.REPLICAS.holds} (44\n"
        "             parameters, 1,200 buffers)\n"
        f"  1 finding  finite: {Check.FINITE.holds} (96 operations)\n"
        "\n"
        "Not checked\n"
        "  rank 3 has no log\n"
        "  the log of rank 1 is not whole: killed by signal 9\n"
        "  recompute: no operation is recomputed\n"
        "  nothing to check: data, same-program, collectives-compute, replicated-stays, trained, "
        "odd-one-out, flight-recorder\n"
        "\n"
        "Notes\n"
        "  head.weight gets no gradient\n"
        "\n"
        "Next: numtui run_x/numerics/rank_2_activations.log run_x/numerics/rank_0_activations.log\n"
        "  (opens finding 1 in the explorer)\n"
        "Next: numtui run_x/numerics/rank_1_activations.log\n"
        "  (opens finding 2 in the explorer)\n"
    )


def test_a_run_without_findings_and_one_of_which_nothing_is_known() -> None:
    assert text_of(AGREES).startswith("run_x: 4 ranks, step 2, mesh dp 2 × tp 2: no finding\n\nChecked\n  held  same")
    assert text_of(NOTHING).startswith(
        "run_x: 1 of 4 ranks, step 2, mesh dp 2 × tp 2: Nothing was checked\n\nNot checked"
    )
    bare = replace(NOTHING, run=run_of(ranks=1, step=None, world_size=None, mesh=None, coordinates=None, missing=()))
    assert text_of(bare).startswith("run_x: 1 rank: Nothing was checked\n")


def test_many_findings_are_cut_and_counted() -> None:
    (finding, _) = checked_run().findings
    text = text_of(checked_run(findings=(replace(finding, more=tuple("abcdef")),) * 30))
    assert "\n10. " in text
    assert "\n11. " not in text
    assert "\n... and 20 more\n" in text
    assert "layers.0.attention.wq.weight, a, b and 4 more\n" in text
    assert text.count("\nNext: ") == 1, "one command for all findings in the same two logs"
    assert "(opens findings 1–30 in the explorer)" in text


def test_a_finding_without_place_or_size_is_told_all_the_same() -> None:
    (finding, _) = checked_run().findings
    for size, told in ((math.nan, "· dp\n"), (math.inf, "· dp, relative error inf\n")):
        checked = checked_run(findings=(replace(finding, places=(), size=size, ranks=(0, 2)),))
        assert f"   ranks 0, 2 {told}" in text_of(checked)
        assert object_of(checked)["findings"][0]["size"] is None
        assert "Next" not in text_of(checked)
        for form in FORMATS:
            assert text_of(checked, form)


# The conditions


@pytest.mark.parametrize(
    ("checked", "fail_on", "holding"),
    [
        (checked_run(), ("finding", "not-checked"), ["finding"]),
        (checked_run(), ("not-checked",), []),
        (AGREES, ("finding", "not-checked"), []),
        (AGREES, ("incomplete",), ["incomplete"]),
        (replace(AGREES, unmade=()), ("incomplete",), []),
        (replace(AGREES, unmade=(), run=run_of(ranks=2)), ("incomplete",), ["incomplete"]),
        (replace(AGREES, unmade=(), run=run_of(cut={1: "cut off"})), ("incomplete",), ["incomplete"]),
        (NOTHING, ("finding", "not-checked"), ["not-checked"]),
    ],
)
def test_conditions_hold_for_what_they_name(checked: CheckedRun, fail_on: tuple[str, ...], holding: list[str]) -> None:
    gate = object_of(checked, fail_on=fail_on)["gate"]
    assert gate["fail_on"] == list(fail_on)
    assert [failure["condition"] for failure in gate["failures"]] == holding
    assert failed(suites_of(text_of(checked, "junit", fail_on=fail_on))["gate"]) == [
        f"{name}: {CONDITIONS_OF_RUN[name]}" for name in holding
    ]
    assert text_of(checked, "github", fail_on=fail_on).startswith("::error " if holding else "::notice ")


# JSON and JSON Lines


def test_json_is_what_its_schema_says_and_the_schema_forgets_no_field() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for checked in (checked_run(run_of(ranks=3, cut={1: "killed"})), AGREES, NOTHING):
        report = object_of(checked)
        jsonschema.validate(report, SCHEMA)
        assert set(report) == set(SCHEMA["properties"])
        parts = {
            "run": [report["run"]],
            "finding": report["findings"],
            "check": report["checks"],
            "next": report["next"],
        }
        parts["place"] = [found for finding in report["findings"] for found in finding["places"]]
        for name, found in parts.items():
            assert all(set(each) == set(SCHEMA["$defs"][name]["properties"]) for each in found), name
    words = SCHEMA["$defs"]
    assert words["kind"]["enum"] == [check.label for check in Check]
    assert words["condition"]["enum"] == list(CONDITIONS_OF_RUN)


def test_json_lines_are_the_findings_of_json() -> None:
    lines = [json.loads(line) for line in text_of(checked_run(), "jsonl").splitlines()]
    report = object_of(checked_run())
    assert lines == report["findings"]
    assert [line["check"] for line in lines] == ["replicas", "finite"]
    assert [each["verdict"] for each in report["checks"]].count("finding") == 2
    assert report["next"][0]["command"] == ["numtui", lines[0]["places"][0]["log"], lines[0]["places"][1]["log"]]


# The other forms


def test_csv_says_what_json_lines_say() -> None:
    rows = list(csv.DictReader(io.StringIO(text_of(checked_run(), "csv")), strict=True))
    lines = [json.loads(line) for line in text_of(checked_run(), "jsonl").splitlines()]
    for number, (row, line) in enumerate(zip(rows, lines, strict=True), 1):
        assert tuple(row) == COLUMNS
        assert (row["finding"], row["check"], row["subject"]) == (str(number), line["check"], line["subject"])
        assert row["ranks"].split() == [str(rank) for rank in line["ranks"]]
        first, *others = line["places"]
        assert (row["log"], row["line"], row["key"]) == (first["log"], str(first["line"]), first["key"])
        assert row["other_line"] == (str(others[0]["line"]) if others else "-1")


def test_junit_has_a_case_for_each_check() -> None:
    cases = suites_of(text_of(checked_run(), "junit"))["checks"]
    assert len(cases) == len(Check)
    assert [name.partition(":")[0] for name in failed(cases)] == ["replicas", "finite"]
    skipped = {case.name.partition(":")[0]: case.result[0].message for case in cases if case.result}
    assert skipped["recompute"] == "no operation is recomputed"
    assert skipped["data"] == "nothing to check"
    assert "rank_0_activations.log:80" in next(case for case in cases if "replicas" in case.name).result[0].text
    without = suites_of(text_of(checked_run(), "junit", fail_on=("incomplete",)))["checks"]
    assert not failed(without)
    assert all(isinstance(each, junitparser.Skipped) for case in without for each in case.result)


def test_github_marks_the_source_line() -> None:
    lines = text_of(checked_run(), "github").splitlines()
    assert lines[0] == "::error title=numtui check%3A run_x::finding: 2 findings"
    assert lines[1].startswith(
        "::error file=model.py,line=45,title=layers.0.attention.wq.weight%2C layers.0.attention.wk"
    )
    assert lines[2].startswith("::error title=layers.0.feed_forward.w1/op_0_mm::NaN made of finite values, rank 1")
    assert lines[3] == "::warning title=numtui check%3A run_x%3A not checked::recompute: no operation is recomputed"
    assert (
        text_of(checked_run(), "github", fail_on=("incomplete",)).splitlines()[1].startswith("::warning file=model.py")
    )


def test_the_page_runs_nothing_and_loads_nothing() -> None:
    page = text_of(checked_run(), "html")
    assert "default-src 'none'; style-src 'sha256-" in page
    assert "<script" not in page
    assert "layers.0.attention.wq.weight" in page.partition("<body>")[2]


# Hostile logs


def hostile(nasty: str) -> CheckedRun:
    """Every text of a checked run with something in it that means something to a reader."""
    finding = Finding(
        check=Check.DATA,
        text=nasty,
        subject=nasty,
        more=(nasty,) * 5,
        ranks=(1,),
        group=(0, 1),
        dimension=nasty,
        places=(Place(1, 0, nasty, 1, f"{nasty}.py:7"), Place(0, 0, nasty, 1, nasty)),
        notes=(nasty,) * 3,
    )
    return CheckedRun(
        run_of(nasty, name=nasty, mesh={nasty: 2}, coordinates={0: {nasty: 1}}, missing=(2, 3), cut={1: nasty}),
        (finding, replace(finding, places=(place(9),))),
        (Made(Check.DATA, 1, nasty),),
        (Unmade(Check.FINITE, nasty),),
        (nasty,),
    )


TEXTS = {
    "mark-up": HOSTILE,
    "commands": "::error file=x,line=1::y\n::error::z",
    "huge": "x" * 1_000_000,
    **{name: raw.decode("utf-8", "surrogateescape") for name, raw in NASTY.items()},
}


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_of_a_log_comes_through_raw(name: str) -> None:
    checked = hostile(TEXTS[name])
    texts = {form: text_of(checked, form, fail_on=tuple(CONDITIONS_OF_RUN)) for form in FORMATS}
    for form, text in texts.items():
        check_nothing_raw(text, form, SCHEMA, COLUMNS)
        assert name != "huge" or form in ("json", "jsonl", "csv") or len(text) < 60_000, form
    assert len([json.loads(line) for line in texts["jsonl"].splitlines()]) == 2
    assert len(suites_of(texts["junit"])["checks"]) == len(Check)
