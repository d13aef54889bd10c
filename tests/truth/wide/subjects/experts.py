"""A mixture of experts: a loop over them, stacked products, a one-hot einsum; auxiliary loss and counts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("loop", "loop-index-add", "bmm", "one-hot", "sorted")
BUGS = (
    Bug(name="weights-unnormalised", module=r"layers\.{}", layers=True),
    Bug(name="weights-detached", module=r"layers\.{}", phase="backward"),
    Bug(name="router-bfloat16", module=r"layers\.{}"),
    Bug(name="balance", phase="", sizes=(1e-3, 1.0)),
    Bug(name="expert-scale", module=r"layers\.{}", sizes=(1e-3, 0.5), layers=True),
    Bug(name="experts-swapped", module=r"layers\.{}"),
)
TOKENS, DIM, EXPERTS, HIDDEN = 20, 12, 4, 8


class Experts(nn.Module):
    """x + Σ weight · expert(x) over the two best experts."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.router = nn.Parameter(torch.randn(EXPERTS, DIM) * 0.3)
        self.up, self.down = (nn.Parameter(torch.randn(EXPERTS, *s) * 0.3) for s in ((DIM, HIDDEN), (HIDDEN, DIM)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        run, n = self.run, self.layer
        logits = x @ self.router.t()
        if run.has("router-bfloat16", n):
            logits = logits.bfloat16().to(x.dtype)  # bug: router-bfloat16
        scores = logits.softmax(-1)  # bug: router-bfloat16
        weights, chosen = scores.topk(2, -1)
        if run.has("experts-swapped", n):
            chosen = chosen.flip(1)  # bug: experts-swapped
        if not run.has("weights-unnormalised", n):
            weights = weights / weights.sum(-1, keepdim=True)  # bug: weights-unnormalised
        if run.has("weights-detached", n):
            weights = weights.detach()
        load = functional.one_hot(chosen, EXPERTS).sum(1).to(x.dtype)
        balance = EXPERTS * (load.mean(0) * scores.mean(0)).sum()
        mixed = self.mixed(x, weights, chosen, load) * run.factor("expert-scale", n)  # bug: expert-scale
        return x + mixed, balance

    def mixed(self, x: Tensor, weights: Tensor, chosen: Tensor, load: Tensor) -> Tensor:
        if self.run.form in ("bmm", "one-hot"):
            made = torch.bmm(functional.silu(torch.bmm(x.expand(EXPERTS, -1, -1), self.up)), self.down)
            spread = functional.one_hot(chosen, EXPERTS).to(x.dtype)  # bug: experts-swapped
            if self.run.form == "one-hot":
                # bug: weights-unnormalised, weights-detached
                return torch.einsum("tk,tke,etd->td", weights, spread, made)
            each = (weights[..., None] * spread).sum(1)  # bug: weights-unnormalised, weights-detached
            return (each.t()[..., None] * made).sum(0)
        out = torch.zeros_like(x)
        if self.run.form == "sorted":
            order = chosen.flatten().argsort(stable=True)  # bug: experts-swapped
            rows, flat = order // 2, weights.flatten()[order]  # bug: weights-unnormalised, weights-detached
            parts = x[rows].split(load.sum(0).long().tolist())
            made = torch.cat([functional.silu(part @ self.up[e]) @ self.down[e] for e, part in enumerate(parts)])
            return out.index_add(0, rows, made * flat[:, None])  # bug: weights-unnormalised, weights-detached
        for e in range(EXPERTS):
            rows, slot = (chosen == e).nonzero(as_tuple=True)  # bug: experts-swapped
            # bug: weights-unnormalised, weights-detached
            made = functional.silu(x[rows] @ self.up[e]) @ self.down[e] * weights[rows, slot, None]
            out = (
                out.index_add(0, rows, made)
                if self.run.form == "loop-index-add"
                else out.index_put((rows,), made, accumulate=True)
            )
        return out


def build(run: Run) -> nn.Module:
    return nn.ModuleDict({"layers": nn.ModuleList(Experts(run, n) for n in range(2)), "head": nn.Linear(DIM, 5)})


def batch(run: Run) -> dict[str, Tensor]:
    return {"x": torch.randn(TOKENS, DIM), "y": torch.randint(5, (TOKENS,))}


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    x, balances = data["x"], []
    for layer in model["layers"]:
        x, balance = layer(x)
        balances.append(balance)
    loss = functional.cross_entropy(model["head"](x), data["y"])
    loss = loss + 0.02 * run.factor("balance") * torch.stack(balances).sum()  # bug: balance
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
