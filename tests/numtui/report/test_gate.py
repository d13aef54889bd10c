"""What a comparison fails on: the conditions, the known differences, and the exit codes that follow."""

from __future__ import annotations

import functools
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.errors import RulesError
from matchers.logs.parser import read_log
from matchers.rules.file import parse_rules
from matchers.rules.model import IgnoreRule, RuleSet
from matchers.status import Status
from numtui.cli.main import main
from numtui.report.known_differences import AllowList, load_allow_list
from numtui.report.model import Report
from numtui.report.options import CONDITIONS, ReportOptions
from numtui.report.write import write
from numtui.session.rule_edits import Effect
from tests.builders import training_step, write_log
from tests.conftest import REPOSITORY

DATA = REPOSITORY / "tests" / "data"
BASE, NEG = (str(DATA / f"{name}.log.gz") for name in ("bug_base", "bug_neg_attn_l2"))
PLANTED = "layers.2.attention.inner_attention/op_1_neg"


@functools.cache
def planted() -> Comparison:
    return compare(read_log(BASE), read_log(NEG))


def failures(c: Comparison, *conditions: str, allow: AllowList | None = None) -> dict[str, list[str]]:
    report = Report(c, ReportOptions(fail_on=conditions, allow=allow, rules_path="rules.yaml"))
    found: dict[str, list[str]] = {}
    for failure in report.failures:
        found.setdefault(failure.condition, []).append(failure.text)
    return found


def allow_list(tmp_path: Path, text: str) -> AllowList:
    path = tmp_path / "allow.yaml"
    path.write_text(text, encoding="utf-8")
    return load_allow_list(path)


# Conditions


def test_each_condition_says_what_holds() -> None:
    assert failures(planted(), *CONDITIONS) == {
        "diverged": ["339 rows are red"],
        "origin": ["1 first cause"],
        "unmatched": ["2 operations are unpaired"],
        "first-difference": [
            (
                "First difference: row 48, only in b; a reads "
                "layers.2.attention.inner_attention/op_0__scaled_dot_product_flash_attention_for_cpu, b reads "
                "layers.2.attention.inner_attention/op_1_neg, at layers.2.attention.wo/op_0_mm"
            )
        ],
    }


def test_a_first_cause_that_a_rule_ignores_is_still_one() -> None:
    c = planted()
    rules = RuleSet((IgnoreRule(match="layers.2.attention.inner_attention/op_1_neg"),))
    ignored = c.with_rules(rules)
    assert ignored.red.sum() == c.red.sum()
    assert failures(ignored, "origin") == {"origin": ["1 first cause, ignored by a rule"]}
    effect = Effect.between(c, ignored)
    assert effect.sentence().endswith("ignores 1 row · still 339 red · it remains the first cause")


def test_equal_runs_fail_on_nothing() -> None:
    log = read_log(BASE)
    assert failures(compare(log, log), *CONDITIONS) == {}


def test_a_log_that_is_cut_off_or_damaged_is_incomplete(tmp_path: Path) -> None:
    whole = read_log(write_log(tmp_path / "a.log", training_step()))
    cut = read_log(write_log(tmp_path / "b.log", training_step(), declared=99))
    broken = read_log(write_log(tmp_path / "c.log", [replace(o, l2="what") for o in training_step()]))
    assert failures(compare(whole, cut), "incomplete") == {
        "incomplete": [f"{tmp_path / 'b.log'}: the log is cut off, 32 of 99 operations are present"]
    }
    assert failures(compare(broken, whole), "incomplete") == {
        "incomplete": [f"{tmp_path / 'c.log'}: 32 unreadable spots"]
    }


def test_a_rule_that_matches_nothing_is_stale() -> None:
    rules = parse_rules("version: 1\nignore:\n  - op: neg\n  - op: no_such\n  - opp: typo\n", "rules.yaml")
    found = failures(planted().with_rules(rules), "stale-rule")["stale-rule"]
    assert [text.partition(" ")[0] for text in found] == ["rules.yaml:5:5:", "rules.yaml:4:"]


@pytest.mark.parametrize(
    "text",
    ["version: 2\n", "tolerance:\n- match: '*'\n  rtol: .nan\n", "ignore:\n- op: a\n  op: b\n", "ops: []\nops: []\n"],
)
def test_a_broken_rule_is_in_the_headline_and_stale(text: str, tmp_path: Path) -> None:
    log = read_log(write_log(tmp_path / "a.log", training_step(1)))
    c = compare(log, log, parse_rules(text, "rules.yaml"))
    assert Report(c, ReportOptions()).result.endswith(" agree; 1 rule entry is broken.")
    assert list(failures(c, "stale-rule")) == ["stale-rule"]
    red = planted().with_rules(parse_rules(text, "rules.yaml"))
    assert Report(red, ReportOptions()).result.endswith(" 1 first cause; 1 rule entry is broken")


