"""Moves every parameter by one rounding error, once, to see what a run makes of errors that mean nothing.

One element in thirty-two is multiplied by 1 + ε or 1 − ε of its dtype. Over a tensor that is ε/√32, somewhat less than
rounding all of it once (ε/√12). A generator of our own chooses, seeded by the name of the parameter: replicas stay
replicas, and a run can be perturbed in the same way again. The run's own random generators are not drawn from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch

from capture.kernels.guards import unnoticed
from capture.subclasses import local_tensors

__all__ = ["perturb"]


def perturb(parameters: Iterable[tuple[str, torch.Tensor]], seed: int) -> int:
    """Perturbs parameters in place; returns how many. Of DTensors, what this process holds; whole numbers stay.

    Needs memory for three copies of the largest parameter while it runs.
    """
    count = 0
    for name, parameter in parameters:
        local = getattr(parameter, "_local_tensor", parameter)
        parts = local_tensors(local)
        for tensor in [local] if parts is None else parts.values():
            count += _perturb(tensor, _seed_of(name, seed))
    return count


def _seed_of(name: str, seed: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "little") >> 1


def _perturb(tensor: torch.Tensor, seed: int) -> bool:
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.itemsize < _SMALLEST or tensor.is_meta:
        return False
    with unnoticed():
        generator = torch.Generator().manual_seed(seed)
        choice = torch.randint(0, 2 * _ONE_IN, tuple(tensor.shape), generator=generator, dtype=torch.int8)
        choice = choice.to(tensor.device)
        up, down = choice.eq(0).to(tensor.dtype), choice.eq(1).to(tensor.dtype)
        tensor.mul_(up.sub_(down).mul_(torch.finfo(tensor.dtype).eps).add_(1))
    return True


_ONE_IN = 32
_SMALLEST = 2
"""Bytes: in less there is no ε to speak of, and no arithmetic."""
