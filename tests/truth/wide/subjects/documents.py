"""Sequences of several lengths: padded with a mask, packed in one row, one after another, as nested tensors' lists."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("padded", "packed", "one-by-one", "packed-math", "sorted")
BUGS = (
    Bug(name="borders-ignored", module=r"layers\.{}", forms=("packed", "packed-math"), layers=True),
    Bug(name="positions-run-on", phase="", forms=("packed", "packed-math")),
    Bug(name="scale", module=r"layers\.{}", sizes=(1e-3, 0.1), layers=True),
    Bug(name="future-seen", module=r"layers\.{}"),
    Bug(name="padding-counted", phase="", forms=("padded", "packed", "packed-math")),
    Bug(name="mean-of-documents", phase=""),
)
LENGTHS, WIDTH, DIM, WORDS = (5, 8, 3, 6), 8, 16, 21


class Layer(nn.Module):
    """x + out(attention(q, k, v)), one head."""

    def __init__(self, run: Run, layer: int) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)

    def forward(self, x: Tensor, document: Tensor) -> Tensor:
        run, n = self.run, self.layer
        q, k, v = self.qkv(x).chunk(3, -1)
        place = torch.arange(x.shape[1])
        seen = place[None, :] <= place[:, None] + run.has("future-seen", n)  # bug: future-seen
        if not run.has("borders-ignored", n):
            seen = seen & (document[:, :, None] == document[:, None, :])  # bug: borders-ignored
        scale = DIM**-0.5 * run.factor("scale", n)
        if run.form in ("packed-math", "sorted"):
            bias = torch.where(seen, 0.0, -1e9).to(x.dtype)  # bug: future-seen, borders-ignored
            mixed = torch.softmax(q @ k.mT * scale + bias, -1) @ v  # bug: scale, future-seen, borders-ignored
        else:
            # bug: scale, future-seen, borders-ignored
            mixed = functional.scaled_dot_product_attention(q, k, v, seen, scale=scale)
        return x + self.out(mixed)


def build(run: Run) -> nn.Module:
    layers = nn.ModuleList(Layer(run, n) for n in range(2))
    return nn.ModuleDict(
        {
            "embed": nn.Embedding(WORDS, DIM),
            "places": nn.Embedding(32, DIM),
            "layers": layers,
            "head": nn.Linear(DIM, WORDS),
        }
    )


def batch(run: Run) -> dict[str, Tensor]:
    return {"words": torch.randint(WORDS, (4, WIDTH)), "y": torch.randint(WORDS, (4, WIDTH))}


def rows(data: dict[str, Tensor], run: Run) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Words, targets (-100 for none), places and documents of each row of the batch."""
    words, y = data["words"], data["y"]
    apart = [(words[i, :n], y[i, :n], torch.arange(n), torch.full((n,), i)) for i, n in enumerate(LENGTHS)]
    if run.form == "one-by-one":
        return [tuple(part[None] for part in one) for one in apart]
    if run.form.startswith("packed"):
        whole = [torch.cat(parts)[None] for parts in zip(*apart, strict=True)]
        if run.has("positions-run-on"):
            whole[2] = torch.arange(sum(LENGTHS))[None]  # bug: positions-run-on
        return [(whole[0], whole[1], whole[2], whole[3])]
    order = torch.tensor(LENGTHS).argsort(descending=True) if run.form == "sorted" else torch.arange(4)
    real = torch.arange(WIDTH) < torch.tensor(LENGTHS)[:, None]
    document = torch.where(real, torch.arange(4)[:, None], -1)
    made = (words, y.masked_fill(~real, -100), torch.arange(WIDTH).expand(4, -1), document)
    return [(made[0][order], made[1][order], made[2][order], made[3][order])]


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    parts = rows(data, run)
    count = 4 * WIDTH if run.has("padding-counted") else sum(LENGTHS)
    losses = []
    for words, y, places, document in parts:
        x = model["embed"](words) + model["places"](places)  # bug: positions-run-on
        for layer in model["layers"]:
            x = layer(x, document)
        each = functional.cross_entropy(
            model["head"](x).flatten(0, 1), y.flatten(), reduction="none", ignore_index=-100
        )
        if run.has("mean-of-documents"):
            sizes = (document[..., None] == document[:, None]).sum(-1).flatten()
            each = each / sizes * (count / 4)  # bug: mean-of-documents
        losses.append(each.sum() / count)  # bug: padding-counted, mean-of-documents
    loss = torch.stack(losses).sum() if len(losses) > 1 else losses[0]
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
