"""`numtui check`: exit codes, files, and one line per mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from numtui.cli.main import main
from tests.builders import write_log
from tests.checked import OPS, odd_run
from tests.hostile import hostile_logs
from tests.matchers.weights.test_weights import log


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A run in which one of three ranks runs another operation."""
    return odd_run(tmp_path / "run_x")


def test_a_finding_is_exit_code_1_and_a_run_without_one_is_0(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", run]) == 1
    out = capsys.readouterr().out
    assert out.startswith("run_x: 3 ranks")
    assert "1 finding" in out
    assert main(["check", odd_run(Path("good"), odd=-1)]) == 0
    assert capsys.readouterr().err == ""


def test_the_conditions_decide_on_the_exit_code(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", run, "--fail-on", "not-checked"]) == 0
    Path("run_x/numerics/rank_1_activations.log").unlink()
    assert main(["check", run, "--fail-on", "not-checked", "--fail-on", "incomplete"]) == 1
    assert "numtui: fails on incomplete: rank 1 has no log\n" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["check", run, "--fail-on", "diverged"])
    assert stopped.value.code == 2
    assert "'diverged' is none of finding, not-checked, incomplete" in capsys.readouterr().err


def test_a_log_of_which_nothing_can_be_checked_fails(capsys: pytest.CaptureFixture[str]) -> None:
    empty = str(write_log(Path("rank_0_activations.log"), []))
    assert main(["check", empty]) == 1
    printed = capsys.readouterr()
    assert ": Nothing was checked\n" in printed.out
    assert printed.err == "numtui: fails on not-checked: nothing was checked\n"


def test_one_log_is_checked_by_itself(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{run}/numerics/rank_0_activations.log"]) == 0
    assert "1 of 3 ranks: no finding" in capsys.readouterr().out.partition("\n")[0].replace(", step 2", "")


def test_files_are_written_in_the_form_of_their_ending(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    also = [f"--also=r.{ending}" for ending in ("json", "jsonl", "csv", "html", "xml", "txt")]
    assert main(["check", run, "-o", "r.md", *also]) == 1
    assert capsys.readouterr().out == ""
    assert {path.suffix for path in Path().glob("r.*")} == {".md", ".json", ".jsonl", ".csv", ".html", ".xml", ".txt"}
    for command in (each["command"] for each in json.loads(Path("r.json").read_text())["next"]):
        assert main(command[1:]) in (0, 1), command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: No such file"),
        (["empty"], "empty: no rank_N_activations.log here"),
        (["steps"], "steps has several captured steps (1, 2); choose one with --step S"),
        (["steps", "--step", "3"], "there are steps 1, 2"),
        (["w.log"], "w.log: is a log of weights over steps, which has no operations to check"),
        (["run_x", "-o", "r.docx"], "-o r.docx: .docx is no known form"),
        (["run_x", "-o", "nowhere/r.md"], "nowhere/r.md: cannot be written"),
        (["text.log"], "text.log"),
    ],
)
def test_a_mistake_is_one_line(
    run: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty").mkdir()
    for step in (1, 2):
        write_log(Path(f"steps/step_{step}/rank_0_activations.log"), OPS)
    log(Path("w.log"))
    Path("text.log").write_text("no log\n")
    assert main(["check", *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_step_is_chosen_of_several(capsys: pytest.CaptureFixture[str]) -> None:
    for step in (1, 2):
        write_log(Path(f"steps/step_{step}/rank_0_activations.log"), OPS)
    assert main(["check", "steps", "--step", "2"]) == 0
    assert "1 rank" in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name, _ in hostile_logs() if "in keys" in name])
def test_a_hostile_log_of_one_rank_is_reported_on(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside a rank whose log is as it should be."""
    folder = Path("h/numerics")
    write_log(folder / "rank_0_activations.log", OPS)
    (folder / "rank_1_activations.log").write_bytes(dict(hostile_logs())[name])
    assert main(["check", "h"]) in (0, 1)
    assert capsys.readouterr().out.startswith("h: 2 ranks")
