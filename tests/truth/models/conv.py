"""A small residual network for images: convolutions, batch norm, squeeze and excitation, dropout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.truth.run import Run

BATCH, SIZE, CLASSES = 8, 12, 10
WIDTH = 16


class Excitation(nn.Module):
    """Scale every channel by a gate that sees all of them."""

    def __init__(self, channels: int, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.reduce = nn.Conv2d(channels, channels // 4, 1)
        self.expand = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        pool = functional.adaptive_max_pool2d if self.bug == "pool" else functional.adaptive_avg_pool2d
        pooled = pool(x, 1)  # bug: pool
        gate = self.expand(functional.relu(self.reduce(pooled)))
        gate = (functional.hardsigmoid if self.bug == "gate-function" else torch.sigmoid)(gate)  # bug: gate-function
        if self.bug == "gate-detached":
            gate = gate.detach()
        return x * gate  # bug: gate-detached


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, run: Run, bug: str) -> None:
        super().__init__()
        self.run, self.bug = run, bug
        padding_mode = "circular" if bug == "padding" else "zeros"
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False, padding_mode=padding_mode)
        self.bn2 = nn.BatchNorm2d(outputs, eps=1e-4 if bug == "bn-eps" else 1e-5)
        self.se = Excitation(outputs, bug)
        self.down = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None
        if bug == "bn-momentum":
            self.bn2.momentum = 0.05
        if bug == "bn-eval":
            self.bn1.eval()

    def forward(self, x: Tensor) -> Tensor:
        h = functional.relu(self.bn1(self.conv1(x)))  # bug: bn-eval, bn-recomputed
        h = self.conv2(h)  # bug: padding
        h = self.bn2(h)  # bug: bn-eps, bn-momentum, bn-recomputed
        h = checkpoint(self.se, h, use_reentrant=False) if self.run.ac else self.se(h)
        shortcut = x if self.down is None else self.down(x)
        if self.bug == "shortcut-scale":
            shortcut = shortcut * 1.02  # bug: shortcut-scale
        return functional.relu(h + shortcut)  # bug: shortcut-scale


class Net(nn.Module):
    """Images to logits."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.stem = nn.Conv2d(3, WIDTH, 3, padding=1, bias=False)
        self.stem_bn = nn.BatchNorm2d(WIDTH)
        self.blocks = nn.ModuleList(
            [
                Block(WIDTH, WIDTH, 1, run, ""),
                Block(WIDTH, 2 * WIDTH, 2, run, run.bug),
                Block(2 * WIDTH, 2 * WIDTH, 1, run, ""),
            ]
        )
        self.dropout = nn.Dropout(0.1 if run.dropout else 0.0)
        self.head = nn.Linear(2 * WIDTH, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.relu(self.stem_bn(self.stem(images)))
        for block in self.blocks:
            whole = self.run.bug == "bn-recomputed"
            x = checkpoint(block, x, use_reentrant=False) if whole else block(x)
        return self.head(self.dropout(x.mean((2, 3))))


def build(run: Run) -> Any:
    """The model."""
    return Net(run)


def stacks(model: Any) -> list[Any]:
    """Lists of blocks; they checkpoint a part of themselves, since batch norm may not run twice."""
    return [model.blocks]


def batch(run: Run) -> dict[str, Any]:
    """Noise and labels."""
    draw = torch.Generator().manual_seed(run.seed)
    return {
        "images": torch.randn(BATCH, 3, SIZE, SIZE, generator=draw),
        "labels": torch.randint(CLASSES, (BATCH,), generator=draw),
    }


def loss(model: Any, data: dict[str, Any], run: Run) -> Any:
    """Cross-entropy with smoothed labels."""
    images = data["images"].to(next(model.parameters()).dtype)
    logits = model(images).float()
    smoothing = 0.05 if run.bug == "label-smoothing" else 0.1
    return functional.cross_entropy(logits, data["labels"], label_smoothing=smoothing)  # bug: label-smoothing
