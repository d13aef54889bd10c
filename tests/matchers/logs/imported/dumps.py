"""Small dumps of tensors, as other tools write them."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ACTIVATIONS", "debug_tree", "determinism", "msprobe", "routing", "safetensors"]

_NAMES = {"f4": "F32", "f8": "F64", "i8": "I64", "u2": "BF16", "u1": "F8_E4M3", "b1": "BOOL"}
"""Dtypes by numpy's; those that it does not have as their bits."""

ACTIVATIONS: Mapping[str, NDArray[Any]] = {
    f"layers.{layer}.{name}": np.sin(np.arange(12.0) + layer + len(name) / 2).reshape(3, 4).astype(np.float32)
    for layer in (0, 1, 2, 10)
    for name in ("attention", "mlp")
}


def safetensors(tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of a file."""
    told: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        kind = _NAMES[tensor.dtype.str[1:]]
        told[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    head = json.dumps(told).encode()
    return len(head).to_bytes(8, "little") + head + b"".join(tensor.tobytes() for tensor in tensors.values())


def debug_tree(tensors: Mapping[str, NDArray[Any]] = ACTIVATIONS, folder: Path | None = None) -> bytes:
    """The debug tree of a model whose layers have these results, each read by the next, as transformers 5 writes it.

    Args:
        folder: where the tensors lie as safetensors; None: the tree has printed numbers alone.
    """

    def told(tensor: NDArray[Any], name: str) -> dict[str, Any]:
        if folder is not None:
            (folder / f"{name}.safetensors").write_bytes(safetensors({"data": tensor}))
        size, value = f"torch.Size({list(tensor.shape)})", f"./{name}.safetensors" if folder else [f"{tensor}"]
        numbers = {"mean": tensor.mean(), "std": tensor.std(ddof=1), "min": tensor.min(), "max": tensor.max()}
        printed = {key: f"tensor({number:.4e})" for key, number in numbers.items()}
        return {"shape": size, "dtype": f"torch.{tensor.dtype}", "value": value, **printed}

    children: list[dict[str, Any]] = []
    before = np.zeros((3, 4), np.float32)
    for name, tensor in tensors.items():
        path, inner = f"Model.{name}", f"Model.{name}.inner"
        inputs = {"args": [told(before, f"{path}_inputs_args_0")], "kwargs": {"mask": "None"}}
        leaf = {"module_path": inner, "inputs": inputs, "outputs": told(tensor, f"{inner}_outputs")}
        children.append({"module_path": path, "inputs": inputs, "children": [leaf]})
        before = tensor
    return json.dumps({"module_path": "Model", "inputs": {"args": []}, "children": children}, indent=2).encode()


def msprobe(
    folder: Path,
    level: str = "mix",
    *,
    scale: float = 1.0,
    summary: str = "statistics",
    batch: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Path:
    """The dump of a step of two layers in the folder of a rank, as msprobe 26.2 writes it.

    Args:
        scale: of the second layer's weight.
        batch: the micro-batch, as under Megatron.
        changes: entries that are replaced.
    """
    x, w = np.sin(np.arange(12.0)).reshape(3, 4), np.cos(np.arange(16.0)).reshape(4, 4)

    def told(array: NDArray[Any]) -> dict[str, Any]:
        array = array.astype(np.float32)
        numbers = {"Max": array.max(), "Min": array.min(), "Mean": array.mean(), "Norm": np.linalg.norm(array)}
        checksum = zlib.crc32(array.tobytes())
        return {
            "type": "torch.Tensor",
            "dtype": "torch.float32",
            "shape": list(array.shape),
            **({key: float(value) for key, value in numbers.items()} if summary != "xor" else {}),
            "requires_grad": True,
            **({"md5": f"{checksum:08x}"} if summary == "md5" else {}),
            **({"md5": f"0x{checksum:016x}"} if summary == "xor" else {}),
        }

    data: dict[str, Any] = {}
    parents: dict[str, Any] = {}
    for layer, weight in enumerate((w, w * scale)):
        y = np.tanh(x @ weight)
        module, block = f"Module.layers.{layer}.up.Linear.forward.0", f"Module.layers.{layer}.Block.forward.0"
        call = {"input_args": [told(x)], "input_kwargs": {}, "output": [told(x @ weight)]}
        if level != "L0":
            function = {**call, "input_args": [told(x), told(weight), {"type": "int", "value": 2}, None]}
            data[f"Functional.linear.{layer}.forward"] = function
            data[f"Torch.tanh.{layer}.forward"] = {**call, "input_args": [told(x @ weight)], "output": [told(y)]}
        if level != "L1":
            data[module] = {**call, "parameters": {"weight": told(weight)}, "is_recompute": False}
            data[block] = {**call, "output": [told(y)]}
        parents |= {f"Functional.linear.{layer}.forward": module, module: block, block: None}
        parents[f"Torch.tanh.{layer}.forward"] = block
        x = y
    for layer in (1, 0):
        module = f"Module.layers.{layer}.up.Linear.backward.0"
        data[f"Functional.linear.{layer}.backward"] = {"input": [told(x)], "output": [told(x @ w), None]}
        parents[f"Functional.linear.{layer}.backward"] = module
        data[f"Module.layers.{layer}.up.Linear.parameters_grad.0"] = {"weight": [told(w * scale)]}
    stepped = {"input_args": [told(w * scale)], "output": [told(w * scale * 0.9)]}
    data["Tensor.__iadd__.0.forward"] = {**stepped, "input_kwargs": {}}
    parents |= {"Tensor.__iadd__.0.forward": "optimizer", "optimizer": None}
    if batch is not None:
        parents = {name: [parent, batch] for name, parent in parents.items()}
    stack = {"0": [list(data), ["File /l/site-packages/torch/x.py, line 1, in f, \n x", "File /t.py, line 3, in g"]]}
    head = {"task": "statistics", "level": level, "framework": "pytorch", "dump_data_dir": None}
    folder.mkdir(parents=True, exist_ok=True)
    told_of = {"construct": {} if level == "L1" else parents, "stack": stack}
    for name, value in {"dump": {**head, "data": data | dict(changes or {})}, **told_of}.items():
        (folder / f"{name}.json").write_text(json.dumps(value, indent=1))
    return folder / "dump.json"


def determinism(mode: str, differs_from: int = 9) -> str:
    """A determinism trace of Megatron-LM, by its schema: an event, three tensors and a scalar.

    Args:
        differs_from: the first tensor that has other values.
    """
    at = {"iteration": 24, "rank": 0, "schema_version": 1, "occurrence": 0}
    records: list[dict[str, Any]] = [
        {"event": "event", "name": "iteration_start", "fields": {"num_microbatches": 4}, "phase": "train"}
    ]
    for layer in range(3):
        value = 90.5 if layer < differs_from else 95.5
        tensor: dict[str, Any] = {"dtype": "bfloat16", "shape": [2, 4], "numel": 8, "mode": mode, "layout": "strided"}
        if mode == "summary":
            numbers = {"l2_norm": value, "maximum": 4.1, "mean": -0.001, "minimum": -3.9}
            tensor["summary"] = {"all_finite": True, **numbers}
        elif mode in ("full", "sampled"):
            tensor["sha256"] = hashlib.sha256(str((layer, value)).encode()).hexdigest()
        name = f"decoder.layer{layer}.input"
        records.append({"event": "tensor", "name": name, "microbatch": 1, "phase": "forward", "tensor": tensor})
    records.append({"event": "event", "name": "loss.lm", "fields": {"value": 1.5}, "phase": "train"})
    return "".join(
        json.dumps(
            {"microbatch": None, "metadata": {}, **at, **record, "sequence": k}, sort_keys=True, separators=(",", ":")
        )
        + "\n"
        for k, record in enumerate(records)
    )


def routing(flipped: int | None = None, *, hidden: bool = False) -> str:
    """A routing trace of Megatron-LM, by its schema: three layers of four tokens and two experts each.

    Args:
        flipped: the layer in which a token goes to another expert.
        hidden: the trace names the hidden states beside it.
    """
    lines = []
    for layer in range(3):
        chosen = [[token, token + layer + 1] for token in range(4)]
        if layer == flipped:
            chosen[2][1] += 1
        line: dict[str, Any] = {"step": 0, "stage": "pre_dispatch", "block": "decoder", "layer": layer, "rank": 0}
        line |= {"num_tokens": 4, "topk": 2, "top_indices": chosen}
        if hidden:
            line |= {"hs_offset": layer * 16, "hs_bytes": 16, "hs_shape": [4, 2]}
        lines.append(json.dumps(line) + "\n")
    return "".join(lines)
