"""Updates that ranks divide: each computes some for all, and the others are given what comes of them.

The merged log has the records of one rank. What others alone compute is taken from their logs, as it is: an update
of a named tensor is compared wherever it was computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from matchers.arrays import Bool, Int64, marked
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog, Phase
from matchers.logs.raw_record import MEMBERS
from matchers.ops.dataflow import downstream, upstream
from matchers.ops.laws import communicating
from matchers.ops.placement import ALONE, MERGED, merged_records
from matchers.runs.layouts.pieces import Piece, joined
from matchers.runs.rank_logs import RankLogs, Role

__all__ = ["in_order", "own_updates", "with_own_updates"]


def own_updates(ranks: RankLogs, role: Role) -> Mapping[int, Int64]:
    """By rank, its records that update what not every rank updates; of several ranks that do, the first one's."""
    updating = {rank: _updating(ranks.logs[rank]) for rank in role.ranks}
    names = {rank: _named(ranks.logs[rank], of) for rank, of in updating.items()}
    common = frozenset[str].intersection(*map(frozenset, names.values()))
    taken, found = set(common), dict[int, Int64]()
    for rank, of_names in names.items():
        own = of_names.keys() - taken
        taken |= own
        rows = [row for name in own for row in of_names[name]]
        if rows:
            found[rank] = _with_unnamed(ranks.logs[rank], ranks.flows[rank], np.unique(rows), updating[rank])
    return found


def with_own_updates(together: OpLog, ranks: RankLogs, role: Role) -> OpLog:
    """The merged log with the updates that only one rank computes; those of other ranks than its own at the end."""
    own = dict(own_updates(ranks, role))
    if not own:
        return together
    first, n = role.reference, len(together)
    kept = own.pop(first, np.zeros(0, np.int64))
    merged = np.setdiff1d(np.arange(n), kept)
    pieces = [Piece(together, merged, None, first), Piece(ranks.logs[first], kept, None, first)]
    place = np.argsort(np.concatenate((merged, kept)))
    places, start = [place, place], n
    for rank, rows in own.items():
        pieces.append(Piece(ranks.logs[rank], rows, None, rank))
        partner = role.partner[rank]
        shared = merged[partner[merged] >= 0]
        of_rank = np.full(len(ranks.logs[rank]), -1)
        of_rank[partner[shared]] = place[shared]
        of_rank[rows] = start + np.arange(len(rows))
        places.append(of_rank)
        start += len(rows)
    log = joined(together, pieces, places)
    log = joined(log, [Piece(log, np.concatenate((place, np.arange(n, start))), None, first)])
    return _told(log, [*((int(row), first, int(row)) for row in kept), *_appended(own, n)], ranks)


def _appended(own: Mapping[int, Int64], start: int) -> Iterator[tuple[int, int, int]]:
    """Yield the row, rank, and row of the rank of updates that stand at the end."""
    for rank, rows in own.items():
        for row in rows.tolist():
            yield start, rank, row
            start += 1


def _told(log: OpLog, own: Iterable[tuple[int, int, int]], ranks: RankLogs) -> OpLog:
    members, merged = dict[int, bytes](), dict[int, bytes]()
    for row, rank, at in own:
        members[row] = f"{rank}:{int(ranks.logs[rank].line[at])}".encode()
        merged[row] = f"rank {rank}{ALONE}".encode()
    texts = {MEMBERS: log.texts(MEMBERS).changed(members), MERGED: log.texts(MERGED).changed(merged)}
    return replace(log, extra={**log.extra, **texts})


def in_order(log: OpLog, ranks: RankLogs, role: Role) -> OpLog:
    """The log with the updates that ranks have alone behind its others, in the order of the parameters."""
    alone = np.array(merged_records(log, ALONE), np.int64)
    if not len(alone):
        return log
    number = {name: k for k, name in enumerate(ranks.table(role.reference, "parameter_digests"))}
    names, place = log.texts("Parameter"), np.full(len(alone), len(number))
    for k, row in reversed(list(enumerate(alone.tolist()))):  # what has no name is read by the next that has
        name = names.get(row, "").partition(";")[0]
        known = number.get(name, number.get(name.rpartition(".")[0]))
        place[k] = known if known is not None else place[min(k + 1, len(alone) - 1)]
    left = np.setdiff1d(np.arange(len(log)), alone)
    last = np.flatnonzero(_updating(log)[left])[-1:]
    after = int(last[0]) + 1 if len(last) else int(np.searchsorted(left, alone[0]))
    order = np.concatenate((left[:after], alone[np.argsort(place, kind="stable")], left[after:]))
    return joined(log, [Piece(log, order, None, 0)])


def _updating(log: OpLog) -> Bool:
    """bool[n]: records of the optimizer, without what ranks give each other."""
    return np.asarray((log.phase == Phase.OPTIMIZER) & ~communicating(log))


def _named(log: OpLog, updating: Bool) -> dict[str, list[int]]:
    """By name of a tensor that the optimizer reads or writes, the records that do."""
    found: dict[str, list[int]] = {}
    for row, text in log.texts("Parameter").items():
        if updating[row]:
            for name in filter(None, text.split(";")):
                found.setdefault(name, []).append(row)
    return found


def _with_unnamed(log: OpLog, flow: Ragged, rows: Int64, updating: Bool) -> Int64:
    """Some records of the optimizer, and those without a name that they read, or that read them."""
    unnamed = updating.copy()
    unnamed[list(log.texts("Parameter"))] = False
    own = marked(rows, len(log))
    own |= downstream(flow, own, unnamed)
    return np.flatnonzero(own | (unnamed & upstream(flow, own, own | unnamed)))
