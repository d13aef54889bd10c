"""Layouts that are not merged: what ranks of a run compute for each other, which no log of global tensors shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matchers.laws.law import Kind
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.arguments import arguments_of
from matchers.ops.json_values import integers
from matchers.runs.calls import Call
from matchers.runs.layouts.dealing import dealt_otherwise
from matchers.runs.layouts.stages import why_apart
from matchers.runs.rank_logs import RankLogs, Role

__all__ = ["not_merged"]


_STAGES = "held another part of the model, as a stage of a pipeline does"
_PARTS = "sent each other parts of a sequence, as ranks of the other run do"
_OTHER_PARTS = "read other parts of the batch than the ranks of the other run"
_HELPS = "compare each run with one process"


def not_merged(ranks: RankLogs, role: Role, others: Sequence[OpLog]) -> Iterator[tuple[Sequence[int], tuple[str, str]]]:
    """Yield the ranks of which a merged log of one role does not show all; why, as a clause; and what would settle it.

    Args:
        others: the log to compare with, or those of the ranks of the other run, which are merged, too.
    """
    for other in ranks.roles:
        if not set(other.ranks) <= set(role.ranks):
            why, helps = why_apart(ranks) or ("the runs divide it otherwise", _HELPS)
            yield other.ranks, (f"{_STAGES}; {why}", helps)
    if len(role.ranks) < len(ranks.logs) or len(others) == 1:
        return
    if receiving := _receiving_activations(ranks, role):
        yield receiving, (_PARTS, _HELPS)
    elif dealt_otherwise(*([log.header.run for log in logs] for logs in (ranks.logs.values(), others))):
        batches = len(set(ranks.batch.values()))
        if batches == len(set(RankLogs(ranks.run, dict(enumerate(others))).batch.values())):  # else they are folded
            yield role.ranks, (_OTHER_PARTS, _HELPS)


def _receiving_activations(ranks: RankLogs, role: Role) -> tuple[int, ...]:
    """The ranks that compute with what ranks with other batches send them in the forward pass."""
    found = []
    for rank in role.ranks:
        log, own = ranks.logs[rank], ranks.batch[rank]
        forward = [call for call in ranks.calls[rank] if log.phase[call.row] == Phase.FORWARD]
        peers = {call.peer for call in forward if call.kind == Kind.RECEIVE}
        peers.update(_only_sender(log, call) for call in forward if call.kind == Kind.ALL_TO_ALL)
        if any(ranks.batch.get(peer) != own for peer in peers - {-1}):
            found.append(rank)
    return tuple(found)


def _only_sender(log: OpLog, call: Call) -> int:
    """The rank that all of an all-to-all comes from, which is a message then; -1 for several, or unknown ones."""
    sizes = integers(arguments_of(log, call.row).get("output_split_sizes"), len(call.group)) or ()
    senders = [rank for rank, size in zip(call.group, sizes, strict=False) if size]
    return senders[0] if len(senders) == 1 else -1
