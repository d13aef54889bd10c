"""Low-rank adapters merged and apart, tied embeddings, frozen weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("apart", "merged", "scaled-first", "one-product", "tied-by-hand")
DTYPES = ("float32",)
BUGS = (
    Bug(name="alpha", module=r"layers\.{}", sizes=(1e-3, 1.0), layers=True),
    Bug(name="adapter-detached", phase="", parameters=r"layers\.1\.a.*"),
    Bug(name="frozen-trained", module="", phase="optimizer", parameters=r"layers\.\d\.weight.*", ops=".*"),
    Bug(name="adapter-left-out", module=r"layers\.{}"),
    Bug(name="tie-detached", phase="backward"),
    Bug(name="head-scale", phase="", sizes=(1e-3, 0.3)),
)
VOCABULARY, DIM, RANK = 18, 16, 4


class Adapted(nn.Module):
    """x + tanh(x Wᵀ + α x Aᵀ Bᵀ)."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.weight = nn.Parameter(torch.randn(DIM, DIM) * 0.2, requires_grad=run.has("frozen-trained", layer))
        self.a, self.b = nn.Parameter(torch.randn(RANK, DIM) * 0.2), nn.Parameter(torch.randn(DIM, RANK) * 0.2)

    def forward(self, x: Tensor) -> Tensor:
        run, alpha = self.run, 2.0 * self.run.factor("alpha", self.layer)
        a = self.a.detach() if run.has("adapter-detached", self.layer) else self.a
        if run.has("adapter-left-out", self.layer):
            made = x @ self.weight.t() + 0 * (x @ a.t()) @ self.b.t()  # bug: adapter-left-out
        elif run.form == "merged":
            made = x @ (self.weight + alpha * (self.b @ a)).t()  # bug: alpha, adapter-left-out
        elif run.form == "scaled-first":
            # bug: alpha, adapter-left-out
            made = functional.linear(x, self.weight) + functional.linear(functional.linear(x * alpha, a), self.b)
        elif run.form == "one-product":
            wide = torch.cat((self.weight, alpha * self.b), 1)  # bug: alpha
            made = torch.cat((x, x @ a.t()), -1) @ wide.t()  # bug: adapter-left-out
        else:
            made = x @ self.weight.t() + alpha * ((x @ a.t()) @ self.b.t())  # bug: alpha, adapter-left-out
        return x + torch.tanh(made)


class Net(nn.Module):
    """Embedding and head share their weight."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embed = nn.Embedding(VOCABULARY, DIM)
        self.layers = nn.ModuleList(Adapted(run, n) for n in range(2))
        if run.form != "tied-by-hand":
            self.head = nn.Linear(DIM, VOCABULARY, bias=False)
            self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        if self.run.has("tie-detached"):
            return x @ self.embed.weight.detach().t()  # bug: tie-detached
        if self.run.form == "tied-by-hand":
            return x @ self.embed.weight.t()  # bug: tie-detached
        return self.head(x)  # bug: tie-detached


def build(run: Run) -> nn.Module:
    return Net(run)


def optimizer(model: Any, run: Run) -> Any:
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.SGD(trained, lr=0.1, momentum=0.9)


def canonical(tensors: dict[str, Tensor], run: Run) -> dict[str, Tensor]:
    return {name: x for name, x in tensors.items() if name != "head.weight"}


def batch(run: Run) -> dict[str, Tensor]:
    return {"tokens": torch.randint(VOCABULARY, (4, 6)), "y": torch.randint(VOCABULARY, (4, 6))}


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    logits = model(data["tokens"]) * 0.5 * run.factor("head-scale")  # bug: head-scale
    loss = functional.cross_entropy(logits.flatten(0, 1), data["y"].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
