"""`numtui bisect` with real captures: of a repository, and of a kept operation in two environments."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from numtui.cli.main import main
from tests.numtui.experiments.made_up import digests

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.{name} = nn.Linear(8, 8)

    def forward(self, x):
        return self.{name}(x) * {factor}
"""
TRAIN = """
import torch
from model import Net

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).square().sum().backward()
optimizer.step()
"""
OPERATOR = """
import torch

@torch.library.custom_op("mine::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * {factor}

scaled.register_fake(lambda x: torch.empty_like(x))
"""
USES = """
import torch, mine
layer = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
layer(mine.scaled(torch.randn(2, 4))).sum().backward()
optimizer.step()
"""


def commit(folder: Path, subject: str) -> None:
    who = ("-c", "user.name=A U Thor", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), "add", "-A"], check=True)
    subprocess.run(["git", "-C", str(folder), *who, "commit", "-q", "-m", subject], check=True)


def test_the_commit_of_a_training_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (repository / "train.py").write_text(TRAIN)
    for subject, name, factor in (
        ("first", "lin", "0.5"),
        ("renamed and scaled", "linear", "0.505"),
    ):
        (repository / "model.py").write_text(MODEL.format(name=name, factor=factor))
        commit(repository, subject)
    monkeypatch.chdir(repository)
    monkeypatch.setenv("PYTHONPATH", str(repository))  # where the code of the checkout would be found
    before = digests(repository)
    output = tmp_path / "out"
    assert main(["bisect", "--good", "HEAD~1", "-o", str(output), "--format", "json", "--", "train.py"]) == 1
    out, err = capsys.readouterr()
    (cause,) = json.loads(out)["causes"]
    assert [each["subject"] for each in cause["commits"]] == ["renamed and scaled"], err
    assert cause["places"][0] == "repository/model.py:11"
    (change,) = cause["changes"]
    assert (change["path"], change["what"]) == ("model.py", "its line")
    assert "+        return self.linear(x) * 0.505" in change["diff"]
    assert digests(repository) == before


def test_the_environment_in_which_an_operation_changed(
    tmp_path: Path, script: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    pythons = []
    for number, factor in enumerate(("0.5", "0.505")):
        packages, python = tmp_path / f"packages{number}", tmp_path / f"python{number}"
        packages.mkdir()
        (packages / "mine.py").write_text(OPERATOR.format(factor=factor))
        python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        pythons.append(str(python))
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho \"No module named 'torch'\" >&2; exit 1\n")
    broken.chmod(0o755)
    (tmp_path / "mine.py").write_text(OPERATOR.format(factor="0.5"))
    run = script(USES, "--save module:*")
    line = ["bisect", "--replay", str(run.folder), "--import", "mine", "--format", "json"]
    assert main([*line, "--python", pythons[0], str(broken), pythons[1]]) == 1
    told = json.loads(capsys.readouterr().out)
    (changed,) = [each for each in told["operations"] if each["since"]]
    assert changed["operator"].startswith("mine::scaled")
    assert (changed["before"], changed["since"]) == (pythons[0], pythons[1])
    assert changed["recorded"]
    assert "has no torch" in changed["skipped"][str(broken)]
