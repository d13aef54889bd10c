"""First causes among operations that cannot be judged by themselves.

Between two results that whole tensors show, ranks compute with shards and partial sums. If the first of these results
agrees and the second is red, the cause is in the stretch between them. Within it the most telling operation is named:
one that only one run has, and has only here; one that reads another tensor that no operation made; or else the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from matchers.arrays import Bool, Float64, Int64
from matchers.causes.red_inputs import marked
from matchers.causes.unpaired_branches import Branches, Side, like
from matchers.logs.op_log import NO_DIGEST, Phase
from matchers.ops.dataflow import downstream
from matchers.ops.laws import in_place, law_of
from matchers.ops.shapes import numel
from matchers.pairing.pairing import Pairing
from matchers.rows import Stretch
from matchers.status import Status
from matchers.verdict.judge import Verdicts
from matchers.verdict.tolerance import EPSILON

__all__ = ["Stretches", "behind_parts"]

_JUMP: Final = 8.0
"""Least factor by which an error exceeds that of all it came from, where a cause lies in between."""
_ENOUGH: Final = 64
"""Fewest elements of a result whose agreement says something about what it was computed from; a loss agrees easily."""
_SAME_SIZE: Final = 0.01
"""Largest relative difference of the norms of a tensor and another of its size."""
_Node = tuple[str, int]
"""A pair as `("", pair)`, an unpaired record as its side and row."""


def behind_parts(side: Side, parts: Bool) -> Bool:
    """bool[n]: the record is unpaired and reads a part, or another such record."""
    alone = side.of < 0
    return alone & downstream(side.flow, np.append(parts, False)[side.of], alone)


@dataclass
class Stretches:
    """The search for first causes behind red pairs that read parts.

    Attributes:
        parts: bool[p], the two sides hold different parts of their tensors.
        red: bool[p]; pairs whose consequences are known to be red.
        consequence: pairs that another red pair, or a first cause found here, explains.
        causes: the operations named as first causes.
        unjudged: by pair, the stretch for which a first cause stands that is not judged itself.
    """

    a: Side
    b: Side
    pairing: Pairing
    verdicts: Verdicts
    parts: Bool
    red: Bool
    consequence: list[int] = field(default_factory=list)
    causes: list[_Node] = field(default_factory=list)
    unjudged: dict[int, Stretch] = field(default_factory=dict)
    _tainted: set[_Node] = field(default_factory=set)

    @cached_property
    def _branches(self) -> Branches:
        return Branches(self.a, self.b)

    def follow(self, pairs: Int64) -> None:
        """Find what made these pairs red, the earliest first."""
        slots, status = self.verdicts.slots, self.verdicts.status
        for pair in pairs[np.argsort(self.pairing.lead_a[pairs], kind="stable")].tolist():
            error, proven = float(self.verdicts.error[pair]), pair in slots and slots[pair].itself
            # another shape or dtype has no size: what is within the tolerance is no part of it
            small = error / _JUMP if math.isfinite(error) else float(self.verdicts.tolerance[pair])
            stretch, received = self._upstream(pair, small)
            if stretch is None or (received > small and math.isfinite(error) and not proven):
                self.consequence.append(pair)
            elif not proven:
                found = self._telling(stretch) or ([] if status[pair] == Status.SHAPE else self._first(stretch))
                for name, record in found[:1]:
                    self.causes.append((name, record))
                    self.consequence.append(pair)
                    if not name and not self.red[record]:
                        self.unjudged[record] = Stretch(pair, len(stretch), self._reads_other(record))
                self._tainted |= stretch

    def _upstream(self, pair: int, small: float) -> tuple[set[_Node] | None, float]:
        """The stretch that leads to a pair, and the largest error that enters it; None if a red pair leads to it."""
        stretch: set[_Node] = set()
        within: set[_Node] = set()
        received = 0.0
        ahead: list[_Node] = [("", pair)]
        while ahead:
            reader = ahead.pop()
            for side, maker in self._makers(reader):
                of = int(side.of[maker])
                node = ("", of) if of >= 0 else (side.name, maker)
                if node in stretch or node in within or of == pair:
                    continue
                if node in self._tainted or (of >= 0 and self.red[of]):
                    return None, 0.0
                if of >= 0 and self._agrees[of]:
                    received = max(received, float(np.nan_to_num(self.verdicts.error[of])))
                elif reader in within or (of >= 0 and self._of_optimizer[of]) or self._kept[side.name][maker]:
                    within.add(node)
                    ahead.append(node)
                elif self._shown[side.name][maker] > small and (of < 0 or self._shown_pair(of) > small):
                    stretch.add(node)
                    ahead.append(node)
        return {node for node in stretch if not node[0] or not self._branches.elsewhere[node[0]][node[1]]}, received

    def _makers(self, node: _Node) -> Iterator[tuple[Side, int]]:
        for side in (self.a, self.b):
            if node[0] not in ("", side.name):
                continue
            records = (node[1],) if node[0] else self.pairing.members(node[1])[side is self.b]
            for record in records:
                for maker in side.flow[record].tolist():
                    if maker >= 0:
                        yield side, maker

    @cached_property
    def _agrees(self) -> Bool:
        status = self.verdicts.status
        return np.asarray((status >= Status.EQUAL) & (status <= Status.CLOSE))

    @cached_property
    def _of_optimizer(self) -> Bool:
        """bool[p]: the optimizer's operations on parts: a whole that none of them exceeds is no cause."""
        of_optimizer = self.a.log.phase[self.pairing.lead_a] == Phase.OPTIMIZER
        return np.asarray((self.verdicts.status == Status.SHARDED) & of_optimizer)

    @cached_property
    def _kept(self) -> dict[str, Bool]:
        """By side, bool[n]: the optimizer keeps the result in a state that does not exceed its whole: a gradient."""
        found = {}
        for side in (self.a, self.b):
            writes = np.zeros(len(side.log), bool)
            writes[list(side.log.texts("Parameter"))] = True
            writes &= np.append(self._of_optimizer, False)[side.of] & in_place(side.log)
            found[side.name] = marked(side.flow.value[writes[side.flow.row] & (side.flow.value >= 0)], len(side.log))
        return found

    @cached_property
    def _shown(self) -> dict[str, Float64]:
        """By side, the least error of a judged result that a record leads to over unjudged ones; inf for none."""
        shows = self._agrees & ~(self.verdicts.bound & (self.verdicts.error > 0))
        error = np.where(shows, np.nan_to_num(self.verdicts.error), np.inf)
        return {side.name: self._least_downstream(side, error) for side in (self.a, self.b)}

    def _least_downstream(self, side: Side, error: Float64) -> Float64:
        log, of = side.log, side.of
        unjudged = ~np.append(self._agrees | self.red, False)[of]
        rounds = np.array([name in EPSILON for name in log.dtypes] + [False])[log.dtype]
        with np.errstate(invalid="ignore"):
            telling = rounds & (numel(log)[log.shape] >= _ENOUGH) & (log.stats[2] < log.stats[3])
        judged = np.where(telling, np.append(error, np.inf)[of], np.inf)
        least = np.full(len(log), np.inf)
        known = np.flatnonzero(side.flow.value >= 0)[::-1]
        # the last first: what a record leads to is then complete
        for row, maker in zip(side.flow.row[known].tolist(), side.flow.value[known].tolist(), strict=True):
            found = min(least[row], judged[row]) if unjudged[row] else judged[row]
            if found < least[maker]:
                least[maker] = found
        return least

    def _shown_pair(self, pair: int) -> float:
        i, j = int(self.pairing.lead_a[pair]), int(self.pairing.lead_b[pair])
        return float(min(self._shown["a"][i], self._shown["b"][j]))

    def _order(self, node: _Node) -> tuple[int, int]:
        """Sort key: the position in a, or of the last paired record before it."""
        if node[0] == "b":
            before = np.flatnonzero(self.b.of[: node[1]] >= 0)
            at = int(self.pairing.lead_a[self.b.of[before[-1]]]) if len(before) else -1
            return at, node[1]
        return (node[1] if node[0] else int(self.pairing.lead_a[node[1]])), -1

    def _telling(self, stretch: set[_Node]) -> list[_Node]:
        """The operations that only one run has, and only here, or that read another tensor; in order."""
        found = [
            node for node in stretch if (self._branches.is_odd(*node) if node[0] else self._reads_other(node[1]) >= 0)
        ]
        return sorted(found, key=self._order)

    def _first(self, stretch: set[_Node]) -> list[_Node]:
        """The operations of the stretch that compute something, in order: pairs, if there are any."""
        computes = [node for node in stretch if not self._passes_on(*node)]
        return sorted([node for node in computes if not node[0]] or computes, key=self._order)

    def _passes_on(self, side: str, record: int) -> bool:
        """True for operations that move numbers and change none."""
        log = self.b.log if side == "b" else self.a.log
        law = law_of(log, record if side else int(self.pairing.lead_a[record]))
        return law.passes_elements or law.communicates

    def _reads_other(self, pair: int) -> int:
        """The place of an input that no operation made and that differs, unlike in other layers; -1 for none."""
        kind = self._kind(pair)
        likes = [k for k in self._alike.get(kind[:3], ()) if self._kind(k)[3] != kind[3]]
        for place, (same, alike) in self._given(pair).items():
            if same:
                continue
            others = [given[place][0] for k in likes if place in (given := self._given(k))]
            if any(others) if others else alike:
                return place
        return -1

    def _kind(self, pair: int) -> tuple[str, str, int, str]:
        return like(self.a.log, int(self.pairing.lead_a[pair]))

    @cached_property
    def _alike(self) -> dict[tuple[str, str, int], list[int]]:
        """The unjudged pairs by module in the layer, op and phase."""
        out: dict[tuple[str, str, int], list[int]] = {}
        for pair in np.flatnonzero(self.parts).tolist():
            out.setdefault(self._kind(pair)[:3], []).append(pair)
        return out

    def _given(self, pair: int) -> dict[int, tuple[bool, bool]]:
        """By place, whether an input that no operation made is bitwise equal, and whether its norm is nearly so."""
        i, j = int(self.pairing.lead_a[pair]), int(self.pairing.lead_b[pair])
        a, b = self.a, self.b
        digests = a.log.input_digests[i], b.log.input_digests[j]
        norms = a.log.inputs[i], b.log.inputs[j]
        made = a.flow[i], b.flow[j]
        out = {}
        for k in range(min(map(len, (*digests, *norms)))):
            if made[0][k] < 0 and made[1][k] < 0 and NO_DIGEST not in (digests[0][k], digests[1][k]):
                x, y = float(norms[0][k]), float(norms[1][k])
                out[k] = digests[0][k] == digests[1][k], abs(x - y) <= _SAME_SIZE * max(abs(x), abs(y))
        return out
