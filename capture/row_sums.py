"""Sums of the digests of a weight's rows: those of parts add up to that of the fused or stacked weight.

They prove that a fused projection has the rows of the single ones, in whatever order, without the weights.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .kernels.guards import unnoticed
from .log_writer import format_digest
from .statistics import Statistics, Unmeasurable
from .subclasses import local_tensors

__all__ = ["RowSums", "rows_together"]

_MOST = 64
"""Rows that are digested together where they are long: all projections of large models have multiples of it."""
_MOST_DIGESTS = 1 << 14
"""Digests of one weight: kernels of convolutions, whose rows are short, would take a great many."""


def rows_together(elements: int) -> int:
    """Return how many rows of so many elements are digested together; it depends on nothing else."""
    return min(max(1 << max(elements // _MOST, 1).bit_length() - 1, 1), _MOST)


class RowSums:
    """The sums of named weights of two or more dimensions, measured when the object is made; keeps no tensors.

    Weights whose number of rows is no multiple of those digested together have none, nor have those of very many rows,
    parts of a whole (DTensors), and what has no values here.
    """

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._statistics = Statistics(sketch=False)
        self._slots: dict[str, list[int]] = {}
        with unnoticed():
            for name, tensor in tensors:
                if name in self._slots or tensor.dim() < 2 or not tensor.numel() or hasattr(tensor, "_spec"):
                    continue
                if local_tensors(tensor) is None and tensor.is_contiguous():
                    self._measure(name, tensor.detach())

    def _measure(self, name: str, tensor: torch.Tensor) -> None:
        rows = tensor.view(-1, tensor.shape[-1])
        together = rows_together(tensor.shape[-1])
        if len(rows) % together or len(rows) // together > _MOST_DIGESTS:
            return
        try:
            self._slots[name] = [
                self._statistics.measure(rows[at : at + together], user_hash=False)
                for at in range(0, len(rows), together)
            ]
        except Unmeasurable:
            return

    def as_json(self) -> dict[str, str]:
        """Return name → sum of the digests, modulo 2^64; waits for the devices."""
        results = self._statistics.results()
        return {name: format_digest(sum(results[slot].digest or 0 for slot in of)) for name, of in self._slots.items()}
