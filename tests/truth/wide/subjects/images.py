"""A convolutional net: memory formats, convolutions as matrix products, biases before batch norm, checkpoints."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.truth.wide.subject import Bug, Run

FORMS = ("contiguous", "channels-last", "unfold", "by-hand", "checkpoint", "aot_eager")
BUGS = (
    Bug(name="momentum", module=r"blocks\.{}.*", sizes=(0.1,), layers=True),
    Bug(name="eps", module=r"blocks\.{}.*", sizes=(99.0,), layers=True),
    Bug(name="padding", module=r"blocks\.{}.*", layers=True),
    Bug(name="no-bias", module=r"blocks\.{}.*"),
    Bug(name="shortcut", module=r"blocks\.{}", sizes=(1e-3, 0.3), layers=True),
    Bug(name="pooled-by-max"),
)
CHANNELS, SIZE = 8, 8


class Block(nn.Module):
    """x + relu(norm(conv(x)))."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.norm = nn.BatchNorm2d(
            CHANNELS, eps=1e-5 * run.factor("eps", layer), momentum=0.1 * run.factor("momentum", layer)
        )
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)

    def convolved(self, x: Tensor) -> Tensor:
        run, conv = self.run, self.conv
        mode = "circular" if run.has("padding", self.layer) else "constant"
        x = functional.pad(x, (1, 1, 1, 1), mode=mode)  # bug: padding
        bias = conv.bias * (0.0 if run.has("no-bias", self.layer) else 1.0)  # bug: no-bias
        if run.form == "unfold":
            columns = functional.unfold(x, 3)  # bug: padding
            # bug: no-bias
            made = torch.baddbmm(bias[None, :, None], conv.weight.flatten(1).expand(len(x), -1, -1), columns)
            return made.unflatten(2, (SIZE, SIZE))
        return functional.conv2d(x, conv.weight, bias)  # bug: padding, no-bias

    def normed(self, x: Tensor) -> Tensor:
        norm = self.norm
        if self.run.form != "by-hand":
            return norm(x)  # bug: eps, momentum
        mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
        with torch.no_grad():
            n = x.numel() / CHANNELS
            norm.num_batches_tracked += 1
            norm.running_mean.lerp_(mean, norm.momentum)  # bug: momentum
            norm.running_var.lerp_(variance * n / (n - 1), norm.momentum)  # bug: momentum
        spread = torch.rsqrt(variance + norm.eps)  # bug: eps
        scale, shift = norm.weight * spread, norm.bias - mean * norm.weight * spread
        return x * scale[:, None, None] + shift[:, None, None]

    def forward(self, x: Tensor) -> Tensor:
        saved = self.run.form == "checkpoint"
        made = checkpoint(self.convolved, x, use_reentrant=False) if saved else self.convolved(x)
        return x + functional.relu(self.normed(made)) * self.run.factor("shortcut", self.layer)  # bug: shortcut


def build(run: Run) -> nn.Module:
    blocks = nn.ModuleList(Block(run, n) for n in range(2))
    model = nn.ModuleDict({"stem": nn.Conv2d(3, CHANNELS, 1), "blocks": blocks, "head": nn.Linear(CHANNELS, 4)})
    return model.to(memory_format=torch.channels_last) if run.form == "channels-last" else model


def batch(run: Run) -> dict[str, Tensor]:
    x = torch.randn(4, 3, SIZE, SIZE)
    return {
        "x": x.to(memory_format=torch.channels_last) if run.form == "channels-last" else x,
        "y": torch.randint(4, (4,)),
    }


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    x = model["stem"](data["x"])
    for block in model["blocks"]:
        if run.form == "aot_eager":
            torch._dynamo.reset()
            block.compile(backend="aot_eager")
        x = block(x)
    pooled = x.amax((2, 3)) if run.has("pooled-by-max") else x.mean((2, 3))  # bug: pooled-by-max
    loss = functional.cross_entropy(model["head"](pooled), data["y"])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
