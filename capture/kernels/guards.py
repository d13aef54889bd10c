"""Contexts for reading a tensor inside a training step unseen by modes, subclasses and autograd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["has_own_dispatch", "no_functions", "storage_address", "unnoticed"]

_C: Any = getattr(torch, "_C")  # noqa: B009  the guards have no public name

no_functions: Any = _C.DisableTorchFunction
"""Context in which no torch function mode or subclass sees a call; enough for queries such as the shape."""

storage_address: Any = _C._data_address
"""Address of a tensor's storage, 0 without one; unlike `Tensor.data_ptr`, it does not trigger copy on write."""


def has_own_dispatch(tensor: torch.Tensor) -> bool:
    """Return True for a subclass that computes its values itself (a DTensor, a fake tensor)."""
    dispatch: Any = type(tensor).__torch_dispatch__
    return dispatch is not _C._disabled_torch_dispatch_impl


@contextmanager
def unnoticed() -> Iterator[None]:
    """Open a context in which tensor operations go unnoticed by the training code.

    No dispatch mode, torch function mode, subclass, function transform, autocast or autograd sees them, and memory
    allocated in it can be written to in and out of inference mode.
    """
    with (
        no_functions(),
        _C._DisableTorchDispatch(),
        _C._DisableFuncTorch(),
        torch.inference_mode(mode=False),
        torch.no_grad(),
        _C._ExcludeDispatchKeyGuard(_AUTOCAST),
    ):
        yield


def _autocast_keys() -> Any:
    names = [name for name in dir(_C.DispatchKey) if name.startswith("Autocast")]
    keys = _C.DispatchKeySet(getattr(_C.DispatchKey, names[0]))
    for name in names[1:]:
        keys = keys.add(getattr(_C.DispatchKey, name))
    return keys


_AUTOCAST = _autocast_keys()
