"""A selective state space: a causal convolution, gates by the input, a linear recurrence in several ways."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.layered import step
from tests.truth.wide.subject import Bug, Run

__all__ = ["BUGS", "FORMS", "batch", "build", "step"]

FORMS = ("steps", "doubling", "matrix", "chunks", "padded-conv")
BUGS = (
    Bug(name="decay", module=r"layers\.{}", sizes=(1e-3, 0.3), layers=True),
    Bug(name="skip", module=r"layers\.{}", sizes=(1e-3, 0.5), layers=True),
    Bug(name="not-causal", module=r"layers\.{}.*"),
    Bug(name="step-size", module=r"layers\.{}", sizes=(1e-3,)),
    Bug(name="state-lost", module=r"layers\.{}", forms=("chunks",)),
    Bug(name="gate", module=r"layers\.{}", layers=True),
    Bug(name="late", module=r"layers\.{}"),
)
B, S, DIM, STATE, WIDTH = 3, 8, 8, 4, 3


class Layer(nn.Module):
    """x + out(scan(conv(x)) · silu(gate(x)))."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.enter, self.out = nn.Linear(DIM, 2 * DIM), nn.Linear(DIM, DIM)
        self.conv = nn.Conv1d(DIM, DIM, WIDTH, groups=DIM)
        self.select = nn.Linear(DIM, 2 * STATE + DIM)
        self.rates = nn.Parameter(torch.rand(DIM, STATE).log())
        self.skip = nn.Parameter(torch.ones(DIM))

    def convolved(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        sides = (1, WIDTH - 2) if self.run.has("not-causal", self.layer) else (WIDTH - 1, 0)
        if self.run.form == "padded-conv":
            conv, start = self.conv, 1 if self.run.has("not-causal", self.layer) else 0
            made = functional.conv1d(x, conv.weight, conv.bias, padding=WIDTH - 1, groups=DIM)
            return functional.silu(made[..., start : start + S]).transpose(1, 2)  # bug: not-causal
        return functional.silu(self.conv(functional.pad(x, sides))).transpose(1, 2)  # bug: not-causal

    def scanned(self, keep: Tensor, add: Tensor) -> Tensor:
        """h[t] = keep[t] · h[t - 1] + add[t], along dimension 1: (B, S, DIM, STATE)."""
        form = self.run.form
        if form == "doubling":
            reach = 1
            while reach < S:
                before, kept = add[:, :-reach], keep[:, :-reach]
                add = torch.cat((add[:, :reach], add[:, reach:] + keep[:, reach:] * before), 1)
                keep = torch.cat((keep[:, :reach], keep[:, reach:] * kept), 1)
                reach *= 2
            return add
        if form == "matrix":
            total = keep.log().cumsum(1)
            share = (total[:, :, None] - total[:, None]).exp()
            lower = torch.ones(S, S, dtype=torch.bool).tril()[..., None, None]
            return (share.where(lower, 0.0) * add[:, None]).sum(2)
        h, made = torch.zeros_like(add[:, 0]), []
        for t in range(S):
            if form == "chunks" and t == S // 2:
                h = torch.zeros_like(h) if self.run.has("state-lost", self.layer) else h  # bug: state-lost
            h = keep[:, t] * h + add[:, t]  # bug: state-lost
            made.append(h)
        return torch.stack(made, 1)

    def forward(self, x: Tensor) -> Tensor:
        run, n = self.run, self.layer
        inner, gate = self.enter(x).chunk(2, -1)
        inner = self.convolved(inner)
        into, out, size = self.select(inner).split((STATE, STATE, DIM), -1)
        size = functional.softplus(size) * run.factor("step-size", n)  # bug: step-size
        keep = torch.exp(-size[..., None] * self.rates.exp() * run.factor("decay", n))  # bug: decay
        h = self.scanned(keep, size[..., None] * into[:, :, None] * inner[..., None])
        if run.has("late", n):
            h = functional.pad(h, (0, 0, 0, 0, 1, 0))[:, :-1]  # bug: late
        made = (h * out[:, :, None]).sum(-1) + self.skip * inner * run.factor("skip", n)  # bug: skip, late
        gated = torch.sigmoid(gate) if run.has("gate", n) else functional.silu(gate)  # bug: gate
        return x + self.out(made * gated)


def build(run: Run) -> nn.Module:
    return nn.ModuleDict({"layers": nn.ModuleList(Layer(run, n) for n in range(2)), "head": nn.Linear(DIM, 5)})


def batch(run: Run) -> dict[str, Tensor]:
    return {"x": torch.randn(B, S, DIM), "y": torch.randint(5, (B, S))}
