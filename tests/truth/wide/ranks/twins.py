"""A convolutional encoder with GroupNorm, called on two views of each image per loss, and a head on one of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.parallel import layouts
from tests.truth.wide.parallel.faults import of_layouts
from tests.truth.wide.parallel.layouts import LAYOUTS, divided, own_labelled, pairs
from tests.truth.wide.parallel.training import samples, train
from tests.truth.wide.subject import Bug, Run

WIDTH, CLASSES, BATCH = 8, 5, 8

FORMS = (
    "whole", "micro2", "micro4", "ddp2", "ddp4", "ddp2-static", "ddp2-views", "ddp2-accumulate", "ddp2-hook",
    "ddp2-bf16", "flat2", "flat4", "each2", "sum2", "fsdp1", "fsdp2", "fsdp4", "fsdp2-keep", "fsdp2-accumulate", "hsdp",
)  # fmt: skip
PAIRS = pairs(FORMS)
canonical = layouts.canonical
PRECISION = {"ddp2-bf16": "bfloat16"}
RANKS = {form: LAYOUTS[form].ranks for form in FORMS}
_EXACT = tuple(form for form in FORMS if form not in PRECISION)
BUGS = (
    Bug(name="eps", module=r"blocks\.{}\.norm2", sizes=(100.0, 1e4), layers=True, ranks=(-1, 1), forms=_EXACT),
    Bug(name="residual", module=r"blocks\.{}", sizes=(1e-4, 1e-2, 1.0), layers=True, ranks=(-1, 1), forms=_EXACT),
    Bug(name="labels", module="", phase="", ranks=(1,), forms=tuple(form for form in _EXACT if RANKS[form] > 1)),
    *of_layouts(_EXACT, r"blocks\.1\.conv1\.weight", clipped=False, uneven=False),
)


class Block(nn.Module):
    """Two convolutions beside a residual."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.conv1 = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.GroupNorm(2, WIDTH), nn.GroupNorm(2, WIDTH, eps=1e-5 * run.factor("eps", layer))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)))  # bug: start
        y = self.norm2(self.conv2(y))  # bug: eps
        if self.run.has("residual", self.layer):
            y = y * self.run.factor("residual", self.layer)  # bug: residual
        return functional.relu(x + y)  # bug: residual


class Model(nn.Module):
    """Two views to the distance of their embeddings, and the logits of the first."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList([Block(run, layer) for layer in range(2)])
        self.project, self.classify = nn.Linear(WIDTH, 16), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(x)  # bug: samples
        for block in self.blocks:
            x = block(x)  # bug: missing-shard, zeros-shard, factor, old
        x = x.mean((2, 3))
        return self.project(x), self.classify(x)


def build(run: Run) -> nn.Module:
    """The model, divided as the run's form says."""
    return divided(Model(run), run)


def batch(run: Run) -> dict[str, Tensor]:
    """Images, a noisy view of each, and their classes."""
    images = torch.randn(BATCH, 3, 10, 10)
    data = {
        "images": images,
        "noisy": images + 0.3 * torch.randn_like(images),
        "label": torch.randint(CLASSES, (BATCH,)),
    }
    return own_labelled(data, run)


def loss(model: Any, data: dict[str, Tensor], run: Run) -> tuple[Tensor, Tensor]:
    """The sums of both terms over images."""
    one, logits = model(data["images"])
    other, _ = model(data["noisy"])
    apart = (one - other).square().sum()
    return functional.cross_entropy(logits, data["label"], reduction="sum"), 0.1 * apart  # bug: labels


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    """Train one step."""
    return train(model, data, optimizer, run, loss, samples)
