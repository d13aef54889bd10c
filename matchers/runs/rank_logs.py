"""The logs of all ranks of a run, and what several checks ask of them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from rapidfuzz.distance import Indel

from matchers.arrays import Int64
from matchers.laws.law import Kind
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.dataflow import sources
from matchers.ops.json_values import hex_digest
from matchers.runs.calls import Call, Group, calls_of, groups_of
from matchers.runs.finding import Check, Finding, Place, Stage
from matchers.runs.run import Run

__all__ = ["RankLogs", "Role", "connected", "odd_ranks", "together"]

_MAX_COUNTS = 64
"""Maximum elements of a tensor of counts, as of the tokens of a batch, which any ranks may sum up."""


@dataclass(frozen=True)
class Role:
    """Ranks that hold the same parameters, such as those of one pipeline stage.

    Attributes:
        ranks: ascending.
        reference: the first rank of those that run the most common sequence of operations.
        partner: rank → int64[rows of the reference], the row of the same operation on that rank, -1 for none.
        odd: ranks that run another sequence of operations than the reference.
    """

    ranks: tuple[int, ...]
    reference: int
    partner: Mapping[int, Int64]
    odd: tuple[int, ...]


@dataclass(frozen=True)
class RankLogs:
    """The logs of a run by rank."""

    run: Run
    logs: Mapping[int, OpLog]

    @cached_property
    def calls(self) -> Mapping[int, tuple[Call, ...]]:
        """Collectives and messages of each rank, in order."""
        return {rank: calls_of(log, rank) for rank, log in self.logs.items()}

    @cached_property
    def groups(self) -> Sequence[Group]:
        """Process groups with their collectives."""
        return groups_of(self.calls)

    @cached_property
    def messages(self) -> Sequence[Group]:
        """Pairs of ranks with the messages between them."""
        return groups_of(self.calls, messages=True)

    @cached_property
    def flows(self) -> Mapping[int, Ragged]:
        """The producer of each input, per rank."""
        return {rank: sources(log) for rank, log in self.logs.items()}

    @cached_property
    def cut(self) -> tuple[int, ...]:
        """Ranks whose log ends before the step does."""
        return tuple(rank for rank, log in self.logs.items() if log.complete is False)

    @cached_property
    def sharing(self) -> tuple[tuple[int, ...], ...]:
        """Groups whose members work on one batch: they reduce activations in the forward pass."""
        return self._reducing_forward(_MAX_COUNTS)

    @cached_property
    def perhaps_sharing(self) -> tuple[tuple[int, ...], ...]:
        """Groups whose members may work on one batch: they reduce more than a number in the forward pass."""
        return self._reducing_forward(1)

    def _reducing_forward(self, more_than: int) -> tuple[tuple[int, ...], ...]:
        found = set()
        for rank, calls in self.calls.items():
            phase = self.logs[rank].phase
            for call in calls:
                size = call.numel * (len(call.group) if call.kind == Kind.REDUCE_SCATTER else 1)
                if call.kind.reduces and size > more_than and phase[call.row] == Phase.FORWARD:
                    found.add(call.group)
        return tuple(sorted(group for group in found if len(group) > 1))

    def table(self, rank: int, name: str) -> Mapping[str, Any]:
        """An object of the rank's run info; empty if it is none."""
        found = self.logs[rank].header.run.get(name)
        return found if isinstance(found, dict) else {}

    def digests(self, rank: int, name: str) -> dict[str, int]:
        """Digests by name from the run info: `parameter_digests`, `buffer_digests`, or `end_state`."""
        found = {}
        for key, value in self.table(rank, name).items():
            digest = hex_digest(value[0] if isinstance(value, list) and value else value)
            if digest is not None:
                found[str(key)] = digest
        return found

    @cached_property
    def start(self) -> Mapping[int, Mapping[str, int]]:
        """Per rank, digests of the parameters before the step."""
        return {rank: self.digests(rank, "parameter_digests") for rank in self.logs}

    @cached_property
    def buffers(self) -> Mapping[int, Mapping[str, int]]:
        """Per rank, digests of the buffers before the step."""
        return {rank: self.digests(rank, "buffer_digests") for rank in self.logs}

    @cached_property
    def end(self) -> Mapping[int, Mapping[str, int]]:
        """Per rank, digests of parameters and buffers after the step; none of a log that was cut off."""
        return {rank: {} if rank in self.cut else self.digests(rank, "end_state") for rank in self.logs}

    def batch_tensors(self, rank: int) -> list[Mapping[str, Any]]:
        """Return what the run info says of each tensor that the model is called with."""
        found = self.logs[rank].header.run.get("batch")
        return [tensor for tensor in found if isinstance(tensor, dict)] if isinstance(found, list) else []

    @cached_property
    def batch(self) -> Mapping[int, tuple[str, ...]]:
        """Per rank, digests of the tensors that the model is called with."""
        return {rank: tuple(str(tensor.get("digest")) for tensor in self.batch_tensors(rank)) for rank in self.logs}

    @property
    def with_one_batch(self) -> int:
        """Number of ranks that read the batch of the first one; 1 where the logs do not tell."""
        read = list(self.batch.values())
        return read.count(read[0]) if read and read[0] else 1

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """The ranks by the parameters that they hold; without parameters, all have one role."""
        held: dict[frozenset[str], list[int]] = defaultdict(list)
        for rank in self.logs:
            held[frozenset(self.start[rank])].append(rank)
        return tuple(self._role(ranks) for ranks in held.values())

    @property
    def joined(self) -> Role:
        """All ranks as one role, where some have parameters, as experts, beside those of all; else the first role.

        Those that send each other messages are stages.
        """
        common = frozenset.intersection(*(frozenset(held) for held in self.start.values()))
        if len(self.roles) > 1 and common and not self.messages:
            return self._role(tuple(self.logs))
        return self.roles[0]

    @property
    def numbers_anew(self) -> bool:
        """True if ranks of two roles give one name to other parameters each, as stages do that count from zero."""
        of_roles = [self.start[role.reference] for role in self.roles]
        return any(
            one[name] != other[name]
            for k, one in enumerate(of_roles)
            for other in of_roles[:k]
            for name in one.keys() & other.keys()
        )

    def _role(self, ranks: Sequence[int]) -> Role:
        programs = {rank: _program(self.logs[rank]) for rank in ranks}
        common = Counter(programs.values()).most_common(1)[0][0]
        reference = next(rank for rank in ranks if programs[rank] == common)
        own = np.arange(len(common))
        partner = {r: own if programs[r] == common else _aligned(common, programs[r]) for r in ranks}
        odd = tuple(rank for rank in ranks if programs[rank] != common)
        return Role(tuple(ranks), reference, partner, odd)

    def place(self, rank: int, row: int) -> Place:
        """A record, with what is said of it."""
        log = self.logs[rank]
        return Place(rank, row, log.keys[row], int(log.line[row]), log.location_text(row))

    def finding(
        self,
        check: Check,
        text: str,
        wrong: Iterable[int],
        group: Iterable[int],
        *at: tuple[int, int],
        subject: str = "",
        more: Iterable[str] = (),
        stage: Stage = Stage.PASSES,
        size: float = math.nan,
        notes: Iterable[str] = (),
    ) -> Finding:
        """A finding about records, each a rank and a row (-1 for none); its subject is the first of them by default."""
        places, group = tuple(self.place(rank, row) for rank, row in at if row >= 0), tuple(group)
        return Finding(
            check=check,
            stage=stage,
            text=text,
            subject=subject or places[0].key,
            more=tuple(more),
            ranks=tuple(wrong),
            group=group,
            dimension=self.dimension(group),
            places=places,
            size=size,
            notes=tuple(notes),
        )

    def dimension(self, ranks: Iterable[int]) -> str:
        """The mesh dimension that a group of ranks runs along; empty for none, or several."""
        known = self.run.coordinates or {}
        of = [known.get(rank) for rank in ranks]
        if len(of) < 2 or not all(of):
            return ""
        differ = [name for name in of[0] or () if len({(at or {}).get(name) for at in of}) > 1]
        return differ[0] if len(differ) == 1 else ""


