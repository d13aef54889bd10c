"""Faults of single ranks: in the memory, the batches and the communication of the rank that has the bug."""

import copy
import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from bugs import Planted
from torch import Tensor, nn

Collective = Callable[[Tensor], Tensor]


def flip_bit(tensor: Tensor, bit: int = 0) -> None:
    """Flip one bit of a float32 tensor's first element: as memory does, past every operation of torch."""
    ctypes.c_uint32.from_address(tensor.data_ptr()).value ^= 1 << bit


def corrupt(tensor: Tensor) -> None:
    """Add a half to the first element of a float32 tensor, past every operation of torch."""
    ctypes.c_float.from_address(tensor.data_ptr()).value += 0.5


def data_rank(rank: int, data_size: int, bug: Planted, tensor_size: int = 1) -> int:
    """Return the data rank whose batch to read: its own, or the one before that of the rank that has the bug."""
    twice = bug.has("same-batch") and rank == bug.rank // tensor_size
    return (rank - twice) % data_size


def zero_by_zero(layer: nn.Module) -> AbstractContextManager[Any]:
    """Open a context in which a layer's output is scaled by 0/0."""

    def scale(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        nothing = torch.zeros(())
        return output * (nothing / nothing)

    return layer.register_forward_hook(scale)


def of_group(group: Any, bug: Planted) -> Any:
    """Return the group of a layer whose collectives have the bug, if this rank has it."""
    faulty = copy.copy(group)
    if bug.here("corrupt-reduce-scatter"):
        faulty.reduce_scatter = first(corrupted, group.reduce_scatter)
    elif bug.here("stale-gather"):
        faulty.all_gather = stale(group.all_gather)
    elif bug.here("skipped-collective"):
        faulty.all_reduce = first(lambda _: torch.clone, group.all_reduce)
        faulty.reduce_scatter = first(lambda _: group.split, group.reduce_scatter)
    return faulty


def first(fault: Callable[[Collective], Collective], collective: Collective) -> Collective:
    """Return a collective that has the fault in its first call only."""
    calls = iter([fault(collective)])

    def run(x: Tensor) -> Tensor:
        return next(calls, collective)(x)

    return run


def corrupted(collective: Collective) -> Collective:
    """Return a collective with a wrong element in its result."""

    def run(x: Tensor) -> Tensor:
        result = collective(x)
        corrupt(result)
        return result

    return run


def stale(collective: Collective) -> Collective:
    """Return a collective to which this rank sends what it should have sent the last time, at first zeros."""
    kept: list[Tensor] = []

    def run(x: Tensor) -> Tensor:
        kept.append(x)
        return collective(kept.pop(0) if len(kept) > 1 else torch.zeros_like(x))

    return run
