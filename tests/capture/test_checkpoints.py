"""Checkpoints that torch writes: files of `torch.save`, distributed ones, and the weights of captured runs."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch.distributed import checkpoint

from matchers.errors import LogError
from matchers.weights.checkpoints import form_of, read_checkpoint
from matchers.weights.numbers import Outcome
from matchers.weights.state_compare import compare_states

pytestmark = pytest.mark.filterwarnings("ignore")


class Evil:
    """Would make a folder if it were executed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._path),)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3).to(torch.bfloat16))


def test_a_file_of_torch_and_a_distributed_checkpoint_are_equal(tmp_path: Path) -> None:
    of = model()
    weights = dict(of.state_dict()) | {"turned": torch.arange(6.0).reshape(2, 3).T, "shared": of[0].weight[1:3]}
    optimizer = torch.optim.SGD(of.parameters(), momentum=0.9)
    sum(parameter.sum() for parameter in of.parameters()).backward()
    optimizer.step()
    torch.save({"model": weights, "epoch": 3, "optimizer": optimizer.state_dict()}, tmp_path / "a.pt")
    checkpoint.save({"model": weights, "epoch": 3}, checkpoint_id=tmp_path / "b")
    a, b = states = [read_checkpoint(str(tmp_path / name)) for name in ("a.pt", "b")]
    assert [state.form for state in states] == ["torch.save", "distributed"]
    assert sum(weight.optimizer for weight in states[0].weights) == len(list(of.parameters()))
    c = compare_states(a, b)
    assert c.agrees, (c.problems, c.only_a, c.only_b)
    assert len(c.judged) == len(weights)
    (turned,) = (weight for weight in states[0].weights if weight.name == "model.turned")
    assert turned.stored is not None
    assert turned.stored.bits().view(np.float32).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_a_tensor_in_several_chunks_is_joined(tmp_path: Path) -> None:
    """Of a DTensor every rank writes its part; here one process has both."""
    distributed.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{tmp_path}/store")
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        whole = torch.randn(5, 4)
        sharded = torch.distributed.tensor.distribute_tensor(whole, mesh, [torch.distributed.tensor.Shard(0)])
        checkpoint.save({"w": sharded}, checkpoint_id=tmp_path / "b")
    finally:
        distributed.destroy_process_group()
    (weight,) = read_checkpoint(str(tmp_path / "b")).weights
    assert weight.stored is not None
    assert weight.stored.bits().view(np.float32).tolist() == whole.tolist()


def test_nothing_in_a_checkpoint_is_executed(tmp_path: Path) -> None:
    made = tmp_path / "made"
    torch.save({"w": torch.ones(3), "x": Evil(made)}, tmp_path / "a.pt")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / ".metadata").write_bytes(pickle.dumps(Evil(made)))
    assert [weight.name for weight in read_checkpoint(str(tmp_path / "a.pt")).weights] == ["w"]
    with pytest.raises(LogError, match=r"\.metadata:1: this is no metadata"):
        read_checkpoint(str(tmp_path / "b"))
    assert not made.exists()


def test_damaged_and_old_files_are_refused_or_said(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(3)}, tmp_path / "old.bin", _use_new_zipfile_serialization=False)
    torch.save({"w": torch.ones(300)}, tmp_path / "whole.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "whole.pt").read_bytes()[:900])
    checkpoint.save({"w": torch.ones(300)}, checkpoint_id=tmp_path / "b")
    (data,) = (tmp_path / "b").glob("*.distcp")
    data.write_bytes(data.read_bytes()[:900])
    with pytest.raises(LogError, match=r"torch\.save of before torch 1\.6"):
        read_checkpoint(str(tmp_path / "old.bin"))
    with pytest.raises(LogError, match=r"damaged file of torch\.save"):
        read_checkpoint(str(tmp_path / "cut.pt"))
    a, b = (read_checkpoint(str(tmp_path / name)) for name in ("whole.pt", "b"))
    c = compare_states(a, b)
    assert [one.numbers.outcome for one in c.judged] == [Outcome.NOT_COMPARED]
    assert c.problems == (f"{data}:1: the file ends within a tensor",)
    assert form_of(str(tmp_path / "b")) == "distributed"
