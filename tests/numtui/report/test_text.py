"""The text report says what a colleague needs, and what makes it less certain."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.drift import name_families, realign
from matchers.drift.suggest import suggest
from matchers.explain.sentences import explain
from matchers.logs.parser import read_log
from matchers.rules.file import parse_rules
from matchers.status import Role, Status
from numtui.report.model import Report
from numtui.report.options import ReportOptions
from numtui.report.suggestions import write_suggestions
from numtui.report.write import write
from tests.builders import Op, op, training_step, write_log


def compared(tmp_path: Path, ops_a: list[Op], ops_b: list[Op], rules: str = "version: 1\n") -> Comparison:
    a, b = write_log(tmp_path / "a.log", ops_a), write_log(tmp_path / "b.log", ops_b)
    return compare(read_log(a), read_log(b), parse_rules(rules, "rules.yaml"))


def text_of(c: Comparison, *, color: bool = False, **options: Any) -> str:
    out = io.StringIO()
    write(Report(c, ReportOptions(names=("eager", "traced"), **options)), out, "text", color=color)
    return out.getvalue()


def with_wrong(ops: list[Op], at: int) -> list[Op]:
    """The same step with another result of one operation."""
    return [*ops[:at], replace(ops[at], outputs=[1e3], l2=1e3), *ops[at + 1 :]]


def test_two_equal_runs_fit_on_a_few_lines(tmp_path: Path) -> None:
    text = text_of(compared(tmp_path, training_step(), training_step()))
    assert text == (
        "numtui: eager <-> traced\n"
        f"  a  eager          32 operations  {tmp_path / 'a.log'}\n"
        f"  b  traced         32 operations  {tmp_path / 'b.log'}\n"
        "\n"
        "32 of 32 operations compared.\n"
        "No divergence: 32 operations agree.\n"
        "         32  same-print  same printed values\n"
        "\n"
        "Compared\n"
        "  32 operations by printed norms, which miss reordering, sign flips (L1, L2) and changes below 5e-7.\n"
        "\n"
        "Not captured\n"
        "  both:   detach, t\n"
    )


def test_a_single_red_row_is_named_where_another_operation_is_its_cause(tmp_path: Path) -> None:
    x = op("m/op_0_mul", 3.0, inputs=[5.0], producers=[""])
    wrong = op("m/op_1_neg", 77.0, inputs=x.outputs, producers=[x.key])
    right, other = (
        op("m/op_2_add", value, inputs=maker.outputs, producers=[maker.key])
        for value, maker in ((4.0, x), (40.0, wrong))
    )
    c = compared(tmp_path, [x, right], [x, wrong, other])
    text = text_of(c)
    assert "1. m/op_1_neg (only in b)" in text
    assert "explains the one red row, m/op_2_add" in text


def test_the_first_cause_is_named_with_its_place_and_a_sentence(tmp_path: Path) -> None:
    c = compared(tmp_path, training_step(), with_wrong(training_step(), 2))
    (row,) = np.flatnonzero(c.cause)
    text = " ".join(text_of(c).split())
    assert "1 of 32 rows is red, 1 first cause" in text
    assert "1. layers.0.attention.wq/op_0_mm diverged, error >=" in text
    assert "forward, [16, 8], float32, model/wq.py:14 (a line 27, b line 27)" in text
    assert explain(c, int(row)).headline in text


def test_many_causes_are_counted(tmp_path: Path) -> None:
    c = compared(tmp_path, training_step(), training_step())
    n = len(c)
    all_red = replace(
        c,
        verdict=np.full(n, Status.DIVERGED, np.int8),
        role=np.full(n, Role.ORIGIN, np.int8),
        cause=np.ones(n, bool),
        error=np.full(n, 0.1),
    )
    text = text_of(all_red)
    places = len({c.a.location[i] for i in range(n)})
    assert f"32 of 32 rows are red, {places} first causes" in text
    assert f"  ... and {places - 5} more" in text
    assert len(text.splitlines()) < 50
    assert "\nRed rows\n" in text_of(replace(all_red, cause=np.zeros(n, bool)))


def test_a_cause_of_one_side_only_is_marked(tmp_path: Path) -> None:
    c = compared(tmp_path, training_step(), [*training_step(), op("extra/op_0_neg")])
    assert c.counts[Status.ONLY_B] == 1
    only = c.status == Status.ONLY_B
    text = text_of(replace(c, cause=only))
    assert "1. extra/op_0_neg (only in b)" in text
    assert "forward" in text


def test_doubtful_pairs_are_mentioned(tmp_path: Path) -> None:
    c = compared(tmp_path, training_step(), training_step())
    p = c.pairing
    confidence = p.confidence.copy()
    confidence[[3, 5]] = 0.4, 0.2
    runner_up, score = p.runner_up.copy(), p.runner_up_score.copy()
    runner_up[5], score[5] = 7, 0.19
    text = text_of(replace(c, pairing=replace(p, confidence=confidence, runner_up=runner_up, runner_up_score=score)))
    assert "Uncertain pairs: 2 of 32 have a confidence below 0.5" in text
    key = c.a.keys[int(p.lead_a[5])]
    assert f"least certain: {key} <-> {c.b.keys[int(p.lead_b[5])]} (" in text
    assert f"runner-up:     {c.b.keys[7]} (0.19)" in text


def test_what_the_captures_left_out_is_told_apart(tmp_path: Path) -> None:
    a = write_log(tmp_path / "a.log", training_step(), excluded=["view", "t", "_to_copy"])
    b = write_log(tmp_path / "b.log", training_step(), excluded=["view", "clone"])
    text = text_of(compare(read_log(a), read_log(b)))
    assert "  both:   view\n  only a: t, _to_copy\n  only b: clone\n" in text


def test_trouble_with_a_log_is_told_with_its_line(tmp_path: Path) -> None:
    broken = [replace(o, l2="what \x1b[31m") for o in training_step()]
    write_log(tmp_path / "a.log", broken, declared=99)
    b = write_log(tmp_path / "b.log", training_step())
    a = read_log(tmp_path / "a.log")
    text = text_of(compare(a, read_log(b)))
    assert "Trouble with the logs" in text
    assert "the log is cut off, 32 of 99 operations are present" in text
    for problem in a.problems[:3]:
        assert f"{tmp_path / 'a.log'}:{problem.line}: " in text
    assert f"{a.problem_count} unreadable spots in all" in text
    assert "\x1b" not in text


def test_a_log_that_was_cut_off_is_told(tmp_path: Path) -> None:
    c = compared(tmp_path, training_step(), training_step())
    cut = replace(c, a=replace(c.a, complete=False))
    assert "the log is cut off, the end of its last record is missing" in text_of(cut)
    unknown = replace(c.a, header=replace(c.a.header, declared=None), complete=False)
    assert "the log is cut off, operations at its end are missing" in text_of(replace(c, a=unknown))
    declared = replace(c.a, header=replace(c.a.header, declared=2), complete=None)
    assert "the header declares 2 operations, the log has 32" in text_of(replace(c, a=declared))


def test_rules_that_do_nothing_and_rules_that_are_broken_are_told(tmp_path: Path) -> None:
    rules = "version: 1\nignore:\n  - op: mm\n  - op: no_such_op\n  - opp: typo\n  - {op: add, enabled: false}\n"
    c = compared(tmp_path, training_step(), training_step(), rules)
    text = text_of(c, rules_path="rules.yaml")
    assert "Rules: 2 rules from rules.yaml, 1 unused, 1 broken" in text
    assert "  rules.yaml:5:" in text
    assert "rules.yaml:4" in text
    assert "Rules" not in text_of(compared(tmp_path, training_step(), training_step()), rules_path="rules.yaml")


def test_rules_that_are_not_needed_are_told_after_those_that_are_wrong(tmp_path: Path) -> None:
    keys = [record.key for record in training_step()[:4]]
    rules = "pairs:\n" + "".join(f"  - {{a: {key}, b: {key}}}\n" for key in keys) + "ignore:\n  - op: no_such_op\n"
    told = text_of(compared(tmp_path, training_step(), training_step(), rules), rules_path="rules.yaml").splitlines()
    at = told.index("Rules: 5 rules from rules.yaml, 1 unused, 4 not needed here")
    assert [line[: len("  rules.yaml:6")] for line in told[at + 1 : at + 4]] == [f"  rules.yaml:{n}" for n in (7, 2, 3)]
    assert told[at + 4] == "  ... and 2 more not needed here"


def test_a_dtype_policy_is_told_once(tmp_path: Path) -> None:
    c = compared(tmp_path, training_step(), [replace(o, dtype="bfloat16") for o in training_step()])
    assert text_of(c).count("Compare with care: float32 in a is bfloat16 in b") == 1


def test_no_line_is_too_long_and_names_are_safe(tmp_path: Path) -> None:
    ops = [replace(o, key=f"\x1b[2J{'x' * 300}{o.key}") for o in with_wrong(training_step(), 2)]
    a = write_log(tmp_path / "a.log", [replace(o, key=f"\x1b[2J{'x' * 300}{o.key}") for o in training_step()])
    b = write_log(tmp_path / "b.log", ops, excluded=[f"op_{i}" for i in range(500)])
    text = text_of(compare(read_log(a), read_log(b)))
    assert "\x1b" not in text
    assert "␛[2Jxxx" in text
    assert max(map(len, text.splitlines())) < 250


def test_colours_are_asked_for(tmp_path: Path) -> None:
    c = compared(tmp_path, training_step(), with_wrong(training_step(), 2))
    assert "\x1b[" not in text_of(c)
    assert "\x1b[31m1 of 32 rows is red" in text_of(c, color=True)


def test_empty_logs(tmp_path: Path) -> None:
    text = text_of(compared(tmp_path, [], []))
    assert "\n0 of 0 operations compared.\nNothing was compared: both logs are empty.\n" in text


def test_known_kinds_of_drift_are_counted(tmp_path: Path) -> None:
    """A counter that is higher by one everywhere is one fact, not one per row."""
    shifted = [replace(o, key=o.key.replace("attention/op_", "attention/op_1")) for o in training_step()]
    text = text_of(compared(tmp_path, training_step(), shifted))
    assert (
        "Known kinds of drift (numtui suggest --all explains them and proposes rules)\n  shifted counters (6 rows)\n"
        in text
    )


def test_the_next_step_can_be_typed(tmp_path: Path) -> None:
    c = compared(tmp_path, training_step(), with_wrong(training_step(), 2))
    assert "\nNext: numtui 'a b.log' c.log\n" in text_of(c, paths=("a b.log", "c.log"))
    assert "Next" not in text_of(c)
    same = compared(tmp_path, training_step(), training_step())
    assert "Next" not in text_of(same, paths=("a.log", "b.log"))


def test_pairs_made_past_each_other_stand_before_the_causes(tmp_path: Path) -> None:
    rules = """\
