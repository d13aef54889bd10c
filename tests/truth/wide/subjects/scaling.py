"""Loss scaling, clipping and accumulation: a scaler of the library, by hand, none; micro-batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.truth.wide.subject import Bug, Run

FORMS = ("plain", "scaler", "by-hand", "micro-2", "accumulated")
BUGS = (
    Bug(name="clipped-before-unscale", phase="", forms=("scaler", "by-hand")),
    Bug(name="no-zero-grad", phase="", forms=("plain", "scaler", "by-hand", "micro-2")),
    Bug(name="not-averaged", phase="", forms=("micro-2", "accumulated")),
    Bug(name="accumulated-bfloat16", phase="", forms=("accumulated",)),
    Bug(name="half-decay", phase="optimizer", parameters=r".*weight.*", ops=".*", sizes=(0.5,)),
    Bug(name="squared-part", phase="", sizes=(1e-2, 1.0)),
    Bug(name="flushed", phase="backward"),
    Bug(name="last-part-lost", phase="", forms=("micro-2", "accumulated")),
)
DIM, SCALE = 10, 1024.0


class Net(nn.Module):
    """Two hidden layers."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.one, self.two, self.out = nn.Linear(DIM, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.silu(self.two(functional.silu(self.one(x))))  # bug: flushed, last-part-lost
        if self.run.has("flushed") and hidden.requires_grad:
            hidden.register_hook(lambda g: g.masked_fill(g.abs() < 0.05 * g.abs().max(), 0.0))  # bug: flushed
        return self.out(hidden)


def build(run: Run) -> nn.Module:
    model = Net(run)
    for p in model.parameters():
        p.grad = torch.full_like(p, 0.02)  # of the step before
    return model


def optimizer(model: Any, run: Run) -> Any:
    matrices = [p for p in model.parameters() if p.dim() > 1]
    groups = [
        {"params": matrices, "weight_decay": 0.1 * run.factor("half-decay")},
        {"params": [p for p in model.parameters() if p.dim() == 1]},
    ]
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9)


def batch(run: Run) -> dict[str, Tensor]:
    return {"x": torch.randn(8, DIM), "y": torch.randint(4, (8,))}


def loss_of(model: Any, x: Tensor, y: Tensor, run: Run) -> Tensor:
    logits = model(x)
    # bug: squared-part
    return functional.cross_entropy(logits, y) + 0.01 * run.factor("squared-part") * logits.square().mean()


def step(model: Any, data: dict[str, Tensor], optimizer: Any, run: Run) -> Tensor:
    if not run.has("no-zero-grad"):
        optimizer.zero_grad()
    parameters = list(model.parameters())
    parts = 2 if run.form in ("micro-2", "accumulated") else 1
    pieces = list(zip(data["x"].chunk(parts), data["y"].chunk(parts), strict=True))
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE) if run.form == "scaler" else None
    # bug: accumulated-bfloat16
    kept = [
        torch.zeros_like(p, dtype=torch.bfloat16 if run.has("accumulated-bfloat16") else p.dtype) for p in parameters
    ]
    losses = []
    for index, (x, y) in enumerate(pieces):
        if index and run.has("last-part-lost"):
            break
        loss = loss_of(model, x, y, run)  # bug: last-part-lost
        losses.append(loss.detach() / parts)
        loss = loss if run.has("not-averaged") else loss / parts  # bug: not-averaged
        if scaler is not None:
            scaler.scale(loss).backward()  # bug: no-zero-grad
        elif run.form == "by-hand":
            (loss * SCALE).backward()  # bug: no-zero-grad
        else:
            loss.backward()  # bug: no-zero-grad, not-averaged, last-part-lost
        if run.form == "accumulated":
            for total, p in zip(kept, parameters, strict=True):
                total += p.grad.to(total.dtype)  # bug: accumulated-bfloat16, last-part-lost
            optimizer.zero_grad()
    if run.form == "accumulated":
        for total, p in zip(kept, parameters, strict=True):
            p.grad = total.to(p.dtype)  # bug: accumulated-bfloat16
    late = run.has("clipped-before-unscale")
    if late:
        nn.utils.clip_grad_norm_(parameters, 0.5)  # bug: clipped-before-unscale
    if scaler is not None:
        scaler.unscale_(optimizer)  # bug: clipped-before-unscale
    elif run.form == "by-hand":
        for p in parameters:
            p.grad /= SCALE  # bug: clipped-before-unscale
    if not late:
        nn.utils.clip_grad_norm_(parameters, 0.5)  # bug: clipped-before-unscale, no-zero-grad
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()
    return torch.stack(losses).sum()
