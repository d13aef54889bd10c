"""Layouts that are not merged: what ranks of a run compute for each other, which no log of global tensors shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matchers.laws.law import Kind
from matchers.logs.op_log import Phase
from matchers.runs.rank_logs import RankLogs, Role

__all__ = ["not_merged"]


def not_merged(ranks: RankLogs, role: Role) -> Iterator[tuple[Sequence[int], str]]:
    """Yield the ranks of which a merged log of one role does not show all, and why, as a clause."""
    for other in ranks.roles:
        if other is not role:
            yield other.ranks, "held another part of the model, as a stage of a pipeline does"
    if len(ranks.roles) > 1:
        return
    if receiving := _receiving_activations(ranks, role):
        yield receiving, "received activations of ranks with another batch, as parts of a sequence do"


def _receiving_activations(ranks: RankLogs, role: Role) -> tuple[int, ...]:
    """The ranks that compute with what ranks with other batches send them in the forward pass."""
    found = []
    for rank in role.ranks:
        phase, own = ranks.logs[rank].phase, ranks.batch[rank]
        received = (call for call in ranks.calls[rank] if call.kind == Kind.RECEIVE)
        if any(phase[call.row] == Phase.FORWARD and ranks.batch.get(call.peer) != own for call in received):
            found.append(rank)
    return tuple(found)
