"""Reports on two runs of many ranks: every form says the same, and nothing of a log comes through."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from dataclasses import replace
from typing import Any

import jsonschema
import junitparser
import pytest

from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.summary import Outcome, RankSummary
from numtui.report.options import CONDITIONS, FORMATS
from numtui.report.runs.csv import COLUMNS
from numtui.report.runs.model import RunsReport
from numtui.report.write import write
from tests.conftest import REPOSITORY
from tests.numtui.report.test_formats import HOSTILE, check_nothing_raw, suites_of
from tests.ranks import ORIGIN, made_runs

SCHEMA = json.loads((REPOSITORY / "docs" / "schema" / "runs.schema.json").read_text(encoding="utf-8"))
RUNS = "runs/base", "runs/new"


def text_of(runs: RunComparison, form: str = "text", **options: Any) -> str:
    out = io.StringIO()
    write(RunsReport(runs, RUNS, **options), out, form)
    return out.getvalue()


def agreeing(ranks: int) -> RunComparison:
    """Two runs that are equal by the footers of their logs."""
    made = made_runs(ranks).summaries
    keep = {"coordinates", "host", "paths", "rank", "rows"}
    return RunComparison(
        ("base", "new"),
        {
            rank: RankSummary(outcome=Outcome.EQUAL, **{name: getattr(summary, name) for name in keep})
            for rank, summary in made.items()
        },
    )


def test_the_text_says_which_ranks_where_it_began_and_what_to_type() -> None:
    text = text_of(made_runs(4))
    assert "4 ranks" in text.splitlines()[0]
    assert f"it began on rank {ORIGIN}" in text
    assert re.search(rf"1\. rank {ORIGIN}", text)
    assert "layers.2.attention/op_0_mul" in text
    assert "model.py:41" in text
    assert "through all_reduce (sum) of ranks 0–3" in text
    assert f"Next: numtui runs/base runs/new --rank {ORIGIN}" in text


def test_one_rank_that_begins_with_other_weights_fails_though_all_agree() -> None:
    runs = agreeing(4)
    differs = (
        "1 of 2 parameters differs before the step: wq.weight, in one element as far as the sketch tells: rounding"
    )
    starts = {rank: (differs if rank == 1 else "", "names") for rank in runs.summaries}
    made = {rank: replace(summary, start=starts[rank]) for rank, summary in runs.summaries.items()}
    odd = RunsReport(replace(runs, summaries=made), RUNS)
    assert odd.result == "1 of 4 ranks begins with other weights or buffers: rank 1"
    assert [(failure.condition, failure.text) for failure in odd.failures] == [("diverged", f"rank 1: {differs}")]
    # stages of a pipeline hold other parameters: one of them proves nothing of another
    stages = {rank: replace(summary, start=(summary.start[0], str(rank))) for rank, summary in made.items()}
    assert not RunsReport(replace(runs, summaries=stages), RUNS).failures


def test_what_is_not_compared_is_said_and_fails() -> None:
    runs = made_runs(64)
    assert runs.summaries[9].outcome == Outcome.ABSENT
    report = RunsReport(runs, RUNS)
    assert "rank 9 not compared" in report.result
    assert [f.text for f in report.failures if f.condition == "incomplete"] == ["rank 9: new has no log of it"]
    assert "rank 9: new has no log of it" in text_of(runs)


def test_equal_ranks_fail_nothing() -> None:
    report = RunsReport(agreeing(64), RUNS, fail_on=tuple(CONDITIONS))
    assert report.result == "No divergence: 64 ranks agree"
    assert not report.failures
    assert "same records by the footers of their logs" in text_of(agreeing(64))


def test_nothing_compared_fails_whatever_is_asked() -> None:
    summaries = {0: RankSummary(rank=0, outcome=Outcome.FAILED, why="no such file")}
    report = RunsReport(RunComparison(("a", "b"), summaries), RUNS, fail_on=("stale-rule",))
    assert [failure.condition for failure in report.failures] == ["not-compared"]


def test_a_rule_is_stale_if_no_rank_uses_it() -> None:
    def failing(ranks: set[int]) -> RunComparison:
        runs = made_runs(4)
        told = (("stale-rule", "rule 1 matches nothing"),)
        read = {rank for rank, summary in runs.summaries.items() if summary.outcome == Outcome.COMPARED}
        assert ranks <= read or ranks == set(range(4))
        found = {r: replace(s, failures=told if r in ranks & read else ()) for r, s in runs.summaries.items()}
        return RunComparison(runs.names, found)

    assert RunsReport(failing(set(range(4))), RUNS, fail_on=("stale-rule",)).failures
    assert not RunsReport(failing({0}), RUNS, fail_on=("stale-rule",)).failures


@pytest.mark.parametrize("ranks", [1, 4, 64])
def test_json_is_what_its_schema_says_and_the_schema_forgets_no_field(ranks: int) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(json.loads(text_of(made_runs(ranks), "json")), SCHEMA)


def test_rows_are_the_ranks() -> None:
    runs = made_runs(64)
    lines = [json.loads(line) for line in text_of(runs, "jsonl").splitlines()]
    rows = list(csv.DictReader(io.StringIO(text_of(runs, "csv"))))
    assert tuple(rows[0]) == COLUMNS
    assert [line["rank"] for line in lines] == [int(row["rank"]) for row in rows] == list(range(64))
    assert [line["red"] for line in lines] == [int(row["red"]) for row in rows]


def test_a_case_per_class() -> None:
    runs = made_runs(64)
    cases = {case.name: case for case in suites_of(text_of(runs, "junit"))["ranks"]}
    assert len(cases) == len(runs.classes)
    failed = [name for name, case in cases.items() if any(isinstance(r, junitparser.Failure) for r in case.result)]
    assert any(name.startswith(("rank 2", "ranks 0")) for name in failed)


def test_an_annotation_at_the_source_line() -> None:
    assert "::error file=model.py,line=41," in text_of(made_runs(4), "github")


@pytest.mark.parametrize("form", FORMATS)
def test_nothing_of_a_log_comes_through_raw(form: str) -> None:
    check_nothing_raw(text_of(hostile(64), form), form, SCHEMA, COLUMNS)


def hostile(ranks: int) -> RunComparison:
    """Runs all of whose texts mean something to a terminal, or to a form."""

    def changed(summary: RankSummary) -> RankSummary:
        fields = ("key", "text", "location", "module", "op", "phase", "status")
        texts: dict[str, Any] = dict.fromkeys(fields, HOSTILE)
        return replace(
            summary,
            causes=tuple(replace(event, **texts) for event in summary.causes),
            cells=tuple(replace(cell, phase=HOSTILE, place=HOSTILE, status=HOSTILE) for cell in summary.cells),
            host=HOSTILE,
            why=summary.why and HOSTILE,
            troubles=(HOSTILE,),
            notes=((HOSTILE, HOSTILE),),
            coordinates={HOSTILE: summary.rank},
            mesh={HOSTILE: ranks},
        )

    made = made_runs(ranks).summaries
    return RunComparison((HOSTILE, HOSTILE), {rank: changed(summary) for rank, summary in made.items()})


def test_the_page_has_a_column_for_each_stretch_its_layer_and_the_meaning_of_signs() -> None:
    page = text_of(made_runs(64), "html")
    table = page.partition('<table class="matrix">')[2].partition("</table>")[0]
    phases, layers, *rows = table.strip().splitlines()
    number = layers.count("<th>") - 1
    assert sum(int(n) for n in re.findall(r'colspan="(\d+)"', phases)) == number
    assert [int(n) for n in re.findall(r"<th>(\d+)</th>", layers)][:3] == [0, 1, 2]
    assert all(row.count("<td") in (1, number) for row in rows)
    assert f'colspan="{number}">– absent: new has no log of it</td>' in table
    assert 'title="forward layers.2: diverged, 5 red" class="red">●</td>' in table
    assert "● began here  ○ began here, within tolerance" in page


def test_the_page_has_the_command_that_writes_that_of_a_rank_in_each_class() -> None:
    made = made_runs(16)
    commands = re.findall(r"<li>(numtui diff [^<]*)</li>", text_of(made, "html"))
    first = [each.ranks[0] for each in made.classes if made.summaries[each.ranks[0]].read]
    told = shlex.join(("numtui", "diff", *RUNS))
    assert commands == [f"{told} --rank {rank} -o rank_{rank}.html" for rank in first]
