"""Two layers of y = x Wᵀ + b and a gate, in the ways in which people write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide import layered
from tests.truth.wide.subject import Bug, Run

FORMS = ("linear", "addmm", "matmul-add", "einsum", "bmm")
DTYPES = ("float32", "bfloat16")
BUGS = (
    Bug(name="no-bias", module=r"layers\.{}", layers=True),
    Bug(name="scale", module=r"layers\.{}", sizes=(2e-4, 1e-2, 1.0), layers=True),
    Bug(name="low-precision", module=r"layers\.{}", layers=True),
    Bug(name="detached", module=r"layers\.{}", phase="backward"),
)


class Layer(nn.Module):
    """x + gate(x W₁ᵀ + b₁) W₂ᵀ + b₂."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def apply_linear(self, linear: nn.Linear, x: Tensor) -> Tensor:
        run, weight, bias = self.run, linear.weight, linear.bias
        if linear is self.up and run.has("no-bias", self.layer):
            bias = torch.zeros_like(bias)  # bug: no-bias
        if run.form == "linear":
            return functional.linear(x, weight, bias)  # bug: no-bias
        if run.form == "addmm":
            return torch.addmm(bias, x.flatten(0, 1), weight.t()).unflatten(0, x.shape[:2])  # bug: no-bias
        if run.form == "matmul-add":
            return x @ weight.t() + bias  # bug: no-bias
        if run.form == "einsum":
            return torch.einsum("bsi,oi->bso", x, weight) + bias  # bug: no-bias
        return torch.bmm(x, weight.t().expand(len(x), -1, -1)) + bias  # bug: no-bias

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.silu(self.apply_linear(self.up, x))
        if self.run.has("low-precision", self.layer):
            hidden = hidden.bfloat16().to(x.dtype)  # bug: low-precision
        if self.run.has("scale", self.layer):
            hidden = hidden * self.run.factor("scale", self.layer)  # bug: scale
        if self.run.has("detached", self.layer):
            hidden = hidden.detach() + 0.5 * (hidden - hidden.detach())  # bug: detached
        return x + self.apply_linear(self.down, hidden)  # bug: low-precision, scale, detached


def build(run: Run) -> nn.Module:
    return nn.ModuleDict({"layers": nn.ModuleList(Layer(run, n) for n in range(3)), "head": nn.Linear(16, 5)})


def batch(run: Run) -> dict[str, Tensor]:
    return {"x": torch.randn(4, 6, 16), "y": torch.randint(5, (4, 6))}


step = layered.step
