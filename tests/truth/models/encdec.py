"""An encoder and decoder with one embedding for both and for the output; padded sequences, dropout, smoothed labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from tests.truth.run import Run

BATCH, SOURCE, TARGET, VOCABULARY = 8, 14, 12, 80
DIM, HEAD = 32, 8
PADDING = 0
LENGTHS = ((14, 12), (9, 8))
"""Of source and target, in turn: every part of a batch has as many tokens."""


class Attention(nn.Module):
    """Attention of one sequence to another, or to itself."""

    def __init__(self, run: Run, bug: str = "") -> None:
        super().__init__()
        self.sdpa, self.bug = run.attention == "sdpa", bug
        self.query = nn.Linear(DIM, DIM)
        self.key = nn.Linear(DIM, DIM)
        self.value = nn.Linear(DIM, DIM)
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x: Tensor, memory: Tensor, allowed: Tensor) -> Tensor:
        q = self._heads(self.query(x))
        k, v = self._heads(self.key(memory)), self._heads(self.value(memory))  # bug: memory-detached
        scale = HEAD**-0.5 * (1.03 if self.bug == "softmax-scale" else 1.0)
        if self.sdpa:
            mixed = functional.scaled_dot_product_attention(q, k, v, allowed, scale=scale)  # bug: softmax-scale
        else:
            scores = torch.matmul(q, k.transpose(-2, -1)) * scale  # bug: softmax-scale
            scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
            mixed = torch.matmul(scores.softmax(-1), v)
        return self.out(mixed.transpose(1, 2).flatten(-2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], -1, HEAD).transpose(1, 2)


class FeedForward(nn.Module):
    """Two matrices with a GELU between."""

    def __init__(self, run: Run, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.inner = nn.Linear(DIM, 4 * DIM)
        self.outer = nn.Linear(4 * DIM, DIM)
        rate = 0.1 if run.dropout != (bug == "dropout-differs") else 0.0
        self.dropout = nn.Dropout(rate)

    def forward(self, x: Tensor) -> Tensor:
        approximate = "tanh" if self.bug == "gelu-tanh" else "none"
        h = functional.gelu(self.inner(x), approximate=approximate)  # bug: gelu-tanh
        h = self.outer(h)
        return self.dropout(h)  # bug: dropout-differs, random-state-lost


class EncoderLayer(nn.Module):
    """Attention to itself, feed-forward; norms first."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(DIM)
        self.attention = Attention(run)
        self.norm2 = nn.LayerNorm(DIM)
        self.ffn = FeedForward(run)

    def forward(self, x: Tensor, allowed: Tensor) -> Tensor:
        h = self.norm1(x)
        x = x + self.attention(h, h, allowed)
        return x + self.ffn(self.norm2(x))


