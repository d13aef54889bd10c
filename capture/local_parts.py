"""Local tensors of this process: the shard of a DTensor, or one tensor per simulated rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .event import Slot
from .log_writer import TensorSummary
from .placement import Placement
from .statistics import Statistics, Unmeasurable
from .subclasses import local_tensors
from .typed import typed_spec

__all__ = ["LocalParts", "dtype_name"]


def dtype_name(tensor: torch.Tensor) -> str:
    """Return the dtype without `torch.`, as in `float32`."""
    return str(tensor.dtype).removeprefix("torch.")


class LocalParts:
    """Statistics of a tensor that may be a DTensor, a LocalTensor, or both; keeps no tensor.

    Args:
        tensor: measured now, in stream order on a GPU.
        statistics: collects its values; the sketch is taken at positions of the global tensor.
    """

    def __init__(self, tensor: torch.Tensor, statistics: Statistics, *, sketch: bool = True) -> None:
        self._spec: Any = getattr(tensor, "_spec", None)
        local = getattr(tensor, "_local_tensor", tensor)
        if self._spec is None or not isinstance(local, torch.Tensor):
            self._spec, local = typed_spec(tensor), tensor
        self._statistics = statistics
        self._dtype = dtype_name(local)
        self._shapes: dict[int | None, tuple[int, ...]] = {}
        self._slots: dict[int | None, Slot] = {}
        parts = local_tensors(local)
        for rank, part in [(None, local)] if parts is None else sorted(parts.items()):
            self._shapes[rank] = tuple(part.shape)
            positions = self._placement(rank).positions() if self._spec is not None and sketch else None
            try:
                self._slots[rank] = statistics.measure(part, positions)
            except Unmeasurable:  # meta, sparse: a name and a shape but no values
                self._slots[rank] = None

    @property
    def ranks(self) -> tuple[int, ...] | None:
        """Simulated ranks, None for a tensor of one rank."""
        return tuple(rank for rank in self._slots if rank is not None) or None

    def _placement(self, rank: int | None) -> Placement:
        return Placement.of(self._spec, rank=rank)

    def _slot_rank(self, rank: int) -> int | None:
        return rank if rank in self._slots else next(iter(self._slots))

    def digest(self, rank: int, results: Mapping[int, Any]) -> int | None:
        """Return the digest of `rank`'s local tensor; `results` are those of the statistics."""
        slot = self._slots[self._slot_rank(rank)]
        digest: int | None = None if slot is None else results[slot].digest
        return digest

    def placement(self, rank: int) -> dict[str, Any] | None:
        """Return where `rank`'s local tensor is in a whole, ready for JSON; None if nothing says that it is a part."""
        return None if self._spec is None else self._placement(self._slot_rank(rank)).as_json()

    def summary(self, rank: int, results: Mapping[int, Any]) -> TensorSummary:
        """Return the summary of `rank`'s local tensor; `results` are those of the statistics."""
        key = self._slot_rank(rank)
        summary = TensorSummary(shape=self._shapes[key], dtype=self._dtype, placement=self.placement(rank))
        slot = self._slots[key]
        if slot is not None:
            summary.take(results[slot])
        return summary
