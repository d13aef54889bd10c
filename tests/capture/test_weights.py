"""The log of weights: what is in it, in which order, and that it always ends with a whole step."""

from __future__ import annotations

import base64
import errno
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed._local_tensor import LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from capture import weights
from capture.modules import ModuleNames
from capture.weights import WeightsLog
from matchers.weights.log import read_weights


class Run:
    """A few steps of AdamW, recorded after each."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        torch.manual_seed(0)
        self.path = folder / "rank_0_weights.log"
        self.net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1, bias=False))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.1)
        self.log = WeightsLog(lambda rank: folder / f"rank_{rank}_weights.log", ModuleNames([self.net]), **settings)

    def step(self, number: int) -> None:
        self.optimizer.zero_grad()
        self.net(torch.ones(4, 3)).sum().backward()
        self.optimizer.step()
        self.log.record(number, [self.optimizer])

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines() if line.startswith("{")]


def test_every_part_of_every_parameter_in_order(tmp_path: Path) -> None:
    run = Run(tmp_path, run={"seed": 0})
    run.step(1)
    run.step(2)
    run.log.close()
    text = run.path.read_text().splitlines()
    assert text[0] == "Format: numtui weights 1"
    assert json.loads(text[1].removeprefix("Run: ")) == {"seed": 0, "rank": 0}
    assert text[2] == "=" * 80
    assert text[-1] == "End of weights: 2 steps"
    assert [(line["parameter"], line["part"]) for line in run.lines() if line["step"] == 2] == [
        (name, part)
        for name in ("0.weight", "0.bias", "1.weight")
        for part in ("grad", "weight", "step", "exp_avg", "exp_avg_sq")
    ]


def test_the_numbers_are_those_of_the_tensors(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.step(1)
    line = next(line for line in run.lines() if line["parameter"] == "0.weight" and line["part"] == "weight")
    weight = run.net.get_parameter("0.weight").detach().double()
    assert line["shape"] == [2, 3]
    assert line["dtype"] == "float32"
    assert line["l2"] == pytest.approx(weight.norm().item())
    assert line["max"] == weight.max().item()
    assert line["counts"] == [6, 0, 0, 0]
    assert len(line["digest"]) == 16
    assert sum(s * s for s in _sketch(line)) / 16 == pytest.approx(weight.square().sum().item(), rel=2)


def test_only_the_chosen_steps_and_no_sketches(tmp_path: Path) -> None:
    run = Run(tmp_path, steps=[2, 5], sketch=False)
    for number in (1, 2, 3):
        run.step(number)
    assert {line["step"] for line in run.lines()} == {2}
    assert not any("sketch" in line for line in run.lines())
    assert run.log.paths == [run.path]


def test_training_goes_on_as_without_it(tmp_path: Path) -> None:
    one, other = Run(tmp_path / "a"), Run(tmp_path / "b", steps=[])
    for number in (1, 2, 3):
        torch.manual_seed(number)
        one.step(number)
        torch.manual_seed(number)
        other.step(number)
    assert torch.equal(one.net.get_parameter("0.weight"), other.net.get_parameter("0.weight"))
    assert one.optimizer.state.keys() - set(one.net.parameters()) == set()
    assert not other.path.exists()


def test_parameters_that_no_model_has_and_frozen_ones(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.net.get_parameter("0.bias").requires_grad_(False)
    run.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    run.step(1)
    parts: dict[str, list[str]] = {}
    for line in run.lines():
        parts.setdefault(line["parameter"], []).append(line["part"])
    assert parts["0.bias"] == ["weight"]
    assert parts["group1.0"] == ["weight"]


def test_optimizers_that_step_one_after_the_other(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.net.append(nn.Linear(1, 1))
    run.log = WeightsLog(lambda _: run.path, ModuleNames([run.net]))
    other = torch.optim.SGD(run.net[2].parameters(), lr=0.1)
    run.step(1)
    before = len(run.lines())
    run.log.record(1, [other])
    assert [(line["parameter"], line["part"]) for line in run.lines()[before:]] == [
        ("2.weight", "grad"),
        ("2.weight", "weight"),
        ("2.bias", "grad"),
        ("2.bias", "weight"),
    ]
    run.log.close()
    log = read_weights(run.path)
    assert log.complete
    assert log.problems == []


def test_without_an_optimizer_it_is_every_parameter(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.log.record(0)
    assert [line["parameter"] for line in run.lines()] == ["0.weight", "0.bias", "1.weight"]


def test_simulated_ranks_have_a_file_each_and_their_sketches_add_up(tmp_path: Path) -> None:
    whole = torch.arange(35, dtype=torch.float32).reshape(7, 5).sin()
    run = Run(tmp_path)
    run.net.register_parameter("plain", nn.Parameter(whole))
    run.log.record(0)
    expected = _sketch(next(line for line in run.lines() if line["parameter"] == "plain"))
    torch.distributed.init_process_group("fake", rank=0, world_size=3, store=FakeStore())
    try:
        with LocalTensorMode(3):
            mesh = init_device_mesh("cpu", (3,), mesh_dim_names=("tp",))
            net = nn.Module()
            net.register_parameter("w", nn.Parameter(distribute_tensor(whole, mesh, [Shard(0)])))
            log = WeightsLog(lambda rank: tmp_path / f"simulated_{rank}.log", ModuleNames([net]))
            log.record(1)
        log.close()
    finally:
        torch.distributed.destroy_process_group()
    lines = [json.loads((tmp_path / f"simulated_{rank}.log").read_text().splitlines()[3]) for rank in range(3)]
    assert [line["shape"] for line in lines] == [[3, 5], [3, 5], [1, 5]]
    assert [line["placement"]["offsets"] for line in lines] == [[0, 0], [3, 0], [6, 0]]
    total = [sum(projections) for projections in zip(*map(_sketch, lines), strict=True)]
    assert total == pytest.approx(expected, rel=1e-12)


def _sketch(line: dict[str, Any]) -> tuple[float, ...]:
    return struct.unpack("<16d", base64.b64decode(line["sketch"]))


def test_a_run_that_is_killed_leaves_whole_steps_and_a_new_one_starts_afresh(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.step(1)
    first = run.path.read_bytes()
    run.step(2)
    assert run.path.read_bytes().startswith(first)
    assert "End of weights" not in run.path.read_text()
    again = Run(tmp_path)
    again.step(1)
    assert run.path.read_bytes() == first


def test_a_full_disk_takes_the_step_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path)
    run.step(1)
    before = run.path.read_bytes()
    write_all = weights._write_all

    def fails_half_way(file: Any, data: bytes) -> None:
        write_all(file, data[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(weights, "_write_all", fails_half_way)
    with pytest.raises(OSError, match="No space left on device; the log of weights ends before this step"):
        run.step(2)
    assert run.path.read_bytes() == before
    monkeypatch.setattr(weights, "_write_all", write_all)
    run.step(3)
    assert {line["step"] for line in run.lines()} == {1, 3}
    run.log.close()
    assert run.path.read_text().endswith("End of weights: 2 steps\n")
