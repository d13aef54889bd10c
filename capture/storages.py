"""Table of storages in a step: who wrote them, known statistics, and pending collectives.

Tensors come and go, views share memory, addresses are reused; so everything is keyed by storage. An entry is valid as
long as its weak reference, which also prevents reuse of the storage's identity. No tensor and no memory is kept alive
here, except outputs of collectives between their start and their first use.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

__all__ = ["StorageState", "StorageTable", "layout_of"]

Layout = tuple[Any, ...]


def layout_of(tensor: torch.Tensor) -> Layout:
    """Return a key that, with the bytes of the storage, determines a tensor's elements and their order.

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
    """Return the byte range of the storage that a tensor covers: first byte, and the one after the last."""
    size = tensor.element_size()
    begin = tensor.storage_offset() * size
    if tensor.numel() == 0:
        return begin, begin
    if tensor.is_contiguous():
        return begin, begin + tensor.numel() * size
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * size


def _follow(event: Any, before: Any) -> None:
    """Let an event that overwrote a part of fresh memory follow the one that wrote another part of a tensor in it.

    A tensor names one producer, the last of those that wrote its parts: the others are found behind that.
    """
    for given in event.inputs:
        if given.slot is None and given.producer is None and given.form is not None:
            given.producer = before


@dataclass(slots=True)
class StorageState:
    """State of one storage.

    Attributes:
        number: unique, never reused.
        ref: weak; its callback removes the entry.
        writes: (first byte, byte after the last, event) of each write, in order.
        measured: layout → (version, slot of its statistics, whether with a sketch at its own positions, spec that says
            which these are), measured since the last write.
        pending: incomplete results of collectives in it (`capture.collectives.Pending`).
        uninitialised: never written to since its allocation.
        foreign: not allocated by torch (numpy memory, a mapped file, shared memory): others may write to it unnoticed.
        specs: storage offset and shape of a DTensor's local tensor → its spec.
    """

    number: int
    ref: weakref.ref[Any]
    writes: list[tuple[int, int, Any]] = field(default_factory=list)
    measured: dict[Layout, tuple[int, Any, bool, Any]] = field(default_factory=dict)
    pending: list[Any] | None = None
    uninitialised: bool = False
    foreign: bool = False
    specs: dict[tuple[int, tuple[int, ...]], Any] | None = None


class StorageTable:
    """All storages seen in a step."""

    def __init__(self) -> None:
        self._states: dict[int, StorageState] = {}
        self._count = 0

    def state(self, tensor: torch.Tensor) -> StorageState | None:
        """Return the state of a tensor's storage; None for a tensor without one, such as a sparse one."""
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return None
        key: int = storage._cdata
        known = self._states.get(key)
        if known is None:
            # Not torch's StorageWeakRef: that keeps the memory until it is dropped itself. The storage's Python object
            # lives exactly as long as the storage.
            forget = partial(self._states.pop, key)
            known = self._states[key] = StorageState(
                self._count, weakref.ref(storage, forget), foreign=not storage.resizable()
            )
            self._count += 1
        return known

    def producer(self, state: StorageState, tensor: torch.Tensor) -> Any:
        """Return the event that last wrote to a tensor's memory; None if no recorded operation did."""
        if not state.writes:
            return None
        begin, end = _extent(tensor)
        found = after = None
        for first, last, event in reversed(state.writes):
            if first < end and begin < last:
                if after is None:
                    found = event
                elif event is not after:
                    _follow(after, event)
                if first <= begin and end <= last:  # it wrote all parts: nothing is left of what was before
                    break
                after = event
        return found

    def restart(self, keep: Collection[int]) -> None:
        """Forget all writes but those of events with these ids, and all statistics."""
        for state in self._states.values():
            state.writes = [write for write in state.writes if id(write[2]) in keep]
            state.measured.clear()

    def written(self, state: StorageState, tensor: torch.Tensor, event: Any) -> None:
        """Note that an event wrote to a tensor's memory, which invalidates the storage's statistics."""
        state.measured.clear()
        self.passed_on(state, tensor, event)

    def passed_on(self, state: StorageState, tensor: torch.Tensor, event: Any) -> None:
        """Make an event the producer of a tensor's memory, with its values unchanged."""
        begin, end = _extent(tensor)
        state.uninitialised = False
        if state.writes:
            state.writes = [w for w in state.writes if not (begin <= w[0] and w[1] <= end)]
        state.writes.append((begin, end, event))
