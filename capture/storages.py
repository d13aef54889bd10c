"""What is known about memory during a step: which operation wrote it, what was measured of it, and what is on its way.

Tensors come and go, views share memory, addresses are used again. A storage is the thing that holds values, so
everything is kept by storage: an entry stays valid as long as its weak reference does, which also keeps the identity
of the storage from being given to another one. No tensor and no memory is kept alive by anything in here, but for the
outputs of collectives between their start and their first use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

__all__ = ["Pending", "StorageState", "StorageTable", "layout_of"]

Layout = tuple[Any, ...]
_SWEEP_AFTER = 8192


def layout_of(tensor: torch.Tensor) -> Layout:
    """What decides, besides the bytes of the storage, what a tensor's elements are and in which order.

    Contiguous tensors of any shape over the same bytes have the same elements in the same order.
    """
    dtype = tensor.dtype
    if tensor.is_contiguous() and not (dtype.is_complex and tensor.is_conj()) and not tensor.is_neg():
        return (tensor.storage_offset(), dtype, tensor.numel())
    return (
        tensor.storage_offset(), dtype, tuple(tensor.shape), tensor.stride(),
        dtype.is_complex and tensor.is_conj(), tensor.is_neg(),
    )  # fmt: skip


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte of the storage that a tensor covers, and the one after the last."""
    size = tensor.element_size()
    begin = tensor.storage_offset() * size
    if tensor.numel() == 0:
        return begin, begin
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * size


@dataclass(slots=True)
class Pending:
    """An output of a collective that was started and has not been waited for.

    `tensor` is held until then: it has to be read once it is there, whoever asks for whichever part of it.
    """

    event: Any
    leaf: Any
    tensor: torch.Tensor


@dataclass(slots=True)
class StorageState:
    """One storage.

    Attributes:
        writes: (first byte, byte after the last, event) of what was written, later ones after earlier ones.
        measured: layout → (version, slot of its statistics, whether with a sketch), since the last write.
        pending: outputs of collectives in it that are not there yet.
        uninitialised: nobody has written to it since it was made.
        specs: storage offset and shape of a DTensor's local part → its spec.
    """

    ref: Any
    writes: list[tuple[int, int, Any]] = field(default_factory=list)
    measured: dict[Layout, tuple[int, Any, bool]] = field(default_factory=dict)
    pending: list[Pending] | None = None
    uninitialised: bool = False
    specs: dict[tuple[int, tuple[int, ...]], Any] | None = None


class StorageTable:
    """All storages that were seen in a step."""

    def __init__(self) -> None:
        self._states: dict[int, StorageState] = {}
        self._sweep_at = _SWEEP_AFTER

    def state(self, tensor: torch.Tensor) -> StorageState | None:
        """The storage of a tensor; None for one that has none (sparse ones, for example)."""
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return None
        known = self._states.get(storage._cdata)
        if known is None:
            if len(self._states) >= self._sweep_at:
                self._sweep()
            known = self._states[storage._cdata] = StorageState(StorageWeakRef(storage))
        return known

    def _sweep(self) -> None:
        self._states = {key: s for key, s in self._states.items() if s.pending or not s.ref.expired()}
        self._sweep_at = max(2 * len(self._states), _SWEEP_AFTER)

    def producer(self, state: StorageState, tensor: torch.Tensor) -> Any:
        """The event that wrote last to what a tensor covers; None when no recorded operation did."""
        if not state.writes:
            return None
        begin, end = _extent(tensor)
        for first, last, event in reversed(state.writes):
            if first < end and begin < last:
                return event
        return None

    def written(self, state: StorageState, tensor: torch.Tensor, event: Any) -> None:
        """An event wrote to what a tensor covers: what was measured of the storage is out of date."""
        state.measured.clear()
        self.passed_on(state, tensor, event)

    def passed_on(self, state: StorageState, tensor: torch.Tensor, event: Any) -> None:
        """Whoever reads what a tensor covers has it from this event, though the values are what they were."""
        begin, end = _extent(tensor)
        state.uninitialised = False
        if state.writes:
            state.writes = [w for w in state.writes if not (begin <= w[0] and w[1] <= end)]
        state.writes.append((begin, end, event))
