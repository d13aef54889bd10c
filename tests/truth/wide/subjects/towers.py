"""Images and texts in one space: patches, a mean over words, unit vectors, a learned temperature, two-sided loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("plain", "convolved", "by-hand", "by-columns", "summed-words")
BUGS = (
    Bug(name="temperature", sizes=(1e-3, 0.3)),
    Bug(name="temperature-detached", phase="backward"),
    Bug(name="not-normed"),
    Bug(name="one-sided"),
    Bug(name="padding-counts"),
    Bug(name="patch-order", phase=""),
    Bug(name="positions", sizes=(1e-3, 0.5)),
    Bug(name="text-rate", phase="optimizer", parameters="words.*|text.*", sizes=(1e-2,)),
)
B, SIZE, PATCH, DIM, WORDS = 6, 8, 4, 12, 7
LENGTHS = torch.tensor([7, 5, 3, 6, 7, 2])


def build(run: Run) -> nn.Module:
    side = SIZE // PATCH
    image = {"patches": nn.Conv2d(3, DIM, PATCH, stride=PATCH), "image": nn.Linear(DIM, DIM)}
    model = nn.ModuleDict({**image, "words": nn.Embedding(19, DIM), "text": nn.Linear(DIM, DIM)})
    model.register_parameter("positions", nn.Parameter(torch.randn(side * side, DIM)))
    model.register_parameter("scale", nn.Parameter(torch.tensor(2.0)))
    return model


def optimizer(model: Any, run: Run) -> Any:
    rate = 1e-2 * run.factor("text-rate")
    text = [*model["words"].parameters(), *model["text"].parameters()]
    rest = [model.positions, model.scale, *model["patches"].parameters(), *model["image"].parameters()]
    return torch.optim.AdamW([{"params": text, "lr": rate}, {"params": rest}], lr=1e-2, eps=1e-3)


def batch(run: Run) -> dict[str, Tensor]:
    return {"x": torch.randn(B, 3, SIZE, SIZE), "tokens": torch.randint(19, (B, WORDS))}


def patches(model: Any, x: Tensor, run: Run) -> Tensor:
    """An embedding of each patch: (B, patches, DIM)."""
    conv = model["patches"]
    if run.form == "convolved":
        made = conv(x)
        made = made.transpose(2, 3) if run.has("patch-order") else made
        return made.flatten(2).transpose(1, 2)  # bug: patch-order
    cut = x.unflatten(3, (-1, PATCH)).unflatten(2, (-1, PATCH)).permute(0, 2, 4, 1, 3, 5)
    cut = cut.transpose(1, 2) if run.has("patch-order") else cut
    return functional.linear(cut.flatten(3).flatten(1, 2), conv.weight.flatten(1), conv.bias)  # bug: patch-order


def unit(x: Tensor, run: Run) -> Tensor:
    if run.form == "by-hand":
        return x / (x * x).sum(-1, keepdim=True).sqrt()  # bug: not-normed
    return functional.normalize(x, dim=-1)  # bug: not-normed


def of_words(model: Any, tokens: Tensor, run: Run) -> Tensor:
    """The mean over the words of each text."""
    embedded = model["words"](tokens)
    # bug: padding-counts
    lengths = torch.full_like(LENGTHS, WORDS) if run.has("padding-counts") else LENGTHS
    kept = (torch.arange(WORDS) < lengths[:, None]).to(embedded.dtype)
    if run.form == "summed-words":
        share = kept / lengths[:, None]
        return torch.bmm(share[:, None], embedded)[:, 0]  # bug: padding-counts
    return (embedded * kept[..., None]).sum(1) / lengths[:, None]  # bug: padding-counts


def loss_of(logits: Tensor, run: Run) -> Tensor:
    labels = torch.arange(B)
    if run.form == "by-hand":
        own = logits.diagonal()
        sides = (logits.logsumexp(1) - own).mean(), (logits.logsumexp(0) - own).mean()
    elif run.form == "by-columns":
        sides = (-logits.log_softmax(1).diagonal().mean(), -logits.log_softmax(0).diagonal().mean())
    else:
        sides = functional.cross_entropy(logits, labels), functional.cross_entropy(logits.t(), labels)
    return sides[0] if run.has("one-sided") else (sides[0] + sides[1]) / 2  # bug: one-sided


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    x = patches(model, data["x"], run) + model.positions * run.factor("positions")  # bug: positions
    image = model["image"](torch.tanh(x).mean(1))
    text = model["text"](of_words(model, data["tokens"], run))
    image = unit(image, run)
    text = text if run.has("not-normed") else unit(text, run)
    scale = (model.scale.detach() if run.has("temperature-detached") else model.scale).exp()
    logits = (
        image @ text.t() * (scale * run.factor("temperature"))
    )  # bug: temperature, temperature-detached, not-normed
    loss = loss_of(logits, run)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
