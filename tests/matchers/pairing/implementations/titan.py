# mypy: ignore-errors
"""A Llama in the style of torchtitan: (B, S, H, D) until the attention, repeat_interleave, masked_fill."""

from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional


class RMSNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def _norm(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self._norm(x) * self.weight


def rope_cache(c):
    width = c.dim // c.heads
    freqs = 1.0 / (c.rope_base ** (torch.arange(0, width, 2).float() / width))
    angles = torch.outer(torch.arange(c.seq_len).float(), freqs)
    angles = torch.cat((angles, angles), -1)
    return torch.cat((angles.cos(), angles.sin()), -1)


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def apply_rotary_emb(xq, xk, rope):
    width = xq.shape[-1]
    cos, sin = rope[None, : xq.shape[1], None, :width], rope[None, : xq.shape[1], None, width:]
    return (xq * cos) + (rotate_half(xq) * sin), (xk * cos) + (rotate_half(xk) * sin)


class Attention(nn.Module):
    FUSED = False

    def __init__(self, c, layer):
        super().__init__()
        self.c, self.head_dim = c, c.dim // c.heads
        self.scale = self.head_dim**-0.5 * c.at(layer, "softmax-scale", 1.01, 1.0)
        self.roll = c.at(layer, "permuted-heads", 1, 0)
        self.masked = c.at(layer, "no-mask", False, True)
        self.projections(c)
        self.wo = nn.Linear(c.dim, c.dim, bias=False)

    def projections(self, c):
        self.wq = nn.Linear(c.dim, c.dim, bias=False)
        self.wk = nn.Linear(c.dim, c.kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(c.dim, c.kv_heads * self.head_dim, bias=False)

    def project(self, x):
        return self.wq(x), self.wk(x), self.wv(x)

    def forward(self, x, rope):
        bs, seqlen, _ = x.shape
        xq, xk, xv = (y.view(bs, seqlen, -1, self.head_dim) for y in self.project(x))
        xq, xk = apply_rotary_emb(xq, xk, rope)
        groups = self.c.heads // self.c.kv_heads
        if groups > 1:
            xk, xv = xk.repeat_interleave(groups, dim=2), xv.repeat_interleave(groups, dim=2)
        xq, xk, xv = xq.transpose(1, 2), xk.transpose(1, 2), xv.transpose(1, 2)
        if self.c.sdpa:
            output = functional.scaled_dot_product_attention(xq, xk, xv, is_causal=True, scale=self.scale)
        else:
            scores = (xq @ xk.transpose(-2, -1)) * self.scale
            future = torch.ones(seqlen, seqlen, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, torch.finfo(scores.dtype).min) if self.masked else scores
            output = functional.dropout(scores.softmax(-1), self.c.dropout, self.c.dropout > 0) @ xv
        if self.roll:
            output = output.roll(self.roll, 1)
        return self.wo(output.transpose(1, 2).contiguous().view(bs, seqlen, -1))


class FeedForward(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.w1 = nn.Linear(c.dim, c.hidden, bias=False)
        self.w2 = nn.Linear(c.hidden, c.dim, bias=False)
        self.w3 = nn.Linear(c.dim, c.hidden, bias=False)

    def forward(self, x):
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    ATTENTION, FEED_FORWARD = Attention, FeedForward

    def __init__(self, c, layer):
        super().__init__()
        self.attention = self.ATTENTION(c, layer)
        self.feed_forward = self.FEED_FORWARD(c)
        self.attention_norm = RMSNorm(c.dim, c.at(layer, "norm-eps", 1e-3, 1e-5))
        self.ffn_norm = RMSNorm(c.dim, 1e-5)

    def forward(self, x, rope):
        h = x + self.attention(self.attention_norm(x), rope)
        return h + self.feed_forward(self.ffn_norm(h))


class Transformer(nn.Module):
    BLOCK = TransformerBlock
    NAMES: ClassVar = {
        "tok": "tok_embeddings",
        "out": "output",
        "norm": "norm",
        "layers": "layers",
        "q": "attention.wq",
        "k": "attention.wk",
        "v": "attention.wv",
        "o": "attention.wo",
        "gate": "feed_forward.w1",
        "up": "feed_forward.w3",
        "down": "feed_forward.w2",
        "norm1": "attention_norm",
        "norm2": "ffn_norm",
    }

    def __init__(self, c):
        super().__init__()
        self.tok_embeddings = nn.Embedding(c.vocab, c.dim)
        self.register_buffer("rope_cache", rope_cache(c), persistent=False)
        self.layers = nn.ModuleDict({str(layer): self.BLOCK(c, layer) for layer in range(c.layers)})
        self.norm = RMSNorm(c.dim, 1e-5)
        self.output = nn.Linear(c.dim, c.vocab, bias=False)

    def forward(self, tokens, labels):
        h = self.tok_embeddings(tokens)
        for layer in self.layers.values():
            h = layer(h, self.rope_cache)
        logits = self.output(self.norm(h))
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(0, 1))
