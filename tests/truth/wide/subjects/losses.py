"""Cross-entropy over tokens: of the library, by hand, in chunks, in micro-batches; counts of the whole batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("library", "gather", "logsumexp", "chunked", "chunks-backward", "micro-2", "micro-4")
DTYPES = ("float32", "bfloat16")
BUGS = (
    Bug(name="mean-of-means", phase="", forms=("micro-2", "micro-4", "chunked", "chunks-backward")),
    Bug(name="count-of-all", phase=""),
    Bug(name="labels-not-shifted", phase=""),
    Bug(name="z-loss", phase="", sizes=(0.01, 1.0)),
    Bug(name="padding-learned", phase=""),
    Bug(name="stale-gradient", phase=""),
    Bug(name="clip", phase="", sizes=(1e-3, 0.3)),
)
VOCABULARY, DIM, B, S = 30, 16, 8, 9


class Net(nn.Module):
    """Embeddings, one hidden layer, no mixing over time."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, DIM)
        self.hidden, self.head = nn.Linear(DIM, DIM), nn.Linear(DIM, VOCABULARY, bias=False)

    def states(self, tokens: Tensor) -> Tensor:
        return torch.tanh(self.hidden(self.embed(tokens)))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.states(tokens)


def build(run: Run) -> nn.Module:
    model = Net()
    for p in model.parameters():
        p.grad = 0.05 * torch.ones_like(p)  # of the step before
    return model


def batch(run: Run) -> dict[str, Tensor]:
    lengths = torch.tensor([9, 4, 7, 5, 9, 8, 3, 6])
    return {"tokens": torch.randint(VOCABULARY, (B, S)), "real": torch.arange(S) < lengths[:, None]}


def total(logits: Tensor, labels: Tensor, run: Run) -> Tensor:
    """The sum of the losses of all tokens that count, and of the squared log normalisers."""
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits
    counted = labels != -100
    if run.form == "gather":
        # bug: labels-not-shifted
        per_token = -functional.log_softmax(logits, -1).gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)
        loss = (per_token * counted).sum()  # bug: padding-learned
    elif run.form == "logsumexp":
        chosen = logits.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)  # bug: labels-not-shifted
        loss = (logits.logsumexp(-1) - chosen).masked_fill(~counted, 0.0).sum()  # bug: padding-learned
    else:
        # bug: labels-not-shifted, padding-learned
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    # bug: z-loss, padding-learned
    return loss + 0.1 * run.factor("z-loss") * (logits.logsumexp(-1).square() * counted).sum()


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    if not run.has("stale-gradient"):
        optimizer.zero_grad()
    tokens, real = data["tokens"], data["real"]
    labels = tokens if run.has("labels-not-shifted") else tokens.roll(-1, 1)  # bug: labels-not-shifted
    kept = real & real.roll(-1, 1) | run.has("padding-learned")  # bug: padding-learned
    kept[:, -1] = False
    labels = labels.masked_fill(~kept, -100)  # bug: labels-not-shifted, padding-learned
    # bug: count-of-all, padding-learned
    count = (labels != -100).sum() if not run.has("count-of-all") else torch.tensor(labels.numel())
    parts = int(run.form[-1]) if run.form.startswith("micro") else 1
    losses = []
    for part, wanted in zip(tokens.chunk(parts), labels.chunk(parts), strict=True):
        states = model(part)
        pieces = 3 if run.form.startswith("chunk") else 1
        apart = states.detach().requires_grad_() if run.form == "chunks-backward" else states
        sums = []
        for piece, target in zip(apart.chunk(pieces, 1), wanted.chunk(pieces, 1), strict=True):
            own = (target != -100).sum() * parts * pieces if run.has("mean-of-means") else count  # bug: mean-of-means
            loss = total(model.head(piece), target, run) / own  # bug: mean-of-means, count-of-all, padding-learned
            if run.form == "chunks-backward":
                loss.backward()
            sums.append(loss)
        mine = torch.stack(sums).sum() if pieces > 1 else sums[0]
        if run.form == "chunks-backward":
            states.backward(apart.grad)
        else:
            mine.backward()  # bug: stale-gradient
        losses.append(mine.detach())
    nn.utils.clip_grad_norm_(model.parameters(), 0.1 * run.factor("clip"))  # bug: clip, stale-gradient
    optimizer.step()
    return sum(losses)
