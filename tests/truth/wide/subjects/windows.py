"""Attention in shifted windows of an image: partitions, a table of relative biases, merged patches, mixed-up labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("rolled", "sliced", "fused", "channels-first", "looped-heads")
BUGS = (
    Bug(name="unshifted", module=r"blocks\.1"),
    Bug(name="no-mask", module=r"blocks\.1"),
    Bug(name="bias-table", module=r"blocks\.{}", sizes=(1e-3, 1.0), layers=True),
    Bug(name="scale", module=r"blocks\.{}", sizes=(1e-3, 0.2), layers=True),
    Bug(name="drop-path", module=r"blocks\.{}", sizes=(1e-3,), layers=True),
    Bug(name="merge-order", module=r"merge(\.norm)?"),
    Bug(name="smoothing", phase="", sizes=(1.0,)),
    Bug(name="label-mix", phase="", sizes=(0.1,)),
    Bug(name="pool-max", phase=""),
)
B, SIDE, DIM, HEADS, WIN, CLASSES = 2, 8, 8, 2, 4, 5


def table_index() -> Tensor:
    """Row of the table of biases for each pair of places in a window, [WIN², WIN²]."""
    at = torch.stack(torch.meshgrid(torch.arange(WIN), torch.arange(WIN), indexing="ij")).flatten(1)
    off = at[:, :, None] - at[:, None] + WIN - 1
    return off[0] * (2 * WIN - 1) + off[1]


def regions(shift: int) -> Tensor:
    """Pairs of places that may not see each other after a shift, [windows, WIN², WIN²]."""
    marks = torch.zeros(SIDE, SIDE, dtype=torch.long)
    edges = (slice(0, -WIN), slice(-WIN, -shift), slice(-shift, None))
    for i, rows in enumerate(edges):
        for j, columns in enumerate(edges):
            marks[rows, columns] = 3 * i + j
    own = marks.view(SIDE // WIN, WIN, SIDE // WIN, WIN).transpose(1, 2).reshape(-1, WIN * WIN)
    return own[:, :, None] != own[:, None]


class Block(nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.index, self.shift = index, WIN // 2 * index
        self.norm, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.table = nn.Parameter(0.5 * torch.randn((2 * WIN - 1) ** 2, HEADS))
        self.fc1, self.fc2 = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)
        self.register_buffer("index_of", table_index())

    def windows(self, x: Tensor, run: Run) -> Tensor:
        if run.form == "channels-first":
            cut = x.permute(0, 3, 1, 2).unfold(2, WIN, WIN).unfold(3, WIN, WIN)
            return cut.permute(0, 2, 3, 4, 5, 1).reshape(-1, WIN * WIN, DIM)
        return x.view(B, SIDE // WIN, WIN, SIDE // WIN, WIN, DIM).transpose(2, 3).reshape(-1, WIN * WIN, DIM)

    def whole(self, x: Tensor) -> Tensor:
        return x.view(B, SIDE // WIN, SIDE // WIN, WIN, WIN, DIM).transpose(2, 3).reshape(B, SIDE, SIDE, DIM)

    def moved(self, x: Tensor, by: int, run: Run) -> Tensor:
        if not by:
            return x
        if run.form == "sliced":
            x = torch.cat([x[:, -by:], x[:, :-by]], 1)  # bug: unshifted
            return torch.cat([x[:, :, -by:], x[:, :, :-by]], 2)
        return x.roll((by, by), (1, 2))  # bug: unshifted

    def attention(self, x: Tensor, run: Run) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        scale = run.factor("scale", self.index) / (DIM // HEADS) ** 0.5
        table = self.table * run.factor("bias-table", self.index)  # bug: bias-table
        bias = table[self.index_of.view(-1)].view(WIN * WIN, WIN * WIN, HEADS).permute(2, 0, 1)  # bug: bias-table
        hidden = None
        if self.shift and not run.has("no-mask", 1):
            hidden = regions(self.shift).repeat(B, 1, 1)[:, None]
        if run.form == "fused":
            extra = bias[None].expand(len(x), -1, -1, -1)
            if hidden is not None:
                extra = extra.masked_fill(hidden, float("-inf"))  # bug: no-mask
            made = functional.scaled_dot_product_attention(q, k, v, extra, scale=scale)  # bug: scale
        elif run.form == "looped-heads":
            heads = []
            for head in range(HEADS):
                scores = torch.bmm(q[:, head] * scale, k[:, head].transpose(1, 2)) + bias[head]  # bug: scale
                if hidden is not None:
                    scores = scores.masked_fill(hidden[:, 0], float("-inf"))
                heads.append(torch.softmax(scores, -1) @ v[:, head])  # bug: no-mask
            made = torch.stack(heads, 1)
        else:
            scores = (q * scale) @ k.transpose(-1, -2) + bias  # bug: scale
            if hidden is not None:
                scores = scores + torch.zeros(hidden.shape, dtype=x.dtype).masked_fill(hidden, -100.0)  # bug: no-mask
            made = torch.softmax(scores, -1) @ v  # bug: no-mask
        return self.proj(made.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, run: Run) -> Tensor:
        shift = 0 if run.has("unshifted", 1) else self.shift
        kept = run.factor("drop-path", self.index)
        cut = self.windows(self.moved(self.norm(x), -shift, run), run)  # bug: unshifted
        made = self.moved(self.whole(self.attention(cut, run)), shift, run)
        x = x + made * kept if kept != 1 else x + made  # bug: drop-path
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class Merge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * DIM), nn.Linear(4 * DIM, 2 * DIM, bias=False)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        places = [(0, 0), (0, 1), (1, 0), (1, 1)] if run.has("merge-order") else [(0, 0), (1, 0), (0, 1), (1, 1)]
        if run.form == "channels-first":
            cut = x.view(B, SIDE // 2, 2, SIDE // 2, 2, DIM)
            order = (0, 1, 3, 2, 4, 5) if run.has("merge-order") else (0, 1, 3, 4, 2, 5)
            joined = cut.permute(order).flatten(3)  # bug: merge-order
        else:
            joined = torch.cat([x[:, i::2, j::2] for i, j in places], -1)  # bug: merge-order
        return self.reduce(self.norm(joined))  # bug: merge-order


def build(run: Run) -> nn.Module:
    return nn.ModuleDict(
        {
            "patches": nn.Conv2d(3, DIM, 2, stride=2),
            "blocks": nn.ModuleList(Block(i) for i in range(2)),
            "merge": Merge(),
            "head": nn.Linear(2 * DIM, CLASSES),
        }
    )


def batch(run: Run) -> dict[str, Tensor]:
    return {"x": torch.randn(B, 3, 2 * SIDE, 2 * SIDE), "y": torch.randint(0, CLASSES, (B,))}


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    lam = 0.7 * run.factor("label-mix")
    image = 0.7 * data["x"] + 0.3 * data["x"].flip(0)
    x = model["patches"](image).permute(0, 2, 3, 1)
    for block in model["blocks"]:
        x = block(x, run)
    x = model["merge"](x, run)
    seen = x.amax((1, 2)) if run.has("pool-max") else x.mean((1, 2))  # bug: pool-max
    logits = model["head"](seen)
    smooth = 0.1 * (1 + run.size if run.has("smoothing") else 1)
    hot = functional.one_hot(data["y"], CLASSES).to(x.dtype) * (1 - smooth) + smooth / CLASSES  # bug: smoothing
    if run.form in ("fused", "sliced"):
        mixed = lam * hot + (1 - lam) * hot.flip(0)  # bug: label-mix, smoothing
        loss = functional.cross_entropy(logits, mixed)  # bug: label-mix, smoothing
    else:
        y = data["y"]
        one = functional.cross_entropy(logits, y, label_smoothing=smooth)  # bug: smoothing
        other = functional.cross_entropy(logits, y.flip(0), label_smoothing=smooth)
        loss = lam * one + (1 - lam) * other  # bug: label-mix
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
