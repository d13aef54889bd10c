"""Training that knows of int8: fake quantization, straight-through gradients, a running range."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("plain", "function", "detached", "by-channel-loop", "scaled-integers")
BUGS = (
    Bug(name="step", phase="", sizes=(0.05,)),
    Bug(name="per-tensor", phase=""),
    Bug(name="narrow", phase=""),
    Bug(name="no-clip-gradient", phase="", forms=("function",)),
    Bug(name="floor", phase="", forms=("plain", "detached", "by-channel-loop")),
    Bug(name="activation-range", phase=""),
    Bug(name="momentum", phase="", sizes=(0.5,)),
    Bug(name="bias-quantized", phase=""),
)
B, SEEN, DIM, CLASSES = 9, 7, 12, 5


class Rounded(torch.autograd.Function):
    """Round to a grid within limits; the gradient passes within the limits."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, width: Tensor, low: float, high: float, everywhere: bool) -> Tensor:
        ratio = x / width  # bug: bias-quantized
        ctx.save_for_backward((ratio >= low) & (ratio <= high))
        ctx.everywhere = everywhere
        return ratio.round().clamp(low, high) * width

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (inside,) = ctx.saved_tensors
        return (grad if ctx.everywhere else grad * inside), None, None, None, None  # bug: no-clip-gradient


def build(run: Run) -> nn.Module:
    model = nn.ModuleDict(
        {"first": nn.Linear(SEEN, DIM), "second": nn.Linear(DIM, DIM), "head": nn.Linear(DIM, CLASSES)}
    )
    model.register_buffer("seen", torch.tensor([1.0, 1.0]))
    return model


def batch(run: Run) -> dict[str, Tensor]:
    return {"x": torch.randn(B, SEEN), "y": torch.randint(CLASSES, (B,))}


def on_grid(x: Tensor, width: Tensor, low: float, high: float, run: Run) -> Tensor:
    if run.form == "function":
        return Rounded.apply(x, width, low, high, run.has("no-clip-gradient"))  # bug: no-clip-gradient
    ratio = x / width  # bug: bias-quantized
    rounded = ratio.detach().floor() if run.has("floor") else ratio.detach().round()  # bug: floor
    within = ratio.clamp(low, high)
    if run.form == "scaled-integers":
        whole = rounded.clamp(low, high).to(torch.int32)
        grid = whole.to(x.dtype) * width
        return grid + (within * width - (within * width).detach())
    return (within + (rounded.clamp(low, high) - within).detach()) * width


def of_weight(weight: Tensor, run: Run) -> Tensor:
    top = 7.0 if not run.has("narrow") else 6.0
    with torch.no_grad():
        if run.has("per-tensor"):
            largest = weight.abs().max().expand(weight.shape[0], 1)  # bug: per-tensor
        elif run.form == "by-channel-loop":
            largest = torch.stack([row.abs().max() for row in weight])[:, None]  # bug: per-tensor
        else:
            largest = weight.abs().amax(1, keepdim=True)  # bug: per-tensor
        width = 0.9 * largest / top * run.factor("step")  # bug: step, narrow, per-tensor
    if run.form == "by-channel-loop":
        return torch.cat([on_grid(row[None], width[i, 0], -top - 1, top, run) for i, row in enumerate(weight)])
    return on_grid(weight, width, -top - 1, top, run)  # bug: narrow


def of_activation(model: Any, x: Tensor, index: int, run: Run) -> Tensor:
    share = 0.1 * run.factor("momentum")
    with torch.no_grad():
        largest = x.abs().mean() if run.has("activation-range") else x.abs().max()  # bug: activation-range
        model.seen[index] = model.seen[index] * (1 - share) + largest * share  # bug: momentum
        width = model.seen[index] / 127
    return on_grid(x, width, -128.0, 127.0, run)


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    x = data["x"]
    for index, name in enumerate(("first", "second")):
        layer = model[name]
        bias = layer.bias
        if run.has("bias-quantized") and name == "second":
            bias = on_grid(bias, bias.detach().abs().max() / 127, -128.0, 127.0, run)  # bug: bias-quantized
        x = functional.linear(of_activation(model, x, index, run), of_weight(layer.weight, run), bias)
        x = functional.silu(x)
    loss = functional.cross_entropy(model["head"](x), data["y"])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