def together(by_rank: Mapping[int, object]) -> list[tuple[int, ...]]:
    """Ranks with equal values, the largest set first; None is equal to nothing."""
    found: dict[object, list[int]] = defaultdict(list)
    for rank, value in by_rank.items():
        found[value if value is not None else (rank,)].append(rank)
    return sorted(map(tuple, found.values()), key=lambda ranks: (-len(ranks), ranks))


def odd_ranks(values: Mapping[int, object]) -> tuple[int, ...]:
    """The ranks whose value is not that of the majority; all if there is none; empty if all agree."""
    sets = together(values)
    if len(sets) < 2:
        return ()
    minority = sets[1:] if len(sets[0]) > len(sets[1]) else sets
    return tuple(sorted(rank for ranks in minority for rank in ranks))


def connected(groups: Iterable[Sequence[int]]) -> list[tuple[int, ...]]:
    """Join groups that share a rank."""
    found: list[set[int]] = []
    for group in groups:
        touching = [ranks for ranks in found if ranks & set(group)]
        found = [ranks for ranks in found if not ranks & set(group)]
        found.append(set(group).union(*touching))
    return sorted(tuple(sorted(ranks)) for ranks in found)


def _program(log: OpLog) -> tuple[str, ...]:
    """The operations of a log, in order. Their modules are found by means that may differ between ranks."""
    ops = log.ops[:]
    return tuple(ops[op] for op in log.op.tolist())


def _aligned(one: Sequence[object], other: Sequence[object]) -> Int64:
    """int64[len(one)], the place of the same operation in `other`, -1 for none.

    Of the places that a run of additional operations can have among equal ones, it has the first.
    """
    kept, partners = np.ones(len(one), bool), np.ones(len(other), bool)
    first = (0, 0)  # of the equal operations before a run, which it goes back over
    for step in Indel.opcodes(one, other):
        if step.tag == "delete":
            kept[slice(*_first_place(one, step.src_start, step.src_end, first[0]))] = False
        elif step.tag == "insert":
            partners[slice(*_first_place(other, step.dest_start, step.dest_end, first[1]))] = False
        first = (step.src_start, step.dest_start) if step.tag == "equal" else (step.src_end, step.dest_end)
    out = np.full(len(one), -1, np.int64)
    out[kept] = np.flatnonzero(partners)
    return out


def _first_place(sequence: Sequence[object], start: int, end: int, first: int) -> tuple[int, int]:
    while start > first and sequence[start - 1] == sequence[end - 1]:
        start, end = start - 1, end - 1
    return start, end
