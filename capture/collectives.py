"""Results of collectives, read only once they are complete.

A result is complete after its wait: at `wait_tensor`, else at the first operation that uses it, because its user has
waited, at least on the stream of the use. An unused result is read at the end of the step if it is complete by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .calls import place_of
from .event import Event, Leaf
from .measuring import Measuring
from .process_groups import group_ranks, is_done
from .storages import StorageState
from .subclasses import plain

__all__ = ["Collectives", "Pending", "brought_by_writing"]


@dataclass(slots=True)
class Pending:
    """A result of a collective that was started but not yet waited for.

    `tensor` is kept alive until it can be read, since any slice of it may be used first. `work` is the handle of the
    process group to wait on, None where there is none.
    """

    event: Event
    leaf: Leaf
    tensor: torch.Tensor
    work: Any


class Collectives:
    """Collectives of a step in flight, and the number started so far per process group."""

    def __init__(self, measuring: Measuring) -> None:
        self._measuring = measuring
        self._pending: list[Pending] = []
        self._count: dict[tuple[int, ...], int] = {}

    def group(self, arguments: Sequence[Any]) -> tuple[tuple[int, ...], int] | None:
        """Return (ranks of the group, number of its earlier collectives) of one about to start."""
        ranks = group_ranks(arguments)
        if ranks is None:
            return None
        nth = self._count.get(ranks, 0)
        self._count[ranks] = nth + 1
        return ranks, nth

    def started(
        self, event: Event, results: list[torch.Tensor], written: list[tuple[int, torch.Tensor]], work: Any
    ) -> None:
        """Record a started collective: its results, and (position, tensor) of the inputs that it writes to."""
        returned = {place_of(result) for result in results}
        targets = [(-1, result) for result in results]
        targets += [(position, tensor) for position, tensor in written if place_of(tensor) not in returned]
        for position, tensor in targets:
            state = self._measuring.state(tensor)
            leaf = self._measuring.leaf(tensor, state, position, read=False)
            (event.outputs if position < 0 else event.mutated).append(leaf)
            if state is not None:
                self._measuring.storages.written(state, plain(tensor), event)
                pending = Pending(event, leaf, tensor, work)
                self._pending.append(pending)
                state.pending = [*(state.pending or ()), pending]

    def used(self, state: StorageState) -> None:
        """Mark as complete the pending results that an operation uses."""
        for pending in state.pending or ():
            self.arrived(pending)

    def arrived(self, pending: Pending) -> None:
        """Read a complete result into the record of its collective."""
        self._pending = [other for other in self._pending if other is not pending]
        state = self._measuring.state(pending.tensor)
        if state is not None and state.pending:
            state.pending = [other for other in state.pending if other is not pending] or None
        if pending.event.kept:
            pending.leaf.slot = self._measuring.measure(pending.tensor, state)

    def finish(self) -> None:
        """Read results that are complete and release the others without waiting for them."""
        for pending in list(self._pending):
            if is_done(pending.work):
                self.arrived(pending)
        self._pending.clear()


def brought_by_writing(pending: Sequence[Pending], tensor: torch.Tensor) -> list[Pending]:
    """Return the pending results that become complete by overwriting `tensor`.

    Some CPU backends copy the result into place during the wait, by a dispatched operation. Their wait blocks, so a
    result that is not done by now has not been waited for and means nothing yet.
    """
    if tensor.device.type != "cpu":
        return []
    place = place_of(tensor)
    return [p for p in pending if place_of(p.tensor) == place and not is_done(p.work)]
