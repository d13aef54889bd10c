"""Captures that the tests share: of the training example once in a session, and of a few lines as often as needed."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capture import trace
from tests.capture.logs import Log
from tests.capture.runs import Examples, Run, run_captured

Record = Callable[..., Log]
Script = Callable[..., Run]

HEAD = """
import torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(4, 8)

def net():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))

"""

LOOP = """
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    """Runs of the training example."""
    return Examples(tmp_path_factory.mktemp("examples"))


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """`record(model, step, **settings)`: the log of what a function does."""
    numbers = itertools.count()

    def run(model: Any, step: Callable[[], Any], **settings: Any) -> Log:
        path = tmp_path / f"{next(numbers)}.log"
        with trace(model, path=path, **settings):
            step()
        log = Log.read(path)
        assert log.complete
        return log

    return run


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """`script(text, options, arguments)`: captures a script in this process; it begins with a net and a batch."""

    def run(text: str, options: str = "", arguments: str = "") -> Run:
        path = tmp_path / "script.py"
        path.write_text(HEAD + textwrap.dedent(text))
        return run_captured(path, tmp_path / "out", arguments, options)

    return run
