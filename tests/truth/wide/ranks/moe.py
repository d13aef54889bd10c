"""A mixture of experts over a short sequence: top-2 routing, experts that a rank may not use, a loss of three terms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel
from torch.nn import functional

from tests.truth.wide.parallel import layouts
from tests.truth.wide.parallel.faults import of_layouts
from tests.truth.wide.parallel.layouts import LAYOUTS, divided, own_labelled, pairs
from tests.truth.wide.parallel.training import samples, train
from tests.truth.wide.subject import Bug, Run

DECAY = 0.0
"""Of an expert without tokens some layouts make a gradient of zeros, others none: decay would tell them apart."""
BLOCKS, DIM, HEADS, EXPERTS, CLASSES, LENGTH, BATCH = 2, 24, 2, 6, 12, 6, 8

FORMS = (
    "whole", "micro2", "ddp2", "ddp2-unused", "ddp4-unused", "ddp2-accumulate-unused", "flat2", "sum2", "fsdp1",
    "fsdp2", "fsdp4", "fsdp2-keep", "fsdp2-factor", "hsdp", "tp2",
)  # fmt: skip
PAIRS = pairs(FORMS)
canonical = layouts.canonical
RANKS = {form: LAYOUTS[form].ranks for form in FORMS}
BUGS = (
    Bug(name="eps", module=r"blocks\.{}\.norm[12]", sizes=(100.0, 1e4), layers=True, ranks=(-1, 1)),
    Bug(name="unnormalised", module=r"blocks\.{}\.mixture", layers=True, ranks=(-1, 1)),
    Bug(name="labels", module="", phase="", ranks=(1,), forms=tuple(form for form in FORMS if RANKS[form] > 1)),
    *of_layouts(FORMS, r"blocks\.1\.attention\.query\.weight", clipped=False, uneven=False),
)


class RMSNorm(nn.Module):
    """x over the root of its mean square, scaled."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(DIM)), 1e-5 * run.factor("eps", layer)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight  # bug: eps


class Attention(nn.Module):
    """Attention to all tokens, by torch's function."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        parts = [each(x) for each in (self.query, self.key, self.value)]  # bug: start
        q, k, v = (part.unflatten(-1, (-1, DIM // HEADS)).transpose(1, 2) for part in parts)
        return self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))  # bug: unreduced


class Mixture(nn.Module):
    """The two experts of each token that its router prefers, weighted."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.SiLU(), nn.Linear(2 * DIM, DIM)) for _ in range(EXPERTS)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        chances = torch.softmax(self.router(x), -1)
        weights, chosen = chances.topk(2, -1)
        if not self.run.has("unnormalised", self.layer):
            weights = weights / weights.sum(-1, keepdim=True)  # bug: unnormalised
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            taken = chosen == number
            if taken.any() or not self.run.form.endswith("unused"):
                rows = taken.any(-1)
                weight = (weights * taken).sum(-1)[rows].unsqueeze(-1)
                out = out.masked_scatter(rows.unsqueeze(-1), out[rows] + weight * expert(x[rows]))  # bug: unnormalised
        used = functional.one_hot(chosen, EXPERTS).sum(-2).to(x.dtype).mean(1)
        return out, EXPERTS * (used * chances.mean(1)).sum()


class Block(nn.Module):
    """Attention and the mixture, each after a norm and beside a residual."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(run, layer), RMSNorm(run, layer)
        self.attention, self.mixture = Attention(), Mixture(run, layer)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x + self.attention(self.norm1(x))
        y, balance = self.mixture(self.norm2(x))
        return x + y, balance


class Model(nn.Module):
    """Features of a sequence to the logits of its class, and the balance of each block's experts."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.inner = nn.Linear(5, DIM)
        self.blocks = nn.ModuleList([Block(run, layer) for layer in range(BLOCKS)])
        self.classify = nn.Linear(DIM, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x, total = self.inner(x), 0.0  # bug: samples
        for block in self.blocks:
            x, balance = block(x)  # bug: missing-shard, zeros-shard, factor, old
            total = total + balance
        return self.classify(x.mean(1)), total


def plan(model: Any, sequence: bool) -> dict[str, Any]:
    """How tensor-parallel ranks hold the attention; the rest is replicated."""
    styles = {
        "attention": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate()),
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.out": RowwiseParallel(),
    }
    return {f"blocks.{layer}.{name}": style for layer in range(BLOCKS) for name, style in styles.items()}


def build(run: Run) -> nn.Module:
    """The model, divided as the run's form says."""
    return divided(Model(run), run, plan)


def batch(run: Run) -> dict[str, Tensor]:
    """Sequences with their classes."""
    data = {"x": torch.randn(BATCH, LENGTH, 5), "label": torch.randint(CLASSES, (BATCH,))}
    return own_labelled(data, run)


def loss(model: Any, data: dict[str, Tensor], run: Run) -> tuple[Tensor, Tensor]:
    """The sums of both terms over sequences."""
    logits, balance = model(data["x"])
    return functional.cross_entropy(logits, data["label"], reduction="sum"), 0.05 * balance  # bug: labels


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    """Train one step."""
    return train(model, data, optimizer, run, loss, samples)
