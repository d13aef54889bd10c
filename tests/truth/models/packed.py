"""A decoder on packed sequences: a mask between documents, positions that start anew, queries and keys normed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from tests.truth.run import Run

BATCH, LENGTH, DOCUMENTS, VOCABULARY = 8, 24, 3, 96
DIM, HEADS = 32, 4
HEAD = DIM // HEADS
IGNORED = -100


class ScaledNorm(torch.autograd.Function):
    """Division by the root of the mean square, with a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, wrong: bool) -> Tensor:
        # The log names this line, too, for what the backward pass computes.
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)  # bug: norm-backward
        ctx.save_for_backward(x, weight, scale)
        ctx.wrong = wrong
        return x * scale * weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        x, weight, scale = ctx.saved_tensors
        normed = x * scale
        of_weight = (gradient * normed).flatten(0, -2).sum(0)
        inner = gradient * weight
        projected = normed * (inner * normed).mean(-1, keepdim=True)
        if ctx.wrong:
            projected = 0.9 * projected  # bug: norm-backward
        return (inner - projected) * scale, of_weight, None, None  # bug: norm-backward


class Norm(nn.Module):
    """Root mean square norm."""

    def __init__(self, dim: int, bug: str = "") -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bug = bug

    def forward(self, x: Tensor) -> Tensor:
        return ScaledNorm.apply(x, self.weight, 1e-6, self.bug == "norm-backward")


