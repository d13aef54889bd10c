"""Runs of the training example: in this process where one is enough, in two where there are ranks."""

import fcntl
import importlib
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ["--layers", "2", "--dim", "32", "--seq-len", "16", "--vocab", "64", "--steps", "2", "--print-state"]

# Run on two ranks, each once.
VARIANTS = (
    "--parallel fsdp2",
    "--parallel fsdp2 --ac selective",
    "--parallel fsdp2 --bug stale-gather",
    "--parallel fsdp2 --experts 4",
    "--parallel ddp",
    "--parallel ddp --micro-batches 2",
    "--parallel tp",
    "--parallel fsdp2+tp",
)


@dataclass(frozen=True)
class Trained:
    """What a run printed: a loss and a gradient norm per step, and per rank a digest of its state."""

    losses: list[float]
    norms: list[float]
    states: list[str]

    @classmethod
    def read(cls, output: str) -> "Trained":
        words = output.split()
        following = {
            key: [after for word, after in itertools.pairwise(words) if word == key]
            for key in ("loss", "grad_norm", "state")
        }
        return cls(
            [float(value) for value in following["loss"]],
            [float(value) for value in following["grad_norm"]],
            following["state"],
        )


Train = Callable[[str], Trained]


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Train:
    """Train in this process, on a model that is small unless the arguments say otherwise."""
    torch = importlib.import_module("torch")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    script = importlib.import_module("train")

    def run(arguments: str) -> Trained:
        capsys.readouterr()
        with torch.random.fork_rng():
            try:
                script.main([*SMALL, *arguments.split()])
            finally:
                torch.use_deterministic_algorithms(False)
        return Trained.read(capsys.readouterr().out)

    return run


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Trained]]:
    """Per variant, what each of two gloo ranks printed; they are started once, also for several test workers."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (folder / "two_ranks.json").open("a+") as shared:
        fcntl.flock(shared, fcntl.LOCK_EX)
        shared.seek(0)
        known = shared.read()
        outputs: list[str] = json.loads(known) if known else _run_two_ranks()
        if not known:
            json.dump(outputs, shared)
    printed = [Trained.read(output) for output in outputs]
    steps = len(printed[0].losses) // len(VARIANTS)
    return {
        variant: [
            Trained(
                rank.losses[index * steps : (index + 1) * steps],
                rank.norms[index * steps : (index + 1) * steps],
                rank.states[index : index + 1],
            )
            for rank in printed
        ]
        for index, variant in enumerate(VARIANTS)
    }


def _run_two_ranks() -> list[str]:
    command = [sys.executable, str(Path(__file__).with_name("ranks.py")), str(EXAMPLES), str(_free_port())]
    command += [" ".join([*SMALL, *variant.split()]) for variant in VARIANTS]
    addresses = {"MASTER_ADDR": "localhost", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **addresses, "RANK": str(rank)},
        )
        for rank in range(2)
    ]
    outputs = []
    for rank in ranks:
        output, errors = rank.communicate(timeout=120)
        assert rank.returncode == 0, errors[-4000:]
        outputs.append(output)
    return outputs


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        # Below the range that the system gives away, so that the ports after it are likely to be free too.
        return 10_000 + int(probe.getsockname()[1]) % 20_000
