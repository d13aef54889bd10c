"""Own errors of modules, by the boundaries that two small runs kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from capture.keeping.bundle import read_bundle
from capture.keeping.form import find_bundles
from numtui.report.own_errors import OwnError, own_errors

SCRIPT = """
import sys, torch
from torch import nn
class Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by):
        ctx.by = by
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.by, None
class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
    def forward(self, x):
        return Times.apply(self.inner(x), float(sys.argv[1]))
torch.manual_seed(0)
model = nn.Sequential(Outer(), nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.randn(4, 8)).square().mean().backward()
optimizer.step()
"""


@pytest.mark.torch
@pytest.mark.slow
def test_weights_of_a_module_that_is_given_other_gradients_count_for_the_one_around_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.capture.runs import run_captured

    (tmp_path / "script.py").write_text(SCRIPT)
    for name, by in (("a", "1"), ("healthy", "1"), ("twice", "2")):
        run_captured(tmp_path / "script.py", tmp_path / name, by, "--save boundary:*")

    def errors(name: str) -> dict[str, OwnError]:
        a, b = ([read_bundle(folder) for folder in find_bundles(tmp_path / run)] for run in ("a", name))
        return {each.module: each for each in own_errors(a, b, lambda _: True)}

    assert (errors("healthy")["0"].inner, errors("healthy")["0.inner"].weights) == (None, 0.0)
    found = errors("twice")
    assert found["0"].inner == pytest.approx(2**23)
    assert (found["0.inner"].weights, found["1"].inner, found["1"].weights) == (None, None, 0.0)