def rotate(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """Turn pairs of the elements of every head, (batch, length, heads, head), by the position."""
    half = x.shape[-1] // 2
    frequencies = base ** (-torch.arange(half, dtype=torch.float32) / half)  # bug: rope-base
    angles = positions[:, :, None, None] * frequencies
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


class Attention(nn.Module):
    """Self-attention within a document."""

    def __init__(self, run: Run, bug: str) -> None:
        super().__init__()
        self.sdpa, self.bug = run.attention == "sdpa", bug
        self.q = nn.Linear(DIM, DIM, bias=False)
        self.k = nn.Linear(DIM, DIM, bias=False)
        self.v = nn.Linear(DIM, DIM, bias=False)
        self.o = nn.Linear(DIM, DIM, bias=False)
        self.q_norm = nn.RMSNorm(HEAD, elementwise_affine=False)
        self.k_norm = nn.RMSNorm(HEAD, elementwise_affine=False)

    def forward(self, x: Tensor, positions: Tensor, documents: Tensor) -> Tensor:
        heads = (*x.shape[:-1], -1, HEAD)
        q, k, v = self.q(x).view(heads), self.k(x).view(heads), self.v(x).view(heads)
        q = self.q_norm(q)
        if self.bug != "key-norm":
            k = self.k_norm(k)  # bug: key-norm
        base = 20_000.0 if self.bug == "rope-base" else 10_000.0
        q, k = rotate(q, positions, base), rotate(k, positions, base)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        same = documents[:, None, :, None] == documents[:, None, None, :]
        allowed = causal.expand_as(same) if self.bug == "document-mask" else causal & same  # bug: document-mask
        if self.bug == "swapped-heads":
            q = q.flip(1)  # bug: swapped-heads
        if self.sdpa:
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        else:
            scores = q @ k.transpose(-2, -1) * HEAD**-0.5
            scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
            mixed = scores.float().softmax(-1).to(v.dtype) @ v
        return self.o(mixed.transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    """Gated linear unit."""

    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.gate = nn.Linear(DIM, 2 * DIM, bias=False)
        self.up = nn.Linear(DIM, 2 * DIM, bias=False)
        self.down = nn.Linear(2 * DIM, DIM, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate(x), self.up(x)
        if self.bug == "gate-swapped":
            gate, up = up, gate
        return self.down(functional.silu(gate) * up)  # bug: gate-swapped


class Block(nn.Module):
    """Attention and feed-forward with residuals."""

    def __init__(self, run: Run, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.attention_norm = Norm(DIM, bug)
        self.attention = Attention(run, bug)
        self.ffn_norm = Norm(DIM)
        self.ffn = FeedForward(bug)

    def forward(self, x: Tensor, positions: Tensor, documents: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), positions, documents)
        mixed = self.ffn(self.ffn_norm(x))
        if self.bug == "residual-scale":
            mixed = mixed * 0.98  # bug: residual-scale
        return x + mixed  # bug: residual-scale


class Packed(nn.Module):
    """Tokens, positions and document numbers to logits."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.bug = run.bug
        self.embed = nn.Embedding(VOCABULARY, DIM)
        self.layers = nn.ModuleList(Block(run, run.bug if i == 1 else "") for i in range(3))
        self.norm = Norm(DIM)
        self.head = nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, positions: Tensor, documents: Tensor) -> Tensor:
        x = self.embed(tokens)
        if self.bug == "positions-not-reset":
            positions = torch.arange(tokens.shape[1]).expand_as(tokens)  # bug: positions-not-reset
        for layer in self.layers:
            x = layer(x, positions, documents)
        return self.head(self.norm(x))


def build(run: Run) -> Any:
    """The model."""
    return Packed(run)


def stacks(model: Any) -> list[Any]:
    """Lists of blocks."""
    return [model.layers]


def split(model: Any, mesh: Any) -> None:
    """Tensor parallelism of attention and feed-forward."""
    plan = {
        "attention.q": ColwiseParallel(),
        "attention.k": ColwiseParallel(),
        "attention.v": ColwiseParallel(),
        "attention.o": RowwiseParallel(),
        "ffn.gate": ColwiseParallel(),
        "ffn.up": ColwiseParallel(),
        "ffn.down": RowwiseParallel(),
    }
    for layer in model.layers:
        parallelize_module(layer, mesh, plan, src_data_rank=None)
    head = {"head": ColwiseParallel(input_layouts=Replicate(), output_layouts=Replicate())}
    embed = {"embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate())}
    parallelize_module(model, mesh, {**head, **embed}, src_data_rank=None)


def batch(run: Run) -> dict[str, Any]:
    """Documents of random lengths, the same number in every sequence; a document's last token predicts nothing."""
    draw = torch.Generator().manual_seed(run.seed)
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=draw)
    cuts = torch.stack([torch.randperm(LENGTH - 1, generator=draw)[: DOCUMENTS - 1] + 1 for _ in range(BATCH)])
    place = torch.arange(LENGTH)
    documents = (place[None, :, None] >= cuts[:, None, :]).sum(-1)
    begins = torch.cat((torch.zeros(BATCH, 1, dtype=torch.long), cuts.sort(-1).values), 1)
    positions = place - begins.gather(1, documents)
    targets = tokens.roll(-1, 1)
    last = documents != torch.cat((documents[:, 1:], documents.new_full((BATCH, 1), -1)), 1)
    return {
        "tokens": tokens,
        "positions": positions,
        "documents": documents,
        "targets": targets.masked_fill(last, IGNORED),
        "unmasked": targets,
    }


def loss(model: Any, data: dict[str, Any], run: Run) -> Any:
    """Cross-entropy of the next token within a document, and a penalty for large normalisers."""
    logits = model(data["tokens"], data["positions"], data["documents"]).float()
    targets = data["unmasked"] if run.bug == "loss-mask" else data["targets"]
    weight = 1e-2 if run.bug == "z-loss" else 1e-3
    counted = targets != IGNORED  # bug: loss-mask
    if run.chunks == 1:
        entropy = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())  # bug: loss-mask
        normaliser = logits.logsumexp(-1)
        return entropy + weight * normaliser[counted].square().mean()  # bug: z-loss
    total = logits.new_zeros(())
    for part, wanted in zip(logits.chunk(run.chunks, 1), targets.chunk(run.chunks, 1), strict=True):
        flat = part.flatten(0, 1)
        total = total + functional.cross_entropy(flat, wanted.flatten(), reduction="sum")  # bug: loss-mask
        normaliser = part.logsumexp(-1)
        total = total + weight * normaliser[wanted != IGNORED].square().sum()  # bug: z-loss
    return total / counted.sum()
