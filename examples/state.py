"""Digest of everything that a training step changes."""

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn


def digest(model: nn.Module, optimizer: Any) -> str:
    """Return the sha256 of parameters, gradients, optimizer state (this rank's shards) and torch's RNG state."""
    total = hashlib.sha256()
    for tensor in _tensors(model, optimizer):
        total.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def _tensors(model: nn.Module, optimizer: Any) -> Iterator[Tensor]:
    for parameter in model.parameters():
        yield from _local(parameter)
        if parameter.grad is not None:
            yield from _local(parameter.grad)
        for _, value in sorted(optimizer.state[parameter].items()):
            yield from _local(value)
    yield torch.get_rng_state()


def _local(tensor: Tensor) -> list[Tensor]:
    """Return this process's values of a tensor: its shard, or the shards of all simulated ranks."""
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if hasattr(tensor, "wait"):
        tensor = tensor.wait()
    shards = getattr(tensor, "_local_tensors", None)
    return [tensor] if shards is None else [shards[rank] for rank in sorted(shards)]