def test_a_region_that_is_not_understood_is_not_compared(tmp_path: Path) -> None:
    path = write_log(tmp_path / "a.log", training_step(1))
    path.write_text(path.read_text().replace("  Mean: ", "  Mean: ?", 1))
    log = read_log(path)
    assert failures(compare(log, log), "not-compared") == {
        "not-compared": [f"1 region of {side} could not be understood" for side in "ab"]
    }


def test_an_empty_log_cannot_be_compared(tmp_path: Path) -> None:
    empty = read_log(write_log(tmp_path / "a.log", []))
    whole = read_log(write_log(tmp_path / "b.log", training_step()))
    assert failures(compare(empty, whole), "not-comparable") == {
        "not-comparable": ["a has no operations"],
        "not-compared": ["nothing was compared: a is empty"],
    }


# Known differences


def test_a_known_difference_fails_nothing_and_stays_red(tmp_path: Path) -> None:
    known = allow_list(
        tmp_path, f"version: 1\nallow:\n  - match: {PLANTED}\n    why: planted\n    consequences: true\n"
    )
    report = Report(planted(), ReportOptions(fail_on=("diverged", "origin"), allow=known))
    assert report.failures == ()
    assert report.red == 339
    assert int(report.allowed.rows.sum()) == 340
    for form in ("text", "markdown"):
        out = io.StringIO()
        write(report, out, form)
        assert "\n340 rows are allowed as known differences.\n" in out.getvalue()


def test_what_follows_from_it_is_allowed_only_on_request(tmp_path: Path) -> None:
    known = allow_list(tmp_path, f"allow: [{{match: {PLANTED}, why: planted}}]")
    assert failures(planted(), "diverged", "origin", allow=known) == {"diverged": ["339 rows are red"]}


def test_another_cause_is_not_a_consequence(tmp_path: Path) -> None:
    """Rows that also follow from a cause nobody allowed still fail."""
    c = planted()
    first = int(np.flatnonzero(c.status == Status.DIVERGED)[0])
    cause = c.cause.copy()
    cause[first] = True
    known = allow_list(tmp_path, f"allow: [{{match: {PLANTED}, why: planted, consequences: true}}]")
    found = failures(replace(c, cause=cause), "diverged", "origin", allow=known)
    assert found["origin"] == ["1 first cause"]
    assert found["diverged"] == ["339 rows are red"]


@pytest.mark.parametrize(
    ("entry", "left"),
    [
        ("match: '*', status: diverged", 0),
        ("match: '*', status: [nan, shape, only-b]", 339),
        ("match: '*', up_to: 1", 1),
        ("match: 'layers.2*'", 240),
    ],
)
def test_an_entry_can_be_narrower_than_its_key(entry: str, left: int, tmp_path: Path) -> None:
    known = allow_list(tmp_path, f"allow: [{{{entry}, why: x}}]")
    c = planted()
    errors = c.error[c.red]
    expected = {
        0: 0,
        339: 339,
        1: int(np.count_nonzero(errors > 1)),
        240: int(np.count_nonzero(c.red)) - int(np.count_nonzero(known.apply(c).rows & c.red)),
    }[left]
    found = failures(c, "diverged", allow=known)
    told = [] if expected == 0 else [f"{expected} row{'s are' if expected > 1 else ' is'} red"]
    assert found.get("diverged", []) == told


