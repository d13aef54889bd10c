"""Small dumps of tensors, as other tools write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ACTIVATIONS", "safetensors"]

_NAMES = {"f4": "F32", "f8": "F64", "i8": "I64", "u2": "BF16", "u1": "F8_E4M3", "b1": "BOOL"}
"""Dtypes by numpy's; those that it does not have as their bits."""

ACTIVATIONS: Mapping[str, NDArray[Any]] = {
    f"layers.{layer}.{name}": np.sin(np.arange(12.0) + layer).reshape(3, 4).astype(np.float32)
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
