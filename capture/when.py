"""Conditions of `--when`: of all recorded steps only the first one that meets one is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .guard import ends_no_run
from .kernels.guards import no_functions, unnoticed
from .losses import Losses
from .settings import parse_when

__all__ = ["When"]


class When:
    """Decides at the end of each recorded step whether it is the one to write.

    The loss is what a backward pass begins with; the norm is that of this rank's gradients after the last backward
    pass, before they are clipped. Both count if they are not finite.

    Args:
        text: the condition.
        parameters: (name, parameter) of the models.

    Attributes:
        met: the number of the step that met it; None so far.
        seen: number of steps looked at.
    """

    def __init__(self, text: str, parameters: Callable[[], Iterable[tuple[str, Any]]]) -> None:
        self.met: int | None = None
        self.seen = 0
        self._limit, self._parameters = parse_when(text), parameters
        self._losses = Losses(None if math.isnan(self._limit) else self._after)
        self._norm: torch.Tensor | None = None
        self._looked: int | None = None
        self.install, self.remove = self._losses.install, self._losses.remove

    @ends_no_run
    def _after(self) -> None:
        with no_functions(), unnoticed():
            grads = [getattr(p.grad, "_local_tensor", p.grad) for _, p in self._parameters() if p.grad is not None]
            norms = [torch.linalg.vector_norm(grad, dtype=torch.float64) for grad in grads if grad.is_floating_point()]
            devices = {norm.device for norm in norms}
            if len(devices) == 1:
                self._norm = torch.linalg.vector_norm(torch.stack(norms))

    def broken(self, _error: Exception) -> None:
        """Go on without a norm after an error, such as a device without float64."""
        self._norm = None

    def holds(self, step: int) -> bool:
        """Return True for the step to write; waits for the devices."""
        if step != self._looked and self.met is None:
            self._looked = step
            self.seen += 1
            losses, norm = self._losses.take(), self._norm
            self._norm = None
            found = [float(norm)] if norm is not None else [] if not math.isnan(self._limit) else losses
            if any(not math.isfinite(value) or value > self._limit for value in found):
                self.met = step
        return step == self.met
