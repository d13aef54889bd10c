"""Debug trees of transformers: the modules that call no others, by their tensors or by five printed digits."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from matchers.comparison import compare
from matchers.errors import LogError
from matchers.logs.imported import json_shapes
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.logs.raw_record import raw_record
from matchers.runs.run import find_run
from matchers.status import Role, Status
from tests.matchers.contents import contents
from tests.matchers.logs.imported.dumps import ACTIVATIONS, debug_tree, safetensors

KEYS = [f"{name}.inner/op_0_forward" for name in ACTIVATIONS]
OTHER = {name: tensor * np.float32(1.01 if k > 4 else 1) for k, (name, tensor) in enumerate(ACTIVATIONS.items())}


def log_of(folder: Path, tensors: object = ACTIVATIONS, *, values: bool = True) -> OpLog:
    folder.mkdir()
    tree = debug_tree(tensors, folder if values else None)  # type: ignore[arg-type] # of arrays
    (folder / "Model_debug_tree_FULL_TENSORS.json").write_bytes(tree)
    return read_log(next(iter(find_run(str(folder)).paths.values())))


def test_modules_have_the_numbers_of_their_tensors_and_what_made_their_inputs(tmp_path: Path) -> None:
    log = log_of(tmp_path / "a")
    assert (log.header.format, list(log.keys), log.problems) == ("transformers debug tree", KEYS, ())
    assert [log.producers[row].tolist() for row in range(3)] == [[-1], [0], [1]]
    assert log.inputs[2].tolist() == log.outputs[1].tolist()
    assert raw_record(log, 0)[0] == '"module_path": "Model.layers.0.attention.inner",'


def test_the_module_with_equal_inputs_and_another_result_is_the_first_cause(tmp_path: Path) -> None:
    c = compare(log_of(tmp_path / "a"), log_of(tmp_path / "b", OTHER))
    assert [c.a.keys[int(c.row_a[row])] for row in np.flatnonzero(c.cause)] == [KEYS[5]]
    assert c.role[5] == Role.ORIGIN
    assert set(compare(c.a, c.a).status.tolist()) == {Status.EQUAL}


def test_of_printed_numbers_the_last_digit_is_no_difference(tmp_path: Path) -> None:
    log = log_of(tmp_path / "a", values=False)
    assert log.header.format == "transformers debug tree (printed numbers)"
    tensor = ACTIVATIONS["layers.0.mlp"]
    assert log.stats[1, 1] == pytest.approx(np.linalg.norm(tensor), rel=1e-4)
    nearly = {name: tensor * np.float32(1.00004) for name, tensor in ACTIVATIONS.items()}
    c = compare(log, log_of(tmp_path / "b", nearly, values=False))
    assert not c.red.any()
    c = compare(log, log_of(tmp_path / "c", OTHER, values=False))
    assert [c.a.keys[int(c.row_a[row])] for row in np.flatnonzero(c.cause)] == [KEYS[5]]
    assert c.role[5] == Role.UNKNOWN
    assert not compare(log, log_of(tmp_path / "d")).red.any()


def test_a_file_that_a_later_call_has_written_over_is_not_taken_for_an_earlier_one(tmp_path: Path) -> None:
    log = log_of(tmp_path / "a")
    path = tmp_path / "a" / "Model.layers.0.mlp.inner_outputs.safetensors"
    path.write_bytes((tmp_path / "a" / "Model.layers.10.mlp.inner_outputs.safetensors").read_bytes())
    again = read_log(log.path)
    assert (len(again.digests[1]), again.stats[3, 1]) == (0, pytest.approx(log.stats[3, 1], rel=1e-4))
    assert not compare(log, again).red.any()
    path.write_bytes(safetensors({"data": ACTIVATIONS["layers.0.mlp"].T}))
    again = read_log(log.path)
    assert (len(again.digests[1]), again.shape_text(1)) == (0, "[3, 4]")


def test_a_tree_that_is_no_json_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(debug_tree()[:-30])
    with pytest.raises(LogError, match=r"a.json:\d+: no JSON"):
        read_log(path)
    path.write_bytes(debug_tree().replace(b'"mask": "None"', b'"mask": "\xff"'))
    with pytest.raises(LogError, match=r"a.json:1: no JSON that can be read"):
        read_log(path)
    path.write_bytes(debug_tree().replace(b'"module_path": "Model.layers.2.mlp.inner"', b'"module_path_": 3'))
    log = read_log(path)
    assert (list(log.keys), log.complete) == (KEYS[:5], False)


@pytest.mark.compiler
@pytest.mark.parametrize("values", [True, False])
def test_a_tree_is_the_same_without_a_compiler(values: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also calls that return two tensors, have a name with an escape, or not all numbers."""
    log = log_of(tmp_path / "a", values=values)
    path = Path(log.path)
    tree = json.loads(path.read_bytes())
    first, second, third, *_ = [node["children"][0] for node in tree["children"]]
    first["outputs"] = [first["outputs"], dict(second["outputs"])]
    second["module_path"] += '\\ "\u00e9'
    third["outputs"] |= {"std": "tensor(nan)", "min": "tensor(1., dtype=torch.float16)", "max": None}
    third["children"] = []
    path.write_text(json.dumps(tree, indent=2))
    compiled = read_log(path)
    assert len(compiled) == len(log)
    monkeypatch.setattr(json_shapes, "_compiled", lambda: None)
    assert contents(read_log(path)) == contents(compiled)
    if not values:
        found = {**{name: compiled.stats[k, 2] for k, name in enumerate(("L1", "L2", "Min", "Max", "Mean"))}}
        assert (found["Min"], math.isnan(found["Max"]), math.isnan(found["L2"])) == (1.0, True, True)
