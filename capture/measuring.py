"""Statistics of tensors, measured once per content of their memory, at positions of the global tensor."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import torch

from .event import Event, Leaf, Slot
from .local_parts import dtype_name
from .messages import warn
from .placement import Placement
from .settings import Settings
from .statistics import Statistics, Unmeasurable
from .storages import StorageState, StorageTable, layout_of
from .subclasses import local_part, local_tensors, plain

__all__ = ["Measuring"]


class Measuring:
    """Statistics of a step, by memory.

    Attributes:
        statistics: measured values, by slot.
        storages: the storages seen so far.
        simulated_ranks: the ranks whose tensors were seen, None with one rank in this process.
    """

    def __init__(self, settings: Settings) -> None:
        self.statistics = Statistics(sketch=settings.sketch, user_hash=settings.resolve_hash())
        self.storages = StorageTable()
        self.simulated_ranks: tuple[int, ...] | None = None
        self._sketch = settings.sketch
        self._unmeasurable: set[str] = set()

    def state(self, tensor: torch.Tensor) -> StorageState | None:
        """Return the storage of a tensor, None where it has none."""
        return self.storages.state(plain(tensor))

    def leaf(self, tensor: torch.Tensor, state: StorageState | None, position: int = -1, *, read: bool = True) -> Leaf:
        """Return the record of a tensor as it is now; without its content if `read` is False."""
        spec = None if state is None else self.spec(state, tensor)
        leaf = Leaf(tuple(tensor.shape), dtype_name(tensor), None, spec, position)
        if read:
            leaf.slot = self.measure(tensor, state)
        return leaf

    def measure(self, tensor: torch.Tensor, state: StorageState | None, *, sketch: bool = True) -> Slot:
        """Return the slot of a tensor's current statistics; known ones are not taken again.

        Args:
            sketch: False where the record has no place for one: of an input.
        """
        sketch = sketch and self._sketch
        if state is None:
            return self._take(tensor, None, sketch)
        if state.foreign:
            return self._take(tensor, self.spec(state, tensor), sketch)
        base = plain(tensor)
        layout = layout_of(base)
        version = _version(base)
        known = state.measured.get(layout)
        if known is not None and known[0] == version and known[2] >= sketch:
            return known[1]
        slot = self._take(tensor, self.spec(state, tensor), sketch)
        state.measured[layout] = (version, slot, sketch)
        return slot

    def _take(self, tensor: torch.Tensor, spec: Any, sketch: bool) -> Slot:
        try:
            ranks = local_tensors(tensor)
            if ranks is not None:
                self.simulated_ranks = tuple(sorted(set(self.simulated_ranks or ()) | set(ranks)))
                return {
                    rank: self.statistics.measure(part, self._positions(spec, rank) if sketch else None, sketch=sketch)
                    for rank, part in ranks.items()
                }
            return self.statistics.measure(tensor, self._positions(spec, None) if sketch else None, sketch=sketch)
        except Unmeasurable as reason:
            text = str(reason)
            if text not in self._unmeasurable:
                self._unmeasurable.add(text)
                warn(f"{text}; recorded without statistics")
            return None

    def _positions(self, spec: Any, rank: int | None) -> Any:
        if spec is None:
            return None
        return Placement.of(spec, rank=rank).positions()

    def spec(self, state: StorageState, local: torch.Tensor) -> Any:
        """Return the DTensor spec whose local tensor this is, None for a plain one."""
        return None if state.specs is None else state.specs.get((local.storage_offset(), tuple(local.shape)))

    def restart(self, events: Iterable[Event]) -> None:
        """Forget all statistics and writes but those of some events."""
        events = list(events)
        slots = [given.slot for event in events for given in event.inputs]
        slots += [leaf.slot for event in events for leaf in (*event.outputs, *event.mutated)]
        self.statistics.restart([number for slot in slots for number in _numbers(slot)])
        self.storages.restart({id(event) for event in events})

    def forget_writes(self, tensor: torch.Tensor, events: Container[int]) -> None:
        """Forget that events with these ids wrote to a tensor's memory."""
        state = self.state(local_part(tensor))
        if state is not None:
            state.writes = [write for write in state.writes if id(write[2]) not in events]

    def learn_spec(self, local: torch.Tensor, spec: Any) -> None:
        """Note that a tensor is the local tensor of a DTensor."""
        state = None if spec is None else self.state(local)
        if state is not None:
            if state.specs is None:
                state.specs = {}
            state.specs[local.storage_offset(), tuple(local.shape)] = spec


def _numbers(slot: Slot) -> Iterable[int]:
    return () if slot is None else slot.values() if isinstance(slot, dict) else (slot,)


def _version(tensor: torch.Tensor) -> int:
    """Return the tensor's version counter; -1 for an inference tensor, which has none."""
    return -1 if tensor.is_inference() else tensor._version
