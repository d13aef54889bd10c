"""Tensors of a dispatched call: inputs, written inputs, outputs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from .op_kind import OpKind
from .subclasses import plain

__all__ = ["flat_inputs", "flat_tensors", "is_view", "keywords", "place_of"]

_TENSORS = (torch.Tensor, list, tuple)


def flat_inputs(
    kind: OpKind, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[list[torch.Tensor], list[int], set[int], list[tuple[int | str, Any]]]:
    """Return the tensors among the arguments, positions of the written ones, and of those written without a read.

    And the arguments that are something else than tensors and lists of them, by position or name.
    """
    tensors: list[torch.Tensor] = []
    written: list[int] = []
    overwritten: set[int] = set()
    others: list[tuple[int | str, Any]] = []
    spots: tuple[tuple[int | str, Any], ...] = (*enumerate(args), *kwargs.items())
    for spot, argument in spots:
        found = flat_tensors(argument)
        if not found or (found[0] is not argument and any(not isinstance(item, _TENSORS) for item in argument)):
            others.append((spot, argument))
        if found and spot in kind.writes:
            positions = range(len(tensors), len(tensors) + len(found))
            written += positions
            if spot in kind.overwrites:
                overwritten.update(positions)
        tensors += found
    return tensors, written, overwritten, others


def flat_tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in an argument or a result, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in flat_tensors(item)]
    if isinstance(value, dict):
        return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    return []


def is_view(results: list[torch.Tensor], inputs: list[torch.Tensor]) -> bool:
    """Return True if all results alias inputs: a view in effect, as `reshape` often is."""
    given = {_storage(tensor) for tensor in inputs}
    return all(_storage(result) in given for result in results)


def place_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return an identity of a tensor's memory; equal for tensors of one shape over the same memory."""
    offset = tensor.storage_offset() if tensor.layout is torch.strided else 0
    return (_storage(tensor), offset, tuple(tensor.shape))


def _storage(tensor: torch.Tensor) -> int:
    try:
        return int(plain(tensor).untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return id(tensor)


def keywords() -> dict[str, Any]:
    """Find the keyword arguments of the module call whose hook is running: a global hook does not receive them."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if (
            frame.f_code.co_name in ("inner", "_call_impl")
            and "kwargs" in frame.f_locals
            and "torch" in frame.f_code.co_filename
        ):
            found = frame.f_locals["kwargs"]
            return dict(found) if isinstance(found, dict) else {}
        frame = frame.f_back
    return {}
