"""`--when`: every step is recorded, and only the one that fails is written."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from capture.options import make_parser, settings_of
from tests.capture.logs import read_logs
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


@pytest.mark.parametrize(("last", "steps"), [(3, [3, 4, 5]), (9, [1, 2, 3, 4, 5])])
def test_the_steps_before_it_are_kept(tmp_path: Path, script: Path, last: int, steps: list[int]) -> None:
    run = run_captured(script, tmp_path / "run", options=f"--when loss-is-nan --keep-last {last}")
    assert run.printed == run_plain(script)
    assert sorted(run.logs) == [f"step_{step}/rank_0_activations.log" for step in steps]
    assert [log.run["step"] for _, log in sorted(run.logs.items())] == steps
    assert run.said.count("operations in") == len(steps), "each that stays is named"
    assert sorted(path.name for path in (tmp_path / "run/numerics").iterdir()) == [f"step_{step}" for step in steps]


@pytest.mark.parametrize(("dies", "steps"), [(False, []), (True, [3, 4])])
def test_steps_that_wait_stay_where_a_script_dies(tmp_path: Path, script: Path, dies: bool, steps: list[int]) -> None:
    script.write_text(SCRIPT + "1 / 0\n" * dies)
    with pytest.raises(ZeroDivisionError) if dies else nullcontext():
        run_captured(script, tmp_path / "run", options="--when grad-norm-above:1e9 --keep-last 3 --steps 1-4")
    assert sorted(read_logs(tmp_path / "run")) == [f"step_{step}/rank_0_activations.log" for step in steps]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--when", "loss"], "expected loss-is-nan or grad-norm-above:X"),
        (["--when", "grad-norm-above:-1"], "expected loss-is-nan"),
        (["--when", "loss-is-nan", "--forward"], "the steps of --forward are calls"),
        (["--when", "loss-is-nan", "--save", "weights"], "is written at once"),
        (["--keep-last", "3"], "--keep-last 3: .* of --when"),
        (["--when", "loss-is-nan", "--keep-last", "0"], "--keep-last 0: .* from 1"),
    ],
)
def test_what_cannot_be_is_refused(options: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_of(make_parser("x").parse_args(options))
