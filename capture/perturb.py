"""Perturb every parameter once by one rounding error, to show how a run amplifies rounding.

One element in thirty-two is multiplied by 1 + ε or 1 − ε of its dtype. Over a tensor that is ε/√32, somewhat less than
rounding all of it once (ε/√12). A separate generator, seeded by the parameter's name, chooses the elements: replicas
stay replicas, the perturbation is repeatable, and the run's own generators are not drawn from.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .generators import key_of
from .kernels.guards import unnoticed
from .subclasses import local_tensors

__all__ = ["perturb"]


def perturb(parameters: Iterable[tuple[str, torch.Tensor]], seed: int) -> int:
    """Perturb parameters in place and return their number; of DTensors the local tensor, integers not at all.

    Temporarily needs memory for three copies of the largest parameter.
    """
    count = 0
    for name, parameter in parameters:
        local = getattr(parameter, "_local_tensor", parameter)
        parts = local_tensors(local)
        for tensor in [local] if parts is None else parts.values():
            count += _perturb(tensor, key_of(seed, name) & _MOST)
    return count


def _perturb(tensor: torch.Tensor, seed: int) -> bool:
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.itemsize < _MIN_ITEMSIZE or tensor.is_meta:
        return False
    with unnoticed():
        generator = torch.Generator().manual_seed(seed)
        choice = torch.randint(0, 2 * _ONE_IN, tuple(tensor.shape), generator=generator, dtype=torch.int8)
        choice = choice.to(tensor.device)
        up, down = choice.eq(0).to(tensor.dtype), choice.eq(1).to(tensor.dtype)
        tensor.mul_(up.sub_(down).mul_(torch.finfo(tensor.dtype).eps).add_(1))
    return True


_ONE_IN = 32
_MOST = (1 << 63) - 1
_MIN_ITEMSIZE = 2
"""Bytes; smaller float types have no arithmetic."""