def test_a_known_difference_that_is_gone_is_stale(tmp_path: Path) -> None:
    log = read_log(BASE)
    known = allow_list(tmp_path, "version: 1\nallow:\n\n  - match: layers.1/op_0_add\n    why: fixed since\n")
    assert failures(compare(log, log), "stale-rule", allow=known) == {
        "stale-rule": [f"{tmp_path / 'allow.yaml'}:4: no failing row matches 'layers.1/op_0_add'"]
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a", "1:1: expected 'version: 1' and 'allow:' with a list"),
        ("version: 2", "1:10: expected 'version: 1'"),
        ("alow: []", "1:1: unknown section 'alow'; known are version and allow"),
        ("allow: yes", "1:8: 'allow' must be a list, each entry beginning with '- '"),
        ("allow: [x]", "1:9: expected 'match: …' and 'why: …'"),
        ("allow: [{match: x}]", "1:9: an allowed difference needs 'why' as text"),
        ("allow: [{why: x}]", "1:9: an allowed difference needs 'match' as text"),
        (
            "allow: [{match: x, why: y, op: z}]",
            "1:28: 'op' is unknown; known are match, why, status, up_to, consequences",
        ),
        ("allow: [{match: x, match: y}]", "1:20: 'match' is given twice"),
        (
            "allow: [{match: x, why: y, status: equal}]",
            "1:36: 'status' is one of only-a, only-b, shape, diverged, nan, not 'equal'",
        ),
        ("allow: [{match: x, why: y, up_to: much}]", "1:35: 'up_to' is a relative error such as 1.0e-3, not 'much'"),
        ("allow: [{match: x, why: y, up_to: -1}]", "1:35: 'up_to' is a relative error such as 1.0e-3, not '-1'"),
        ("allow: [{match: x, why: y, consequences: 1}]", "1:42: 'consequences' is true or false, not '1'"),
        ("allow: [", "1:9: this is not YAML: "),
    ],
)
def test_what_is_not_understood_is_refused(text: str, said: str, tmp_path: Path) -> None:
    """A gate that silently lets more pass than its owner thinks is none."""
    with pytest.raises(RulesError) as raised:
        allow_list(tmp_path, text)
    assert str(raised.value).startswith(f"{tmp_path / 'allow.yaml'}:{said}")


def test_an_empty_file_allows_nothing(tmp_path: Path) -> None:
    assert allow_list(tmp_path, "version: 1\nallow:\n").entries == ()


# Exit codes


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ([], 1, ""),
        (["--fail-on", "incomplete"], 0, ""),
        (["--fail-on", "incomplete,unmatched"], 1, "numtui: fails on unmatched: 2 operations are unpaired\n"),
        (["--fail-on", "incomplete", "--fail-on", "origin"], 1, "numtui: fails on origin: 1 first cause\n"),
    ],
)
def test_the_exit_code_follows_the_conditions(
    options: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", BASE, NEG, *options]) == code
    assert capsys.readouterr().err == said


def test_a_cut_off_log_fails_unless_it_is_allowed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = str(write_log(tmp_path / "a.log", training_step()))
    b = str(write_log(tmp_path / "b.log", training_step(), declared=99))
    assert main(["diff", a, b, "--fail-on", "diverged"]) == 0
    assert "fails on" not in capsys.readouterr().err
    assert main(["diff", a, b]) == 1
    assert "fails on incomplete: " in capsys.readouterr().err


def test_a_condition_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["diff", BASE, NEG, "--fail-on", "diverged,typo"])
    assert raised.value.code == 2
    assert "'typo' is none of diverged, contradiction, origin, " in capsys.readouterr().err


def test_allowed_differences_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "known.yaml"
    path.write_text(
        f"allow:\n  - {{match: {PLANTED}, why: planted, consequences: true}}\n  - {{match: no/op_0_mm, why: old}}\n"
    )
    assert main(["diff", BASE, NEG, "--allow", str(path)]) == 0
    assert capsys.readouterr().err == f"numtui: {path}:3: no failing row matches 'no/op_0_mm'\n"
    assert main(["diff", BASE, NEG, "--allow", str(path), "--fail-on", "stale-rule"]) == 1
    assert main(["diff", BASE, NEG, "--allow", str(tmp_path / "gone.yaml")]) == 2
    assert "gone.yaml: cannot be read: No such file" in capsys.readouterr().err


def test_several_reports_of_one_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last part of a file's name tells its form; standard output has its own."""
    names = ["r.json", "r.xml", "r.md", "r.csv", "r.jsonl", "r.txt"]
    assert main(["diff", BASE, NEG, *(x for name in names for x in ("--also", name))]) == 1
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "r.txt").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "r.json").read_text())["red"] == 339
    assert main(["diff", BASE, NEG, "-o", "s.json"]) == 1
    assert (tmp_path / "s.json").read_bytes() == (tmp_path / "r.json").read_bytes()
    assert main(["diff", BASE, NEG, "-o", "s.json", "--format", "text"]) == 1
    assert (tmp_path / "s.json").read_text(encoding="utf-8") == printed
    assert main(["diff", BASE, NEG, "--also", "r.log"]) == 2
    assert "--also r.log: the form follows from the ending: .txt, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "junit"], "logs of weights are reported as text or json or jsonl, not as junit"),
        (["--fail-on", "origin"], "--fail-on is about logs of operations; these are logs of weights"),
    ],
)
def test_logs_of_weights_have_no_gates(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rank_0_weights.log"
    path.write_text("Format: numtui weights 1\n")
    assert main(["diff", str(path), str(path), *options]) == 2
    assert said in capsys.readouterr().err
