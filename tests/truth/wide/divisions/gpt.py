"""A GPT of four blocks: learned positions, LayerNorm, causal attention, a head of its own; in stages and shares."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide import dividing
from tests.truth.wide.dividing import DATA, LAYERS, Staged, common_bugs, divided, own, train
from tests.truth.wide.subject import Bug, Run

DIM, HEADS, VOCABULARY, LENGTH, BATCH = 16, 2, 24, 6, 8

FORMS, PAIRS, RANKS = dividing.FORMS, dividing.PAIRS, dividing.RANKS
canonical, optimizer = dividing.canonical, dividing.optimizer
BUGS = (
    Bug(name="scale", module=r"layers\.1\.attention", sizes=(1e-3, 1.0), forms=FORMS[3:]),
    Bug(name="scale", module=r"layers\.1\.attention", sizes=(1e-3,), ranks=(1,), forms=DATA),
    Bug(name="late", module=r"layers\.[13]", sizes=(1e-3, 1.0), forms=FORMS[3:]),
    Bug(name="mask", module=r"layers\.[13]\.attention", forms=FORMS[3:]),
    Bug(name="final", module=r"head(\.norm)?", sizes=(100.0,), forms=FORMS[3:]),
    *common_bugs(r"layers\.3\.attention\.qkv\.weight"),
)


class Attention(nn.Module):
    """Causal attention, written out."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        heads = (x.shape[0], LENGTH, HEADS, DIM // HEADS)
        q, k, v = (part.view(heads).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) * ((DIM // HEADS) ** -0.5 * self.run.factor("scale", self.layer))  # bug: scale
        if not self.run.has("mask", self.layer - 2):
            later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -1e4)  # bug: mask
        mixed = torch.softmax(scores, -1) @ v  # bug: mask
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a norm and beside a residual."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attention = Attention(run, layer)
        self.up, self.down = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y = self.down(functional.gelu(self.up(self.norm2(x))))
        if self.run.has("late", self.layer - 2):
            y = y * self.run.factor("late", self.layer - 2)  # bug: late
        return x + y  # bug: late


class Embed(nn.Module):
    """Tokens and learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, DIM)
        self.positions = nn.Parameter(torch.randn(LENGTH, DIM))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.tokens(tokens) + self.positions  # bug: samples


class Head(nn.Module):
    """The last norm and the logits."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(DIM, eps=1e-5 * run.factor("final"))
        self.logits = nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.norm(x))  # bug: final


def build(run: Run) -> Any:
    """The model, or the stage of it that this rank runs."""
    layers = [Block(run, layer) for layer in range(LAYERS)]
    whole = Staged(Embed(), list(layers), Head(run), between=(LENGTH, DIM), given=(LENGTH, VOCABULARY))
    return divided(whole, run)


def batch(run: Run) -> dict[str, Tensor]:
    """Tokens, and the ones that follow them."""
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
    return own({"x": tokens[:, :-1].contiguous(), "y": tokens[:, 1:].contiguous()}, run)


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean over tokens."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())  # bug: targets, exchanged


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    """Train one step."""
    return train(model, data, optimizer, run, loss)
