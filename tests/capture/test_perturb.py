"""`--perturb`: every parameter by one rounding error, and nothing else."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

import capture
from capture.perturb import perturb
from tests.capture.conftest import LOOP, Script


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.complex64])
def test_moves_some_elements_by_one_epsilon(dtype: torch.dtype) -> None:
    before = torch.rand(200, 50, dtype=dtype) + 1
    after = nn.Parameter(before.clone())
    assert perturb([("weight", after)], 0) == 1
    eps = torch.finfo(dtype).eps
    change = (after.detach() - before).abs().double() / before.abs().double()
    assert 0 < float(change.max()) <= 2 * eps
    assert 1 / 64 < float((change > 0).double().mean()) < 1 / 16
    assert float(change.square().mean().sqrt()) == pytest.approx(eps / math.sqrt(32), rel=0.5)
    assert after.requires_grad


def test_replicas_stay_replicas_and_seeds_differ() -> None:
    one, two, other, named = (nn.Parameter(torch.ones(1000)) for _ in range(4))
    perturb([("w", one)], 0)
    perturb([("w", two)], 0)
    perturb([("w", other)], 1)
    perturb([("v", named)], 0)
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert not torch.equal(one, named)


def test_what_does_not_round_stays() -> None:
    whole = torch.arange(100)
    assert perturb([("index", whole), ("meta", torch.empty(3, device="meta"))], 0) == 0
    assert torch.equal(whole, torch.arange(100))


def test_leaves_the_random_generators_alone() -> None:
    state = torch.get_rng_state()
    perturb([("w", nn.Parameter(torch.ones(10)))], 3)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_captured_run_is_perturbed_when_asked_and_says_so(script: Script) -> None:
    plain = script(LOOP).log
    moved = script(LOOP, "--perturb 5").log
    assert "perturb" not in plain.run["settings"]
    assert moved.run["settings"]["perturb"] == 5
    assert moved.run["parameters_digest"] != plain.run["parameters_digest"]
    assert moved.run["batch_digest"] != plain.run["batch_digest"], "its floats are inputs, too"
    before = {name: plain.run[name] for name in ("parameters_digest", "batch_digest")}
    assert moved.run["before_perturbation"] == before
    assert moved.run["rng_digests"]["torch"] == plain.run["rng_digests"]["torch"]
    assert moved.ops == plain.ops


def test_that_nothing_was_perturbed_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with capture.trace(nn.Linear(2, 2), path=tmp_path / "log", perturb=0):
        torch.ones(3).sum()
    assert "nothing was perturbed" in capfd.readouterr().err
