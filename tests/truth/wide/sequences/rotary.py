"""A decoder with RMSNorm and rotary positions, in bfloat16 too; the ring is a function with its own backward."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide import sequence, sharing
from tests.truth.wide.sequence import LAYOUTS, LENGTH, common_bugs, own, passed_on, positions_of
from tests.truth.wide.subject import Run

DIM, HEADS, VOCABULARY, BATCH = 16, 2, 24, 4
HEAD = DIM // HEADS
HIDDEN = -1e9

DTYPES = ("float32", "bfloat16")
FORMS, PAIRS, RANKS = sequence.FORMS, sequence.PAIRS, sequence.RANKS
optimizer = sharing.optimizer
BUGS = common_bugs(r"blocks\.1\.attention\.query\.weight")


class Gathered(torch.autograd.Function):
    """All ranks' parts, side by side on dimension 2."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, run: Run, layer: int) -> Tensor:
        ctx.run, ctx.layer = run, layer
        parts = [torch.empty_like(x) for _ in range(run.ranks)]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, 2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        whole = gradients[0].clone()
        dist.all_reduce(whole)
        if ctx.run.has("gradient", ctx.layer):
            whole = gradients[0]  # bug: gradient
        return whole.chunk(ctx.run.ranks, 2)[dist.get_rank()], None, None  # bug: gradient


class Ring(torch.autograd.Function):
    """Attention to all positions, to those of one rank after the other."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, run: Run, layer: int, scale: float) -> Tensor:
        rank, ranks = dist.get_rank(), run.ranks
        out, total = torch.zeros_like(q, dtype=torch.float32), torch.full(q.shape[:-1], -torch.inf)
        block = k, v
        for turn in range(ranks):
            if _sees(run, layer, (rank - turn) % ranks):
                scores = _scores(q, block[0], run, layer, (rank - turn) % ranks, scale)
                here = torch.logsumexp(scores, -1)
                mixed = torch.softmax(scores, -1) @ block[1].float()
                both = torch.logaddexp(total, here)
                kept = torch.exp(total - both).unsqueeze(-1)
                if run.has("merge", layer) and turn:
                    kept = torch.ones_like(kept)  # bug: merge
                out = out * kept + mixed * torch.exp(here - both).unsqueeze(-1)  # bug: merge
                total = both
            if turn < ranks - 1:
                block = tuple(passed_on(*block))
        ctx.save_for_backward(q, k, v, out, total)
        ctx.run, ctx.layer, ctx.scale = run, layer, scale
        return out.to(q.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, total = ctx.saved_tensors
        run, rank, ranks = ctx.run, dist.get_rank(), ctx.run.ranks
        given = gradients[0].float()
        common = (given * out).sum(-1, keepdim=True)
        of_q, of_k, of_v = (torch.zeros_like(x, dtype=torch.float32) for x in (q, k, v))
        block = [k, v, of_k, of_v]
        for turn in range(ranks):
            k, v, of_k, of_v = block
            if _sees(run, ctx.layer, (rank - turn) % ranks):
                scores = _scores(q, k, run, ctx.layer, (rank - turn) % ranks, ctx.scale)
                chances = torch.exp(scores - total.unsqueeze(-1))
                of_scores = chances * (given @ v.float().transpose(-1, -2) - common) * ctx.scale
                of_q += of_scores @ k.float()
                if not (run.has("gradient", ctx.layer) and turn):
                    of_k = of_k + of_scores.transpose(-1, -2) @ q.float()  # bug: gradient
                    of_v = of_v + chances.transpose(-1, -2) @ given  # bug: gradient
            block = passed_on(k, v, of_k, of_v)
        found = (of_q, *block[2:])
        return *(x.to(q.dtype) for x in found), None, None, None


def _sees(run: Run, layer: int, source: int) -> bool:
    """True if a query of this rank sees a key of another: none does whose part comes before."""
    before = positions_of(run, dist.get_rank())[-1] < positions_of(run, source)[0]
    return not before or run.has("mask", layer)


def _scores(q: Tensor, k: Tensor, run: Run, layer: int, source: int, scale: float) -> Tensor:
    """float32 scores of this rank's queries and another rank's keys; later keys are hidden."""
    mine, theirs = positions_of(run, dist.get_rank()), positions_of(run, source)
    scores = (q.float() @ k.float().transpose(-1, -2)) * scale
    if run.has("mask", layer) and source != dist.get_rank():
        return scores  # bug: mask
    return scores.masked_fill(theirs > mine.unsqueeze(-1), HIDDEN)  # bug: mask


class Attention(nn.Module):
    """Causal attention of all ranks' positions."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.query, self.key, self.value, self.out = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        run, layout = self.run, LAYOUTS[self.run.form]
        q, k, v = (of(x).unflatten(-1, (HEADS, HEAD)).transpose(1, 2) for of in (self.query, self.key, self.value))
        rank = dist.get_rank() if run.ranks > 1 else 0
        mine = positions_of(run, rank)
        if run.has("offset", self.layer):
            mine = mine - mine.min()
        q, k = _rotated(q, mine), _rotated(k, mine)  # bug: offset
        scale = HEAD**-0.5 * run.factor("scale", self.layer)
        if layout.kind == "ring":
            mixed = Ring.apply(q, k, v, run, self.layer, scale)  # bug: scale
            return self.out(mixed.transpose(1, 2).flatten(2))  # bug: merge
        theirs = torch.cat([positions_of(run, of) for of in range(run.ranks)])
        if run.ranks > 1:
            k, v = Gathered.apply(k, run, self.layer), Gathered.apply(v, run, self.layer)
        scores = q.float() @ k.float().transpose(-1, -2) * scale  # bug: scale
        hidden = theirs > positions_of(run, rank).unsqueeze(-1)
        if run.has("mask", self.layer):
            hidden = hidden & torch.isin(theirs, positions_of(run, rank))  # bug: mask
        chances = torch.softmax(scores.masked_fill(hidden, HIDDEN), -1)  # bug: mask
        return self.out((chances @ v.float()).to(x.dtype).transpose(1, 2).flatten(2))


