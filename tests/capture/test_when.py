"""`--when`: every step is recorded, and only the one that fails is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from capture.options import make_parser, settings_of
from tests.capture.runs import run_captured, run_plain

SCRIPT = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(1, 8):
    x = torch.randn(3, 4)
    if step == 5:
        x[1, 2] = float("nan")
    optimizer.zero_grad()
    loss = (model(x) * (100 if step == 3 else 1)).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    print(step, loss.item())
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize(("condition", "step"), [("loss-is-nan", 5), ("grad-norm-above:100", 3)])
def test_the_first_step_that_fails_is_written_and_no_other(
    tmp_path: Path, script: Path, condition: str, step: int
) -> None:
    run = run_captured(script, tmp_path / "run", options=f"--when {condition}")
    assert run.printed == run_plain(script), "the numbers are those of the run without a capture"
    assert list(run.logs) == [f"step_{step}/rank_0_activations.log"]
    (log,) = run.logs.values()
    assert log.run["step"] == step
    assert run.said.count("operations in") == 1


def test_no_step_that_fails_is_said(tmp_path: Path, script: Path) -> None:
    run = run_captured(script, tmp_path / "run", options="--when grad-norm-above:1e9 --steps 1-4")
    assert not run.logs
    assert "no log: --when grad-norm-above:1e9 held in none of 4 steps" in run.said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--when", "loss"], "expected loss-is-nan or grad-norm-above:X"),
        (["--when", "grad-norm-above:-1"], "expected loss-is-nan"),
        (["--when", "loss-is-nan", "--forward"], "the steps of --forward are calls"),
        (["--when", "loss-is-nan", "--save", "weights"], "is written at once"),
    ],
)
def test_what_cannot_be_is_refused(options: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_of(make_parser("x").parse_args(options))
