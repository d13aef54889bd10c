"""Causal self-attention with a padding mask, in the ways in which people write it; the projections apart or fused."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("math", "sdpa", "einsum", "baddbmm", "fused-qkv", "online")
DTYPES = ("float32", "bfloat16")
BUGS = (
    Bug(name="scale", module=r"layers\.{}", sizes=(3e-4, 0.05), layers=True),
    Bug(name="mask-off-by-one", module=r"layers\.{}", layers=True),
    Bug(name="padding-seen", module=r"layers\.{}"),
    Bug(name="permuted-heads", module=r"layers\.{}", layers=True),
    Bug(name="detached-keys", module=r"layers\.{}", phase="backward"),
    Bug(name="values-bfloat16", module=r"layers\.{}"),
    Bug(name="labels-shifted"),
)
B, S, HEADS, HEAD = 4, 12, 4, 8
DIM = HEADS * HEAD


class Attention(nn.Module):
    """x + out(attention(norm(x)))."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.norm = nn.LayerNorm(DIM)
        parts = [nn.Linear(DIM, DIM) for _ in range(3)]
        self.out = nn.Linear(DIM, DIM)
        if run.form == "fused-qkv":
            self.qkv = nn.Linear(DIM, 3 * DIM, device="meta")
            self.qkv.weight = nn.Parameter(torch.cat([part.weight.detach() for part in parts]))
            self.qkv.bias = nn.Parameter(torch.cat([part.bias.detach() for part in parts]))
        else:
            self.q, self.k, self.v = parts

    def heads(self, x: Tensor) -> list[Tensor]:
        parts = self.qkv(x).chunk(3, -1) if self.run.form == "fused-qkv" else (self.q(x), self.k(x), self.v(x))
        return [part.unflatten(-1, (HEADS, HEAD)).transpose(1, 2) for part in parts]

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        run, n = self.run, self.layer
        q, k, v = self.heads(self.norm(x))
        place = torch.arange(S)
        seen = place[None, :] <= place[:, None] + run.has("mask-off-by-one", n)  # bug: mask-off-by-one
        # bug: padding-seen
        mask = (
            seen[None, None]
            if run.has("padding-seen", n)
            else seen & (real[:, None, None, :] | torch.eye(S, dtype=torch.bool))
        )
        if run.has("values-bfloat16", n):
            v = v.bfloat16().to(x.dtype)  # bug: values-bfloat16
        if run.has("detached-keys", n):
            k = k.detach()
        scale = HEAD**-0.5 * run.factor("scale", n)
        mixed = mixes(run.form, q, k, v, mask, scale)
        if run.has("permuted-heads", n):
            mixed = mixed.roll(1, 1)  # bug: permuted-heads
        return x + self.out(mixed.transpose(1, 2).flatten(-2))  # bug: permuted-heads


def mixes(form: str, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """softmax(q kᵀ · scale) v where the mask is True."""
    if form == "sdpa":
        # bug: scale, mask-off-by-one, padding-seen, detached-keys, values-bfloat16
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    bias = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, float("-inf"))  # bug: mask-off-by-one, padding-seen
    if form == "einsum":
        # bug: scale, mask-off-by-one, padding-seen, detached-keys
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * scale + bias
        return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), v)  # bug: values-bfloat16
    if form == "baddbmm":
        flat = [part.flatten(0, 1) for part in (q, k, v)]
        wide = bias.expand(len(q), q.shape[1], -1, -1).flatten(0, 1)  # bug: mask-off-by-one, padding-seen
        # bug: scale, mask-off-by-one, padding-seen, detached-keys
        scores = torch.baddbmm(wide, flat[0], flat[1].transpose(1, 2), alpha=scale)
        return torch.bmm(scores.softmax(-1), flat[2]).unflatten(0, q.shape[:2])  # bug: values-bfloat16
    if form == "online":
        scores = (q * scale) @ k.transpose(-2, -1)  # bug: scale, detached-keys
        scores = scores.masked_fill(~mask, float("-inf"))  # bug: mask-off-by-one, padding-seen
        powers = torch.exp(scores - scores.amax(-1, keepdim=True).detach())
        return (powers @ v) / powers.sum(-1, keepdim=True)  # bug: values-bfloat16
    scores = q @ k.transpose(-2, -1) * scale + bias  # bug: scale, mask-off-by-one, padding-seen, detached-keys
    return scores.softmax(-1) @ v  # bug: values-bfloat16


def build(run: Run) -> nn.Module:
    return nn.ModuleDict(
        {
            "embed": nn.Embedding(20, DIM),
            "layers": nn.ModuleList(Attention(run, n) for n in range(2)),
            "head": nn.Linear(DIM, 20),
        }
    )


def canonical(tensors: dict[str, Tensor], run: Run) -> dict[str, Tensor]:
    named: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if ".qkv." in name:
            named |= {name.replace("qkv", part): x for part, x in zip("qkv", tensor.chunk(3), strict=True)}
        else:
            named[name] = tensor
    return named


def batch(run: Run) -> dict[str, Tensor]:
    lengths = torch.tensor([12, 9, 12, 7])
    return {"tokens": torch.randint(20, (B, S)), "real": torch.arange(S) >= S - lengths[:, None]}


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    tokens, real = data["tokens"], data["real"]
    x = model["embed"](tokens)
    for layer in model["layers"]:
        x = layer(x, real)
    logits = model["head"](x)
    shift = 2 if run.has("labels-shifted") else 1
    labels = tokens.roll(-shift, 1).masked_fill(~real, -100)  # bug: labels-shifted
    labels[:, -2:] = -100
    # bug: labels-shifted
    loss = functional.cross_entropy(
        logits.flatten(0, 1).float() if run.dtype == "bfloat16" else logits.flatten(0, 1), labels.flatten()
    )
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
