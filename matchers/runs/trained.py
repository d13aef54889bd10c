"""Each parameter with a gradient is updated on every rank that holds it, and replicas stay equal through the step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from matchers.runs.finding import Check, Finding, Made, Stage, Unmade, listed
from matchers.runs.gradients import NOT_NAMED, Gradients, Way
from matchers.runs.rank_logs import RankLogs, odd_ranks
from matchers.runs.replicas import Replication, differing, first_uses

__all__ = ["check_after_step", "check_trained", "without_gradient"]

_NO_ELEMENTS = 0xE220A8397B1DCDAF
"""The digest of a tensor without elements (docs/sketch.md), as ranks hold of what FSDP has flattened."""


def check_trained(ranks: RankLogs, gradients: Gradients) -> Iterator[Finding | Made | Unmade]:
    """Yield parameters that no optimizer updates, on all ranks or on some."""
    updated = {rank: gradients.ways(rank) for rank in ranks.logs if rank not in ranks.cut}
    if not any(updated.values()):
        yield Unmade(Check.TRAINED, NOT_NAMED)
        return
    left = _left_out(ranks, updated)
    for where, of in left.items():
        everywhere = len(where) == sum(bool(ways) for ways in updated.values())
        told = "in no optimizer" if everywhere else "updated on other ranks only"
        what = "parameter" if len(of) == 1 else f"{len(of):,} parameters"
        places = [(rank, ways[of[0]].read) for rank, ways in updated.items() if of[0] in ways][:1]
        group = next(role.ranks for role in ranks.roles if where[0] in role.ranks)
        at = places or first_uses(ranks, where[:1], of[0])
        yield ranks.finding(Check.TRAINED, f"{what} {told}", where, group, *at, subject=of[0], more=of[1:])
    yield Made(
        Check.TRAINED, len({name for names in (*updated.values(), *left.values()) for name in names}), "parameters"
    )


def _left_out(ranks: RankLogs, updated: Mapping[int, Mapping[str, Way]]) -> dict[tuple[int, ...], list[str]]:
    """By the ranks that hold them and do not update them, parameters that others update, or that no optimizer has."""
    left: dict[tuple[int, ...], list[str]] = {}
    for role in ranks.roles:
        for name in ranks.start[role.reference]:
            holders = [rank for rank in role.ranks if updated.get(rank) and ranks.start[rank].get(name) != _NO_ELEMENTS]
            without = [rank for rank in holders if name not in updated[rank] and _unchanged(ranks, rank, name)]
            if without and (len(without) < len(holders) or any(_not_held(ranks, rank, name) for rank in without)):
                left.setdefault(tuple(without), []).append(name)
    return left


def _unchanged(ranks: RankLogs, rank: int, name: str) -> bool:
    end = ranks.end[rank].get(name)
    return end is not None and end == ranks.start[rank].get(name)


def _not_held(ranks: RankLogs, rank: int, name: str) -> bool:
    """True if the log says that no optimizer has this parameter, of all that there are."""
    stepped = ranks.table(rank, "coverage").get("optimizers")
    known = isinstance(stepped, list) and len(stepped) == 2 and stepped[0] == stepped[1]
    names = ranks.table(rank, "optimizer").get("not_held")
    return known and isinstance(names, list) and name in names


def without_gradient(ranks: RankLogs) -> Iterator[str]:
    """Yield notes on parameters that an optimizer holds and that got no gradient."""
    found: dict[str, list[int]] = {}
    for rank in ranks.logs:
        names = ranks.table(rank, "optimizer").get("no_gradient")
        for name in names if isinstance(names, list) else ():
            found.setdefault(str(name), []).append(rank)
    for name, on in found.items():
        where = "" if len(on) == len(ranks.logs) else f" on rank {listed(on)}"
        yield f"{name} gets no gradient{where}"


def check_after_step(ranks: RankLogs, replication: Replication, gradients: Gradients) -> Iterator[Finding | Made]:
    """Yield what was equal on some ranks before the step and is not afterwards, with the reason.

    A gradient that was not reduced is the reason for its parameter; through the norm of all gradients, which clipping
    uses, it changes the others as well, which are then not listed.
    """
    differ = [
        (name, group, odd)
        for name in replication.names
        for group in replication.sets[name]
        if not odd_ranks({rank: ranks.start[rank].get(name) for rank in group})
        and (odd := odd_ranks({r: ranks.end[r][name] for r in group if name in ranks.end[r]}))
    ]
    unreduced: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
    rest: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
    for name, group, odd in differ:
        ways = {rank: way for rank in group if (way := gradients.ways(rank).get(name)) is not None}
        if _not_reduced(ways, group):
            unreduced.setdefault((group, group), []).append(name)
        else:
            rest.setdefault((group, odd), []).append(name)
    for (group, _), names in unreduced.items():
        yield _unreduced(ranks, gradients, names, group)
    if not unreduced:
        for (group, odd), names in rest.items():
            other = next((rank for rank in group if rank not in odd), odd[-1])
            read_by = ((rank, gradients.ways(rank).get(names[0])) for rank in (odd[0], other))
            at = ((rank, way.read) for rank, way in read_by if way is not None)
            yield differing(ranks, names, odd, group, Stage.UPDATE, *at)
    if any(ranks.end.values()) and replication.shared:
        yield Made(Check.REPLICAS, replication.shared, "parameters after the step")


def _not_reduced(ways: Mapping[int, Way], group: Sequence[int]) -> bool:
    """True if the gradients differ, and were not reduced over all of the ranks."""
    if len(ways) < len(group) or not odd_ranks({rank: way.digest for rank, way in ways.items()}):
        return False
    ways = {rank: way for rank, way in ways.items() if way.source >= 0}
    return any(not set(group) <= {m for _, members in way.reductions for m in members} for way in ways.values())


def _unreduced(ranks: RankLogs, gradients: Gradients, names: Sequence[str], group: tuple[int, ...]) -> Finding:
    way = gradients.ways(group[0])[names[0]]
    dimension = ranks.dimension(group)
    what = "gradient" if len(names) == 1 else f"{len(names):,} gradients"
    over = f"over {dimension}" if dimension else "over all ranks that hold the parameter"
    others = sum(bool(of.reductions) for of in gradients.ways(group[0]).values()) - len(names) * bool(way.reductions)
    notes = [f"it is {way.told}"] if way.reductions else []
    if others:
        notes.append(f"{others:,} other gradients are reduced")
    return ranks.finding(
        Check.TRAINED,
        f"{what} not reduced {over}",
        group,
        group,
        *((rank, gradients.ways(rank)[names[0]].row) for rank in group[:2]),
        subject=names[0],
        more=names[1:],
        stage=Stage.UPDATE,
        notes=notes,
    )
