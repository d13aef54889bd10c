"""Captures that the tests share: of the training example once in a session, and of a few lines as often as needed."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capture import trace
from tests.capture.logs import Log
from tests.capture.runs import Examples, Run, read_logs, run_captured

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


class TwoRanks:
    """What `tests/capture/ranks.py` found on each of two ranks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found = [json.loads((folder / f"rank_{rank}.json").read_text()) for rank in range(2)]

    def printed(self, variant: str) -> list[list[str]]:
        """Per rank, what a run of the example printed without a capture and with one."""
        return [found[variant] for found in self._found]

    def stock(self, kind: str) -> list[dict[str, list[float]]]:
        """Per rank, the hashes of DebugMode by operation."""
        return [dict(found[f"stock {kind}"]) for found in self._found]

    def path(self, variant: str, rank: int) -> Path:
        """The log of one rank."""
        return self._folder / variant / "numerics" / f"rank_{rank}_activations.log"

    def logs(self, variant: str) -> list[Log]:
        """Per rank, the log."""
        return list(read_logs(self._folder / variant).values())


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> TwoRanks:
    """Two gloo ranks, started once, also for several test workers."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "two_ranks_captured"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "rank_1.json").exists():
            _run_two_ranks(folder)
    return TwoRanks(folder)


def _run_two_ranks(folder: Path) -> None:
    command = [sys.executable, "-m", "tests.capture.ranks", str(folder), str(_free_port())]
    variables = {"MASTER_ADDR": "localhost", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    ranks = [
        subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, **variables, "RANK": str(rank)},
        )
        for rank in range(2)
    ]
    for rank in ranks:
        _, errors = rank.communicate(timeout=180)
        assert rank.returncode == 0, errors[-4000:]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        # below the range that the system gives away, so that the ports after it are likely to be free too
        return 10_000 + int(probe.getsockname()[1]) % 20_000