class DecoderLayer(nn.Module):
    """Attention to itself and to the encoder, feed-forward; norms first."""

    def __init__(self, run: Run, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.norm1 = nn.LayerNorm(DIM)
        self.attention = Attention(run)
        self.norm2 = nn.LayerNorm(DIM, eps=1e-3 if bug == "norm-eps" else 1e-5)
        self.cross = Attention(run, bug)
        self.norm3 = nn.LayerNorm(DIM)
        self.ffn = FeedForward(run, bug)

    def forward(self, x: Tensor, memory: Tensor, allowed: Tensor, visible: Tensor) -> Tensor:
        if self.bug == "causal-mask":
            allowed = allowed.logical_or(torch.ones_like(allowed).tril(1))  # bug: causal-mask
        h = self.norm1(x)
        x = x + self.attention(h, h, allowed)
        if self.bug == "padding-visible":
            visible = torch.ones_like(visible)  # bug: padding-visible
        if self.bug == "memory-detached":
            memory = memory.detach()
        h = self.norm2(x)  # bug: norm-eps
        x = x + self.cross(h, memory, visible)
        return x + self.ffn(self.norm3(x))


class Translator(nn.Module):
    """Source and target tokens to logits of the next target token."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.bug = run.bug
        self.embedding = nn.Embedding(VOCABULARY, DIM, padding_idx=PADDING)
        self.places = nn.Embedding(SOURCE + 2, DIM)
        self.encoder = nn.ModuleList(EncoderLayer(run) for _ in range(2))
        self.decoder = nn.ModuleList(DecoderLayer(run, run.bug if i == 1 else "") for i in range(2))
        self.encoder_norm = nn.LayerNorm(DIM)
        self.decoder_norm = nn.LayerNorm(DIM)
        nn.init.normal_(self.embedding.weight, std=DIM**-0.5)
        nn.init.normal_(self.places.weight, std=DIM**-0.5)

    def embed(self, tokens: Tensor, first: int = 0) -> Tensor:
        """Embeddings of tokens and their places."""
        places = self.places(torch.arange(first, first + tokens.shape[1]))  # bug: positions-shifted
        return self.embedding(tokens) * DIM**0.5 + places  # bug: embedding-scale

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        visible = (source != PADDING)[:, None, None, :]
        x = self.embed(source)
        for layer in self.encoder:
            x = layer(x, visible)
        memory = self.encoder_norm(x)
        allowed = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()[None, None]
        if self.bug == "embedding-scale":
            y = self.embedding(target) + self.places(torch.arange(target.shape[1]))  # bug: embedding-scale
        else:
            y = self.embed(target, first=1 if self.bug == "positions-shifted" else 0)  # bug: embedding-scale
        for layer in self.decoder:
            y = layer(y, memory, allowed, visible)
        y = self.decoder_norm(y)
        weight = self.embedding.weight
        if self.bug == "tie-detached":
            weight = weight.detach()
        return functional.linear(y, weight)  # bug: tie-detached


def build(run: Run) -> Any:
    """The model."""
    return Translator(run)


def stacks(model: Any) -> list[Any]:
    """Lists of blocks."""
    return [model.encoder, model.decoder]


def split(model: Any, mesh: Any) -> None:
    """Tensor parallelism of attention and feed-forward."""
    attention = {
        "query": ColwiseParallel(),
        "key": ColwiseParallel(),
        "value": ColwiseParallel(),
        "out": RowwiseParallel(),
    }
    ffn = {"inner": ColwiseParallel(), "outer": RowwiseParallel()}
    for layer in (*model.encoder, *model.decoder):
        parallelize_module(layer.ffn, mesh, ffn, src_data_rank=None)
        parallelize_module(layer.attention, mesh, attention, src_data_rank=None)
    for layer in model.decoder:
        parallelize_module(layer.cross, mesh, attention, src_data_rank=None)


def batch(run: Run) -> dict[str, Any]:
    """Pairs of padded sequences of alternating lengths."""
    draw = torch.Generator().manual_seed(run.seed)
    source = torch.randint(1, VOCABULARY, (BATCH, SOURCE), generator=draw)
    target = torch.randint(1, VOCABULARY, (BATCH, TARGET + 1), generator=draw)
    for i in range(BATCH):
        of_source, of_target = LENGTHS[i % 2]
        source[i, of_source:] = PADDING
        target[i, of_target + 1 :] = PADDING
    return {"source": source, "target": target[:, :-1].contiguous(), "wanted": target[:, 1:].contiguous()}


def loss(model: Any, data: dict[str, Any], run: Run) -> Any:
    """Cross-entropy with smoothed labels over the tokens that are no padding."""
    logits = model(data["source"], data["target"]).float()
    wanted = data["wanted"]
    ignored = -100 if run.bug == "padding-counted" else PADDING
    smoothing = 0.0 if run.bug == "label-smoothing" else 0.1
    if run.chunks == 1:
        return functional.cross_entropy(  # bug: padding-counted, label-smoothing
            logits.flatten(0, 1), wanted.flatten(), ignore_index=ignored, label_smoothing=smoothing
        )
    total = logits.new_zeros(())
    for part, of_part in zip(logits.chunk(run.chunks, 1), wanted.chunk(run.chunks, 1), strict=True):
        total = total + functional.cross_entropy(  # bug: padding-counted, label-smoothing
            part.flatten(0, 1), of_part.flatten(), ignore_index=ignored, label_smoothing=smoothing, reduction="sum"
        )
    return total / (wanted != ignored).sum()
