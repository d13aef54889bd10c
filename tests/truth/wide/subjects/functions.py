"""GELU, softmax, layer norm and dropout-free feed forward: of the library, and by hand."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.truth.wide.subject import Bug, Run

FORMS = ("library", "hand", "functional", "aot_eager", "checkpoint", "reentrant")
DTYPES = ("float32", "bfloat16")
BUGS = (
    Bug(name="eps", module=r"layers\.{}", sizes=(9.0, 999.0), layers=True),
    Bug(name="gelu-tanh", module=r"layers\.{}", layers=True),
    Bug(name="biased-variance", module=r"layers\.{}", forms=("hand",), layers=True),
    Bug(name="dropped-branch", module=r"layers\.{}"),
    Bug(name="loss-factor", phase="", sizes=(1e-3, 1.0)),
    Bug(name="second-loss-only", phase="", sizes=(1e-3, 1.0)),
)
DIM = 24


class Block(nn.Module):
    """x + w₂ gelu(w₁ norm(x))."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.weight, self.bias = nn.Parameter(torch.rand(DIM) + 0.5), nn.Parameter(torch.randn(DIM) * 0.1)
        self.w1, self.w2 = nn.Linear(DIM, 48), nn.Linear(48, DIM)
        self.eps = 1e-5 * run.factor("eps", layer)

    def norm(self, x: Tensor) -> Tensor:
        if self.run.form == "hand":
            centred = x - x.mean(-1, keepdim=True)
            # bug: biased-variance
            variance = x.var(-1, keepdim=True, correction=int(self.run.has("biased-variance", self.layer)))
            return centred / torch.sqrt(variance + self.eps) * self.weight + self.bias  # bug: eps
        if self.run.form == "functional":
            variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
            return torch.addcmul(self.bias, (x - mean) * torch.rsqrt(variance + self.eps), self.weight)  # bug: eps
        return functional.layer_norm(x, (DIM,), self.weight, self.bias, self.eps)  # bug: eps, biased-variance

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.w1(self.norm(x))
        if self.run.has("gelu-tanh", self.layer):
            hidden = functional.gelu(hidden, approximate="tanh")  # bug: gelu-tanh
        elif self.run.form == "hand":
            hidden = 0.5 * hidden * (1 + torch.erf(hidden / math.sqrt(2)))  # bug: gelu-tanh
        else:
            hidden = functional.gelu(hidden)  # bug: gelu-tanh
        if self.run.has("dropped-branch", self.layer):
            return self.w2(hidden)  # bug: dropped-branch
        return x + self.w2(hidden)  # bug: dropped-branch


def build(run: Run) -> nn.Module:
    layers = nn.ModuleList(Block(run, n) for n in range(3))
    return nn.ModuleDict({"layers": layers, "head": nn.Linear(DIM, 6), "value": nn.Linear(DIM, 1)})


def batch(run: Run) -> dict[str, Tensor]:
    # some rows are so small that ε counts
    rows = torch.randn(16, DIM) * torch.logspace(-2.5, 0.5, 16)[:, None]
    return {"x": rows, "y": torch.randint(6, (16,)), "z": torch.randn(16)}


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    x = data["x"]
    for layer in model["layers"]:
        if run.form == "aot_eager":
            torch._dynamo.reset()
            layer.compile(backend="aot_eager")
        if run.form in ("checkpoint", "reentrant"):
            x = x.requires_grad_()
            x = checkpoint(layer, x, use_reentrant=run.form == "reentrant")
        else:
            x = layer(x)
    policy = functional.cross_entropy(model["head"](x), data["y"])
    value = functional.mse_loss(model["value"](x).squeeze(-1), data["z"])
    # bug: second-loss-only, loss-factor
    loss = (policy + 0.5 * run.factor("second-loss-only") * value) * run.factor("loss-factor")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
