"""Seeds and switches that make two runs of one program bitwise equal."""

from __future__ import annotations

import os
import random
import sys
from dataclasses import dataclass
from typing import Any

import torch

from .machine import started_cuda

__all__ = ["Determinism", "make_deterministic"]

_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
_WORKSPACE = ":4096:8"


@dataclass(frozen=True, slots=True)
class Determinism:
    """Settings made by `make_deterministic` as (name, value), and notes on what failed; prints one line each."""

    settings: tuple[tuple[str, Any], ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{what} = {value}" for what, value in self.settings] + [f"note: {n}" for n in self.notes])


def make_deterministic(seed: int = 42, warn_only: bool = False) -> Determinism:
    """Seed every random generator and choose deterministic algorithms.

    Does the same as torchtitan's `--debug.seed`, `--debug.deterministic` and `--debug.deterministic_warn_only`. Call
    it before the model is made and before anything runs on a GPU, on every rank with the same seed: DTensor draws from
    torch's own generator and expects equal state on all ranks. Only pipeline stages may have different seeds.

    Args:
        seed: of torch (all devices), Python and, if already imported, numpy; later processes hash with it
            (`PYTHONHASHSEED`).
        warn_only: warn where an operation has no deterministic implementation, instead of raising.

    Returns:
        The settings made.

    Raises:
        ValueError: the seed is not from 0 to 2**64 - 1.
    """
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"the seed must be from 0 to 2**64 - 1, not {seed}")
    notes: list[str] = []
    if started_cuda() is not None and os.environ.get(_CUBLAS) != _WORKSPACE:
        notes.append(f"CUDA was started before {_CUBLAS} was set: set it in the environment of the run")
    short = seed % (1 << 32)
    environment = {_CUBLAS: _WORKSPACE, "PYTHONHASHSEED": str(short)}
    os.environ.update(environment)

    torch.manual_seed(seed)
    random.seed(seed)
    seeds: list[tuple[str, Any]] = [("seed of torch", seed), ("seed of python", seed)]
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(short)
        seeds.append(("seed of numpy", short))

    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    # use_deterministic_algorithms fills the result of torch.empty: one more kernel each, which races with libraries
    # that fill memory on their own stream, and turns a buffer that is never filled into NaN
    deterministic: Any = torch.utils.deterministic
    deterministic.fill_uninitialized_memory = False
    switches = (
        ("torch.use_deterministic_algorithms", "warn only" if warn_only else True),
        ("torch.backends.cudnn.deterministic", True),
        ("torch.backends.cudnn.benchmark", False),
        ("torch.utils.deterministic.fill_uninitialized_memory", False),
    )
    return Determinism((*seeds, *switches, *environment.items()), tuple(notes))
