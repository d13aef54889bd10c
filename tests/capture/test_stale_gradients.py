"""A gradient that is no result of the backward pass: the operation that put it there, and the parameter, are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import capture
from matchers.comparison import compare
from matchers.explain.first_difference import first_difference_reasons
from matchers.explain.sentences import explain
from matchers.logs.op_log import OpLog, Phase
from matchers.logs.parser import read_log


def captured(path: Path, how: str) -> OpLog:
    """A step whose second layer's gradient is that of noise made before it, copied in place or put there, or its own.

    All of them draw the noise; where no operation of the step reads it, the log does not have it.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    middle = model[2].weight
    with capture.trace(model, path=path):
        noise = torch.randn(8, 8) * 0.01
        nn.functional.cross_entropy(model(torch.randn(6, 8)), torch.tensor([0, 1, 2, 3, 0, 1])).backward()
        assert isinstance(middle.grad, torch.Tensor)
        if how == "copy_":
            middle.grad.copy_(noise)
        elif how == "clone":
            middle.grad = noise.clone()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return read_log(str(path))


@pytest.mark.parametrize("how", ["copy_", "clone"])
def test_what_replaces_a_gradient_is_the_first_cause(how: str, tmp_path: Path) -> None:
    c = compare(captured(tmp_path / "a.log", ""), captured(tmp_path / "b.log", how))
    (row,) = np.flatnonzero(c.cause).tolist()
    assert (c.b.op_name(c.row_b[row]), c.b.phase[c.row_b[row]]) == (how, Phase.GRADIENTS)
    told = "FIRST CAUSE: only b has this operation, which makes the gradient of 2.weight"
    assert explain(c, row).headline == told
    assert "for the gradient of 2.weight" in first_difference_reasons(c)[0]
