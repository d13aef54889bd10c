"""What `make_deterministic` sets, and that two runs after it are the same."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from capture.determinism import make_deterministic


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("CUBLAS_WORKSPACE_CONFIG", "PYTHONHASHSEED"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # so that it is put back
    cudnn: Any = torch.backends.cudnn
    deterministic: Any = torch.utils.deterministic
    before = cudnn.deterministic, cudnn.benchmark, deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)
    cudnn.deterministic, cudnn.benchmark, deterministic.fill_uninitialized_memory = before


def draws() -> tuple[float, ...]:
    return torch.rand(1).item(), random.random(), float(np.random.rand())  # noqa: NPY002


def test_what_is_drawn_after_it_is_the_same() -> None:
    make_deterministic(3)
    first = draws()
    make_deterministic(3)
    assert draws() == first
    make_deterministic(4)
    assert not set(draws()) & set(first)


@pytest.mark.parametrize("warn_only", [False, True])
def test_it_sets_what_it_says(warn_only: bool) -> None:
    said = make_deterministic(2**40 + 5, warn_only=warn_only)
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.is_deterministic_algorithms_warn_only_enabled() is warn_only
    assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.benchmark
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert os.environ["PYTHONHASHSEED"] == "5"
    assert torch.initial_seed() == 2**40 + 5
    deterministic: Any = torch.utils.deterministic
    assert not deterministic.fill_uninitialized_memory
    assert dict(said.settings)["seed of numpy"] == 5
    assert f"torch.use_deterministic_algorithms = {'warn only' if warn_only else True}" in str(said).splitlines()
    assert "CUBLAS_WORKSPACE_CONFIG = :4096:8" in str(said)
    assert said.notes == ()


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_that_is_none_is_refused_before_anything_is_set(seed: int) -> None:
    with pytest.raises(ValueError, match="the seed must be from 0"):
        make_deterministic(seed)
    assert not torch.are_deterministic_algorithms_enabled()
