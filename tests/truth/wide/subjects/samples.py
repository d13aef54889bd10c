"""Gradients of single samples, by vmap and in a loop, each clipped; a gradient penalty beside."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, grad_and_value, vmap
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("loop", "vmap", "outer-products", "jacobian")
BUGS = (
    Bug(name="clip-at", phase="", sizes=(1e-3, 0.5)),
    Bug(name="summed", phase=""),
    Bug(name="penalty", phase="", sizes=(1e-3, 1.0)),
    Bug(name="penalty-detached", phase="backward", forms=("loop", "outer-products", "jacobian")),
    Bug(name="batch-clipped", phase=""),
)
B, DIM = 6, 10


def build(run: Run) -> nn.Module:
    return nn.Sequential(nn.Linear(DIM, 14), nn.Tanh(), nn.Linear(14, 3))


def batch(run: Run) -> dict[str, Tensor]:
    return {"x": torch.randn(B, DIM), "y": torch.randint(3, (B,))}


def per_sample(model: Any, x: Tensor, y: Tensor, run: Run) -> tuple[list[Tensor], Tensor]:
    """Gradients by parameter, each (B, …), and the losses."""
    weights = dict(model.named_parameters())

    def loss_of(p: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model, p, (one[None],)), label[None])

    if run.form == "vmap":
        made, losses = vmap(grad_and_value(loss_of), (None, 0, 0))({k: p.detach() for k, p in weights.items()}, x, y)
        return list(made.values()), losses
    losses = functional.cross_entropy(model(x), y, reduction="none")
    if run.form == "jacobian":
        ones = torch.eye(B, dtype=x.dtype)
        return list(torch.autograd.grad(losses, list(weights.values()), ones, is_grads_batched=True)), losses.detach()
    if run.form == "outer-products":
        hidden = torch.tanh(model[0](x)).detach()
        error = torch.softmax(model[2](hidden), -1) - functional.one_hot(y, 3)
        below = (error @ model[2].weight) * (1 - hidden * hidden)
        made = (below[:, :, None] * x[:, None], below, error[:, :, None] * hidden[:, None], error)
        return [part.detach() for part in made], losses.detach()
    rows = [torch.autograd.grad(loss_of(weights, x[i], y[i]), list(weights.values())) for i in range(B)]
    return [torch.stack(part) for part in zip(*rows, strict=True)], losses.detach()


def penalty(model: Any, x: Tensor, run: Run) -> Tensor:
    """The squared distance from 1 of the norm of the gradient by the input."""
    inputs = x.detach().requires_grad_()
    if run.form == "vmap":
        weights = dict(model.named_parameters())
        slope = vmap(grad(lambda one: functional_call(model, weights, (one[None],)).sum()))(inputs)
    else:
        keep = not run.has("penalty-detached")
        (slope,) = torch.autograd.grad(model(inputs).sum(), inputs, create_graph=keep)
        if not keep:
            slope = slope.detach() + 0 * model(inputs).sum()
    return ((slope.norm(dim=1) - 1) ** 2).mean()  # bug: penalty-detached


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    optimizer.zero_grad()
    made, losses = per_sample(model, data["x"], data["y"], run)
    extra = 0.1 * run.factor("penalty") * penalty(model, data["x"], run)  # bug: penalty
    extra.backward()  # bug: penalty
    norms = torch.cat([part.flatten(1) for part in made], 1).norm(dim=1)  # bug: batch-clipped
    if run.has("batch-clipped"):
        norms = torch.full_like(norms, norms.mean())  # bug: batch-clipped
    share = (0.5 * run.factor("clip-at") / norms).clamp(max=1.0)  # bug: clip-at, batch-clipped
    share = share if run.has("summed") else share / B  # bug: summed
    for p, part in zip(model.parameters(), made, strict=True):
        clipped = torch.einsum("b,b...->...", share, part)  # bug: summed
        p.grad = clipped if p.grad is None else p.grad + clipped
    optimizer.step()
    return losses.mean() + extra.detach()
