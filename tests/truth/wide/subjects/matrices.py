"""Optimizers of matrices: Muon, Adafactor and a sharpness-aware step, each a matrix at a time and stacked."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from tests.truth.wide.subject import Bug, Run

FORMS = ("single", "stacked", "foreach", "compiled")
BUGS = (
    Bug(name="steps", phase="optimizer"),
    Bug(name="coefficient", phase="optimizer", sizes=(1e-3, 0.1)),
    Bug(name="momentum", phase="optimizer", sizes=(1e-3, 0.05)),
    Bug(name="factored", phase="optimizer", sizes=(1e-2, 1.0)),
    Bug(name="radius", phase="", sizes=(1e-2, 1.0)),
    Bug(name="not-restored", phase=""),
)
DIM = 8


def orthogonal(g: Tensor, run: Run) -> Tensor:
    """Newton-Schulz iteration towards the nearest orthogonal matrix; of one matrix or a stack."""
    a, b, c = 3.4445 * run.factor("coefficient"), -4.775, 2.0315
    x = g / (g.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(4 if run.has("steps") else 5):
        square = x @ x.mT  # bug: steps
        x = a * x + (b * square + c * square @ square) @ x  # bug: coefficient, steps
    return x


class Matrices(Optimizer):
    """Orthogonalised momentum, scaled by factored second moments."""

    def __init__(self, parameters: Any, run: Run) -> None:
        super().__init__(parameters, {"lr": 0.05})
        self.run = run
        for p in self.param_groups[0]["params"]:
            self.state[p] = {"m": torch.full_like(p, 0.01)}

    @torch.no_grad()
    def step(self) -> None:
        run, parameters = self.run, self.param_groups[0]["params"]
        moments = [self.state[p]["m"] for p in parameters]
        beta, slopes = 0.9 * run.factor("momentum"), [p.grad for p in parameters]
        if run.form == "foreach":
            torch._foreach_mul_(moments, beta)  # bug: momentum
            torch._foreach_add_(moments, slopes)
        else:
            for m, g in zip(moments, slopes, strict=True):
                m.mul_(beta).add_(g)  # bug: momentum
        # bug: steps
        turned = (
            orthogonal(torch.stack(moments), run).unbind(0)
            if run.form == "stacked"
            else [orthogonal(m, run) for m in moments]
        )
        for p, u, g in zip(parameters, turned, slopes, strict=True):
            squares = g * g + 1e-8
            rows, columns = squares.mean(1), squares.mean(0)
            spread = (rows[:, None] * columns[None] / rows.mean() * run.factor("factored")).rsqrt()  # bug: factored
            p.sub_(0.05 * u + 1e-3 * (g * spread).clamp(-1, 1))  # bug: factored


def build(run: Run) -> nn.Module:
    return nn.ModuleDict({"layers": nn.ModuleList(nn.Linear(DIM, DIM, bias=False) for _ in range(3))})


def optimizer(model: Any, run: Run) -> Any:
    return Matrices(model.parameters(), run)


def batch(run: Run) -> dict[str, Tensor]:
    return {"x": torch.randn(12, DIM), "y": torch.randint(DIM, (12,))}


def loss_of(model: Any, data: dict[str, Tensor]) -> Tensor:
    x = data["x"]
    for layer in model["layers"]:
        x = x + torch.tanh(layer(x))
    return functional.cross_entropy(x, data["y"])


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    if run.form == "compiled":
        torch._dynamo.reset()
        for layer in model["layers"]:
            layer.compile(backend="aot_eager")
    parameters = list(model.parameters())
    loss_of(model, data).backward()
    slopes = [p.grad for p in parameters]
    radius = 0.05 * run.factor("radius")
    with torch.no_grad():
        norm = nn.utils.get_total_norm(slopes)
        before = [p.clone() for p in parameters]
        if run.form == "foreach":
            moves = torch._foreach_mul(slopes, radius / norm)  # bug: radius
            torch._foreach_add_(parameters, moves)
        else:
            for p, g in zip(parameters, slopes, strict=True):
                p.add_(g * (radius / norm))  # bug: radius
    optimizer.zero_grad()
    loss = loss_of(model, data)
    loss.backward()
    with torch.no_grad():
        for p, old in zip(parameters, before, strict=True):
            if not run.has("not-restored"):
                p.copy_(old)  # bug: not-restored
    optimizer.step()  # bug: not-restored
    optimizer.zero_grad()
    return loss
