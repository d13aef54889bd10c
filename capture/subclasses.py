"""Handling of tensor subclasses: those that dispatch to inner tensors, without values, or of several ranks."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

__all__ = ["Handling", "handling_of", "local_part", "local_tensor_modes", "local_tensors", "plain"]

try:  # simulated ranks; newer than the oldest torch that is supported
    from torch.distributed._local_tensor import LocalTensor, LocalTensorMode
except ImportError:  # pragma: no cover
    LocalTensor = LocalTensorMode = None


class Handling(Enum):
    """Treatment of a call whose arguments have a tensor subclass."""

    PLAIN = auto()
    """Recorded as it is."""
    UNWRAPS_ITSELF = auto()
    """Left to the class (DTensor and others): its operations on inner tensors are recorded."""
    FAKE = auto()
    """Not recorded: there are no values."""


_known: dict[type, Handling] = {}


def handling_of(cls: type) -> Handling:
    """Return the treatment of calls with an argument of this class."""
    known = _known.get(cls)
    if known is None:
        known = _known[cls] = _handling(cls)
    return known


def _handling(cls: type) -> Handling:
    if issubclass(cls, FakeTensor | FunctionalTensor):
        return Handling.FAKE
    if cls is torch.Tensor or cls is torch.nn.Parameter or (LocalTensor is not None and issubclass(cls, LocalTensor)):
        return Handling.PLAIN
    return Handling.UNWRAPS_ITSELF


def local_tensor_modes() -> tuple[type, ...]:
    """Return the modes that must be below a tracer, so that it sees all ranks at once instead of one by one."""
    return () if LocalTensorMode is None else (LocalTensorMode,)


def local_tensors(tensor: torch.Tensor) -> Mapping[int, torch.Tensor] | None:
    """Return rank → tensor for a tensor of several simulated ranks, None for any other."""
    if LocalTensor is None or type(tensor) is not LocalTensor:
        return None
    parts: Mapping[int, Any] = tensor._local_tensors
    return parts


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return the local tensor of a DTensor; any other tensor as it is."""
    found: torch.Tensor = getattr(tensor, "_local_tensor", tensor)
    return found


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with the memory: for several simulated ranks, that of the first."""
    parts = local_tensors(tensor)
    return tensor if parts is None else parts[min(parts)]
