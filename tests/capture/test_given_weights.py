"""`--weights-from`: whole weights of a file or of another run, in whatever holds them here."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from capture.flat_parameters import NamedSlice, _Place
from capture.given_weights import GivenWeights
from capture.keeping.stored_weights import InFile, read_stored
from capture.placement import Placement
from capture.settings import Settings
from tests.capture.conftest import Script

WHOLE = {
    "layers.0.weight": torch.arange(42.0).reshape(7, 6),
    "layers.0.bias": torch.arange(7.0).bfloat16(),
    "norm.weight": torch.zeros(0),
}


def written(path: Path, tensors: dict[str, torch.Tensor], **changes: Any) -> Path:
    """Write a safetensors file, with changes of what its header tells of a tensor."""
    names = {torch.float32: "F32", torch.bfloat16: "BF16"}
    told, content = dict[str, Any](), b""
    for name, tensor in tensors.items():
        data = bytes(tensor.flatten().view(torch.uint8).tolist())
        place = [len(content), len(content) + len(data)]
        told[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place} | changes
        content += data
    head = json.dumps({"__metadata__": {"format": "pt"}, **told}).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + content)
    return path


def given(source: Path, parameters: dict[str, Any], buffers: dict[str, Any] | None = None) -> dict[str, Any]:
    weights = GivenWeights("x", read_stored(str(source)))
    weights.give(parameters.items(), (buffers or {}).items())
    return weights.as_json()


def test_whole_tensors_are_copied_rounded_and_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = written(tmp_path / "model.safetensors", WHOLE)
    held = {
        "layers.0.weight": nn.Parameter(torch.zeros(7, 6)),
        "layers.0.bias": nn.Parameter(torch.zeros(7)),
        "norm.weight": nn.Parameter(torch.ones(3)),
        "head.weight": nn.Parameter(torch.ones(2)),
    }
    mask = torch.ones(2)
    said = given(source, held, {"mask": mask})
    assert torch.equal(held["layers.0.weight"], WHOLE["layers.0.weight"])
    assert torch.equal(held["layers.0.bias"], WHOLE["layers.0.bias"].float())
    assert said["given"] == 2
    assert said["left"] == {
        "norm.weight": "its shape is [3] here, [0] there",
        "head.weight": "no tensor of this name there",
    }
    assert said["unused"] == ["norm.weight"]
    assert not said["rounded"]
    assert mask.all(), "a buffer that the file lacks stays"
    told = capsys.readouterr().err
    assert (
        "gave 2 weights the values of x (--weights-from): this changes the run; 2 stay as they are: norm.weight" in told
    )


def test_values_that_the_dtype_here_has_not_are_rounded(tmp_path: Path) -> None:
    source = written(tmp_path / "model.safetensors", {"w": torch.tensor([1.0, 1.0 + 2**-12])})
    held = {"w": nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))}
    assert given(source, held)["rounded"] == ["w"]
    assert held["w"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("rows", [[range(3)], [range(3, 7)], [range(2), range(5, 7)], []])
def test_a_shard_gets_its_part(rows: list[range], tmp_path: Path) -> None:
    source = written(tmp_path / "model.safetensors", WHOLE)
    placement = Placement((("0", 2),), ("Shard(0)",), (7, 6), (tuple(rows), (range(6),)))
    local = torch.full((sum(map(len, rows)), 6), -1.0)
    part = SimpleNamespace(_spec=SimpleNamespace(placement=lambda _: placement), _local_tensor=local, shape=(7, 6))
    assert given(source, {"layers.0.weight": part})["given"] == 1
    whole = WHOLE["layers.0.weight"]
    assert torch.equal(local, torch.cat([whole[list(run)] for run in rows]) if rows else whole[:0])


def test_a_slice_of_a_flat_parameter_gets_its_part(tmp_path: Path) -> None:
    source = written(tmp_path / "model.safetensors", WHOLE)
    flat = torch.zeros(10)
    part = NamedSlice(flat, flat[2:9], _Place(42, 11, 7, 2))
    assert given(source, {"layers.0.weight": part})["given"] == 1
    assert flat.tolist() == [0, 0, *range(11, 18), 0]


@pytest.mark.parametrize(("here", "there"), [("", "model."), ("model.", ""), ("", "a.b."), ("a.", "")])
def test_a_prefix_of_all_names_does_not_count(here: str, there: str, tmp_path: Path) -> None:
    source = written(tmp_path / "x.safetensors", {there + name: tensor for name, tensor in WHOLE.items()})
    held = {here + name: nn.Parameter(torch.full(tuple(tensor.shape), -1.0)) for name, tensor in WHOLE.items()}
    assert given(source, held)["given"] == len(WHOLE)
    assert all(torch.equal(held[here + name], tensor.float()) for name, tensor in WHOLE.items())


def test_a_folder_with_an_index_is_one_model(tmp_path: Path) -> None:
    names = list(WHOLE)
    for k, name in enumerate(names):
        written(tmp_path / f"part_{k}.safetensors", {name: WHOLE[name]})
    assert {*read_stored(str(tmp_path))} == {*names}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {names[0]: "part_0.safetensors"}}))
    assert [*read_stored(str(tmp_path))] == names[:1] == [*read_stored(str(index))]
    index.write_text(json.dumps({"weight_map": {names[1]: "part_0.safetensors"}}))
    with pytest.raises(ValueError, match=r"layers\.0\.bias is not in part_0\.safetensors"):
        read_stored(str(tmp_path))
    index.write_text(json.dumps({"weight_map": {names[0]: "../part_0.safetensors"}}))
    with pytest.raises(ValueError, match="outside its folder"):
        read_stored(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"shape": [8, 6]}, "are not of one tensor"),
        ({"data_offsets": [0, 1 << 40]}, "are not of one tensor"),
        ({"data_offsets": [-4, 0]}, "are not of one tensor"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    source = written(tmp_path / "model.safetensors", {"w": torch.zeros(7, 6)}, **changes)
    with pytest.raises(ValueError, match=reason):
        read_stored(str(source))


@pytest.mark.parametrize("content", [b"", b"\x80\x02\x8a\nl", b"\xff" * 64, (9).to_bytes(8, "little") + b"[1, 2, 3]"])
def test_what_is_no_file_of_weights_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match="no safetensors file"):
        read_stored(str(tmp_path / "x"))
    with pytest.raises(ValueError, match="No such file"):
        read_stored(str(tmp_path / "y"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="capture one with --save weights"):
        read_stored(str(tmp_path / "empty"))


def test_a_file_that_was_cut_off_meanwhile_is_left(tmp_path: Path) -> None:
    weights = GivenWeights("x", {"w": InFile(str(written(tmp_path / "x", {})), "float32", (2,), 0, 1 << 20)})
    weights.give([("w", nn.Parameter(torch.zeros(2)))], [])
    assert weights.as_json()["left"] == {"w": "its file was cut off meanwhile"}


TRAINS = """
torch.manual_seed({seed})
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1)
for _ in range(2):
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
"""


def test_runs_begin_with_the_weights_that_another_run_kept(script: Script, tmp_path: Path) -> None:
    one = script(TRAINS.format(seed=1), "--save weights")
    log = one.log
    kept = tmp_path / "kept"
    one.folder.rename(kept)
    other = script(TRAINS.format(seed=2), f"--weights-from {kept}")
    assert "gave 9 weights the values of" in other.said
    assert other.log.run["weights_from"] == {"given": 9, "rounded": [], "left": {}, "unused": []}
    assert other.log.run["settings"]["changes_run"] == [f"--weights-from {kept}"]
    for name in ("parameter_digests", "buffer_digests", "end_state"):
        assert other.log.run[name] == log.run[name]


def test_weights_of_a_model_that_is_called_later_are_given_before_it_runs(script: Script, tmp_path: Path) -> None:
    source = written(tmp_path / "w.safetensors", {"1.weight": torch.ones(2, 4), "0.weight": torch.ones(4, 4)})
    text = """
    first = nn.Sequential(nn.Linear(4, 4, bias=False))
    second = nn.ModuleDict({"1": nn.Linear(4, 2, bias=False)})
    second.forward = lambda x: second["1"](x)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.0)
    second(first(torch.ones(1, 4))).sum().backward()
    optimizer.step()
    print(first[0].weight.sum().item(), second["1"].weight.sum().item())
    """
    run = script(text, f"--weights-from {source}")
    assert run.printed.split() == ["16.0", "8.0"], run.said
    assert run.log.run["weights_from"]["given"] == 2


def test_a_wrong_path_is_said_before_anything_is_captured(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--weights-from .*nothing: No such file"):
        Settings(weights_from=str(tmp_path / "nothing"))
