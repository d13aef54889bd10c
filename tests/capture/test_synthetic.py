"""`--synthetic`: weights and batch by name and position, whatever holds them."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from capture import synthetic
from capture.placement import Placement
from capture.synthetic import synthesise_batch, synthesise_weights
from tests.capture.conftest import Script


def made(name: str, *shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> torch.Tensor:
    tensor = torch.empty(shape, dtype=dtype)
    assert synthesise_weights([(name, tensor)], [], seed) == (1, [])
    return tensor


def shard_of(whole: torch.Tensor, rows: list[range]) -> Any:
    """Return what a rank holds of these rows, with the attributes of a DTensor."""
    local = torch.empty(sum(map(len, rows)), *whole.shape[1:])
    axes = (tuple(rows), *((range(size),) for size in whole.shape[1:]))
    placement = Placement((("0", 2),), ("Shard(0)",), tuple(whole.shape), axes)
    part = nn.Parameter(local)
    part._spec, part._local_tensor = SimpleNamespace(placement=lambda _: placement), local
    return part


@pytest.mark.parametrize("rows", [[range(3)], [range(3, 7)], [range(2), range(5, 7)], []])
def test_a_shard_has_the_values_of_the_whole(rows: list[range]) -> None:
    whole, part = made("layers.0.weight", 7, 6), shard_of(torch.empty(7, 6), rows)
    assert synthesise_weights([("layers.0.weight", part)], [], 1) == (1, [])
    wanted = torch.cat([whole[list(run)] for run in rows]) if rows else whole[:0]
    assert torch.equal(part._local_tensor, wanted)


def test_values_depend_on_seed_name_and_position_and_not_on_strides_or_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = made("w", 64, 33)
    transposed = torch.empty(33, 64).t()
    synthesise_weights([("w", transposed)], [], 1)
    assert torch.equal(transposed, whole)
    monkeypatch.setattr(synthetic, "_PIECE", 100)
    assert torch.equal(made("w", 64, 33), whole)
    assert not torch.equal(made("w", 64, 33, seed=2), whole)
    assert not torch.equal(made("v", 64, 33), whole)
    assert torch.equal(made("w", 64, 33, dtype=torch.bfloat16), whole.bfloat16())


def test_activations_keep_their_size() -> None:
    weight = made("w", 512, 256).double()
    assert float(weight.std()) == pytest.approx(1 / math.sqrt(256), rel=0.01)
    assert float(weight.abs().max()) < 4 / math.sqrt(256)
    assert abs(float((weight[:-1] * weight[1:]).mean())) < 3e-5, "neighbours are independent"
    assert float((made("norm.weight", 256) - 1).abs().max()) < 0.1
    assert float(made("linear.bias", 256).abs().max()) < 0.1


def test_buffers_with_a_meaning_stay() -> None:
    mask, mean = torch.zeros(4, 4), torch.zeros(4)
    assert synthesise_weights([], [("mask", mask), ("bn.running_mean", mean)], 1) == (1, [])
    assert not mask.any()
    assert mean.all()


def test_ranks_with_other_rows_have_parts_of_the_batch_of_one_process() -> None:
    def batch(rows: int, first: int) -> list[torch.Tensor]:
        tensors = [torch.zeros(rows, 5), torch.randint(300, 511, (rows, 6))]
        assert synthesise_batch(tensors, 3, first) == 2
        return tensors

    whole, parts = batch(8, 0), [batch(4, 0), batch(4, 4)]
    for number, tensor in enumerate(whole):
        assert torch.equal(tensor, torch.cat([part[number] for part in parts]))
    assert 200 < int(whole[1].max()) < 256 > -int(whole[1].min())


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randint(0, 2, (4, 6)),
        torch.arange(6).expand(4, 6),
        torch.arange(6).repeat(4, 1),
        torch.tensor([[5, -100, 3]]),
        torch.zeros(3, 1).expand(3, 4),
        torch.ones(3, 4, dtype=torch.bool),
        torch.tensor(3.0),
    ],
    ids=["mask", "expanded", "positions", "ignored", "broadcast", "bool", "scalar"],
)
def test_masks_positions_and_targets_to_ignore_stay(tensor: torch.Tensor) -> None:
    before = tensor.clone()
    assert synthesise_batch([tensor], 1, 0) == 0
    assert torch.equal(tensor, before)


TRAINS = """
torch.manual_seed({seed})
tokens = torch.randint(0, 40, (4, 9))
model = nn.Sequential(nn.Embedding(40, 8), nn.Linear(8, 40))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = tokens[:, :-1], tokens[:, 1:]
nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
optimizer.step()
print(int(tokens.max()))
"""


def test_runs_begin_with_the_same_values_whatever_their_seeds(script: Script) -> None:
    plain = script(TRAINS.format(seed=1)).log
    one, other = (script(TRAINS.format(seed=seed), "--synthetic 5") for seed in (1, 2))
    assert "gave 3 weights and 1 tensor of the batch synthetic values (--synthetic 5): this changes the run" in one.said
    assert other.log.run["settings"]["synthetic"] == 5
    assert "synthetic" not in plain.run["settings"]
    assert int(one.printed) < 32, "targets that are the same memory follow"
    assert one.log.run["parameters_digest"] == other.log.run["parameters_digest"] != plain.run["parameters_digest"]
    assert one.log.run["batch_digest"] == other.log.run["batch_digest"] != plain.run["batch_digest"]
    assert one.log.run["end_state"] == other.log.run["end_state"]
    assert one.log.ops == plain.ops
    assert "detached" not in one.log.run, "what was changed detached the batch, not the program"
