"""DTensors: what is declared `Replicate` on a mesh dimension has equal bits on all ranks along it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from matchers.logs.op_log import NO_DIGEST
from matchers.ops.json_values import parsed_object
from matchers.ops.laws import law_of
from matchers.runs.finding import Check, Finding, Made, listed
from matchers.runs.rank_logs import RankLogs, Role, odd_ranks

__all__ = ["check_placed"]


def check_placed(ranks: RankLogs) -> Iterator[Finding | Made]:
    """Yield, for each set of ranks, the first result that is declared the same on them and is not."""
    made = 0
    for role in ranks.roles:
        found: dict[tuple[int, ...], Finding] = {}
        for row, placement, group in _declared(ranks, role):
            digests = {rank: _digest(ranks, role, rank, row) for rank in group}
            if None in digests.values():
                continue
            made += 1
            if (odd := odd_ranks(digests)) and group not in found:
                found[group] = _finding(ranks, role, row, placement, group, odd)
        yield from found.values()
    if made:
        yield Made(Check.REPLICAS, made, "results declared Replicate")


def _declared(ranks: RankLogs, role: Role) -> Iterator[tuple[int, Mapping[str, Any], tuple[int, ...]]]:
    """(row of the reference, placement, ranks) of results that several ranks are to have the same of."""
    log = ranks.logs[role.reference]
    texts = log.texts("Placement")
    known: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
    for row in texts:
        placement = parsed_object(texts[row]) or {}
        mesh, names = placement.get("mesh"), placement.get("placements")
        if not isinstance(mesh, dict) or not isinstance(names, list) or law_of(log, row).unwritten:
            continue
        replicated = tuple(name for name, how in zip(mesh, names, strict=False) if how == "Replicate")
        if replicated not in known:
            known[replicated] = _groups(ranks, role, replicated)
        for group in known[replicated]:
            yield row, placement, group


def _groups(ranks: RankLogs, role: Role, along: tuple[str, ...]) -> list[tuple[int, ...]]:
    """Sets of two and more ranks that differ in these mesh dimensions only."""
    found: dict[tuple[tuple[str, int], ...], list[int]] = defaultdict(list)
    for rank in role.ranks:
        at = (ranks.run.coordinates or {}).get(rank)
        if at and all(name in at for name in along):
            found[tuple((name, k) for name, k in at.items() if name not in along)].append(rank)
    return [tuple(group) for group in found.values() if len(group) > 1]


def _digest(ranks: RankLogs, role: Role, rank: int, row: int) -> int | None:
    at, log = int(role.partner[rank][row]), ranks.logs[rank]
    digests = log.digests[at] if at >= 0 else np.zeros(0, np.uint64)
    return int(digests[0]) if len(digests) and digests[0] != NO_DIGEST else None


def _finding(
    ranks: RankLogs, role: Role, row: int, placement: Mapping[str, Any], group: tuple[int, ...], odd: tuple[int, ...]
) -> Finding:
    other = next((rank for rank in group if rank not in odd), group[-1])
    one = odd[0] if odd[0] != other else group[0]
    between = " and ".join(listed((rank,)) for rank in sorted((one, other)))
    return ranks.finding(
        Check.REPLICAS,
        f"declared Replicate, differs between ranks {between}",
        odd,
        group,
        *((rank, int(role.partner[rank][row])) for rank in (one, other)),
        subject=ranks.logs[role.reference].keys[row],
        notes=[f"its placement is {', '.join(map(str, placement['placements']))}"],
    )
