"""Layouts that are not merged: what ranks of a run compute for each other, which no log of global tensors shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matchers.laws.law import Kind
from matchers.logs.op_log import OpLog, Phase
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
    if dividing := _dividing_updates(ranks, role):
        yield dividing, "updated tensors that the others did not, as with a divided optimizer"


def _receiving_activations(ranks: RankLogs, role: Role) -> tuple[int, ...]:
    """The ranks that compute with what ranks with other batches send them in the forward pass."""
    found = []
    for rank in role.ranks:
        phase, own = ranks.logs[rank].phase, ranks.batch[rank]
        received = (call for call in ranks.calls[rank] if call.kind == Kind.RECEIVE)
        if any(phase[call.row] == Phase.FORWARD and ranks.batch.get(call.peer) != own for call in received):
            found.append(rank)
    return tuple(found)


def _dividing_updates(ranks: RankLogs, role: Role) -> tuple[int, ...]:
    """The ranks of which each updates a parameter, or a state of it, that another does not, and the other way round."""
    by_rank = {rank: _updated(ranks.logs[rank]) for rank in role.ranks}
    sets = set(by_rank.values())
    divided = {one for one in sets if any(one - other and other - one for other in sets)}
    return tuple(rank for rank, names in by_rank.items() if names in divided)


def _updated(log: OpLog) -> frozenset[str]:
    """The tensors that the optimizer reads or writes, by name."""
    texts = {text for row, text in log.texts("Parameter").items() if log.phase[row] == Phase.OPTIMIZER}
    return frozenset(name for text in texts for name in text.split(";") if name)
