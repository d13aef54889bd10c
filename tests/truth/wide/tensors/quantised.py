"""The GPT of `megatron` with matrix products of float8 numbers, and blocks that are recomputed in the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.truth.wide.subject import Bug, Run
from tests.truth.wide.tensor import group
from tests.truth.wide.tensors import megatron
from tests.truth.wide.tensors.megatron import RANKS, batch, optimizer, step

__all__ = ["BUGS", "FORMS", "PAIRS", "PRECISION", "RANKS", "batch", "build", "canonical", "optimizer", "step"]

FORMS = ("whole", "tp2", "tp2-cp2")
PAIRS = [(FORMS[0], form) for form in FORMS[1:]]
PRECISION = dict.fromkeys(FORMS, "bfloat16")
"""A float8 number may round the other way."""
_LARGEST = 448.0
BUGS = (
    Bug(name="recomputed", module=r"blocks\.1(\..*)?", phase=""),
    Bug(name="amax", module=r"blocks\.1\.out", phase="", forms=FORMS[1:]),
)
canonical: Any = megatron.canonical


class _Rounded(torch.autograd.Function):
    """A tensor in float8 and back, whose gradient passes as it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        return (x * scale).to(torch.float8_e4m3fn).to(x.dtype) / scale

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0], None


class Product(nn.Module):
    """A matrix product of float8 numbers, scaled by the largest number over the ranks that have parts of a tensor."""

    def __init__(self, run: Run, layer: int, *, rows: bool) -> None:
        super().__init__()
        self.run, self.layer, self.rows, self.calls = run, layer, rows, 0

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        run = self.run
        self.calls += 1
        ranks = [group(run, "parts" if not self.rows else "all"), group(run, "tensor")]
        if self.rows and run.has("amax", self.layer):
            ranks[0] = group(run, "parts")
        found = []
        for of, over in zip((x, weight), ranks, strict=True):
            scale = _LARGEST / over.largest(of.detach().abs().max())  # bug: amax
            if self.rows and self.calls % 2 == 0 and run.has("recomputed", self.layer):
                scale = scale / 2**17  # bug: recomputed
            found.append(_Rounded.apply(of, scale))  # bug: amax, recomputed
        return functional.linear(found[0], found[1], bias)


class Block(megatron.Block):
    """A block whose forward pass is repeated where its gradients are computed."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__(run, layer)
        for of in (self.query, self.key, self.value, self.up):
            of.product = Product(run, -1, rows=False)
        self.out.product = Product(run, layer, rows=True)
        self.down.product = Product(run, -1, rows=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = checkpoint(super().forward, x, use_reentrant=False)
        return found


def build(run: Run) -> nn.Module:
    """The model with this rank's parts."""
    model = megatron.Model(run)
    model.blocks = nn.ModuleList([Block(run, layer) for layer in range(2)])
    return model
