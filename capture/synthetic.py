"""Weights and batches by name and global position: the same in every layout, on every device, without data.

A value is a hash of the seed, the tensor's name and the element's position in the global tensor, so a shard is a shard
of what one process has. Four fields of 16 bits of it are added up, which is close enough to normal and exact: the
float that a position gets depends on nothing but its dtype.

- Matrices: standard deviation 1/√(inputs), so that activations keep their size.
- Other parameters: near 1 (scales of norms), those named `bias` near 0. Of buffers, running statistics alone: what
  others hold (masks, tables of positions) has to fit.
- Batches: floats are standard normal; whole numbers are below the largest power of two that the existing ones reach,
  which hardly depends on whose rows they are. Masks, positions and negative numbers (targets to be ignored) stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from math import prod
from typing import Any

import torch

from .generators import key_of
from .kernels.eager import mixed
from .kernels.guards import unnoticed
from .placement import Placement

__all__ = ["synthesise_batch", "synthesise_weights"]

_PIECE = 1 << 22
"""Elements that are made at once, of 8 bytes several times over."""
_SPREAD = math.sqrt(4 * (65536**2 - 1) / 12)
_NEAR = 0.02


def synthesise_weights(
    parameters: Iterable[tuple[str, Any]], buffers: Iterable[tuple[str, Any]], seed: int
) -> tuple[int, list[str]]:
    """Give parameters and running statistics their values in place; return their number, and the names of the rest.

    Args:
        parameters: (path, tensor), DTensors included; those of FSDP1 by their slices are among the rest.
    """
    done, left = 0, []
    statistics = [(name, tensor) for name, tensor in buffers if _kind(name) in ("running_mean", "running_var")]
    for name, tensor in (*parameters, *statistics):
        if _synthesise(name, tensor, seed):
            done += 1
        else:
            left.append(name)
    return done, left


def _kind(name: str) -> str:
    return name.rpartition(".")[2]


def _synthesise(name: str, tensor: Any, seed: int) -> bool:
    spec, local = getattr(tensor, "_spec", None), getattr(tensor, "_local_tensor", tensor)
    if not isinstance(tensor, torch.Tensor) or not _takes(local):
        return False
    shape, axes = tuple(tensor.shape), [[*range(size)] for size in tensor.shape]
    if spec is not None:
        placement = Placement.of(spec)
        if placement.axes is None or placement.shape is None:
            return False
        shape, axes = placement.shape, [[*chain(*runs)] for runs in placement.axes]
    if len(shape) > 1:
        inputs = max(shape[1:]) if len(shape) == 3 else prod(shape[1:])  # three: of stacked experts
        mean, spread = 0.0, 1 / math.sqrt(max(inputs, 1))
    else:
        mean, spread = 0.0 if _kind(name) in ("bias", "running_mean") else 1.0, _NEAR
    with unnoticed():
        for piece, position in _pieces(local, axes, shape):
            piece.copy_(_normal(position, key_of(seed, name)).mul_(spread).add_(mean))
    return True


def _takes(tensor: torch.Tensor) -> bool:
    """True of a tensor of floats whose elements can be set one by one."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided or tensor.is_meta:
        return False
    overlaps = any(stride == 0 < size - 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return not overlaps and tensor.is_floating_point() and tensor.itemsize > 1


def synthesise_batch(tensors: Sequence[torch.Tensor], seed: int, row: int) -> int:
    """Give the tensors of a batch their values in place; return their number.

    Args:
        row: the number of their first row in the global batch.
    """
    done = 0
    with unnoticed():
        for number, tensor in enumerate(tensors):
            local, key = tensor.detach(), key_of(seed, f"batch {number}")
            if not local.dim() or not local.numel() or type(local) is not torch.Tensor:
                continue
            axes = [range(row, row + local.shape[0]), *map(range, local.shape[1:])]
            if _takes(local):
                for piece, position in _pieces(local, axes, local.shape):
                    piece.copy_(_normal(position, key))
                done += 1
            elif (below := _below(local)) > 1:
                for piece, position in _pieces(local, axes, local.shape):
                    piece.copy_(mixed(position + key) & (below - 1))
                done += 1
    return done


def _below(tensor: torch.Tensor) -> int:
    """Return the power of two below which new whole numbers are; 0 where existing ones mean something by themselves."""
    if tensor.dtype not in (torch.int64, torch.int32, torch.int16) or 0 in tensor.stride():
        return 0
    least, most = int(tensor.min()), int(tensor.max())
    if least < 0 or most < 2:
        return 0
    counts = torch.arange(tensor.shape[-1], dtype=tensor.dtype, device=tensor.device)
    return 0 if bool((tensor - tensor[..., :1] == counts).all()) else 1 << ((most + 1).bit_length() - 1)


def _pieces(
    local: torch.Tensor, axes: Sequence[Sequence[int]], shape: Sequence[int]
) -> Iterable[tuple[Any, torch.Tensor]]:
    """Yield pieces of a tensor and the global positions of their elements, row by row."""
    if not local.numel():
        return
    if not local.dim():
        yield local, torch.zeros((), dtype=torch.int64, device=local.device)
        return
    strides = [prod(shape[dim + 1 :]) for dim in range(len(shape))]
    ends = [
        torch.tensor(axis, dtype=torch.int64, device=local.device) * stride
        for axis, stride in zip(axes, strides, strict=True)
    ]
    rows = max(1, _PIECE // max(1, local[0].numel()))
    for start in range(0, local.shape[0], rows):
        position = ends[0][start : start + rows]
        for end in ends[1:]:
            position = position.unsqueeze(-1) + end
        yield local[start : start + rows], position


def _normal(position: torch.Tensor, key: int) -> torch.Tensor:
    """float64, mean 0 and standard deviation 1."""
    x = mixed(position + key)
    total = sum((x >> shift) & 0xFFFF for shift in (0, 16, 32, 48)) - 2 * 65535
    return total.to(torch.float64).div_(_SPREAD)
