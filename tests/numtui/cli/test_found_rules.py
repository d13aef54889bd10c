"""A rule file that is found and was not named never acts in silence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from numtui.cli.main import main
from numtui.report.options import FORMATS
from tests.builders import op, training_step, write_log

STALE = """\
version: 1
pairs:
  - a: layers.0.attention.wq/op_0_mm
    b: layers.0.attention.wk/op_0_mm
  - a: layers.0.attention.wk/op_0_mm
    b: layers.0.attention.wq/op_0_mm
"""
"""Rules of other logs: here they pair two operations crosswise."""
BLIND = 'version: 1\ntolerance:\n  - match: "*"\n    rtol: 1e300\n'
HERE = "overrides.yaml"
NOT_APPLIED = f"{HERE} was found in this folder and is not applied (-r {HERE} or --auto-rules applies it)"
APPLIED = "the rules of overrides.yaml are applied: it was found in this folder, not named with -r"
ROWS_ONLY = ("jsonl", "csv")
"""Formats of which every line is a row."""


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def equal_logs(tmp_path: Path) -> tuple[str, str]:
    ops = training_step(1)
    return str(write_log(tmp_path / "a.log", ops)), str(write_log(tmp_path / "b.log", ops))


@pytest.fixture
def red_logs(tmp_path: Path) -> tuple[str, str]:
    ops = training_step(1)
    other = [replace(ops[0], outputs=[1.0], l2=1.0), *ops[1:]]
    return str(write_log(tmp_path / "a.log", ops)), str(write_log(tmp_path / "b.log", other))


@pytest.mark.parametrize("form", FORMATS)
def test_equal_logs_agree_whatever_lies_in_the_folder(
    form: str, equal_logs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["diff", *equal_logs, "--format", form])
    assert capsys.readouterr().err == ""
    Path("overrides.yaml").write_text(STALE)
    assert main(["diff", *equal_logs, "--format", form]) == 0
    said = capsys.readouterr()
    assert said.err == f"numtui: {NOT_APPLIED}\n"
    assert ("not applied" in said.out or '"found": "overrides.yaml"' in said.out) is (form not in ROWS_ONLY)
    assert main(["diff", *equal_logs, "--format", form, "--auto-rules"]) == 1, "these rules do make red rows"
    said = capsys.readouterr()
    assert APPLIED in said.err
    assert ("not named with" in said.out or '"found": "overrides.yaml"' in said.out) is (form not in ROWS_ONLY)
    main(["diff", *equal_logs, "--format", form, "-r", "overrides.yaml"])
    said = capsys.readouterr()
    assert APPLIED not in said.err
    assert "not named with" not in said.out


def test_a_tolerance_that_was_found_makes_nothing_pass(red_logs: tuple[str, str]) -> None:
    assert main(["diff", *red_logs]) == 1
    Path("overrides.yaml").write_text(BLIND)
    assert main(["diff", *red_logs]) == 1
    assert main(list(red_logs)) == 1, "without a terminal the explorer is a report"
    assert main(["diff", *red_logs, "-r", "overrides.yaml"]) == 0
    assert main(["diff", *red_logs, "--auto-rules"]) == 0
    assert main([*red_logs, "--auto-rules"]) == 0


def test_what_json_says_of_rule_files(equal_logs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("overrides.yaml").write_text(STALE)
    told = []
    for options in ([], ["--auto-rules"], ["-r", "overrides.yaml"]):
        main(["diff", *equal_logs, "--format", "json", *options])
        rules = json.loads(capsys.readouterr().out)["rules"]
        told.append((rules["path"], rules["found"], len(rules["used"])))
    assert told == [(None, HERE, 0), (HERE, HERE, 2), (HERE, None, 2)]


@pytest.mark.parametrize("form", ["text", "yaml"])
def test_suggestions_do_not_build_on_it(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ops = training_step(1)
    a = str(write_log(tmp_path / "a.log", ops))
    renamed = [replace(o, key=o.key.replace("layers.0", "blocks.0")) for o in ops]
    b = str(write_log(tmp_path / "b.log", [*renamed, op("head/op_0_neg")]))
    main(["suggest", a, b, "--format", form])
    alone = capsys.readouterr().out
    Path("overrides.yaml").write_text("version: 1\nmodules:\n  - a: layers.{i}\n    b: blocks.{i}\n")
    assert main(["suggest", a, b, "--format", form]) == 0
    said = capsys.readouterr()
    assert NOT_APPLIED in said.err
    first, _, rest = alone.partition("\n")
    sign = "# " if form == "yaml" else ""
    assert said.out == f"{first}\n{sign}{NOT_APPLIED}\n{rest}"
    main(["suggest", a, b, "--format", form, "--auto-rules"])
    assert f"{sign}{APPLIED}" in capsys.readouterr().out


def test_a_file_that_was_found_and_cannot_be_read_stops_nothing(equal_logs: tuple[str, str]) -> None:
    Path("overrides.yaml").write_bytes(b"\xff\xfe broken")
    assert main(["diff", *equal_logs]) == 0
    assert main(["diff", *equal_logs, "--auto-rules"]) == 2
    assert main(["diff", *equal_logs, "-r", "overrides.yaml"]) == 2


def test_the_two_options_exclude_each_other(equal_logs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["diff", *equal_logs, "-r", "overrides.yaml", "--auto-rules"])
    assert ended.value.code == 2
    assert "not allowed with" in capsys.readouterr().err
    assert main(["diff", equal_logs[0], "--auto-rules"]) == 2
    assert "--auto-rules is about two logs" in capsys.readouterr().err
