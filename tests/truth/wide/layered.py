"""The step of a subject whose layers follow each other, and whose head classifies each position."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional

from tests.truth.wide.subject import Run

__all__ = ["step"]


def step(model: Any, data: dict[str, Tensor], optimizer: Any, _run: Run) -> Tensor:
    """Train one step."""
    x = data["x"]
    for layer in model["layers"]:
        x = layer(x)
    loss = functional.cross_entropy(model["head"](x).flatten(0, 1), data["y"].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
