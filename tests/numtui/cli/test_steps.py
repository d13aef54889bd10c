"""Two runs with several captured steps: each is compared, and the first that differs is the one that is reported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from numtui.cli.main import main
from tests.builders import training_step, write_log

OPS = training_step(1)
BUG = [replace(one, l2=one.l2 * 3) if at > 4 else one for at, one in enumerate(OPS)]  # type: ignore[operator]


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_steps(run: str, bug_from: int = 9, steps: tuple[int, ...] = (1, 2, 3), ranks: int = 1) -> None:
    for step in steps:
        for rank in range(ranks):
            path = Path(run, "numerics", f"step_{step}", f"rank_{rank}_activations.log")
            path.parent.mkdir(parents=True, exist_ok=True)
            write_log(path, BUG if step >= bug_from else OPS, run={"step": step, "rank": rank}, footer=True, exact=True)


def test_the_first_step_that_differs_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    write_steps("a")
    write_steps("b", bug_from=2)
    assert main(["diff", "a", "b"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("step 1  ")
    assert lines[0].endswith(" operations agree")
    assert lines[1].startswith("step 2  ")
    assert "rows red, first cause layers.0.attention/op_0_bmm" in lines[1]
    assert lines[3] == "First to differ: step 2"
    assert sum(line.endswith("operations  b/numerics/step_2/rank_0_activations.log") for line in lines) == 1


def test_where_all_agree_the_last_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    write_steps("a")
    write_steps("b", steps=(2, 3, 4))
    assert main(["diff", "a", "b"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[:4] == [
        f"step 2  {len(OPS)} operations agree",
        f"step 3  {len(OPS)} operations agree",
        "only in one run: step 1, 4",
        "All agree; the report is of step 3",
    ]


def test_a_chosen_step_is_the_only_one(capsys: pytest.CaptureFixture[str]) -> None:
    write_steps("a")
    write_steps("b", bug_from=2)
    assert main(["diff", "a", "b", "--step", "1"]) == 0
    assert "First to" not in capsys.readouterr().out


def test_other_forms_are_of_that_step_and_the_steps_are_said_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_steps("a")
    write_steps("b", bug_from=3)
    assert main(["diff", "a", "b", "--format", "json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["a"]["path"] == "a/numerics/step_3/rank_0_activations.log"
    assert "numtui: First to differ: step 3\n" in printed.err


def test_all_ranks_of_each_step_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    write_steps("a", ranks=2)
    write_steps("b", bug_from=3, ranks=2)
    assert main(["diff", "a", "b", "--workers", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"step {step}  No divergence: 2 ranks agree" for step in (1, 2)]
    assert lines[2].startswith("step 3  2 of 2 ranks are red")
    assert lines[5] == "numtui: a <-> b: 2 ranks, step 3"


def test_without_a_terminal_the_explorer_prints_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    write_steps("a")
    write_steps("b", bug_from=2)
    assert main(["a", "b"]) == 1
    assert "First to differ: step 2\n" in capsys.readouterr().out