templates:
  - {a: "layers.{i}.attention.wq/op_0_mm", b: "layers.{i}.attention.wk/op_0_mm"}
"""
    c = compared(tmp_path, training_step(4), training_step(4), rules)
    text = " ".join(text_of(c).split())
    assert (
        "Mispaired runs (fix: a in the explorer, or numtui suggest) 4 rows of layers.*.attention.wq "
        "(4 modules) differ as paired; paired by their numbers, all 4 are equal as printed. The rule at "
        "rules.yaml:2 makes these pairs; without it the matching finds the right ones. First causes"
    ) in text
    assert "Known kinds of drift" not in text, "wrong pairs look like drift, and are none"
    assert "Mispaired runs" not in text_of(compared(tmp_path, training_step(), with_wrong(training_step(), 2)))


def test_a_search_for_drift_that_fails_is_told_and_costs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = compared(
        tmp_path, training_step(), [replace(o, key=o.key.replace("attention", "attn")) for o in training_step()]
    )
    assert "search failed" not in text_of(c)

    def bug(*_: object) -> None:
        raise KeyError("i")

    monkeypatch.setattr(name_families, "_modules", bug)
    text = text_of(c)
    assert "renamed modules (search failed)" in text
    assert "Not captured" in text  # a later section
    monkeypatch.setattr(realign, "find_shifts", bug)
    assert "realign (search failed)" in text_of(c)
    out = io.StringIO()
    write_suggestions(c, suggest(c), out, "text", ("a", "b"))
    assert "renamed modules: search failed" in out.getvalue()
    assert "KeyError: 'i'" in out.getvalue()


def test_a_log_beside_itself_is_told(tmp_path: Path) -> None:
    log = read_log(write_log(tmp_path / "a.log", training_step()))
    assert text_of(compare(log, log)).startswith("numtui: eager <-> traced: a and b are the same file\n")
