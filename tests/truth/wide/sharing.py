"""Common parts of `experts` and `sequences`: the step of ranks that share a batch by hand, and its bugs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tests.truth.wide.subject import Bug, Run

__all__ = ["Data", "common_bugs", "optimizer", "train"]

Data = dict[str, Tensor]


def common_bugs(divided: tuple[str, ...], odd: str) -> tuple[Bug, ...]:
    """The bugs of the step.

    Args:
        divided: forms whose ranks add up gradients.
        odd: pattern of the name of the parameter that one of them leaves out.
    """
    return (
        Bug(name="rate", phase="optimizer", parameters=r".*", ranks=(-1, 1), sizes=(0.01, 1.0)),
        Bug(name="decay", phase="optimizer", parameters=r".*"),
        Bug(name="unsummed", phase="", parameters=odd, forms=divided),
        Bug(name="undivided", phase="", module="", forms=divided, sizes=(1.0,)),
    )


def optimizer(model: Any, run: Run) -> Any:
    """AdamW."""
    rate, decay = 1e-3 * run.factor("rate"), 0.5 if run.has("decay") else 0.1
    return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)


def train(
    parts: Sequence[Data],
    of: int,
    optimizer: Any,
    run: Run,
    loss: Callable[[Data], Tensor],
    summed: Mapping[str, Any],
    odd: str = "",
) -> Tensor:
    """Train one step of the parts of a batch that this rank reads, one after the other; return the loss over all.

    Args:
        of: number of equal parts of the whole batch.
        loss: the mean over a part.
        summed: parameters whose gradients ranks add up; a bug leaves the one named `odd` out.
    """
    total = torch.zeros(())
    for data in parts:
        part = loss(data) / of
        if run.has("undivided"):
            part = part * run.factor("undivided")  # bug: undivided
        part.backward()
        total += part.detach()
    for name, parameter in summed.items():
        if not (run.has("unsummed") and name == odd):
            dist.all_reduce(parameter.grad)  # bug: unsummed
    if of > len(parts):
        dist.all_reduce(total)
    optimizer.step()  # bug: rate, decay
    optimizer.zero_grad()
    return total
