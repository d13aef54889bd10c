"""Results of collectives, read only once they are complete.

A result is complete after its wait: at `wait_tensor`, else at the first operation that uses it, because its user has
waited, at least on the stream of the use. An unused result is read at the end of the step if it is complete by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch

from .calls import place_of
from .event import Event, Leaf
from .exchange import Exchange
from .measuring import Measuring
from .process_groups import GroupCall, has_result, is_done, process_group, reduction
from .storages import StorageState
from .subclasses import plain

__all__ = ["Collectives", "Pending", "brought_by_writing"]

_MESSAGES = {"send": "dst", "recv_": "src", "recv_any_source_": "", "isend": "", "irecv": "", "batch_p2p_ops": ""}
"""Operations between two members, and the argument that says with whom (in the group), "" where none does."""


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
        self._count: Counter[tuple[Any, ...]] = Counter()

    def called(self, name: str, arguments: Mapping[str, Any]) -> tuple[GroupCall, Exchange] | None:
        """Return the group and the parts of a collective about to start; None if its group is unknown.

        Args:
            name: of the operation.
            arguments: by name.
        """
        group = process_group(arguments.values())
        if group is None:
            return None
        # groups of the same ranks may overtake each other; and the other members take no part in a message
        counted: tuple[Any, ...] = (group.ranks, group.name)
        peer = None
        if name in _MESSAGES:
            peer = arguments.get(_MESSAGES[name])
            counted += (name, peer)
        self._count[counted] += 1
        root = arguments.get("root_rank", arguments.get("src") if name.startswith("broadcast") else None)
        by = reduction(arguments.get("reduce_op"))
        return GroupCall(group, self._count[counted] - 1, by, root, peer), Exchange(name, arguments, group, root)

    def started(
        self,
        event: Event,
        results: list[torch.Tensor],
        written: list[tuple[int, torch.Tensor]],
        work: Any,
        exchange: Exchange | None,
    ) -> None:
        """Record a started collective: its results, and (position, tensor) of the inputs that it writes to."""
        returned = {place_of(result) for result in results}
        targets = [(-1, result) for result in results]
        targets += [(position, tensor) for position, tensor in written if place_of(tensor) not in returned]
        parts = [] if exchange is None else exchange.received(results)
        for (position, tensor), part in zip_longest(targets, parts if len(parts) == len(targets) else ()):
            state = self._measuring.state(tensor)
            leaf = self._measuring.leaf(tensor, state, position, read=False)
            leaf.part = part
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
        if pending.event.kept and has_result(pending.work) is not False:
            leaf = pending.leaf
            if leaf.part is not None:
                leaf.part_slot = self._measuring.measure_part(pending.tensor, state, leaf.part)
                leaf.pieces = self._measuring.measure_pieces(pending.tensor, state, leaf.part)
            leaf.slot = self._measuring.measure(pending.tensor, state)

    def finish(self) -> None:
        """Read results that are complete and release the others without waiting for them."""
        for pending in list(self._pending):
            if has_result(pending.work):
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
