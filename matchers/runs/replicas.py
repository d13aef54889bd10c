"""Replicas: equal bits on all ranks that hold the same part of a tensor, before the step and after it.

Replication is known from the placements of DTensors, from groups (a gradient that is all-reduced over a group belongs
to a parameter that the group holds), and from equality itself: ranks that agree in many tensors but one disagree in it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np

from matchers.laws.law import Kind
from matchers.ops.module_path import is_within
from matchers.runs.finding import Check, Finding, Made, Stage, Unmade
from matchers.runs.gradients import Gradients, Way
from matchers.runs.rank_logs import RankLogs, connected, odd_ranks, together

__all__ = ["Replication", "check_replicas", "differing", "first_uses"]

Partition: TypeAlias = tuple[tuple[int, ...], ...]
"""Sets of ranks, ascending."""

_CHECK = Check.REPLICAS
_MOST = 2 / 3
"""Minimum fraction of the holders of a replicated tensor that agree, for the others to be blamed by equality alone."""


class Replication:
    """The ranks that must hold the same bits, by parameter.

    Attributes:
        names: of all parameters.
        sets: by name, the sets of two and more ranks that hold the same part.
    """

    def __init__(self, ranks: RankLogs, gradients: Gradients) -> None:
        self._ranks, self._gradients = ranks, gradients
        self.names = list(dict.fromkeys(name for start in ranks.start.values() for name in start))
        self._common = Counter(self._equal(name) for name in self.names)
        self._many = {rank: Counter(start.values()) for rank, start in ranks.start.items()}
        self.sets = {name: self._sets(name) for name in self.names}

    @property
    def shared(self) -> int:
        """Number of parameters that two ranks hold the same part of."""
        return sum(map(bool, self.sets.values()))

    @property
    def unknown(self) -> int:
        """Number of parameters of which the log does not tell who shares them."""
        return sum(not sets and not all(self._parts(name).values()) for name, sets in self.sets.items())

    def holders(self, name: str) -> dict[int, int]:
        """Rank → digest before the step."""
        return {rank: start[name] for rank, start in self._ranks.start.items() if name in start}

    def _equal(self, name: str) -> Partition:
        return tuple(sorted(together(self.holders(name))))

    def _sets(self, name: str) -> list[tuple[int, ...]]:
        """Sets of two and more ranks that hold the same part of a parameter."""
        placed = self._parts(name)
        if all(placed.values()):
            return [ranks for ranks in together(placed) if len(ranks) > 1]
        if (like := self._expert_like(name)) is not None:
            return self._sets(like)
        reduced = self._gradients.reduced_over(name)
        equal = self._alike if name in self._constants else _usual(self._equal(name), self._common)
        held = self.holders(name)
        sets = (
            [rank for rank in ranks if rank in held]
            for ranks in connected([*reduced, *(ranks for ranks in equal if len(ranks) > 1)])
        )
        return [tuple(ranks) for ranks in sets if len(ranks) > 1]

    def _expert_like(self, name: str) -> str | None:
        """Of a constant below a module that exchanges tokens, a parameter beside it that tells which ranks hold both.

        The gradients of both are reduced over the same ranks: an expert's bias, zeros as those of all experts.
        """
        module = name.rpartition(".")[0]
        if name not in self._constants or not any(is_within(module, each) for each in self._exchanging):
            return None
        beside = (n for n in self.names if n.rpartition(".")[0] == module and n not in self._constants)
        ways = [self._gradients.ways(rank) for rank in self._ranks.logs]
        return next((n for n in beside if all(_reduced(of, n) == _reduced(of, name) for of in ways)), None)

    @cached_property
    def _exchanging(self) -> frozenset[str]:
        """Modules in which ranks exchange tokens, as those of experts do."""
        return frozenset(
            self._ranks.logs[rank].module_name(call.row)
            for rank, calls in self._ranks.calls.items()
            for call in calls
            if call.kind is Kind.ALL_TO_ALL
        )

    @cached_property
    def _alike(self) -> Sequence[tuple[int, ...]]:
        """Sets of ranks that agree in all parameters but constants, and so hold the same part of the model."""
        names = [name for name in self.names if name not in self._constants]
        return (
            together({rank: tuple(map(start.get, names)) for rank, start in self._ranks.start.items()}) if names else []
        )

    @cached_property
    def _constants(self) -> frozenset[str]:
        """Names of what may be initial ones or zeros, which shards of a tensor share, too.

        Another parameter has the same bits, or the L1 norm is a whole number.
        """
        return frozenset(
            name
            for name in self.names
            if any(
                self._many[rank][digest] > 1 or self._norm(rank, digest).is_integer()
                for rank, digest in self.holders(name).items()
            )
        )

    def _norm(self, rank: int, digest: int) -> float:
        """L1 norm of a tensor, from a record that reads it; NaN if none does."""
        log = self._ranks.logs[rank]
        if len(log.inputs.value) != len(log.input_digests.value):
            return math.nan
        at = np.flatnonzero(log.input_digests.value == np.uint64(digest))
        return float(log.inputs.value[at[0]]) if len(at) else math.nan

    def _parts(self, name: str) -> dict[int, str]:
        """The part of a DTensor that each rank holds; empty for other tensors."""
        placements = {rank: self._ranks.table(rank, "parameter_placements").get(name) for rank in self.holders(name)}
        return {r: json.dumps(of, sort_keys=True) if isinstance(of, dict) else "" for r, of in placements.items()}


def _reduced(ways: Mapping[str, Way], name: str) -> object:
    """The collectives by which a gradient was reduced; None if the parameter has none."""
    return ways[name].reductions if name in ways else None


def _usual(own: Partition, common: Counter[Partition]) -> Partition:
    """The partition of the ranks by equal bits; of one that few tensors have, the common one that it nearly is."""
    likely = (usual for usual, many in common.most_common() if many > common[own] and _nearly(own, usual))
    return next(likely, own)


def _nearly(own: Partition, usual: Partition) -> bool:
    """True if a partition is the usual one, but for a minority of one set of ranks."""
    sets = set(own)
    split = [ranks for ranks in usual if ranks not in sets]
    if len(split) != 1:
        return False
    parts = [set(ranks) & set(split[0]) for ranks in own if set(ranks) <= set(split[0])]
    largest = max(map(len, parts), default=0)
    return sum(map(len, parts)) == len(split[0]) and largest >= max(2, _MOST * len(split[0]))


def check_replicas(ranks: RankLogs, replication: Replication) -> Iterator[Finding | Made | Unmade]:
    """Yield what differs before the step on ranks that must hold the same."""
    if len(ranks.logs) < 2:
        yield Unmade(_CHECK, "one rank holds no replicas")
        return
    if not replication.names:
        yield Unmade(_CHECK, "the logs have no digests of parameters")
        return
    wrong: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
    for name in replication.names:
        holders = replication.holders(name)
        for group in replication.sets[name]:
            if odd := odd_ranks({rank: holders.get(rank) for rank in group}):
                wrong.setdefault((odd, group), []).append(name)
    for (odd, group), names in wrong.items():
        yield differing(ranks, names, odd, group, Stage.BEFORE)
    yield from _buffers(ranks)
    if replication.shared:
        yield Made(_CHECK, replication.shared, "parameters")
    elif not replication.unknown:
        yield Unmade(_CHECK, "each rank holds a part of its own of every parameter")
    if replication.unknown:
        yield Unmade(_CHECK, f"{replication.unknown:,} parameters: it is not known which ranks share them")


def differing(
    ranks: RankLogs,
    names: Sequence[str],
    odd: tuple[int, ...],
    group: tuple[int, ...],
    stage: Stage,
    *at: tuple[int, int],
) -> Finding:
    """A finding about parameters that differ on ranks which must hold the same."""
    what = "parameter differs" if len(names) == 1 else f"{len(names):,} parameters differ"
    other = next((rank for rank in group if rank not in odd), odd[-1])
    when = "before the step" if stage == Stage.BEFORE else "after the step"
    text, at = f"{what} {when} on ranks that must agree", at or first_uses(ranks, (odd[0], other), names[0])
    return ranks.finding(_CHECK, text, odd, group, *at, subject=names[0], more=names[1:], stage=stage)


def first_uses(ranks: RankLogs, on: Sequence[int], name: str) -> tuple[tuple[int, int], ...]:
    """The first operation of the module that has a parameter, on each of some ranks: rank and row."""
    module = name.rpartition(".")[0]
    found = []
    for rank in on:
        log = ranks.logs[rank]
        own = [k for k, path in enumerate(log.modules) if f".{path}".endswith(f".{module}")]
        rows = np.flatnonzero(np.isin(log.module, own))
        if len(rows):
            found.append((rank, int(rows[0])))
    return tuple(found)


def _buffers(ranks: RankLogs) -> Iterator[Finding]:
    """Yield buffers in which a minority disagrees, where ranks agree in all others."""
    names = list(dict.fromkeys(name for found in ranks.buffers.values() for name in found))
    held = {name: {rank: of[name] for rank, of in ranks.buffers.items() if name in of} for name in names}
    common = Counter(tuple(sorted(together(values))) for values in held.values())
    for name, values in held.items():
        own = tuple(sorted(together(values)))
        for group in _usual(own, common):
            if odd := odd_ranks({rank: values.get(rank) for rank in group}):
                text = "buffer differs before the step on ranks that must agree"
                yield ranks.finding(_CHECK, text, odd, group, subject=name, stage=Stage.BEFORE)
