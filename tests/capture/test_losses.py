"""The losses of each step in a log of weights: what the program itself saw, noted without changing a bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from capture.losses import Losses
from matchers.weights.log import read_weights
from tests.capture.runs import run_captured, run_plain

SCRIPT = """
import json, torch
from torch.nn import functional as F
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
losses = []
for step in range(3):
    optimizer.zero_grad()
    for _ in range(2):
        loss = F.mse_loss(model(torch.randn(3, 4)), torch.ones(3, 2)) * (float("nan") if step == 2 else 1)
        losses.append(loss.item())
        loss.backward()
    optimizer.step()
print(json.dumps([losses, model.weight.tolist(), torch.rand(1).item()]))
"""


def test_the_log_has_the_losses_that_the_script_saw(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    run = run_captured(script, tmp_path / "run", options="--weights every")
    assert run.printed == run_plain(script)
    losses, _, _ = json.loads(run.printed)
    log = read_weights(next((tmp_path / "run").rglob("rank_0_weights.log")))
    assert str([list(log.losses[step]) for step in (1, 2, 3)]) == str([losses[:2], losses[2:4], losses[4:]])
    assert not log.problems


def test_only_numbers_are_noted_and_the_function_is_put_back() -> None:
    original = torch.autograd.backward
    losses = Losses()
    losses.install()
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).backward(torch.ones(1, 2))
    (model(torch.ones(1, 2)).sum() * 2).backward()
    model(torch.ones(1, 2)).sum().to(torch.float64).backward()
    found = losses.take()
    assert len(found) == 2
    assert found[0] == pytest.approx(2 * found[1])
    assert losses.take() == []
    losses.remove()
    assert torch.autograd.backward is original
