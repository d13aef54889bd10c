"""Small dumps of tensors, as other tools write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ACTIVATIONS", "debug_tree", "safetensors"]

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
