"""What is known about memory during a step: which operation wrote it, what was measured of it, and what is on its way.

Tensors come and go, views share memory, addresses are used again. A storage is the thing that holds values, so
everything is kept by storage: an entry stays valid as long as its weak reference does, which also keeps the identity
of the storage from being given to another one. No tensor and no memory is kept alive by anything in here, but for the
outputs of collectives between their start and their first use.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = ["StorageState", "StorageTable", "layout_of"]

Layout = tuple[Any, ...]


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
class StorageState:
    """One storage.

    Attributes:
        number: its own, never given to another.
        ref: weak; its callback forgets the storage.
        writes: (first byte, byte after the last, event) of what was written, later ones after earlier ones.
        measured: layout → (version, slot of its statistics), of what was measured since the last write.
        pending: results of collectives in it that are not there yet (`capture.collectives.Pending`).
        uninitialised: nobody has written to it since it was made.
        foreign: not allocated by torch (numpy's, a file that is mapped, memory of several processes): others write to
            it, and nothing announces that.
        specs: storage offset and shape of a DTensor's local part → its spec.
    """

    number: int
    ref: weakref.ref[Any]
    writes: list[tuple[int, int, Any]] = field(default_factory=list)
    measured: dict[Layout, tuple[int, Any]] = field(default_factory=dict)
    pending: list[Any] | None = None
    uninitialised: bool = False
    foreign: bool = False
    specs: dict[tuple[int, tuple[int, ...]], Any] | None = None


class StorageTable:
    """All storages that were seen in a step."""

    def __init__(self) -> None:
        self._states: dict[int, StorageState] = {}
        self._count = 0

    def state(self, tensor: torch.Tensor) -> StorageState | None:
        """The storage of a tensor; None for one that has none (sparse ones, for example)."""
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return None
        key: int = storage._cdata
        known = self._states.get(key)
        if known is None:
            states = self._states

            def forget(_: object) -> None:
                states.pop(key, None)

            # Not torch's StorageWeakRef: that keeps the memory until it is dropped itself. The storage's Python object
            # lives exactly as long as the storage.
            known = states[key] = StorageState(
                self._count, weakref.ref(storage, forget), foreign=not storage.resizable()
            )
            self._count += 1
        return known

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
