"""A decoder with a mixture of experts: top-2 routing, an auxiliary loss that balances them, a counter of tokens."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from tests.truth.run import Run

BATCH, LENGTH, VOCABULARY = 8, 16, 64
DIM, HEADS = 32, 4
HEAD = DIM // HEADS
EXPERTS, CHOSEN, HIDDEN = 4, 2, 24


class Bounded(torch.autograd.Function):
    """Bounds values; the gradient passes as if it did not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, masked: bool) -> Tensor:
        ctx.masked = masked
        if masked:
            ctx.save_for_backward(x)
        return x.clamp(-2.0, 2.0)  # bug: straight-through

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        if ctx.masked:
            (x,) = ctx.saved_tensors
            gradient = gradient * (x.abs() < 2.0)  # bug: straight-through
        return gradient, None


class Norm(nn.Module):
    """Root mean square norm, in float32."""

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)  # bug: norm-eps
        return self.weight * wide.type_as(x)


class Attention(nn.Module):
    """Causal self-attention with a bias by distance (ALiBi)."""

    def __init__(self, run: Run, bug: str) -> None:
        super().__init__()
        self.sdpa, self.bug = run.attention == "sdpa", bug
        self.wq = nn.Linear(DIM, DIM, bias=False)
        self.wk = nn.Linear(DIM, DIM, bias=False)
        self.wv = nn.Linear(DIM, DIM, bias=False)
        self.wo = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (w(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        place = torch.arange(x.shape[1], dtype=torch.float32)
        slope = 2.0 if self.bug == "slope" else 0.5
        bias = slope * (place[None, :] - place[:, None])  # bug: slope
        bias = bias.masked_fill(place[None, :] > place[:, None], float("-inf")).to(q.dtype)
        if self.bug == "values-low-precision":
            v = v.bfloat16().to(q.dtype)  # bug: values-low-precision
        if self.sdpa:
            mixed = functional.scaled_dot_product_attention(q, k, v, bias.expand(q.shape[0], q.shape[1], -1, -1))
        else:
            scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / HEAD**0.5 + bias
            mixed = torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), v)  # bug: values-low-precision
        return self.wo(mixed.transpose(1, 2).flatten(-2))


class Expert(nn.Module):
    """One gated unit."""

    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.w1 = nn.Linear(DIM, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, DIM, bias=False)
        self.w3 = nn.Linear(DIM, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        act = functional.gelu if self.bug == "expert-activation" else functional.silu
        return self.w2(act(self.w1(x)) * self.w3(x))  # bug: expert-activation


class Experts(nn.Module):
    """Every token goes to two experts; `counts` and `balance` are those of the last pass."""

    tokens_per_expert: Tensor
    balance: Tensor
    chosen: Tensor

    def __init__(self, run: Run, bug: str) -> None:
        super().__init__()
        self.run, self.bug = run, bug
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert(bug if i == 2 else "") for i in range(EXPERTS))
        self.register_buffer("tokens_per_expert", torch.zeros(EXPERTS))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The mixed output, the balance of every sequence, and the tokens of each expert."""
        logits = self.router(x).float()
        if self.bug == "router-low-precision":
            logits = logits.bfloat16().float()  # bug: router-low-precision
        scores = torch.softmax(logits, -1)  # bug: router-low-precision
        weights, chosen = scores.topk(CHOSEN, -1)
        if self.bug != "weights-not-normalised":
            weights = weights / weights.sum(-1, keepdim=True)  # bug: weights-not-normalised
        if self.bug == "weights-detached":
            weights = weights.detach()
        load = functional.one_hot(chosen, EXPERTS).float()
        if self.bug == "counter-recomputed":
            self.tokens_per_expert += load.sum((0, 1, 2))  # bug: counter-recomputed
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            sample, token, rank = torch.where(chosen == index)
            weight = weights[sample, token, rank, None].to(x.dtype)
            piece = expert(x[sample, token]) * weight  # bug: weights-detached, weights-not-normalised
            out = out.index_put((sample, token), piece, accumulate=True)
        balance = EXPERTS * (load.sum(2).mean(1) * scores.mean(1)).sum(-1)
        return out, balance, load.sum((0, 1, 2))


class Block(nn.Module):
    """Attention and experts with residuals."""

    def __init__(self, run: Run, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.norm1 = Norm()
        self.attention = Attention(run, bug)
        self.norm2 = Norm(1e-4 if bug == "norm-eps" else 1e-5)
        self.moe = Experts(run, bug)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x + self.attention(self.norm1(x))
        h = Bounded.apply(self.norm2(x), self.bug == "straight-through")
        mixed, balance, counts = self.moe(h)
        return x + mixed, balance, counts


class Decoder(nn.Module):
    """Tokens to logits and the balance of the experts."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.bug, self.divided = run.bug, run.parallel == "dp"
        self.embedding = nn.Embedding(VOCABULARY, DIM)
        self.layers = nn.ModuleList(Block(run, run.bug if i == 1 else "") for i in range(2))
        self.norm = Norm()
        self.output = nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embedding(tokens)
        balances = []
        for index, layer in enumerate(self.layers):
            x, balance, counts = layer(x)
            balances.append(balance)
            if self.divided:
                dist.all_reduce(counts)
            if self.bug == "counter-recomputed" and index == 1:
                continue
            # outside of the block, which may run again in the backward pass
            if self.bug == "counter-twice" and index == 1:
                counts = counts * 2  # bug: counter-twice
            layer.moe.tokens_per_expert += counts  # bug: counter-twice
        if self.bug == "balance-of-one-layer":
            balances = balances[:1]
        return self.output(self.norm(x)), torch.stack(balances).mean()  # bug: balance-of-one-layer


def build(run: Run) -> Any:
    """The model."""
    return Decoder(run)


def stacks(model: Any) -> list[Any]:
    """Lists of blocks."""
    return [model.layers]


def split(model: Any, mesh: Any) -> None:
    """Tensor parallelism of attention and output; every rank has all experts."""
    plan = {
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(),
    }
    for layer in model.layers:
        parallelize_module(layer, mesh, plan, src_data_rank=None)
    output = {"output": ColwiseParallel(input_layouts=Replicate(), output_layouts=Replicate())}
    parallelize_module(model, mesh, output, src_data_rank=None)


def batch(run: Run) -> dict[str, Any]:
    """Random tokens."""
    draw = torch.Generator().manual_seed(run.seed)
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=draw)
    return {"tokens": tokens[:, :-1].contiguous(), "targets": tokens[:, 1:].contiguous()}


def loss(model: Any, data: dict[str, Any], run: Run) -> Any:
    """Cross-entropy and a little of the balance."""
    logits, balance = model(data["tokens"])
    share = 2e-2 if run.bug == "balance-weight" else 1e-2
    targets = data["targets"]
    if run.chunks == 1:
        entropy = functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
    else:
        parts = zip(logits.chunk(run.chunks, 1), targets.chunk(run.chunks, 1), strict=True)
        entropy = sum(
            functional.cross_entropy(part.float().flatten(0, 1), wanted.flatten(), reduction="sum")
            for part, wanted in parts
        )
        entropy = entropy / targets.numel()
    return entropy + share * balance  # bug: balance-weight