def _rotated(x: Tensor, positions: Tensor) -> Tensor:
    angles = positions.unsqueeze(-1) * 100.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
    one, other = x.float().unflatten(-1, (2, HEAD // 2)).unbind(-2)
    turned = one * angles.cos() - other * angles.sin(), one * angles.sin() + other * angles.cos()  # bug: offset
    return torch.cat(turned, -1).to(x.dtype)


class RMSNorm(nn.Module):
    """x over the root of its mean square, scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


class Block(nn.Module):
    """Attention and a gated feed-forward layer, each after a norm and beside a residual."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.norm1, self.norm2, self.attention = RMSNorm(), RMSNorm(), Attention(run, layer)
        self.gate, self.up = (nn.Linear(DIM, 2 * DIM, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * DIM, DIM, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        y = self.down(functional.silu(self.gate(y)) * self.up(y))
        if self.run.has("late", self.layer):
            y = y * self.run.factor("late", self.layer)  # bug: late
        return x + y  # bug: late


class Model(nn.Module):
    """Tokens to logits of the next ones."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, DIM)
        self.blocks = nn.ModuleList([Block(run, layer) for layer in range(2)])
        self.norm, self.head = RMSNorm(), nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.tokens(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build(run: Run) -> nn.Module:
    """The model, whole on each rank."""
    return Model(run)


def batch(run: Run) -> dict[str, Tensor]:
    """Tokens, and the ones that follow them."""
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
    return own({"x": tokens[:, :-1].contiguous(), "y": tokens[:, 1:].contiguous()}, run)


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean over tokens."""
    return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())  # bug: targets


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    """Train one step."""
    return sequence.train(model, data, optimizer, run, loss)
