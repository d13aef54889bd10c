"""Branches of operations that only one run has: where in them a difference begins.

A red row that reads such a branch names its last operation. More telling is one whose like in other layers has a
partner, or else the first on the way that reads a result which the other run has, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from matchers.arrays import Bool, Int64, columns
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog
from matchers.ops.laws import law_of
from matchers.ops.micro_batches import of_other_ranks
from matchers.ops.module_path import canonical, template
from matchers.verdict.tolerance import EPSILON

__all__ = ["Branches", "Side", "like"]

_MAX_OPERATIONS: Final = 4096
"""Operations of a branch that are followed."""


@columns
class Side:
    """One log: its records, their pairs (-1: none), and the producers of their inputs."""

    name: str
    log: OpLog
    of: Int64
    flow: Ragged


class Branches:
    """The unpaired operations of both logs."""

    def __init__(self, a: Side, b: Side) -> None:
        self._sides = {side.name: side for side in (a, b)}

    def start(self, *ends: tuple[str, int]) -> tuple[str, int]:
        """The operation with which the branches to some unpaired records begin to differ, as its side and record."""
        found = [(name, record) for name, end in ends for record in sorted(self._branch(self._sides[name], end))]
        found = [node for node in found if node in ends or self._ends_in(node, found)]
        odd = [node for node in found if self.is_odd(*node)]
        # whole numbers and masks are prepared, perhaps for nothing, until an operation combines them
        computing = (node for node in odd if self._sides[node[0]].log.dtype_text(node[1]) in EPSILON)
        if odd:
            return next(computing, odd[-1])
        name, end = ends[0]
        return name, next((r for n, r in found if n == name and self._reads_paired(self._sides[name], r)), end)

    def is_odd(self, name: str, record: int) -> bool:
        """True for an unpaired operation with inputs that moves nothing, and whose like in other layers is paired."""
        log = self._sides[name].log
        law = law_of(log, record)
        if self.elsewhere[name][record]:
            return False
        if law.moves or law.communicates or not log.inputs.count[record]:
            return False
        module, op, phase, place = like(log, record)
        prepares = log.dtype_text(record) not in EPSILON  # a mask; outside of layers nothing tells which is odd
        return len(self._places[name, module, op, phase]) == 1 and (bool(place) or not prepares)

    @cached_property
    def elsewhere(self) -> dict[str, Bool]:
        """By side, bool[n]: records of micro-batches that other ranks of the other run have computed."""
        a, b = self._sides["a"], self._sides["b"]
        return {side.name: of_other_ranks(side.log, other.log, side.of >= 0) for side, other in ((a, b), (b, a))}

    def _branch(self, side: Side, end: int) -> set[int]:
        """The unpaired records that lead to an unpaired one over unpaired ones, itself included.

        Copies that activation checkpointing computes again branch off nothing; other logs than ours do not tell them.
        """
        found, left = {end}, [end] if side.log.ours else []
        while left and len(found) < _MAX_OPERATIONS:
            makers = side.flow[left.pop()].tolist()
            new = {m for m in makers if m >= 0 and side.of[m] < 0 and not side.log.recompute[m]} - found
            found |= new
            left += new
        return found

    def _ends_in(self, node: tuple[str, int], branches: Sequence[tuple[str, int]]) -> bool:
        """False for an operation that unpaired ones of other branches read, too: a mask of all layers."""
        name, record = node
        side = self._sides[name]
        readers = side.flow.row[side.flow.value == record]
        phase = side.log.phase
        readers = readers[(side.of[readers] < 0) & ~side.log.recompute[readers] & (phase[readers] == phase[record])]
        return all((name, reader) in branches for reader in readers.tolist())

    @staticmethod
    def _reads_paired(side: Side, record: int) -> bool:
        makers = side.flow[record]
        return bool((side.of[makers[makers >= 0]] >= 0).any())

    @cached_property
    def _places(self) -> dict[tuple[str, str, str, int], set[str]]:
        """The layers of unpaired operations, by side, module in the layer, op and phase."""
        out: dict[tuple[str, str, str, int], set[str]] = {}
        for side in self._sides.values():
            for record in np.flatnonzero(side.of < 0).tolist():
                module, op, phase, place = like(side.log, record)
                out.setdefault((side.name, module, op, phase), set()).add(place)
        return out


def like(log: OpLog, record: int) -> tuple[str, str, int, str]:
    """The module within its layer, op, phase, and the layer."""
    split = template(canonical(log.module_name(record)))
    return split.pattern, log.op_name(record), int(log.phase[record]), split.place
