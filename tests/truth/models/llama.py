"""The model of examples/train.py in the loop of this suite; its bugs are those of examples/bugs.py."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.truth.run import Run

EXAMPLES = str(Path(__file__).parents[3] / "examples")
BATCH = 4


def _example(name: str) -> Any:
    """A module of the example, which is a folder of scripts and no package."""
    if EXAMPLES not in sys.path:
        sys.path.append(EXAMPLES)
    return import_module(name)


def _settings(run: Run) -> Any:
    named = ["--bug", run.bug] if run.bug in _example("bugs").LAYER_BUGS else []
    small = ["--layers", "2", "--dim", "32", "--seq-len", "16", "--vocab", "64", "--kv-heads", "2"]
    return _example("settings").parse([*small, "--seed", str(run.seed), *named])


def build(run: Run) -> Any:
    """The model."""
    return _example("train").build(_settings(run))


def stacks(model: Any) -> list[Any]:
    """Lists of blocks."""
    return [model.layers]


def split(model: Any, mesh: Any) -> None:
    """Tensor parallelism with norms over slices of the sequence."""
    parallel = _example("parallel")
    parallel.split_matrices(model, parallel.World(tensor_mesh=mesh))


def batch(run: Run) -> dict[str, Any]:
    """Made-up tokens."""
    settings = _settings(run)
    size = (BATCH, settings.seq_len)
    inputs, targets = _example("data").micro_batch(settings.token_seed, 1, 0, size, settings.vocab)
    return {"inputs": inputs, "targets": targets}


def loss(model: Any, data: dict[str, Any], run: Run) -> Any:
    """Cross-entropy, whole or in chunks."""
    total = _example("loss").LOSSES["whole" if run.chunks == 1 else "chunked"](model(data["inputs"]), data["targets"])
    return total / data["targets"].numel()
