"""Slices of named parameters in the flat parameters of FSDP1, by the metadata that torch keeps of them.

A flat parameter is the parameters of a module, flattened and one behind the other; each rank holds a stretch of it:
some parameters whole, one or two in part, of the others nothing. Module and optimizer see the flat parameter itself, or
(`use_orig_params`) these slices as parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from .kernels.guards import unnoticed
from .modules import ModuleNames
from .placement import Placement

__all__ = ["NamedSlice", "members_of_flat", "named_slices"]


@dataclass(frozen=True)
class _Place:
    """Place of a slice in its parameter, which is taken as one row; stands for a DTensor's spec."""

    whole: int
    start: int
    length: int
    ranks: int

    def placement(self, _: int | None = None) -> Placement:
        """Return the placement of this process's slice."""
        indices = (range(self.start, self.start + self.length),) if self.length else ()
        return Placement((("0", self.ranks),), ("Shard(0)",), (self.whole,), (indices,))


@dataclass(frozen=True)
class NamedSlice:
    """A slice of a named parameter, with the attributes of a DTensor that tell its tensor and place.

    Attributes:
        held: the parameter that the training holds: the flat one, or the slice itself.
    """

    held: torch.Tensor
    _local_tensor: torch.Tensor
    _spec: _Place


def named_slices(parameters: Iterable[tuple[str, Any]], roots: Sequence[torch.nn.Module]) -> Iterator[tuple[str, Any]]:
    """Yield (path, parameter) pairs, where the slices in flat parameters take the place of these.

    Args:
        parameters: such pairs.
        roots: the models, whose wrappers have the metadata.
    """
    handles = {id(handle.flat_param): handle for handle in _handles(roots)}
    originals = {
        id(parameter): place
        for handle in handles.values()
        for parameter, place in zip(getattr(handle.flat_param, "_params", None) or (), _places(handle), strict=False)
    }
    for name, parameter in parameters:
        handle, place = handles.get(id(parameter)), originals.get(id(parameter))
        if handle is not None:
            yield from _cut(name, handle)
        elif place is not None and parameter.numel() == place.length:  # it is gathered in its module's pass
            yield name, NamedSlice(parameter, parameter, place)
        else:
            yield name, parameter


def members_of_flat(names: ModuleNames) -> dict[str, list[str]]:
    """Return the names of flat parameters that an optimizer sees, each with those of the parameters in it."""
    handles = {id(handle.flat_param): handle for handle in _handles(names.roots)}
    flat = ((name, handles[id(parameter)]) for name, parameter in names.parameters() if id(parameter) in handles)
    return {name: [_path(name, path) for path in handle.flat_param._fqns] for name, handle in flat}


def _handles(roots: Sequence[torch.nn.Module]) -> Iterator[Any]:
    for root in roots:
        for module in root.modules():
            handle = getattr(module, "_handle", None)
            if getattr(getattr(handle, "flat_param", None), "_shard_param_infos", None) is not None:
                yield handle


def _places(handle: Any) -> Iterator[_Place]:
    flat = handle.flat_param
    for shape, info in zip(flat._shapes, flat._shard_param_infos, strict=True):
        whole = prod(shape)
        if info.in_shard:
            yield _Place(whole, info.intra_param_start_idx, info.numel_in_shard, handle.world_size)
        else:
            yield _Place(whole, whole, 0, handle.world_size)


def _cut(name: str, handle: Any) -> Iterator[tuple[str, NamedSlice]]:
    flat = handle.flat_param
    local = getattr(flat, "_local_shard", flat)
    for path, info, place in zip(flat._fqns, flat._shard_param_infos, _places(handle), strict=True):
        start = info.offset_in_shard or 0
        with unnoticed():
            part = local.detach()[start : start + place.length]
        yield _path(name, path), NamedSlice(flat, part, place)


def _path(flat: str, path: str) -> str:
    """Return the name of a parameter that is at this path below the module of a flat one."""
    module, _, _ = flat.rpartition(".")
    return f"{module}.{path}" if module else path
