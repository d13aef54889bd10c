"""Preferences over answers: a policy and a frozen reference of it, log-probabilities of chosen and rejected texts."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("apart", "joined", "by-hand", "cross-entropy", "packed-labels")
BUGS = (
    Bug(name="beta", phase="", sizes=(1e-3, 0.5)),
    Bug(name="answers-swapped", phase=""),
    Bug(name="token-lost", phase=""),
    Bug(name="reference-is-policy", phase=""),
    Bug(name="unshifted", phase=""),
    Bug(name="mean-not-sum", phase=""),
    Bug(name="norm-eps", module=r"policy\.blocks\.{}", sizes=(1e3,), layers=True),
    Bug(name="causal-off", module=r"policy\.blocks\.{}", layers=True),
    Bug(name="scale", module=r"policy\.blocks\.{}", sizes=(1e-4, 0.1), layers=True),
    Bug(name="tied-head", phase="", sizes=(1e-3,)),
)
B, T, DIM, HEADS, WORDS, PROMPT, BETA = 3, 10, 16, 2, 19, 4, 0.3


class Block(nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.norm = nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.out = nn.Linear(DIM, DIM, bias=False)
        self.mlp = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, 2 * DIM), nn.SiLU(), nn.Linear(2 * DIM, DIM))

    def forward(self, x: Tensor, run: Run, own: bool) -> Tensor:
        scale = run.factor("scale", self.index) if own else 1.0
        eps = self.norm.eps * (1 + run.size if own and run.has("norm-eps", self.index) else 1)
        causal = not (own and run.has("causal-off", self.index))
        h = functional.layer_norm(x, (DIM,), self.norm.weight, self.norm.bias, eps)  # bug: norm-eps
        q, k, v = self.qkv(h).unflatten(-1, (3, HEADS, DIM // HEADS)).permute(2, 0, 3, 1, 4)
        if run.form in ("by-hand", "packed-labels"):
            scores = q @ k.transpose(-1, -2) * (scale / (DIM // HEADS) ** 0.5)  # bug: scale
            if causal:
                hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
                scores = scores.masked_fill(hidden, float("-inf"))  # bug: causal-off
            y = torch.softmax(scores, -1) @ v  # bug: causal-off
        else:
            y = functional.scaled_dot_product_attention(  # bug: scale, causal-off
                q, k, v, is_causal=causal, scale=scale / (DIM // HEADS) ** 0.5
            )
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, DIM)
        self.blocks = nn.ModuleList(Block(i) for i in range(2))
        self.norm = nn.LayerNorm(DIM)

    def forward(self, tokens: Tensor, run: Run, own: bool) -> Tensor:
        x = self.embed(tokens)  # bug: reference-is-policy
        for block in self.blocks:
            x = block(x, run, own)
        weight = self.embed.weight * (run.factor("tied-head") if own else 1.0)  # bug: tied-head
        return functional.linear(self.norm(x), weight)  # bug: tied-head


def build(run: Run) -> nn.Module:
    policy = Policy()
    reference = copy.deepcopy(policy).requires_grad_(False)
    with torch.no_grad():
        for p in reference.parameters():
            p.mul_(0.95)
    return nn.ModuleDict({"policy": policy, "reference": reference})


def optimizer(model: Any, run: Run) -> Any:
    return torch.optim.RMSprop(model["policy"].parameters(), lr=1e-3, eps=1e-4, momentum=0.9)


def batch(run: Run) -> dict[str, Tensor]:
    prompt = torch.randint(0, WORDS, (B, PROMPT))
    return {name: torch.cat([prompt, torch.randint(0, WORDS, (B, T - PROMPT))], 1) for name in ("chosen", "rejected")}


def log_probability(logits: Tensor, tokens: Tensor, run: Run) -> Tensor:
    """Of each answer, [n]: the sum over its tokens."""
    start = PROMPT - 1 + run.has("token-lost")
    aims = tokens[:, :-1] if run.has("unshifted") else tokens[:, 1:]
    made = logits[:, :-1]
    if run.form == "by-hand":
        chosen = made.gather(-1, aims[..., None])[..., 0]  # bug: unshifted
        each = chosen - made.logsumexp(-1)
    elif run.form == "cross-entropy":
        each = -functional.cross_entropy(made.transpose(1, 2), aims, reduction="none")  # bug: unshifted
    elif run.form == "packed-labels":
        labels = aims.clone()
        labels[:, :start] = -100
        rows, flat = made.flatten(0, 1), labels.flatten()
        lost = functional.cross_entropy(rows, flat, reduction="none")  # bug: unshifted, token-lost
        each = -lost.view(labels.shape)
        return each.sum(-1) / (T - PROMPT if run.has("mean-not-sum") else 1)  # bug: mean-not-sum
    else:
        each = made.log_softmax(-1).gather(-1, aims[..., None])[..., 0]  # bug: unshifted
    each = each[:, start:]
    return each.mean(-1) if run.has("mean-not-sum") else each.sum(-1)  # bug: mean-not-sum, token-lost


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    chosen, rejected = data["chosen"], data["rejected"]
    if run.has("answers-swapped"):
        chosen, rejected = rejected, chosen

    def both(network: Any, own: bool) -> tuple[Tensor, Tensor]:
        if run.form in ("joined", "packed-labels"):
            tokens = torch.cat([chosen, rejected])
            made = log_probability(network(tokens, run, own), tokens, run)  # bug: answers-swapped
            return made[:B], made[B:]
        return (
            log_probability(network(chosen, run, own), chosen, run),  # bug: answers-swapped
            log_probability(network(rejected, run, own), rejected, run),
        )

    good, bad = both(model["policy"], True)
    with torch.no_grad():
        known = model["policy" if run.has("reference-is-policy") else "reference"]
        known_good, known_bad = both(known, known is model["policy"])
    beta = BETA * run.factor("beta")
    margin = (good - bad) - (known_good - known_bad)  # bug: reference-is-policy, answers-swapped
    if run.form == "by-hand":
        loss = functional.softplus(-beta * margin).mean()  # bug: beta
    else:
        loss = -functional.logsigmoid(beta * margin).mean()  # bug: beta
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
