"""The virtual log of a run: all ranks as one log of global tensors, which is compared like any log.

Ranks that read one batch hold parts of one model: their records are merged (`merge.py`). Those that read different
batches divide the batch: they are micro-batches of one log (`batches.py`), and their updates, of parameters that are
replicated or sharded over all ranks, are merged again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from matchers.arrays import Int64
from matchers.errors import InputError
from matchers.logs.op_log import NO_DIGEST, OpLog
from matchers.ops.micro_batches import micro_batch_numbers
from matchers.ops.run_info import MERGED_FINDINGS
from matchers.runs.check import check_logs
from matchers.runs.finding import listed
from matchers.runs.layouts.batches import as_micro_batches
from matchers.runs.layouts.merge import merged
from matchers.runs.rank_logs import RankLogs, Role

__all__ = ["virtual_log"]

_FIRST = 20
"""Results of a micro-batch that are compared to find the same samples."""


def virtual_log(ranks: RankLogs, other: OpLog) -> OpLog:
    """Merge the logs of all ranks.

    Args:
        other: the log that it is to be compared with: it has the shapes of whole tensors.

    Raises:
        InputError: the ranks have different parts of the model, as the stages of a pipeline have.
    """
    if len(ranks.roles) > 1:
        raise InputError(f"{ranks.run.name}: ranks with different parameters (pipeline stages) cannot be merged yet")
    role = ranks.roles[0]
    together = _with_findings(_merged(ranks, role, role.ranks, other), ranks)
    groups = _by_batch(ranks, role)
    if len(groups) == 1:
        return together
    groups = _in_order_of(other, {group: ranks.logs[group[0]] for group in groups})
    of = next(k for k, group in enumerate(groups) if role.reference in group)
    return as_micro_batches([_merged(ranks, role, group, other) for group in groups], together, of, other)


def _with_findings(log: OpLog, ranks: RankLogs) -> OpLog:
    """The log with what its ranks contradict each other in, which the merged records do not show."""
    found = check_logs(ranks.run, ranks.logs).findings
    told = [f"{one.subject}: {one.text}, ranks {listed(one.ranks)}" for one in found]
    return replace(log, header=replace(log.header, run={**log.header.run, MERGED_FINDINGS: told}))


def _in_order_of(other: OpLog, logs: Mapping[tuple[int, ...], OpLog]) -> list[tuple[int, ...]]:
    """The groups in the order in which the other run reads their samples, as far as first results tell it."""
    known = _first_results(other)
    places: dict[tuple[int, ...], int] = {}
    for group, log in logs.items():
        own = next(iter(_first_results(log).values()), set())
        shared = {batch: len(own & found) for batch, found in known.items()}
        best = max(shared, key=lambda batch: shared[batch], default=-1)
        places[group] = best if shared.get(best) else -1
    if len(set(places.values())) < len(places) or -1 in places.values():
        return list(logs)
    return sorted(logs, key=lambda group: places[group])


def _first_results(log: OpLog) -> dict[int, set[int]]:
    """The digests of the first results of each micro-batch."""
    number = np.maximum(micro_batch_numbers(log), 0)
    digests = log.digests.first(np.arange(len(log)), NO_DIGEST)
    whole = ~log.updates & (digests != NO_DIGEST)
    found: dict[int, set[int]] = {}
    for batch in range(int(number.max(initial=0)) + 1):
        rows = np.flatnonzero(whole & (number == batch))[:_FIRST]
        found[batch] = set(digests[rows].tolist())
    return found


def _by_batch(ranks: RankLogs, role: Role) -> list[tuple[int, ...]]:
    """The ranks that read one batch; all together where the logs do not say."""
    found: dict[tuple[str, ...], list[int]] = {}
    for rank in role.ranks:
        found.setdefault(ranks.batch[rank], []).append(rank)
    return [tuple(group) for group in found.values()]


def _merged(ranks: RankLogs, role: Role, group: Sequence[int], other: OpLog) -> OpLog:
    """The logs of some ranks, with the records of the reference if it is among them, else of the first."""
    first = role.reference if role.reference in group else group[0]
    members = [first, *(rank for rank in group if rank != first)]
    return merged([ranks.logs[rank] for rank in members], _counterparts(role, members, len(ranks.logs[first])), other)


def _counterparts(role: Role, members: Sequence[int], n: int) -> Int64:
    """int64[ranks, n], the record of each rank for each of the first, over those of the reference."""
    of_first = role.partner[members[0]]
    known = of_first >= 0
    out = np.full((len(members), n), -1, np.int64)
    for k, rank in enumerate(members):
        out[k, of_first[known]] = role.partner[rank][known]
    out[0] = np.arange(n)
    return out
