"""`numtui floor`, and the limits that it keeps: in reports where they are asked for, in the explorer by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numtui.cli.explore import configured
from numtui.cli.main import main
from numtui.experiments.capturing import CaptureCommand
from numtui.inputs import OpenRequest
from numtui.session.loading import load
from numtui.session.session import Session
from numtui.views.header import header
from tests.captured import Step, write_captured

X = np.linspace(1, 2, 4096).astype(np.float32)
DIGESTS = {"parameters_digest": "ab", "batch_digest": "cd"}


def write_run(folder: Path, moved: float, **run: Any) -> None:
    """Write the run of one operation, whose result is moved in all directions."""
    (folder / "numerics").mkdir(parents=True, exist_ok=True)
    result = (X * (1 + moved * np.random.default_rng(1).standard_normal(len(X)))).astype(np.float32)
    steps = [Step(key="net/op_0_mm", reads=[X], gives=[result])]
    write_captured(folder / "numerics" / "rank_0_activations.log", steps, **run)


@pytest.fixture
def _captured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Capture without torch: a perturbed run moves by its seed times 1e-4."""

    def run(self: CaptureCommand, output: Path, cwd: Path, options: Sequence[str] = ()) -> str:
        del cwd
        seed = int(options[1]) if options else 0
        batch = "other" if "shuffled.py" in self.command else "cd"
        told = {"before_perturbation": DIGESTS | {"batch_digest": batch}} if seed else DIGESTS
        write_run(output, seed * 1e-4, **told)
        return ""

    monkeypatch.setattr(CaptureCommand, "run", run)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_captured")
def test_a_floor_is_measured_named_and_applied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["floor", "-n", "2", "-o", "a", "--", "train.py"]) == 0
    out, _ = capsys.readouterr()
    assert "rank_0_floor.jsonl: 1 of 1 operations move in 2 perturbed runs\n" in out
    assert "not empty" in failed(["floor", "-o", "a", "--", "train.py"], capsys)
    write_run(tmp_path / "b", 5e-4, **DIGESTS)
    write_run(tmp_path / "c", 5e-2, **DIGESTS)

    assert main(["diff", "a", "b"]) == 1
    out, err = capsys.readouterr()
    assert "rank_0_floor.jsonl: limits from perturbed runs are not applied; --floor applies them" in err
    assert main(["diff", "--floor", "a", "b"]) == 0
    out, err = capsys.readouterr()
    assert "Judged with --floor\n" in out
    assert "limits from 2 perturbed runs of a, in which 1 of 1 operations differ" in out
    assert "not applied" not in err
    assert main(["diff", "--floor", "c", "a"]) == 1, "beyond the floor, which lies beside b"
    assert "explained by float arithmetic" not in capsys.readouterr().out
    assert main(["explain", "--floor", "a", "b", "1"]) == 0
    assert "noise of 2 perturbed runs here; 4 times as much is allowed" in capsys.readouterr().out

    assert "no floor lies beside either log" in failed(["diff", "--floor", "b", "c"], capsys)
    assert "--floor says itself" in failed(["diff", "--floor", "--rtol", "1", "a", "b"], capsys)


@pytest.mark.usefixtures("_captured")
@pytest.mark.parametrize("phase", [1, 2, 3])
def test_interrupted_and_resumed_it_comes_to_the_same(
    phase: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["floor", "-o", "whole", "--", "train.py"]) == 0
    run, runs = CaptureCommand.run, []

    def interrupted(self: CaptureCommand, output: Path, cwd: Path, options: Sequence[str] = ()) -> str:
        runs.append(output.name)
        told = run(self, output, cwd, options)
        if len(runs) == phase:
            raise KeyboardInterrupt  # its log is there, and nothing is noted of it
        return told

    monkeypatch.setattr(CaptureCommand, "run", interrupted)
    assert main(["floor", "-o", "again", "--", "train.py"]) == 130
    assert main(["floor", "-o", "again", "--resume"]) == 0
    names = ["again", "perturbed_1", "perturbed_2"]
    assert runs == [*names[:phase], *names[phase - 1 :]]
    floors = [next((tmp_path / name).rglob("*_floor.jsonl")).read_text() for name in ("whole", "again")]
    assert floors[0] == floors[1]
    assert main(["floor", "-n", "3", "-o", "again", "--resume"]) == 2


@pytest.mark.usefixtures("_captured")
def test_the_explorer_applies_it_and_says_so(tmp_path: Path) -> None:
    assert main(["floor", "-o", "a", "--", "train.py"]) == 0
    write_run(tmp_path / "b", 5e-4, **DIGESTS)
    logs = [str(tmp_path / name / "numerics" / "rank_0_activations.log") for name in "ab"]
    request = OpenRequest(path_a=logs[0], path_b=logs[1], name_a="a", name_b="b", rules_path=tmp_path / "rules.yaml")
    loaded = load(configured(request), lambda *_: None)
    assert not loaded.comparison.red.any()
    lines = header(Session(loaded.comparison, loaded.file), 200)
    assert "limits from 2 perturbed runs" in "".join(text for line in lines for text, _ in line)


@pytest.mark.usefixtures("_captured")
def test_a_run_that_begins_otherwise_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = failed(["floor", "-o", "a", "--", "shuffled.py"], capsys)
    assert "batch differs before the step, before it was perturbed: fix seeds and data order" in told
    assert not list(tmp_path.rglob("*_floor.jsonl"))


def failed(line: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(line) == 2
    return capsys.readouterr().err
