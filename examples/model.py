# mypy: allow-subclassing-any
"""A small llama-like decoder: RMSNorm, rotary embeddings, grouped queries, SwiGLU."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from moe import MixtureOfExperts
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """Settings of one layer. The fields from `softmax_scale` on exist for the planted bugs."""

    experts: int = 0
    top_k: int = 2
    dropout: float = 0.0
    rope_base: float = 10_000.0
    norm_eps: float = 1e-5
    softmax_scale: float = 1.0
    naive_softmax: bool = False
    negate_attention: bool = False
    rotate_heads: int = 0
    detach_keys: bool = False
    counted: bool = False
    bf16_down_projection: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes of a model; `layers` holds one entry per layer."""

    dim: int
    heads: int
    kv_heads: int
    vocab: int
    seq_len: int
    tied: bool = False
    unused: bool = False
    layers: tuple[LayerConfig, ...] = field(default=(LayerConfig(),))

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    @property
    def hidden(self) -> int:
        """Width of the feed-forward layer: 8/3 of the model's, so that three matrices have the size of two of 4."""
        return -(-8 * self.dim // 3 // 16) * 16


class RMSNorm(nn.Module):
    """Division by the root of the mean square, computed in float32."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Return the shape and dtype of `x`."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale).to(x.dtype) * self.weight


class RotaryEmbedding(nn.Module):
    """Rotation of pairs of a head's elements by an angle that grows with the position, as complex numbers."""

    turns: Tensor

    def __init__(self, head_dim: int, seq_len: int, base: float) -> None:
        super().__init__()
        frequencies = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        angles = torch.outer(torch.arange(seq_len, dtype=torch.float64), frequencies)
        turns = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)
        self.register_buffer("turns", turns, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """`x` is (batch, sequence, heads, head_dim)."""
        pairs = torch.view_as_complex(x.float().view(*x.shape[:-1], -1, 2))
        turned = pairs * self.turns[: x.shape[1], None]
        return torch.view_as_real(turned).flatten(-2).to(x.dtype)


class Linear(nn.Linear):
    """A matrix without bias that may be applied in another dtype than its input's."""

    def __init__(self, inputs: int, outputs: int, compute_dtype: Any = None) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.compute_dtype = compute_dtype

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) to (…, outputs), in the dtype of `x`."""
        if self.compute_dtype is None:
            return functional.linear(x, self.weight)
        return functional.linear(x.to(self.compute_dtype), self.weight.to(self.compute_dtype)).to(x.dtype)


class Attention(nn.Module):
    """Causal self-attention in which several query heads share a key and value head."""

    future: Tensor

    def __init__(self, config: ModelConfig, layer: LayerConfig) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        self.groups = config.heads // config.kv_heads
        self.scale = layer.softmax_scale * config.head_dim**-0.5
        self.wq = Linear(config.dim, config.heads * config.head_dim)
        self.wk = Linear(config.dim, config.kv_heads * config.head_dim)
        self.wv = Linear(config.dim, config.kv_heads * config.head_dim)
        self.wo = Linear(config.heads * config.head_dim, config.dim)
        self.rope = RotaryEmbedding(config.head_dim, config.seq_len, layer.rope_base)
        future = torch.ones(config.seq_len, config.seq_len, dtype=torch.bool).triu(1)
        self.register_buffer("future", future, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, dim) to the same; under tensor parallelism it sees its own heads only."""
        x = functional.dropout(x, self.layer.dropout)
        heads = (*x.shape[:-1], -1, self.head_dim)
        q, k, v = self.wq(x).view(heads), self.wk(x).view(heads), self.wv(x).view(heads)
        q, k = self.rope(q), self.rope(k)
        if self.layer.detach_keys:
            k = k.detach()
        k = k.repeat_interleave(self.groups, dim=2)
        v = v.repeat_interleave(self.groups, dim=2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

        scores = (q @ k.transpose(-2, -1)) * self.scale
        length = x.shape[1]
        # The lowest finite number, not -inf: a healthy run then has no infinity that would hide a real one.
        scores = scores.masked_fill(self.future[:length, :length], torch.finfo(scores.dtype).min)
        mixed = self._softmax(scores).to(v.dtype) @ v

        if self.layer.rotate_heads:
            mixed = mixed.roll(self.layer.rotate_heads, dims=1)
        if self.layer.negate_attention:
            mixed = -mixed
        return self.wo(mixed.transpose(1, 2).flatten(-2))

    def _softmax(self, scores: Tensor) -> Tensor:
        if self.layer.naive_softmax:
            # Without subtracting the maximum: the exponential of a large score is infinite.
            powers = torch.exp(scores.float() * 1000)
            return powers / powers.sum(-1, keepdim=True)
        return torch.softmax(scores.float(), dim=-1)


class FeedForward(nn.Module):
    """SwiGLU: one projection gates the other."""

    def __init__(self, config: ModelConfig, layer: LayerConfig) -> None:
        super().__init__()
        self.dropout = layer.dropout
        self.w1 = Linear(config.dim, config.hidden)
        self.w2 = Linear(config.hidden, config.dim, torch.bfloat16 if layer.bf16_down_projection else None)
        self.w3 = Linear(config.dim, config.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """(…, dim) to the same."""
        x = functional.dropout(x, self.dropout)
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """Attention and feed-forward, each after a norm and added to the residual."""

    def __init__(self, config: ModelConfig, layer: LayerConfig) -> None:
        super().__init__()
        self.calls: Tensor | None
        self.register_buffer("calls", torch.zeros(()) if layer.counted else None, persistent=False)
        self.attention_norm = RMSNorm(config.dim, layer.norm_eps)
        self.attention = Attention(config, layer)
        self.feed_forward_norm = RMSNorm(config.dim, layer.norm_eps)
        self.feed_forward = (
            MixtureOfExperts(config.dim, config.hidden // 2, layer.experts, layer.top_k)
            if layer.experts
            else FeedForward(config, layer)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, dim) to the same."""
        if self.calls is not None:
            # A layer that is recomputed counts twice, and the second time computes something else.
            self.calls += 1
            x = x * (1 + 0.01 * self.calls)
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


def call(block: nn.Module, x: Tensor) -> Tensor:
    """Call a layer directly, without activation checkpointing."""
    return block(x)


class Transformer(nn.Module):
    """Tokens to logits."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab, config.dim)
        self.layers = nn.ModuleList(Block(config, layer) for layer in config.layers)
        self.norm = RMSNorm(config.dim, 1e-5)
        self.output = Linear(config.dim, config.vocab)
        if config.unused:
            self.unused = Linear(config.dim, config.vocab)
        if config.tied:
            self.output.weight = self.embedding.weight
        self.call_layer: Callable[[nn.Module, Tensor], Tensor] = call

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, sequence) of token ids to (batch, sequence, vocab)."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = self.call_layer(layer, x)
        return self.output(self.norm(x))
