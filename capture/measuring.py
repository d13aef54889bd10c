"""Statistics of tensors, measured once per content of their memory, at positions of the global tensor."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import torch

from .event import Event, Leaf, Slot
from .exchange import Part
from .local_parts import dtype_name
from .messages import warn
from .placement import Placement
from .settings import Settings
from .sketch import Positions
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
        self.statistics = Statistics(sketch=settings.sketch, user_hash=settings.hash_function)
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
        spec = self.spec(state, tensor)
        slot = self._take(tensor, spec, sketch)
        state.measured[layout] = (version, slot, sketch, spec)
        return slot

    def measure_part(self, tensor: torch.Tensor, state: StorageState | None, part: Part) -> Slot:
        """Return the slot of the same statistics with the sketch at a part's positions; without one if unknown."""
        if state is None or not self._sketch or part.start is None:
            return self.measure(tensor, state, sketch=False)
        base = plain(tensor)
        layout, version = layout_of(base), _version(base)
        known = None if state.foreign else state.measured.get(layout)
        if known is not None and known[0] != version:
            known = None
        # a view of a DTensor's local tensor has no spec, but may have been measured with it
        spec = known[3] if known is not None and known[2] else self.spec(state, tensor)
        if all(_same(part, spec, rank) for rank in local_tensors(tensor) or (None,)):
            return self.measure(tensor, state)
        slot = self._take(tensor, part, True)
        if known is None:
            state.measured[layout] = (version, slot, False, None)
        return slot

    def measure_pieces(self, tensor: torch.Tensor, state: StorageState | None, part: Part) -> tuple[Slot, ...]:
        """Return the slots of the pieces that a part consists of, without sketches; none for simulated ranks."""
        base = plain(tensor)
        if state is None or not part.pieces or local_tensors(tensor) is not None or not base.is_contiguous():
            return ()
        return tuple(self._take(piece, part, False) for piece in base.view(-1).chunk(part.pieces))

    def _take(self, tensor: torch.Tensor, place: Any, sketch: bool) -> Slot:
        """Measure a tensor of a DTensor's spec, or a part."""
        measure, of_own = self.statistics.measure, not isinstance(place, Part)
        try:
            ranks = local_tensors(tensor)
            if ranks is not None:
                self.simulated_ranks = tuple(sorted(set(self.simulated_ranks or ()) | set(ranks)))
                return {
                    rank: measure(local, _positions(place, rank) if sketch else None, sketch=sketch, user_hash=of_own)
                    for rank, local in ranks.items()
                }
            return measure(tensor, _positions(place, None) if sketch else None, sketch=sketch, user_hash=of_own)
        except Unmeasurable as reason:
            text = str(reason)
            if not tensor.is_meta and text not in self._unmeasurable:  # of meta tensors no result is recorded
                self._unmeasurable.add(text)
                warn(f"{text}; recorded without statistics")
            return None

    def spec(self, state: StorageState, local: torch.Tensor) -> Any:
        """Return the DTensor spec whose local tensor this is, None for a plain one."""
        return None if state.specs is None else state.specs.get((local.storage_offset(), tuple(local.shape)))

    def restart(self, events: Iterable[Event]) -> None:
        """Forget all statistics and writes but those of some events."""
        events = list(events)
        given = [given for event in events for given in event.inputs]
        slots = [slot for each in given for slot in (each.slot, *each.pieces)]
        leaves = [leaf for event in events for leaf in (*event.outputs, *event.mutated)]
        slots += [slot for leaf in leaves for slot in (leaf.slot, leaf.part_slot, *leaf.pieces)]
        slots += [slot for leaf in leaves if leaf.rows is not None for slot in leaf.rows.slots]
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


def _positions(place: Any, rank: int | None) -> Positions | None:
    """Return the positions of a DTensor's spec or of a part; None for all of its own tensor."""
    if place is None:
        return None
    return place.positions(rank) if isinstance(place, Part) else Placement.of(place, rank=rank).positions()


def _same(part: Part, spec: Any, rank: int | None) -> bool:
    packed = [None if at is None or at.whole else at.packed for at in (_positions(part, rank), _positions(spec, rank))]
    return packed[0] == packed[1]


def _numbers(slot: Slot) -> Iterable[int]:
    return () if slot is None else slot.values() if isinstance(slot, dict) else (slot,)


def _version(tensor: torch.Tensor) -> int:
    """Return the tensor's version counter; -1 for an inference tensor, which has none."""
    return -1 if tensor.is_inference() else tensor._version
