"""Collectives: their results are read when they are there, and never before.

A result is there when it has been waited for. `wait_tensor` says so; otherwise the first operation that uses it does,
because whoever uses it has waited, on the stream of the use at least. What nobody uses is read at the end of the step
if it is there by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from capture.calls import place_of
from capture.event import Event, Leaf
from capture.measuring import Measuring
from capture.process_groups import group_ranks, is_done
from capture.storages import StorageState
from capture.subclasses import plain

__all__ = ["Collectives", "Pending", "brought_by_writing"]


@dataclass(slots=True)
class Pending:
    """A result of a collective that was started and has not been waited for.

    `tensor` is held until then: it has to be read once it is there, whoever asks for whichever part of it. `work` is
    what the process group gave to wait with, None where it gave none.
    """

    event: Event
    leaf: Leaf
    tensor: torch.Tensor
    work: Any


class Collectives:
    """The collectives of a step that are on their way, and how many of each process group there were."""

    def __init__(self, measuring: Measuring) -> None:
        self._measuring = measuring
        self._pending: list[Pending] = []
        self._count: dict[tuple[int, ...], int] = {}

    def group(self, arguments: Sequence[Any]) -> tuple[tuple[int, ...], int] | None:
        """(ranks of the group, how many of its collectives came before) of one that is about to start."""
        ranks = group_ranks(arguments)
        if ranks is None:
            return None
        nth = self._count.get(ranks, 0)
        self._count[ranks] = nth + 1
        return ranks, nth

    def started(
        self, event: Event, results: list[torch.Tensor], written: list[tuple[int, torch.Tensor]], work: Any
    ) -> None:
        """A collective was started: what it returned, and the (position, tensor) of the inputs that it writes to."""
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
        """An operation uses what a collective brings."""
        for pending in state.pending or ():
            self.arrived(pending)

    def arrived(self, pending: Pending) -> None:
        """A result is there: it belongs to the record of its collective."""
        self._pending = [other for other in self._pending if other is not pending]
        state = self._measuring.state(pending.tensor)
        if state is not None and state.pending:
            state.pending = [other for other in state.pending if other is not pending] or None
        if pending.event.kept:
            pending.leaf.slot = self._measuring.measure(pending.tensor, state)

    def finish(self) -> None:
        """Read what has come meanwhile, and let go of what is still on its way: it is never waited for."""
        for pending in list(self._pending):
            if is_done(pending.work):
                self.arrived(pending)
        self._pending.clear()


def brought_by_writing(pending: Sequence[Pending], tensor: torch.Tensor) -> list[Pending]:
    """The results of collectives that are brought by overwriting `tensor`.

    Some backends for the CPU put the result in its place while they are waited for, by an operation that is dispatched.
    There a wait blocks, so that what is not done by now was not waited for before: it means nothing yet.
    """
    if tensor.device.type != "cpu":
        return []
    place = place_of(tensor)
    return [p for p in pending if place_of(p.tensor) == place and not is_done(p.work)]
