"""A decoder with grouped heads, rotary positions, root mean square norm and a gated unit, as code bases have them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide import layered
from tests.truth.wide.subject import Bug, Run

FORMS = ("repeat", "expand", "enable-gqa", "grouped", "complex", "hand")
DTYPES = ("float32", "bfloat16")
BUGS = (
    Bug(name="eps", module=r"layers\.{}\.norm\d", sizes=(10.0,), layers=True),
    Bug(name="rope-base", module=r"layers\.{}.*", sizes=(1e-3, 0.5), layers=True),
    Bug(name="groups-permuted", module=r"layers\.{}", layers=True),
    Bug(name="gate-swapped", module=r"layers\.{}(\.w\d)?"),
    Bug(name="residual", module=r"layers\.{}", sizes=(1e-3, 0.1), layers=True),
    Bug(name="norm-low-precision", module=r"layers\.{}\.norm2"),
)
B, S, HEADS, GROUPS, HEAD = 3, 10, 6, 2, 8
DIM = HEADS * HEAD


class Norm(nn.Module):
    """x · rsqrt(mean(x²) + ε) · weight."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.weight = nn.Parameter(torch.rand(DIM) + 0.5)
        self.eps = 1e-4 * run.factor("eps", layer)

    def forward(self, x: Tensor) -> Tensor:
        if self.run.has("norm-low-precision", self.layer) and self is not None:
            x = x.bfloat16().to(x.dtype)  # bug: norm-low-precision
        if self.run.form == "hand":
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight  # bug: eps
        return functional.rms_norm(x, (DIM,), self.weight, self.eps)  # bug: eps


class Block(nn.Module):
    """Attention and a gated unit."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.norm1, self.norm2 = Norm(run, layer + 10 * (run.bug == "norm-low-precision")), Norm(run, layer)
        self.q = nn.Linear(DIM, DIM, bias=False)
        self.k, self.v = (nn.Linear(DIM, GROUPS * HEAD, bias=False) for _ in range(2))
        self.o = nn.Linear(DIM, DIM, bias=False)
        self.w1, self.w3 = (nn.Linear(DIM, 64, bias=False) for _ in range(2))
        self.w2 = nn.Linear(64, DIM, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        run, n = self.run, self.layer
        h = self.norm1(x)
        q, k, v = (w(h).unflatten(-1, (-1, HEAD)).transpose(1, 2) for w in (self.q, self.k, self.v))
        base = 100.0 * run.factor("rope-base", n)
        q, k = rotated(q, base, run), rotated(k, base, run)
        # bug: residual
        x = x + self.o(attention(q, k, v, run, run.has("groups-permuted", n)).transpose(1, 2).flatten(-2)) * run.factor(
            "residual", n
        )
        h = self.norm2(x)
        # bug: gate-swapped
        gate, up = (self.w3(h), self.w1(h)) if run.has("gate-swapped", n) else (self.w1(h), self.w3(h))
        act = gate * torch.sigmoid(gate) if run.form == "hand" else functional.silu(gate)  # bug: gate-swapped
        return x + self.w2(act * up)  # bug: gate-swapped


def rotated(x: Tensor, base: float, run: Run) -> Tensor:
    """Rotary positions of neighbouring pairs."""
    rates = base ** -(torch.arange(0, HEAD, 2, dtype=torch.float64) / HEAD)  # bug: rope-base
    angle = torch.outer(torch.arange(S, dtype=torch.float64), rates)  # bug: rope-base
    if run.form == "complex":
        wide = x.float() if x.dtype == torch.bfloat16 else x
        turn = torch.polar(torch.ones_like(angle), angle)  # bug: rope-base
        turned = torch.view_as_complex(wide.unflatten(-1, (-1, 2))) * turn.to(wide.dtype.to_complex())  # bug: rope-base
        return torch.view_as_real(turned).flatten(-2).to(x.dtype)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)  # bug: rope-base
    one, two = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((one * cos - two * sin, one * sin + two * cos), -1).flatten(-2)  # bug: rope-base


def attention(q: Tensor, k: Tensor, v: Tensor, run: Run, permuted: bool) -> Tensor:
    """Causal, each group of heads with one key and value."""
    groups = HEADS // GROUPS
    if permuted:
        k, v = k.flip(1), v.flip(1)  # bug: groups-permuted
    if run.form == "enable-gqa":
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)  # bug: groups-permuted
    if run.form == "grouped":
        wide = q.unflatten(1, (GROUPS, groups))
        scores = torch.einsum("bgrqd,bgkd->bgrqk", wide, k) / HEAD**0.5  # bug: groups-permuted
        late = torch.ones(S, S, dtype=torch.bool).triu(1)
        mixed = torch.einsum("bgrqk,bgkd->bgrqd", scores.masked_fill(late, float("-inf")).softmax(-1), v)
        return mixed.flatten(1, 2)
    if run.form == "expand":
        # bug: groups-permuted
        k, v = (part[:, :, None].expand(-1, -1, groups, -1, -1).reshape(q.shape) for part in (k, v))
    else:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)  # bug: groups-permuted
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)  # bug: groups-permuted


def build(run: Run) -> nn.Module:
    return nn.ModuleDict({"layers": nn.ModuleList(Block(run, n) for n in range(2)), "head": nn.Linear(DIM, 7)})


def batch(run: Run) -> dict[str, Tensor]:
    return {"x": torch.randn(B, S, DIM) * 0.3, "y": torch.randint(7, (B, S))}


step = layered.step
