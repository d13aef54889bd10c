"""Ranks that share a batch read the same one, all others different ones.

Ranks over which gradients are reduced read different batches; those that reduce activations in the forward pass share
one, and so do those that divide what they make of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from matchers.logs.op_log import NO_DIGEST, Phase
from matchers.ops.laws import communicating
from matchers.runs.finding import Check, Finding, Made, Stage, Unmade
from matchers.runs.gradients import Gradients
from matchers.runs.rank_logs import RankLogs, Role, connected, odd_ranks, together

__all__ = ["check_data", "readers_of_batches"]

_CHECK = Check.DATA
_MOST = 2 / 3
"""Minimum fraction of gradients that are reduced over ranks with different batches."""


def check_data(ranks: RankLogs, gradients: Gradients) -> Iterator[Finding | Made | Unmade]:
    """Yield ranks that read one batch twice, or share the work on a batch and read different ones."""
    if len(ranks.logs) < 2:
        yield Unmade(_CHECK, "one rank reads one batch")
        return
    if not all(ranks.batch.values()):
        yield Unmade(_CHECK, "the logs do not have the batch of each rank")
        return
    sharing, apart = _groups(ranks, gradients)
    if not sharing and not apart:
        yield Unmade(_CHECK, "it is not known which ranks share a batch")
        return
    yield Made(_CHECK, len(set(ranks.batch.values())), "batches")
    wrong: set[int] = set()
    for group in sharing:
        if odd := odd_ranks({rank: ranks.batch[rank] for rank in group}):
            wrong |= {*odd}
            yield _finding(ranks, "batch differs on ranks that share one", odd, group)
    for group in apart:
        for found in together({rank: ranks.batch[rank] for rank in group}):
            if len({*found} - wrong) > 1 and not _share_out(ranks, found):
                yield _finding(ranks, "batch read twice: these ranks reduce gradients together", found, group)


def readers_of_batches(ranks: RankLogs) -> list[tuple[int, ...]]:
    """The ranks that read each batch together; those that read one twice, by mistake, are apart. Batches are known."""
    found: dict[tuple[str, ...], list[int]] = {}
    for rank in ranks.logs:
        found.setdefault(ranks.batch[rank], []).append(rank)
    sharing = connected([*ranks.sharing, *((rank,) for rank in ranks.logs)])
    if all(any({*of} <= {*each} for each in sharing) for of in found.values()):
        return [tuple(of) for of in found.values()]
    _, apart = _groups(ranks, Gradients(ranks))
    out: dict[tuple[object, ...], list[int]] = {}
    for batch, of in found.items():
        for rank in of:
            place = [group.index(rank) for group in apart if rank in group]
            out.setdefault((batch, *place), []).append(rank)
    return [tuple(of) for of in out.values()]


def _groups(ranks: RankLogs, gradients: Gradients) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Groups whose members read the same batch, and groups whose members read different ones.

    Most gradients are reduced over the latter, which may reduce statistics of their batches in the forward pass, too.
    """
    reduced = {
        members
        for rank in ranks.logs
        for way in gradients.ways(rank).values()
        for _, members in way.reductions
        if len(members) > 1
    }
    known = set(ranks.logs)
    parallel = {group for group in {*reduced, *ranks.sharing} if _over_most(ranks, gradients, group)}
    sharing = [group for group in ranks.sharing if group not in parallel]
    apart = sorted(
        group
        for group in reduced
        if not _overlaps(group, sharing) and (group in parallel or not _overlaps(group, ranks.perhaps_sharing))
    )
    return [group for group in sharing if known >= {*group}], [group for group in apart if known >= {*group}]


def _over_most(ranks: RankLogs, gradients: Gradients, group: Sequence[int]) -> bool:
    """True if most gradients of the members are reduced over the group."""
    ways = [way for rank in group if rank in ranks.logs for way in gradients.ways(rank).values()]
    over = sum(any({*group} <= {*members} for _, members in way.reductions) for way in ways)
    return bool(ways) and over >= _MOST * len(ways)


def _share_out(ranks: RankLogs, readers: Sequence[int]) -> bool:
    """True if the ranks take other parts of a result that all of them have, as of a sequence that they divide."""
    role = next((role for role in ranks.roles if {*readers} <= {*role.ranks}), None)
    return role is not None and all(_take_parts(ranks, role, readers[0], rank) for rank in readers[1:])


def _take_parts(ranks: RankLogs, role: Role, *pair: int) -> bool:
    """True if two ranks read other bits of an equal result of the forward pass: views of it are not logged."""
    (a, b), flow = (ranks.logs[rank] for rank in pair), ranks.flows[pair[0]]
    one, other = (role.partner[rank] for rank in pair)
    same = dict(zip(one.tolist(), other.tolist(), strict=True))
    for row in one[(one >= 0) & (other >= 0) & (a.phase[one] == Phase.FORWARD)].tolist():
        x, y, makers = a.input_digests[row], b.input_digests[same[row]], flow[row].tolist()
        for maker, mine, theirs in zip(makers, x.tolist(), y.tolist(), strict=False):
            if maker < 0 or mine == theirs or NO_DIGEST in (mine, theirs) or a.phase[maker] != Phase.FORWARD:
                continue
            made = a.digests[maker], b.digests[same[maker]] if same.get(maker, -1) >= 0 else ()
            if len(made[0]) and np.array_equal(*made):
                return True
    return False


def _overlaps(group: Sequence[int], others: Iterable[Sequence[int]]) -> bool:
    return any(len({*group} & {*other}) > 1 for other in others)


def _finding(ranks: RankLogs, text: str, wrong: Sequence[int], group: Sequence[int]) -> Finding:
    log = ranks.logs[wrong[0]]
    rows = np.flatnonzero((log.input_digests.count > 0) & ~communicating(log))[
        :1
    ].tolist()  # what gathers weights first
    first = wrong[0], *(rows or [-1])
    return ranks.finding(_CHECK, text, wrong, group, first, subject="batch", stage=Stage.BEFORE)
