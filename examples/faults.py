"""Faults of single ranks: in their memory, their batches, and the collectives of a layer (groups.py)."""

import copy
import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from bugs import Planted
from torch import Tensor, nn

Collective = Callable[[Tensor], Tensor]


def flip_bit(parameter: Any) -> None:
    """Flip the lowest bit of a float32 parameter's first element on this rank, past every operation of torch."""
    local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    ctypes.c_uint32.from_address(local.data_ptr()).value ^= 1


def wait_and_corrupt(work: Any, result: Tensor, *, here: bool) -> None:
    """Wait for a collective; if `here`, then add a half to the first element of its float32 result, as a link might.

    In a thread, which has no dispatch modes: an observer sees neither the wait nor the write, and takes what it finds
    afterwards for what the collective returned.
    """

    def finish() -> None:
        work.wait()
        if here:
            ctypes.c_float.from_address(result.data_ptr()).value += 0.5

    with ThreadPoolExecutor(1) as thread:
        thread.submit(finish).result()


def data_rank(rank: int, data_size: int, bug: Planted, tensor_size: int) -> int:
    """Return the data rank whose batch to read: its own, or the one before that of the rank that has the bug."""
    twice = bug.has("same-batch") and rank == bug.rank // tensor_size
    return (rank - twice) % data_size


def empty_mean(layer: Any, bug: Planted, *, now: bool) -> AbstractContextManager[Any]:
    """Open a context in which feed-forward is scaled by the mean of nothing, if this rank has that bug `now`."""
    if not (now and bug.here("nan")):
        return nullcontext()

    def scale(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        total, count = torch.zeros(()), torch.zeros(())
        return output * (total / count)

    return layer.feed_forward.register_forward_hook(scale)


def layer_group(group: Any, bug: Planted) -> Any:
    """Return the `Group` of the bug's layer: its collectives have the bug if this rank does."""
    faulty = copy.copy(group)
    if bug.has("corrupt-reduce-scatter"):
        faulty.reduce_scatter = corrupted(group, here=bug.here(bug.name))
    elif bug.here("stale-gather"):
        faulty.all_gather = stale(group.all_gather)
    elif bug.here("skipped-collective"):
        faulty.all_reduce = except_first(group.all_reduce, torch.clone)
        faulty.reduce_scatter = except_first(group.reduce_scatter, group.split)
    return faulty


def except_first(collective: Collective, instead: Collective) -> Collective:
    """Return a collective that does something else in its first call."""
    calls = iter([instead])

    def run(x: Tensor) -> Tensor:
        return next(calls, collective)(x)

    return run


def corrupted(group: Any, *, here: bool) -> Collective:
    """Return a reduce-scatter whose first result has a wrong element on one rank."""

    def run(x: Tensor) -> Tensor:
        part, work = group.start_reduce_scatter(x)
        wait_and_corrupt(work, part, here=here)
        return part

    return except_first(group.reduce_scatter, run)


def stale(collective: Collective) -> Collective:
    """Return a collective to which this rank sends what it should have sent the last time, at first zeros."""
    sent: list[Tensor] = []

    def run(x: Tensor) -> Tensor:
        sent.append(x)
        return collective(sent.pop(0) if len(sent) > 1 else torch.zeros_like(x))

    return run
