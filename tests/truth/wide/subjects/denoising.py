"""A U-Net that predicts the noise of diffusion: times, group norm, skip connections, sampling up and down."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.truth.wide.subject import Bug, Run

FORMS = ("plain", "normed-by-hand", "split-skip", "repeated", "channels-last", "checkpoint")
BUGS = (
    Bug(name="schedule", phase="", sizes=(1e-3, 0.3)),
    Bug(name="times", module="time", sizes=(1e-3, 0.5)),
    Bug(name="scale-shift", module="(down|middle|up)", sizes=(1e-3,)),
    Bug(name="eps", module=r"(down|middle|up)\.norm", sizes=(99.0,)),
    Bug(name="skip", module="", sizes=(1e-3, 0.5)),
    Bug(name="bilinear"),
    Bug(name="predicts-image", phase=""),
    Bug(name="strided-padding"),
)
C, SIZE, GROUPS, STEPS = 8, 8, 4, 100


class Times(nn.Module):
    """Sinusoids of a time, and two linear layers on them."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.lower, self.upper = nn.Linear(C, C), nn.Linear(C, C)

    def forward(self, t: Tensor) -> Tensor:
        slowest = 10000.0 * self.run.factor("times")
        rates = torch.exp(torch.arange(C // 2, dtype=t.dtype) * (-math.log(slowest) / (C // 2 - 1)))  # bug: times
        angles = t[:, None] * rates  # bug: times
        return self.upper(functional.silu(self.lower(torch.cat((angles.sin(), angles.cos()), 1))))


class Block(nn.Module):
    """x + conv(silu(norm(x) · (1 + scale) + shift)), scale and shift from the time."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.norm = nn.GroupNorm(GROUPS, C, eps=1e-5 * run.factor("eps"))
        self.modulation, self.conv = nn.Linear(C, 2 * C), nn.Conv2d(C, C, 3, padding=1)

    def normed(self, x: Tensor) -> Tensor:
        norm = self.norm
        if self.run.form != "normed-by-hand":
            return norm(x)  # bug: eps
        groups = x.unflatten(1, (GROUPS, -1))
        mean = groups.mean((2, 3, 4), keepdim=True)
        centred = groups - mean
        variance = (centred * centred).mean((2, 3, 4), keepdim=True)
        made = (centred * torch.rsqrt(variance + norm.eps)).flatten(1, 2)  # bug: eps
        return made * norm.weight[:, None, None] + norm.bias[:, None, None]

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        scale, shift = self.modulation(time)[:, :, None, None].chunk(2, 1)
        made = self.normed(x) * (1 + scale * self.run.factor("scale-shift")) + shift  # bug: scale-shift
        return x + self.conv(functional.silu(made))


def build(run: Run) -> nn.Module:
    layers = {
        "time": Times(run),
        "stem": nn.Conv2d(3, C, 3, padding=1),
        **{name: Block(run) for name in ("down", "middle", "up")},
        "pool": nn.Conv2d(C, C, 3, stride=2),
        "grow": nn.Conv2d(C, C, 3, padding=1),
        "join": nn.Conv2d(2 * C, C, 1),
        "head": nn.Conv2d(C, 3, 1),
    }
    model = nn.ModuleDict(layers)
    return model.to(memory_format=torch.channels_last) if run.form == "channels-last" else model


def batch(run: Run) -> dict[str, Tensor]:
    shape = (4, 3, SIZE, SIZE)
    return {"x": torch.randn(shape), "noise": torch.randn(shape), "t": torch.randint(STEPS, (4,))}


def noised(data: dict[str, Tensor], run: Run) -> Tensor:
    """The images at their times."""
    last = 0.02 * run.factor("schedule")
    betas = torch.linspace(1e-4, last, STEPS, dtype=data["x"].dtype)  # bug: schedule
    kept = torch.cumprod(1 - betas, 0)[data["t"]][:, None, None, None]  # bug: schedule
    return kept.sqrt() * data["x"] + (1 - kept).sqrt() * data["noise"]


def larger(x: Tensor, run: Run) -> Tensor:
    """Twice the height and the width."""
    if run.has("bilinear"):
        return functional.interpolate(x, scale_factor=2.0, mode="bilinear")  # bug: bilinear
    if run.form == "repeated":
        return x.repeat_interleave(2, 2).repeat_interleave(2, 3)  # bug: bilinear
    return functional.interpolate(x, scale_factor=2.0, mode="nearest")  # bug: bilinear


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    def block(name: str, x: Tensor) -> Tensor:
        if run.form == "checkpoint":
            return checkpoint(model[name], x, time, use_reentrant=False)
        return model[name](x, time)

    time = model["time"](data["t"].to(data["x"].dtype))
    kept = block("down", model["stem"](noised(data, run)))
    sides = (1, 0, 1, 0) if run.has("strided-padding") else (0, 1, 0, 1)
    x = block("middle", model["pool"](functional.pad(kept, sides)))  # bug: strided-padding
    x = model["grow"](larger(x, run))
    kept = kept * run.factor("skip")  # bug: skip
    join = model["join"]
    if run.form == "split-skip":
        one, other = join.weight.chunk(2, 1)
        x = functional.conv2d(x, one, join.bias) + functional.conv2d(kept, other)  # bug: skip
    else:
        x = join(torch.cat((x, kept), 1))  # bug: skip
    made = model["head"](block("up", x))
    target = data["x"] if run.has("predicts-image") else data["noise"]
    loss = functional.mse_loss(made, target)  # bug: predicts-image
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
