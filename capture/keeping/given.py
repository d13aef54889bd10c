"""Memory of what modules were given in a step, which may be overwritten while their backward pass still reads it."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

__all__ = ["Given"]

_Noted = tuple[StorageWeakRef, int, int, int, dict[str, Any], str]
"""Storage, version, first byte, last byte, the call's entry in the manifest, and the name of the tensor."""


class Given:
    """Inputs of calls by the address of their storages.

    A module may be given a view, such as the first token of a sequence, and another one then the whole. A graft of the
    second overwrites what the first was given, and its gradients are not those of its own inputs any more. Operations
    in place are noticed by autograd itself, and tell another version.
    """

    def __init__(self) -> None:
        self._noted: dict[int, list[_Noted]] = {}

    def clear(self) -> None:
        """Begin a step."""
        self._noted.clear()

    def note(self, told: dict[str, Any], path: str, tensor: torch.Tensor) -> None:
        """Note an input of a call."""
        try:
            storage = tensor.untyped_storage()
            address = storage.data_ptr()
        except (RuntimeError, NotImplementedError):  # a tensor without memory of its own
            return
        begin, end = _extent(tensor)
        noted: _Noted = StorageWeakRef(storage), tensor._version, begin, end, told, path
        self._noted.setdefault(address, []).append(noted)

    def overwritten(self, tensor: torch.Tensor) -> None:
        """Mark the calls whose inputs share memory with a tensor that was overwritten."""
        begin, end = _extent(tensor)
        for storage, version, first, last, told, path in self._noted.get(tensor.untyped_storage().data_ptr(), ()):
            if not storage.expired() and version == tensor._version and first < end and begin < last:
                names = told.setdefault("rewritten", [])
                if path not in names:
                    names.append(path)


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the addresses of the first byte and behind the last one."""
    if not tensor.numel():
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()
