"""Tensors dumped by name are operations of a log, in the order that their names or their index tell."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from matchers.comparison import compare
from matchers.errors import LogError
from matchers.explain.sentences import explain
from matchers.logs.parser import read_log
from matchers.logs.raw_record import raw_record
from matchers.runs.run import find_run, is_run
from matchers.status import Status
from tests.matchers.logs.imported.dumps import ACTIVATIONS, safetensors

BY_NAME = "safetensors (order of names)"
IN_ORDER = [f"layers.{layer}.{name}/op_0_tensor" for layer in (0, 1, 2, 10) for name in ("attention", "mlp")]


def folder_of(path: Path) -> Path:
    path.mkdir()
    for name, tensor in ACTIVATIONS.items():
        (path / f"{name}.safetensors").write_bytes(safetensors({name: tensor}))
    return path


def test_a_file_has_its_tensors_by_name_with_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors(dict(reversed(list(ACTIVATIONS.items())))))
    log = read_log(path)
    assert (log.header.format, list(log.keys), log.problems, log.complete) == (BY_NAME, IN_ORDER, (), None)
    tensor = ACTIVATIONS["layers.2.mlp"].astype(float)
    assert (log.shape_text(5), log.dtype_text(5), log.counts[:, 5].tolist()) == ("[3, 4]", "float32", [12, 0, 0, 0])
    assert log.outputs[5][0] == pytest.approx(np.abs(tensor).sum())
    assert log.stats[1:, 5] == pytest.approx([np.linalg.norm(tensor), tensor.min(), tensor.max(), tensor.mean()])
    assert len(log.digests[5]) == 1
    assert raw_record(log, 5) == (f"layers.2.mlp: float32, shape [3, 4], in {path}",)


def test_a_folder_is_one_log_and_no_run_of_ranks(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "acts")
    assert find_run(str(folder)).paths == {0: str(folder)}
    assert not is_run(str(folder))
    log = read_log(folder)
    assert list(log.keys) == IN_ORDER
    assert "layers.10.mlp.safetensors" in raw_record(log, 7)[0]
    (tmp_path / "a.safetensors").write_bytes(safetensors(ACTIVATIONS))
    assert set(compare(log, read_log(tmp_path / "a.safetensors")).status.tolist()) == {Status.EQUAL}


def test_in_the_order_of_names_a_module_comes_behind_those_in_it(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    names = ["layers.1", "layers.1.mlp", "layers.1.mlp.up", "layers.1.norm", "layers.10", "layers.2"]
    path.write_bytes(safetensors(dict.fromkeys(names, ACTIVATIONS["layers.0.mlp"])))
    assert list(read_log(path).modules) == [*(names[k] for k in (2, 1, 3, 0)), "layers.2", "layers.10"]


def test_an_index_tells_the_order_unless_it_is_alphabetical(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "acts")
    index = folder / "a.safetensors.index.json"
    ran = ["layers.10.mlp", "layers.0.mlp", "layers.2.attention"]
    for names, read in ((ran, ran), (sorted(ran), [ran[1], ran[2], ran[0]])):
        index.write_text(json.dumps({"metadata": {}, "weight_map": {name: f"{name}.safetensors" for name in names}}))
        assert find_run(str(folder)).paths == {0: str(index)}
        log = read_log(index)
        assert (list(log.modules), log.header.format) == (read, "safetensors" if names is ran else BY_NAME)


def test_a_damaged_file_of_several_costs_its_own_tensors_alone(tmp_path: Path) -> None:
    """Also one that is missing; where no file can be read there is no log."""
    folder, index = folder_of(tmp_path / "acts"), tmp_path / "acts" / "a.safetensors.index.json"
    ran = ["layers.10.mlp", "layers.0.mlp", "layers.2.attention"]
    index.write_text(json.dumps({"weight_map": {name: f"{name}.safetensors" for name in ran}}))
    (folder / "layers.0.mlp.safetensors").write_bytes(b"\5\0\0\0\0\0\0\0{x}")
    (folder / "layers.2.attention.safetensors").unlink()
    log = read_log(index)
    assert list(log.modules) == ["layers.10.mlp"]
    told = " ".join(problem.message for problem in log.problems)
    assert "layers.0.mlp.safetensors:1: the header of the safetensors file is no JSON object" in told
    assert "layers.2.attention.safetensors" in told
    (folder / "layers.10.mlp.safetensors").write_bytes(b"")
    with pytest.raises(LogError):
        read_log(index)


@pytest.mark.parametrize("name", ["../b.safetensors", "", "..", "\ud800", "b\0"])
def test_an_index_names_no_files_elsewhere(name: str, tmp_path: Path) -> None:
    index = tmp_path / "a.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(LogError, match=re.escape(f"{name!r} in the index is not the name of a file beside it")):
        read_log(index)


def test_bits_of_dtypes_that_numpy_lacks_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors({"b": np.array([0x3FC0, 0x7F80], np.uint16), "f": np.array([0x38], np.uint8)}))
    log = read_log(path)
    assert [log.dtype_text(row) for row in (0, 1)] == ["bfloat16", "float8_e4m3fn"]
    assert [log.outputs[row].tolist() for row in (0, 1)] == [[1.5], [1.0]]
    assert log.counts[2].tolist() == [1, 0]


def test_the_first_tensor_that_differs_is_told_without_a_word_on_what_it_reads(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(safetensors(ACTIVATIONS))
    other = {name: tensor * (1.01 if name.startswith("layers.10") else 1) for name, tensor in ACTIVATIONS.items()}
    other["layers.2.mlp"] = other["layers.2.mlp"] + np.float32(0.1)
    (tmp_path / "b").write_bytes(safetensors({name: tensor.astype(np.float32) for name, tensor in other.items()}))
    c = compare(read_log(tmp_path / "a"), read_log(tmp_path / "b"))
    assert [c.a.keys[int(c.row_a[row])] for row in np.flatnonzero(c.red)] == IN_ORDER[5:]
    assert np.flatnonzero(c.cause).tolist() == [5]
    told = " ".join((explain(c, 5).headline, *explain(c, 5).notes))
    assert "LIKELY CAUSE" in told
    assert "do not tell what it reads" in told
    assert "the order is that of names: another tensor that differs may be the first" in told
    assert "input" not in told


def test_damage_costs_the_tensors_in_which_it_lies(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    good = safetensors(ACTIVATIONS)
    path.write_bytes(good[:-20])
    log = read_log(path)
    assert (len(log), log.complete) == (7, False)
    assert "ends within layers.10.mlp" in log.problems[0].message
    path.write_bytes(good.replace(b'"shape": [3, 4]', b'"shape": [3, 5]', 1))
    log = read_log(path)
    assert list(log.keys) == IN_ORDER[1:]
    assert "layers.0.attention: its dtype, shape and place" in log.problems[0].message
    path.write_bytes((1 << 31).to_bytes(8, "little") + good[8:])
    with pytest.raises(LogError, match="header of 2,147,483,648 bytes"):
        read_log(path)


def test_the_head_of_a_log_has_names_and_no_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors(ACTIVATIONS))
    log = read_log(path, head=1 << 10)
    assert (log.partial, list(log.keys), log.shape_text(0)) == (True, IN_ORDER, "[3, 4]")
    assert all(math.isnan(value) for value in log.stats.flat)
