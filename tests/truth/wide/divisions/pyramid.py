"""A convolutional network of four residual blocks with GroupNorm; in stages and shares."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide import dividing
from tests.truth.wide.dividing import DATA, LAYERS, Staged, common_bugs, divided, own, train
from tests.truth.wide.subject import Bug, Run

WIDTH, CLASSES, SIDE, BATCH = 8, 6, 6, 8

RANKS = dividing.RANKS
FORMS = tuple(form for form in dividing.FORMS if not form.startswith("tp"))  # it has no linear layers to divide
PAIRS = [pair for pair in dividing.PAIRS if set(pair) <= {*FORMS}]
canonical, optimizer = dividing.canonical, dividing.optimizer
BUGS = (
    Bug(name="eps", module=r"layers\.1\.norm2", sizes=(1e4,), forms=FORMS[3:]),
    Bug(name="eps", module=r"layers\.1\.norm2", sizes=(1e4,), ranks=(1,), forms=DATA),
    Bug(name="late", module=r"layers\.[13]", sizes=(1e-3, 1.0), forms=FORMS[3:]),
    *common_bugs(r"layers\.3\.conv1\.weight"),
)


class Block(nn.Module):
    """Two convolutions beside a residual."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.conv1, self.conv2 = (nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.GroupNorm(2, WIDTH), nn.GroupNorm(2, WIDTH, eps=1e-5 * run.factor("eps", layer))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))  # bug: eps
        if self.run.has("late", self.layer - 2):
            y = y * self.run.factor("late", self.layer - 2)  # bug: late
        return functional.silu(x + y)  # bug: late


class Head(nn.Module):
    """The mean over positions, and the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.classify = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(x.mean((2, 3)))


def build(run: Run) -> Any:
    """The model, or the stage of it that this rank runs."""
    layers = [Block(run, layer) for layer in range(LAYERS)]
    shapes = {"between": (WIDTH, SIDE, SIDE), "given": (CLASSES,)}
    return divided(Staged(nn.Conv2d(3, WIDTH, 3, padding=1), list(layers), Head(), **shapes), run)


def batch(run: Run) -> dict[str, Tensor]:
    """Images and their classes."""
    return own({"x": torch.randn(BATCH, 3, SIDE, SIDE), "y": torch.randint(CLASSES, (BATCH,))}, run)


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean over samples."""
    return functional.cross_entropy(logits, targets)  # bug: targets, exchanged


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    """Train one step."""
    return train(model, data, optimizer, run, loss)
