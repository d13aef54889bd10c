# mypy: ignore-errors
"""The Llama of `titan` with one projection for queries, keys and values, and one for gate and up."""

from typing import ClassVar

from titan import Attention, FeedForward, Transformer, TransformerBlock
from torch import nn
from torch.nn import functional


class FusedAttention(Attention):
    def projections(self, c):
        self.sizes = (c.dim, c.kv_heads * self.head_dim, c.kv_heads * self.head_dim)
        self.wqkv = nn.Linear(c.dim, sum(self.sizes), bias=False)

    def project(self, x):
        return self.wqkv(x).split(self.sizes, dim=-1)


class FusedFeedForward(FeedForward):
    def __init__(self, c):
        nn.Module.__init__(self)
        self.w13 = nn.Linear(c.dim, 2 * c.hidden, bias=False)
        self.w2 = nn.Linear(c.hidden, c.dim, bias=False)

    def forward(self, x):
        gate, up = self.w13(x).chunk(2, -1)
        return self.w2(functional.silu(gate) * up)


class FusedBlock(TransformerBlock):
    ATTENTION, FEED_FORWARD = FusedAttention, FusedFeedForward


class FusedTransformer(Transformer):
    BLOCK = FusedBlock
    NAMES: ClassVar = Transformer.NAMES | {"qkv": "attention.wqkv", "gate_up": "feed_forward.w13"}
