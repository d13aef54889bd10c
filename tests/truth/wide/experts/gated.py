"""A decoder whose feed-forward layers are gated experts, two for each token; tokens are sorted, splits are uneven."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide import routing, sharing
from tests.truth.wide.routing import EXPERTS, LAYOUTS, Copied, Experts, Summed, common_bugs, local, own, started
from tests.truth.wide.subject import Run

DIM, HEADS, VOCABULARY, LENGTH, BATCH, CHOSEN = 16, 2, 24, 8, 4, 2

FORMS, PAIRS, RANKS = routing.FORMS, routing.PAIRS, routing.RANKS
optimizer, canonical = sharing.optimizer, routing.canonical
BUGS = common_bugs()


class Exchanged(torch.autograd.Function):
    """Rows of other ranks: so many of each are received, so many are sent to each."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, received: list[int], sent: list[int]) -> Tensor:
        ctx.received, ctx.sent = received, sent
        return _exchanged(rows, received, sent)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _exchanged(gradients[0], ctx.sent, ctx.received), None, None


def _exchanged(rows: Tensor, received: list[int], sent: list[int]) -> Tensor:
    out = rows.new_empty(sum(received), rows.shape[1])
    dist.all_to_all_single(out, rows.contiguous(), received, sent)
    return out


class Gated(nn.Module):
    """A gated feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(DIM, 2 * DIM, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * DIM, DIM, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Mixture(Experts):
    """The two experts of each token that its router prefers, weighted."""

    def __init__(self, run: Run, layer: int) -> None:
        experts: list[nn.Module] = [Gated() for _ in range(EXPERTS)]
        super().__init__(run, layer, experts, nn.Linear(DIM, EXPERTS, bias=False))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        run, kind = self.run, LAYOUTS[self.run.form].kind
        chances = torch.softmax(self.scores(x), -1)
        weights, chosen = chances.topk(CHOSEN, -1)
        if not run.has("weights", self.layer):
            weights = weights / weights.sum(-1, keepdim=True)  # bug: weights
        used = functional.one_hot(chosen, EXPERTS).sum(-2).to(x.dtype).mean(1)
        balance = EXPERTS * (used * chances.mean(1)).sum(-1).mean()
        rows, weights = x.flatten(0, 1), weights.flatten()  # bug: weights
        if kind == "sum":
            rows, weights = Copied.apply(rows), Copied.apply(weights)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=EXPERTS)
        if kind == "sum":
            before, mine = counts[: local(run)[0]].sum(), counts[list(local(run))]
            order, counts = order[before : before + mine.sum()], mine
        given = rows[order // CHOSEN]
        out = self._far(given, counts) if kind == "tokens" else self._near(given, counts.tolist())
        out = torch.zeros_like(rows).index_add(0, order // CHOSEN, out * weights[order].unsqueeze(-1))  # bug: weights
        out = Summed.apply(out) if kind == "sum" else out
        return out.view_as(x), balance  # bug: order

    def _far(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Outputs of the experts on all ranks for rows, which are sorted by expert."""
        ranks, run = self.run.ranks, self.run
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        sent, received = (of.view(ranks, -1).sum(1).tolist() for of in (counts, theirs))
        rows = Exchanged.apply(rows, received, sent)
        experts = torch.arange(len(local(run))).repeat(ranks).repeat_interleave(theirs)
        order = experts.argsort(stable=True)
        out = self._near(rows[order], theirs.view(ranks, -1).sum(0).tolist())
        back = order if run.has("order", self.layer) else order.argsort()  # bug: order
        return Exchanged.apply(out[back], sent, received)  # bug: order

    def _near(self, rows: Tensor, counts: list[int]) -> Tensor:
        """What this rank's experts make of their rows, beside each other."""
        run, parts = self.run, rows.split(counts)
        numbers = list(range(len(parts)))
        if run.has("switched", self.layer):
            numbers.reverse()
        found = []
        for number, part in zip(numbers, parts, strict=True):
            if LAYOUTS[run.form].stacked:
                gate, up, down = (of[number] for of in self.stack.parameters())
                made = (functional.silu(part @ gate.T) * (part @ up.T)) @ down.T  # bug: switched
            else:
                made = list(self.experts.values())[number](part)  # bug: switched
            if number == 0 and run.has("expert", self.layer):
                made = made * run.factor("expert", self.layer)  # bug: expert
            found.append(made)
        return torch.cat(found)  # bug: switched, expert


class Attention(nn.Module):
    """Causal attention, by torch's function."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (of.unflatten(-1, (HEADS, -1)).transpose(1, 2) for of in self.qkv(x).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class RMSNorm(nn.Module):
    """x over the root of its mean square, scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


class Block(nn.Module):
    """Attention and the mixture, each after a norm and beside a residual."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.norm1, self.norm2, self.attention = RMSNorm(), RMSNorm(), Attention()
        self.mixture = Mixture(run, layer)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x + self.attention(self.norm1(x))
        y, balance = self.mixture(self.norm2(x))
        if self.run.has("late", self.layer):
            y = y * self.run.factor("late", self.layer)  # bug: late
        return x + y, balance  # bug: late


class Model(nn.Module):
    """Tokens to logits of the next ones, and the balance of all blocks' experts."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, DIM)
        self.blocks = nn.ModuleList([Block(run, layer) for layer in range(2)])
        self.norm, self.head = RMSNorm(), nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x, total = self.tokens(x), torch.zeros(())  # bug: samples
        for block in self.blocks:
            x, balance = block(x)
            total = total + balance
        return self.head(self.norm(x)), total


def build(run: Run) -> nn.Module:
    """The model with this rank's experts."""
    return started(Model(run), run)


def batch(run: Run) -> dict[str, Tensor]:
    """Tokens, and the ones that follow them."""
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
    return own({"x": tokens[:, :-1].contiguous(), "y": tokens[:, 1:].contiguous()}, run)


def loss(model: Any, data: dict[str, Tensor], run: Run) -> Tensor:
    """The mean over tokens, and the balance of experts."""
    logits, balance = model(data["x"])
    found = functional.cross_entropy(logits.flatten(0, 1), data["y"].flatten())
    return found + 0.05 * run.factor("balance") * balance  # bug: balance


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    """Train one step."""
    return routing.train(model, data, optimizer, run, loss)
