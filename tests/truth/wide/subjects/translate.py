"""An encoder and a decoder: relative positions by buckets, cross-attention, a tied head, stepwise or in one call."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("plain", "fused-kv", "sdpa", "einsum", "cached")
BUGS = (
    Bug(name="buckets", phase="", sizes=(0.0,)),
    Bug(name="cross-causal", module=r"decoder\.{}(\.cross)?", layers=True),
    Bug(name="source-mask", module=r"decoder\.{}\.cross", layers=True),
    Bug(name="pre-scale", module=r"encoder\.{}\.attention", sizes=(1e-3, 0.2), layers=True),
    Bug(name="norm-mean", module=r"encoder\.{}(\.norm)?", layers=True),
    Bug(name="head-scale", phase="", sizes=(1e-3,)),
    Bug(name="shift-right", phase=""),
    Bug(name="z-loss", phase="", sizes=(0.1, 1.0)),
    Bug(name="gate", module=r"decoder\.{}", layers=True),
)
B, S, T, DIM, HEADS, WORDS, BUCKETS = 2, 9, 7, 12, 3, 17, 8
LENGTHS = torch.tensor([9, 6])


def bucket(off: Tensor, two_sided: bool, run: Run) -> Tensor:
    made, number = torch.zeros_like(off), BUCKETS
    if two_sided:
        number //= 2
        made = (off > 0).long() * number
        off = off.abs()
    else:
        off = -off.clamp(max=0)
    exact = number // 2
    furthest = 32 if run.has("buckets") else 16
    log = torch.log(off.clamp(min=1).float() / exact) / math.log(furthest / exact)  # bug: buckets
    far = (exact + (log * (number - exact)).long()).clamp(max=number - 1)
    return made + torch.where(off < exact, off, far)  # bug: buckets


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(DIM))

    def forward(self, x: Tensor, centered: bool = False) -> Tensor:
        if centered:
            x = x - x.mean(-1, keepdim=True)  # bug: norm-mean
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))

    def forward(self, x: Tensor, seen: Tensor, bias: Tensor, scale: float, run: Run) -> Tensor:
        """`bias` [B or 1, HEADS or 1, T, S], with −inf where nothing is seen."""

        def heads(y: Tensor) -> Tensor:
            return y.unflatten(-1, (HEADS, -1)).transpose(1, 2)

        q = heads(self.q(x))
        if run.form == "fused-kv":
            k, v = (heads(y) for y in functional.linear(seen, torch.cat([self.k.weight, self.v.weight])).chunk(2, -1))
        else:
            k, v = heads(self.k(seen)), heads(self.v(seen))
        if run.form == "sdpa":
            attend = functional.scaled_dot_product_attention
            made = attend(q, k, v, bias, scale=scale)  # bug: pre-scale, cross-causal, source-mask
        elif run.form == "einsum":
            scores = torch.einsum("bhtd,bhsd->bhts", q * scale, k) + bias  # bug: pre-scale, cross-causal, source-mask
            made = torch.einsum("bhts,bhsd->bhtd", functional.softmax(scores, -1), v)  # bug: cross-causal, source-mask
        else:
            scores = q @ k.mT  # bug: pre-scale
            scores = scores * scale + bias if scale != 1 else scores + bias  # bug: pre-scale, cross-causal, source-mask
            made = functional.softmax(scores, -1) @ v  # bug: cross-causal, source-mask
        return self.o(made.transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.norm, self.norm2, self.attention = Norm(), Norm(), Attention()
        self.up, self.down = nn.Linear(DIM, 2 * DIM, bias=False), nn.Linear(2 * DIM, DIM, bias=False)

    def forward(self, x: Tensor, bias: Tensor, run: Run) -> Tensor:
        h = self.norm(x, run.has("norm-mean", self.index))
        x = x + self.attention(h, h, bias, run.factor("pre-scale", self.index), run)
        return x + self.down(functional.relu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.norm, self.norm2, self.norm3 = Norm(), Norm(), Norm()
        self.own, self.cross = Attention(), Attention()
        self.up, self.gate, self.down = (
            nn.Linear(*size, bias=False) for size in ((DIM, 2 * DIM), (DIM, 2 * DIM), (2 * DIM, DIM))
        )

    def forward(self, x: Tensor, seen: Tensor, own: Tensor, source: Tensor, run: Run) -> Tensor:
        if run.has("source-mask", self.index):
            source = torch.zeros_like(source)
        if run.has("cross-causal", self.index):
            source = source + torch.full((T, S), float("-inf")).triu(1).to(source.dtype)  # bug: cross-causal
        h = self.norm(x)
        if run.form == "cached":
            made = [self.own(h[:, t : t + 1], h[:, : t + 1], own[:, :, t : t + 1, : t + 1], 1.0, run) for t in range(T)]
            x = x + torch.cat(made, 1)
        else:
            x = x + self.own(h, h, own, 1.0, run)
        x = x + self.cross(self.norm2(x), seen, source, 1.0, run)
        h = self.norm3(x)
        gate = functional.gelu(self.gate(h), approximate="tanh")
        up = self.up(h)
        return x + self.down(up if run.has("gate", self.index) else gate * up)  # bug: gate


def build(run: Run) -> nn.Module:
    return nn.ModuleDict(
        {
            "embed": nn.Embedding(WORDS, DIM),
            "near_source": nn.Embedding(BUCKETS, HEADS),
            "near": nn.Embedding(BUCKETS, HEADS),
            "encoder": nn.ModuleList(Encoder(i) for i in range(2)),
            "decoder": nn.ModuleList(Decoder(i) for i in range(2)),
            "norm": Norm(),
        }
    )


def batch(run: Run) -> dict[str, Tensor]:
    return {"source": torch.randint(0, WORDS, (B, S)), "target": torch.randint(1, WORDS, (B, T))}


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    dtype = model["norm"].weight.dtype
    unseen = torch.arange(S) >= LENGTHS[:, None]
    source = torch.zeros(B, 1, 1, S, dtype=dtype).masked_fill(unseen[:, None, None], float("-inf"))
    off = torch.arange(S) - torch.arange(S)[:, None]
    near = model["near_source"](bucket(off, True, run)).permute(2, 0, 1)[None]  # bug: buckets
    x = model["embed"](data["source"])
    for layer in model["encoder"]:
        x = layer(x, near + source, run)
    target = data["target"]
    given = target if run.has("shift-right") else functional.pad(target[:, :-1], (1, 0))  # bug: shift-right
    off = torch.arange(T) - torch.arange(T)[:, None]
    own = model["near"](bucket(off, False, run)).permute(2, 0, 1)[None]  # bug: buckets
    own = own.masked_fill(off > 0, float("-inf"))
    y = model["embed"](given)  # bug: shift-right
    for layer in model["decoder"]:
        y = layer(y, x, own, source.expand(B, 1, T, S), run)
    h = model["norm"](y) * (DIM**-0.5 * run.factor("head-scale"))  # bug: head-scale
    logits = functional.linear(h, model["embed"].weight)  # bug: head-scale
    if run.form in ("einsum", "fused-kv"):
        log_z = logits.logsumexp(-1)
        lost = (log_z - logits.gather(-1, target[..., None])[..., 0]).mean()
    else:
        lost = functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        log_z = torch.logsumexp(logits, -1)
    loss = lost + 1e-2 * run.factor("z-loss") * log_z.square().mean()  # bug: z-loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
