"""The way of each gradient from the backward pass to the optimizer: how it was reduced over ranks, and scaled."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from matchers.laws.law import Form, Kind
from matchers.logs.columns import Ragged
from matchers.logs.op_log import NO_DIGEST, OpLog, Phase
from matchers.ops.last_contents import GRADIENT
from matchers.ops.laws import law_of, rows_where
from matchers.ops.placement import is_pending
from matchers.ops.values import written
from matchers.runs.calls import Call
from matchers.runs.finding import Check, Finding, Made, Unmade, listed, made_on
from matchers.runs.rank_logs import RankLogs, connected

__all__ = ["NOT_NAMED", "Gradients", "Way", "check_odd_one_out"]

NOT_NAMED = "the logs do not name the gradients that the optimizer reads"

_NUMBER = re.compile(r"\d+")
_MAX_STEPS = 64
_SAME_SCALE = 0.05
"""Relative difference from which two scales differ: rounding in bfloat16 stays far below it."""


@dataclass(frozen=True, slots=True)
class Way:
    """Way of a gradient to the optimizer, on one rank.

    Attributes:
        reductions: (`all_reduce` or `reduce_scatter`, the ranks), in order; a mean is a sum and a scale.
        scale: the factor by which operations on the way have scaled it; NaN if unknown.
        source: the row that it began at, an operation of the backward pass or a bucket; -1 if it could not be followed
            so far.
        read: the row of the optimizer that reads it.
        digest: of the gradient as it was reduced, or made if it was not; before it was clipped. None if unknown.
        pending: it began as a DTensor whose placement says that a sum is pending, and is reduced when that is wanted.
    """

    reductions: tuple[tuple[str, tuple[int, ...]], ...]
    scale: float
    source: int
    read: int
    digest: int | None
    pending: bool = False

    @property
    def row(self) -> int:
        """The operation that made the gradient, else that which reads it."""
        return self.source if self.source >= 0 else self.read

    def scaled_like(self, other: Way) -> bool:
        """True if both were scaled alike, or if it is unknown."""
        known = math.isfinite(self.scale) and math.isfinite(other.scale)
        return not known or math.isclose(self.scale, other.scale, rel_tol=_SAME_SCALE)

    @property
    def told(self) -> str:
        """The way in words: `reduced over ranks 0–3, scaled by 0.25`."""
        told = [f"reduced over ranks {listed(ranks)}" for _, ranks in self.reductions] or ["not reduced"]
        if math.isfinite(self.scale) and not math.isclose(self.scale, 1.0, rel_tol=_SAME_SCALE):
            told.append(f"scaled by {self.scale:.3g}")
        return ", ".join(told)


@dataclass(frozen=True)
class Gradients:
    """The gradients of all ranks."""

    ranks: RankLogs
    _ways: dict[int, dict[str, Way]] = field(default_factory=dict, repr=False)

    def ways(self, rank: int) -> Mapping[str, Way]:
        """The ways on one rank, by the name of the parameter."""
        if rank not in self._ways:
            calls = {call.row: call for call in self.ranks.calls[rank]}
            tracer = _Tracer(self.ranks.logs[rank], self.ranks.flows[rank], calls)
            self._ways[rank] = {name: tracer.way(*read) for name, read in tracer.reads.items()}
        return self._ways[rank]

    @cached_property
    def kinds(self) -> Sequence[tuple[str, ...]]:
        """Parameters that are placed alike: as DTensors, else equal on the same sets of ranks."""
        found: dict[object, list[str]] = {}
        for role in self.ranks.roles:
            for name in self.ranks.start[role.reference]:
                found.setdefault((role.ranks, self._kind(role.ranks, name)), []).append(name)
        return [tuple(names) for names in found.values()]

    def _kind(self, ranks: Sequence[int], name: str) -> object:
        placement = self.ranks.table(ranks[0], "parameter_placements").get(name)
        if isinstance(placement, dict):
            return f"{placement.get('mesh')} {placement.get('placements')}"
        digests = [self.ranks.start[rank].get(name) for rank in ranks]
        first: dict[object, int] = {}
        return tuple(first.setdefault(digest, at) for at, digest in enumerate(digests))

    @cached_property
    def _usual(self) -> Mapping[str, Sequence[tuple[int, ...]]]:
        """By parameter, the sets of ranks over which the gradients of its kind are all-reduced."""
        found: dict[str, Sequence[tuple[int, ...]]] = {}
        for names in self.kinds:
            groups: set[tuple[int, ...]] = set()
            for rank in self.ranks.logs:
                ways = [way.reductions for name in names if (way := self.ways(rank).get(name)) is not None]
                usual, many = Counter(ways).most_common(1)[0] if ways else ((), 0)
                if 2 * many > len(ways):
                    groups |= {members for kind, members in usual if kind == Kind.ALL_REDUCE}
            for name in names:
                found[name] = connected(groups)
        return found

    def reduced_over(self, name: str) -> list[tuple[int, ...]]:
        """The sets of ranks over which the gradients of this kind of parameter are all-reduced."""
        return list(self._usual.get(name, ()))


@dataclass
class _Step:
    """A place on the way of a gradient, from the optimizer back.

    Attributes:
        name: of the gradient.
        row, content: what reads it here, and the digest that it has.
        maker: the record that made it; -1 if unknown.
        scale, reductions: so far, the last first.
        size: of the reduced bucket that it is in, -1 for none.
        result, reader: the collective that gave the bucket, and what reads its part of it.
        reduced: its digest as it was reduced; None if unknown.
    """

    name: str
    row: int
    content: int | None
    scale: float
    maker: int = -1
    reductions: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    size: int = -1
    result: int = -1
    reader: int = -1
    reduced: int | None = None


class _Tracer:
    """Follows gradients back from the optimizer in one log."""

    def __init__(self, log: OpLog, makers: Ragged, calls: Mapping[int, Call]):
        self._log, self._makers, self._calls = log, makers, calls
        self._names = {row: text.split(";") for row, text in log.texts("Parameter").items()}
        self._placements = log.texts("Placement")

    @cached_property
    def reads(self) -> dict[str, tuple[str, int, int]]:
        """Parameter → (name, row, slot) of the first operation of the optimizer that reads its gradient."""
        found: dict[str, tuple[str, int, int]] = {}
        for row in sorted(self._names):
            if self._log.phase[row] == Phase.OPTIMIZER:
                for slot, name in enumerate(self._names[row]):
                    if name.endswith(GRADIENT):
                        found.setdefault(name.removesuffix(GRADIENT), (name, row, slot))
        return found

    def way(self, name: str, row: int, slot: int) -> Way:
        """Follow a gradient, by its own name, back from where it is read."""
        log = self._log
        # what scales an empty shard has no norms, and no place in the data flow
        at = _Step(name, row, self._digest(row, slot), scale=math.nan if math.isnan(self._l1(row, slot)) else 1.0)
        if law_of(log, row).communicates:
            # the optimizer itself reduces it, and what it then reads is the result
            at.content, at.maker = int(log.digests[row][0]) if len(log.digests[row]) else None, row
        else:
            at.maker = self._maker(row, slot)
        for _ in range(_MAX_STEPS):
            before = self._slot_before(at) if at.maker >= 0 else None
            if before is None:
                break
            at.content = self._digest(at.maker, before) if before >= 0 else at.content
            at.row, at.maker = at.maker, self._maker(at.maker, before)
        if at.maker >= 0 and log.updates[at.maker] and not at.reductions:
            at.maker, at.scale = -1, math.nan  # something else is done to it: what was before is not known
        pending = is_pending(self._placements.get(at.maker, ""))
        content = at.content if at.reduced is None else at.reduced
        return Way(tuple(reversed(at.reductions)), at.scale, at.maker, row, content, pending)

    def _slot_before(self, at: _Step) -> int | None:
        """The input of the maker that was the gradient before; -1 if it is not known, None if it begins there."""
        log, maker = self._log, at.maker
        law, call, many = law_of(log, maker), self._calls.get(maker), len(log.inputs[maker])
        if law.communicates and at.result < 0:
            at.result, at.reader = maker, at.row
            at.reduced = at.content if at.reduced is None else at.reduced
        if call is not None:
            at.reductions.append((call.kind, call.group))
            at.scale /= len(call.group) if call.reduces == "avg" else 1
            at.size = call.numel * (len(call.group) if call.kind == Kind.REDUCE_SCATTER else 1)
            return many - 1 if law.in_place else 0
        if at.size >= 0 and int(log.counts[0, maker]) not in (at.size, -1):
            return None  # one of the tensors that a bucket was made of
        if law.form is Form.FILL or (law.form is Form.ADD and law.in_place and not law.on_lists):
            # of a gradient that is accumulated, the way of what came last is followed
            return 1 if self._maker(maker, 1) >= 0 else 0
        if law.copies or law.waits:
            return 0
        if law.form is Form.JOIN and at.result >= 0:
            slot = self._place_in_bucket(at.result, at.reader, many)
            at.size, at.result = -1, -1
            return None if slot < 0 else slot
        if not law.scales or not (law.on_lists or self._is_scaled(maker)) or self._derives(maker):
            return None
        slot = self._same_slot(maker, at.name, at.content) if law.on_lists else 0
        after = self._l1_after(maker, slot) if law.on_lists else float(log.outputs.first(np.array([maker]))[0])
        at.scale *= _ratio(after, self._l1(maker, slot))
        return slot

    def _place_in_bucket(self, result: int, reader: int, many: int) -> int:
        """The tensor of a bucket that a gradient was: its place among those that are read from the reduced bucket."""
        readers = np.unique(self._makers.row[self._makers.value == result])
        return int(np.searchsorted(readers, reader)) if len(readers) == many else 0 if many == 1 else -1

    def _maker(self, row: int, slot: int) -> int:
        makers = self._makers[row]
        return int(makers[slot]) if 0 <= slot < len(makers) else -1

    def _l1(self, row: int, slot: int) -> float:
        inputs = self._log.inputs[row]
        return float(inputs[slot]) if 0 <= slot < len(inputs) else math.nan

    def _digest(self, row: int, slot: int) -> int | None:
        digests = self._log.input_digests[row]
        return int(digests[slot]) if slot < len(digests) and digests[slot] != NO_DIGEST else None

    def _same_slot(self, row: int, name: str, content: int | None) -> int:
        """The slot of an operation on lists that has this gradient: by its name, else by what it holds afterwards."""
        names = self._names.get(row, [])
        if name in names:
            return names.index(name)
        return next((k for k, result in written(self._log, row).items() if result.digest == content), -1)

    def _l1_after(self, row: int, slot: int) -> float:
        result = written(self._log, row).get(slot)
        return math.nan if result is None else result.l1

    def _derives(self, row: int) -> bool:
        """True for the derivative of a factor in the model, which the same line of it has in the forward pass."""
        if self._log.phase[row] != Phase.BACKWARD:
            return False
        factors = self._factors.get(self._place(row), [])
        return any(math.isclose(self._scaling(row), factor, rel_tol=_SAME_SCALE) for factor in factors)

    @cached_property
    def _factors(self) -> dict[tuple[int, int], list[float]]:
        """Place, as of `_place` → the factors by which the forward pass scales there."""
        log, found = self._log, dict[tuple[int, int], list[float]]()
        scales = (log.phase == Phase.FORWARD) & (log.location >= 0) & rows_where(log, lambda law: law.scales)
        for row in np.flatnonzero(scales).tolist():
            found.setdefault(self._place(row), []).append(self._scaling(row))
        return found

    def _place(self, row: int) -> tuple[int, int]:
        return int(self._log.module[row]), int(self._log.location[row])

    def _scaling(self, row: int) -> float:
        return _ratio(float(self._log.outputs.first(np.array([row]))[0]), self._l1(row, 0))

    def _is_scaled(self, row: int) -> bool:
        """True for a product with a scalar: the second input, if it is a tensor, was made of a single number.

        In the backward pass the product of two single numbers is a derivative as likely.
        """
        if len(self._log.inputs[row]) < 2:
            return True
        other, size = self._maker(row, 1), int(self._log.counts[0, row])
        alike = size == 1 and self._log.phase[row] == Phase.BACKWARD
        return other >= 0 and int(self._log.counts[0, other]) == 1 and not alike


def _ratio(after: float, before: float) -> float:
    return after / before if before else math.nan


def check_odd_one_out(gradients: Gradients) -> Iterator[Finding | Made | Unmade]:
    """Yield the parameters whose gradient is reduced or scaled otherwise than most of their kind.

    The scale is compared among gradients that are reduced over the same ranks; the ranks among shards that are placed
    alike, else among parameters of one name but for the numbers in it, since activations may be divided in other ways.
    """
    ranks = gradients.ranks
    odd: dict[str, list[tuple[int, Way, Way, int]]] = {}
    followed: set[str] = set()
    for names in gradients.kinds:
        for rank in ranks.logs:
            ways = {name: way for name in names if (way := gradients.ways(rank).get(name)) is not None}
            followed |= set(ways)
            placement = ranks.table(rank, "parameter_placements").get(names[0])
            shards = isinstance(placement, dict) and "Shard" in str(placement.get("placements"))
            for name, usual, many in _odd(ways, shards=shards):
                odd.setdefault(name, []).append((rank, ways[name], usual, many))
    for name, on in odd.items():
        rank, way, usual, many = on[0]
        unlike = way.reductions == usual.reductions
        yield ranks.finding(
            Check.ODD_ONE_OUT,
            f"gradient {'scaled unlike' if unlike else 'reduced over other ranks than'} {many:,} others",
            dict.fromkeys(rank for rank, *_ in on),
            sorted({member for _, w, *_ in on for _, members in w.reductions for member in members}),
            (rank, way.row),
            subject=name,
            size=abs(way.scale / usual.scale - 1) if unlike else math.nan,
            notes=[f"it is {way.told}; the others are {usual.told}"],
        )
    yield made_on(Check.ODD_ONE_OUT, len(followed), "gradients", NOT_NAMED)


def _odd(ways: Mapping[str, Way], *, shards: bool) -> Iterator[tuple[str, Way, int]]:
    """Yield (parameter, the way of most, how many those are) for parameters that differ from most."""
    alike: dict[object, dict[str, Way]] = {}
    for name, way in ways.items():
        alike.setdefault(way.reductions, {})[name] = way
    for of in alike.values():
        yield from _minority(of, Way.scaled_like)
    named: dict[object, dict[str, Way]] = {}
    for name, way in ways.items():
        named.setdefault("" if shards else _NUMBER.sub("#", name), {})[name] = way
    for of in named.values():
        whole = {name: way for name, way in of.items() if way.source >= 0 and not way.pending}
        if whole:
            yield from _minority(whole, lambda one, other: one.reductions == other.reductions)


def _minority(ways: Mapping[str, Way], like: Callable[[Way, Way], bool]) -> Iterator[tuple[str, Way, int]]:
    many = {name: sum(like(way, other) for other in ways.values()) for name, way in ways.items()}
    usual = max(ways, key=lambda name: many[name])
    if many[usual] > max(2, len(ways) / 2):
        for name, way in ways.items():
            if not like(way, ways[usual]):
                yield name, ways[usual], many[usual]
