"""A GPT with LayerNorm and attention biased by distance; blocks are merged by maxima, and passed by autograd."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_gather_tensor_autograd
from torch.nn import functional

from tests.truth.wide import sequence, sharing
from tests.truth.wide.sequence import LAYOUTS, LENGTH, common_bugs, own, passed_on, positions_of
from tests.truth.wide.subject import Run

DIM, HEADS, CLASSES, BATCH = 24, 3, 10, 2
HEAD = DIM // HEADS

FORMS, PAIRS, RANKS = sequence.FORMS, sequence.PAIRS, sequence.RANKS
optimizer = sharing.optimizer
BUGS = common_bugs(r"blocks\.1\.attention\.query\.weight")


class Passed(torch.autograd.Function):
    """What the rank before this one has; its gradient goes back there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cut: bool) -> Tensor:
        ctx.cut = cut
        return passed_on(x)[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (found,) = passed_on(gradients[0], by=-1)
        return torch.zeros_like(found) if ctx.cut else found, None  # bug: gradient


class Attention(nn.Module):
    """Causal attention of all ranks' positions, less to distant ones."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.query, self.key, self.value, self.out = (nn.Linear(DIM, DIM, bias=k != 1) for k in range(4))

    def forward(self, x: Tensor) -> Tensor:
        heads = (*x.shape[:2], HEADS, HEAD)
        q, k, v = (of(x).view(heads).transpose(1, 2) for of in (self.query, self.key, self.value))
        q = q / (HEAD**0.5 * self.run.factor("scale", self.layer))  # bug: scale
        mixed = self._in_turns(q, k, v) if LAYOUTS[self.run.form].kind == "ring" else self._at_once(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))  # bug: merge, gradient

    def _at_once(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        run = self.run
        if run.ranks == 1:
            return torch.softmax(q @ k.mT + self._bias(0, 0), -1) @ v
        k, v = (self._gathered(x) for x in (k, v))
        rank = dist.get_rank()
        bias = torch.cat([self._bias(rank, of) for of in range(run.ranks)], -1)
        return torch.softmax(q @ k.mT + bias, -1) @ v  # bug: mask, offset

    def _gathered(self, x: Tensor) -> Tensor:
        parts = list(all_gather_tensor_autograd(x, 0, dist.group.WORLD).chunk(self.run.ranks))
        if self.run.has("gradient", self.layer):
            rank = dist.get_rank()
            parts = [part if k == rank else part.detach() for k, part in enumerate(parts)]  # bug: gradient
        return torch.cat(parts, 2)  # bug: gradient

    def _in_turns(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        run, rank = self.run, dist.get_rank()
        total: Any = None
        out: Any = None
        largest: Tensor | None = None
        for turn in range(run.ranks):
            if turn:
                k, v = Passed.apply(torch.stack((k, v)), run.has("gradient", self.layer)).unbind()
            scores = q @ k.mT + self._bias(rank, (rank - turn) % run.ranks)  # bug: mask, offset
            most = scores.amax(-1, keepdim=True).detach()
            new = most if largest is None else torch.maximum(largest, most)
            chances = torch.exp(scores - new)
            sums, mixed = chances.sum(-1, keepdim=True), chances @ v
            if largest is not None:
                factor = torch.exp(largest - new)
                if run.has("merge", self.layer):
                    factor = torch.ones_like(factor)  # bug: merge
                sums, mixed = sums + total * factor, mixed + out * factor  # bug: merge
            total, out, largest = sums, mixed, new
        return out / total

    def _bias(self, rank: int, source: int) -> Tensor:
        """[heads, queries, keys], far below zero at later keys."""
        run, mine, theirs = self.run, positions_of(self.run, rank), positions_of(self.run, source)
        begin = mine.min() if run.has("offset", self.layer) else 0
        apart = (mine - begin).unsqueeze(-1) - theirs  # bug: offset
        slopes = 2.0 ** -torch.arange(1, HEADS + 1).view(-1, 1, 1)
        bias = -slopes * apart.abs()  # bug: offset
        if run.has("mask", self.layer) and source != rank:
            return bias  # bug: mask
        return bias.masked_fill(mine.unsqueeze(-1) < theirs, -1e9)  # bug: mask


class Block(nn.Module):
    """Attention and a feed-forward layer, each before a norm."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.norm1, self.norm2, self.attention = nn.LayerNorm(DIM), nn.LayerNorm(DIM), Attention(run, layer)
        self.feed = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x))
        y = self.feed(x)
        if self.run.has("late", self.layer):
            y = y * self.run.factor("late", self.layer)  # bug: late
        return self.norm2(x + y)  # bug: late


class Model(nn.Module):
    """Features of a sequence to the class of each position."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.inner = nn.Linear(5, DIM)
        self.blocks = nn.ModuleList([Block(run, layer) for layer in range(2)])
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def build(run: Run) -> nn.Module:
    """The model, whole on each rank."""
    return Model(run)


def batch(run: Run) -> dict[str, Tensor]:
    """Sequences, and the class of each position."""
    data = {"x": torch.randn(BATCH, LENGTH, 5), "y": torch.randint(CLASSES, (BATCH, LENGTH))}
    return own(data, run)


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean over positions."""
    return functional.nll_loss(torch.log_softmax(logits, -1).flatten(0, 1), targets.flatten())  # bug: targets


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    """Train one step."""
    return sequence.train(model, data, optimizer, run, loss)
