"""Dumps that torch writes: every dtype and layout, and the first cause among modules of a dump."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from matchers.comparison import compare
from matchers.logs.imported.measured import Dumped
from matchers.logs.imported.torch_file import Unknown, read_torch
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.runs.run import find_run

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.int64),
    *(torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.bool),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
)


def read(path: Path, value: Any) -> Any:
    torch.save(value, path / "a.pt")
    return read_torch(str(path / "a.pt"), "a.pt")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bytes_of_every_dtype_are_those_that_were_saved(dtype: torch.dtype, tmp_path: Path) -> None:
    tensor = (torch.randn(3, 4) * 3).to(dtype)
    found = read(tmp_path, tensor)
    assert (found.dtype, found.shape) == (str(dtype).removeprefix("torch."), (3, 4))
    assert found.data == tensor.view(-1).view(torch.uint8).numpy().tobytes()


def test_views_parameters_and_objects_are_read(tmp_path: Path) -> None:
    whole = torch.arange(20.0).reshape(4, 5)
    kept = {"t": whole.t(), "part": whole[1:3, ::2], "p": torch.nn.Parameter(torch.ones(3)), "empty": torch.zeros(0, 2)}
    found = read(tmp_path, {**kept, "huge": torch.ones(1).expand(1 << 40), "device": torch.device("cpu")})
    for name, tensor in kept.items():
        assert np.frombuffer(found[name].data, np.float32).reshape(tensor.shape).tolist() == tensor.tolist()
    assert isinstance(found["huge"], Unknown)
    assert found["device"] == Unknown("torch.device")
    state = read(tmp_path, torch.nn.Linear(2, 3).state_dict())
    assert {name: one.shape for name, one in state.items()} == {"weight": (3, 2), "bias": (3,)}
    assert isinstance(state["bias"], Dumped)


def dumped(folder: Path, scale: float) -> OpLog:
    """A dump of three modules, as SGLang's dumper writes it in its non-intrusive mode."""
    folder.mkdir()
    x, index = torch.arange(12.0).reshape(3, 4) / 7, 0
    for layer in range(3):
        y = torch.tanh(x * (scale if layer == 1 else 1) + layer)
        for name, value in (("inputs.0", x), ("output", y)):
            index += 1
            tags = {"step": 0, "rank": 0, "dump_index": index, "name": f"non_intrusive__layers.{layer}.mlp.{name}"}
            tags["recompute_status"] = "disabled"
            file = "___".join(f"{key}={value}" for key, value in tags.items()) + ".pt"
            torch.save({"value": value, "meta": {**tags, "world_rank": 0, "world_size": 1}}, folder / file)
        x = y
    return read_log(next(iter(find_run(str(folder)).paths.values())))


def test_the_module_with_equal_inputs_and_another_result_is_the_first_cause(tmp_path: Path) -> None:
    c = compare(dumped(tmp_path / "a", 1.0), dumped(tmp_path / "b", 1.5))
    assert list(c.a.keys) == [f"layers.{layer}.mlp/op_0_forward" for layer in range(3)]
    assert [c.a.producers[row].tolist() for row in range(3)] == [[-1], [0], [1]]
    assert np.flatnonzero(c.cause).tolist() == [1]
    assert not compare(c.a, dumped(tmp_path / "c", 1.0)).red.any()
