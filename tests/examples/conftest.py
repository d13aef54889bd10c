"""Runs of the training examples in this process."""

import importlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ["--layers", "2", "--dim", "32", "--seq-len", "16", "--vocab", "64", "--steps", "2", "--print-state"]


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
    return _main("train", SMALL, monkeypatch, capsys)


@pytest.fixture
def megatron(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Train:
    """Train the model of megatron.py in this process, as one rank."""
    return _main("megatron", ["--print-state"], monkeypatch, capsys)


def _main(
    script: str, always: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Train:
    torch = importlib.import_module("torch")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module = importlib.import_module(script)

    def run(arguments: str) -> Trained:
        capsys.readouterr()
        with torch.random.fork_rng():
            try:
                module.main([*always, *arguments.split()])
            finally:
                torch.use_deterministic_algorithms(False)
        return Trained.read(capsys.readouterr().out)

    return run
