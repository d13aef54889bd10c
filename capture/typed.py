"""Placement of plain tensors that the package spmd_types annotates, from the annotations alone.

It gives a tensor a type for each axis of the mesh: R and I (every rank has the same), P (terms of a sum), V (each rank
has something else). Where a partition spec names the axes that a dimension is divided by, outermost first and into even
parts, V is a shard. The package is only looked at if the training has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from .placement import Placement

__all__ = ["TypedSpec", "typed_spec"]

_SAME, _TERMS, _OTHER = ("R", "I"), "P", "V"
_OF_GROUP = "mesh_"
"""Prefix of the name of a group: the name of the mesh dimension follows."""


@dataclass(frozen=True)
class TypedSpec:
    """The annotations of a tensor, which take the place of a DTensor's spec.

    Attributes:
        types: axis → type; an axis has `layout.sizes_and_strides` over the ranks.
        divided: the axes that each dimension is divided by, outermost first.
        shape: of the local tensor.
    """

    types: Mapping[Any, Any]
    divided: tuple[tuple[Any, ...], ...]
    shape: tuple[int, ...]

    def placement(self, rank: int | None = None) -> Placement:
        """Return the placement of a rank's tensor: this process's without one."""
        if rank is None:
            rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        cut = {axis: dim for dim, axes in enumerate(self.divided) for axis in axes}
        axes = sorted(self.types, key=lambda axis: -max(stride for _, stride in axis.layout.sizes_and_strides))
        mesh = tuple((repr(axis).removeprefix(_OF_GROUP), axis.size()) for axis in axes)
        placements = tuple(_name(str(self.types[axis].value), cut.get(axis)) for axis in axes)
        if _OTHER in placements:
            return Placement(mesh, placements, None, None)
        sizes = [prod(axis.size() for axis in by) for by in self.divided]
        whole = tuple(length * size for length, size in zip(self.shape, sizes, strict=True))
        starts = [length * _index(by, rank) for length, by in zip(self.shape, self.divided, strict=True)]
        ranges = tuple((range(start, start + n),) if n else () for start, n in zip(starts, self.shape, strict=True))
        return Placement(mesh, placements, whole, ranges)


def typed_spec(tensor: torch.Tensor) -> TypedSpec | None:
    """Return the annotations of a tensor; None where it has none."""
    package: Any = sys.modules.get("spmd_types")
    if package is None or not (types := package.get_local_type(tensor)):
        return None
    spec = package.get_partition_spec(tensor) or (None,) * tensor.dim()
    divided = tuple(() if by is None else by if isinstance(by, tuple) else (by,) for by in spec)
    return TypedSpec(dict(types), divided, tuple(tensor.shape))


def _name(kind: str, dim: int | None) -> str:
    """Return the type in the words of DTensor; V, which it has no word for, as it is."""
    if dim is not None:
        return f"Shard({dim})"
    return "Replicate" if kind in _SAME else "Partial(sum)" if kind == _TERMS else _OTHER


def _index(axes: tuple[Any, ...], rank: int) -> int:
    """Return which part of a dimension a rank has."""
    index = 0
    for axis in axes:
        for size, stride in axis.layout.sizes_and_strides:
            index = index * size + rank // stride % size
    return index
