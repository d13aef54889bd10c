"""A log of operations is compared with one of modules by what modules return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.comparison import compare
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.logs.raw_record import raw_record
from matchers.status import Status
from tests.builders import Op, log_text
from tests.matchers.logs.imported.dumps import ACTIVATIONS, determinism, safetensors


def calls_of(path: Path, tensors: Mapping[str, NDArray[Any]] = ACTIVATIONS) -> OpLog:
    path.write_bytes(safetensors(tensors))
    return read_log(path)


def of(key: str, tensor: NDArray[Any], **more: Any) -> Op:
    """An operation that returns a tensor."""
    x = tensor.astype(float)
    numbers: dict[str, Any] = {"l2": np.linalg.norm(x), "min": x.min(), "max": x.max(), "mean": x.mean()}
    return Op(key=key, shape=tensor.shape, outputs=[np.abs(x).sum()], **{**numbers, **more})


def operations(path: Path, before: str = "", **more: Any) -> OpLog:
    """Each module has an operation in a module of it, one of its own, and what it returns, before that is viewed."""
    ops = []
    for name, tensor in ACTIVATIONS.items():
        ops += [of(f"{before}{name}.wq/op_0_mm", tensor * 2), of(f"{before}{name}/op_0_mul", tensor[:2])]
        ops.append(of(f"{before}{name}/op_1_add", tensor.reshape(12, 1), **more))
    ops += [of("<none>/op_0_mm", tensor[:2], phase="backward"), of(f"{before}{name}/op_2_mm", tensor, phase="backward")]
    path.write_text(log_text(ops, exact=True))
    return read_log(path)


def test_the_last_result_in_a_module_is_what_it_returns(tmp_path: Path) -> None:
    calls, ops = calls_of(tmp_path / "a"), operations(tmp_path / "b")
    for c in (compare(calls, ops), compare(ops, calls)):
        assert len(c) == len(ACTIVATIONS)
        assert set(c.status.tolist()) <= {Status.SAME_PRINT, Status.CLOSE}
        assert "compared where these end" in " ".join(note.text for note in c.comparability.notes)
    reduced = compare(calls, ops).b
    assert list(reduced.keys) == list(calls.keys)
    assert raw_record(reduced, 0)[0] == "[layers.0.attention/op_1_add]"


def test_a_wrapper_around_all_modules_is_no_difference(tmp_path: Path) -> None:
    c = compare(calls_of(tmp_path / "a"), operations(tmp_path / "b", before="Model.model."))
    assert (len(c), bool(c.red.any())) == (len(ACTIVATIONS), False)


def test_a_module_that_returns_something_else_is_red(tmp_path: Path) -> None:
    name = "layers.1.mlp"
    other = {**ACTIVATIONS, name: ACTIVATIONS[name] * np.float32(1.5)}
    c = compare(calls_of(tmp_path / "a", other), operations(tmp_path / "b"))
    assert [c.a.module_name(int(c.row_a[row])) for row in np.flatnonzero(c.red)] == [name]


def test_a_result_of_another_size_or_dtype_is_not_taken_for_it(tmp_path: Path) -> None:
    c = compare(calls_of(tmp_path / "a"), operations(tmp_path / "b", dtype="float64"))
    assert set(c.status.tolist()) == {Status.ONLY_A}


def test_of_several_calls_the_last_is_the_one_that_a_dump_by_name_has(tmp_path: Path) -> None:
    before = [of(f"{name}/op_0_add", tensor * 3) for name, tensor in ACTIVATIONS.items()]
    operations(tmp_path / "b")
    text = (tmp_path / "b").read_text()
    (tmp_path / "b").write_text(log_text(before, exact=True) + text.partition("\n\n")[2])
    c = compare(calls_of(tmp_path / "a"), read_log(tmp_path / "b"))
    assert (len(c.b), bool(c.red.any())) == (len(ACTIVATIONS), False)


@pytest.mark.parametrize(("last", "paired"), [("add", 2), ("sub", 0)])
def test_two_calls_with_nothing_in_between_end_where_the_same_operations_are_done_again(
    last: str, paired: int, tmp_path: Path
) -> None:
    trace = determinism("summary", differs_from=1).splitlines(keepends=True)
    (tmp_path / "a").write_text("".join(trace[:3]).replace("layer1", "layer0"))
    both: dict[str, Any] = {"shape": (2, 4), "dtype": "bfloat16", "min": -3.9, "max": 4.1, "mean": -0.001}
    names = [("mul", 10.0), ("add", 90.5), ("mul", 20.0), (last, 95.5)]
    ops = [Op(key=f"decoder.layer0.input/op_{k}_{name}", l2=norm, **both) for k, (name, norm) in enumerate(names)]
    (tmp_path / "b").write_text(log_text(ops, exact=True))
    c = compare(read_log(tmp_path / "a"), read_log(tmp_path / "b"))
    assert (int((c.pair >= 0).sum()), bool(c.red.any())) == (paired, False)
    assert [raw_record(c.b, row)[0] for row in range(len(c.b))] == ["[decoder.layer0.input/op_1_add]",
        "[decoder.layer0.input/op_3_add]"][:paired]  # fmt: skip


@pytest.mark.parametrize("root", ["", "iteration_1."])
def test_below_a_root_that_all_calls_have_also_a_module_of_one_name_is_paired(root: str, tmp_path: Path) -> None:
    tensors = {"embedding": ACTIVATIONS["layers.0.mlp"], "layers.1.mlp": ACTIVATIONS["layers.1.mlp"]}
    path = tmp_path / "b"
    path.write_text(log_text([of(f"{name}/op_0_add", tensor) for name, tensor in tensors.items()], exact=True))
    calls = calls_of(tmp_path / "a", {root + name: tensor for name, tensor in tensors.items()})
    c = compare(calls, read_log(path))
    assert (len(c), bool((c.pair >= 0).all()), bool(c.red.any())) == (2, True, False)


@pytest.mark.parametrize("scale", [1.0, 1.01])
def test_the_parts_of_complex_numbers_are_what_computes_them(scale: float, tmp_path: Path) -> None:
    """Of the norms L1 is that of magnitudes, and says nothing."""
    parts = ACTIVATIONS["layers.0.mlp"]
    whole = (parts * np.float32(scale)).view(np.complex64)
    computed = of("layers.0.mlp/op_0_mul", whole.view(np.float32), dtype="complex64")
    computed = replace(computed, shape=whole.shape, outputs=[float(np.abs(whole).sum())])
    (tmp_path / "b").write_text(log_text([computed], exact=True))
    c = compare(calls_of(tmp_path / "a", {"layers.0.mlp": parts}), read_log(tmp_path / "b"))
    assert ((c.pair >= 0).tolist(), c.red.tolist()) == ([True], [scale != 1.0])


def test_a_module_that_computes_nothing_has_not_the_end_of_another_layer(tmp_path: Path) -> None:
    """An identity: only one layer's `down` has operations, with a result of the same size."""
    tensor = np.arange(12, dtype=np.float32).reshape(3, 4)
    calls = calls_of(
        tmp_path / "a", {"blocks.0.down": tensor, "blocks.1.down": tensor + 1, "blocks.2.down": tensor * 9}
    )
    (tmp_path / "b").write_text(log_text([of("blocks.1.down/op_0_mm", tensor + 1)], exact=True))
    c = compare(calls, read_log(tmp_path / "b"))
    assert (list(c.b.keys), bool(c.red.any())) == (["blocks.1.down/op_0_tensor"], False)
