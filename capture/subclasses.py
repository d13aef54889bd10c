"""Handling of tensor subclasses: those that dispatch to inner tensors, without values, or of several ranks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

__all__ = ["Handling", "handling_of", "local_part", "local_tensor_modes", "local_tensors", "plain", "runs_rank_by_rank"]

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


def _simulation(name: str) -> Any:
    """Return a class of torch's simulation of several ranks, None where nothing has imported that: it takes a while."""
    return getattr(sys.modules.get("torch.distributed._local_tensor"), name, None)


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
    local_tensor = _simulation("LocalTensor")
    if cls in _PLAIN or (local_tensor is not None and issubclass(cls, local_tensor)):
        return Handling.PLAIN
    return Handling.UNWRAPS_ITSELF


def local_tensor_modes() -> tuple[type, ...]:
    """Return the modes that must be below a tracer, so that it sees all ranks at once instead of one by one."""
    mode = _simulation("LocalTensorMode")
    return () if mode is None else (mode,)


def runs_rank_by_rank() -> bool:
    """Return True while torch does something for one simulated rank after the other, with the plain tensors of each."""
    find = _simulation("local_tensor_mode")
    mode = None if find is None else find()
    return mode is not None and bool(mode._disable)


def local_tensors(tensor: torch.Tensor) -> Mapping[int, torch.Tensor] | None:
    """Return rank → tensor for a tensor of several simulated ranks, None for any other."""
    cls = type(tensor)
    if cls in _PLAIN or cls is not _simulation("LocalTensor"):
        return None
    parts: Mapping[int, Any] = tensor._local_tensors
    return parts


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return the local tensor of a DTensor; any other tensor as it is."""
    found: torch.Tensor = getattr(tensor, "_local_tensor", tensor)
    return found


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with the memory: for several simulated ranks, that of the first."""
    if type(tensor) in _PLAIN:
        return tensor
    parts = local_tensors(tensor)
    return tensor if parts is None else parts[min(parts)]
