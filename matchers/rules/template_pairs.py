"""The pairs that a template makes in two logs, without regard to other rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Int64
from matchers.logs.op_log import Phase
from matchers.rules.key_index import KeyIndex
from matchers.rules.pattern import Captures, Pattern

__all__ = ["NO_PAIRS", "Group", "TemplatePairs", "template_pairs"]

Group = tuple[tuple[int, ...], tuple[int, ...]]
"""Rows of a and rows of b that are one operation."""
Phases = NDArray[np.int8]


@dataclass(slots=True)
class TemplatePairs:
    """The pairs of a template.

    Attributes:
        groups: one entry per pair; no row is in two of them.
        flat_a, group_a: `flat_a[k]` is a row of a in group `group_a[k]`, group by group.
        flat_b, group_b: the same for b.
        instances: operations of a that the template matches.
        missed: those of them without partner.
        missing: (key of a, key it lacks, side of that key) of the first one without partner.
        clash: a message about the first row that two of them lead to; None if there is none.
    """

    groups: list[Group]
    flat_a: Int64
    group_a: Int64
    flat_b: Int64
    group_b: Int64
    instances: int
    missed: int
    missing: tuple[str, str, str] | None
    clash: str | None


_NO_ROWS = np.zeros(0, np.int64)
NO_PAIRS = TemplatePairs([], _NO_ROWS, _NO_ROWS, _NO_ROWS, _NO_ROWS, 0, 0, None, None)
"""The pairs of a template that matches nothing."""


class _Pairing:
    """The pairs of one template, built place by place."""

    def __init__(
        self,
        of_a: Sequence[Pattern],
        of_b: Sequence[Pattern],
        phase: Phase | None,
        index_a: KeyIndex,
        index_b: KeyIndex,
        phases: tuple[Phases, Phases],
    ) -> None:
        self.phase = phase
        self.index_a, self.index_b = index_a, index_b
        self.phases = phases
        self.source, *self.more_a = of_a
        self.targets = of_b
        self.used_a: set[int] = set()
        self.used_b: set[int] = set()
        self.groups: list[Group] = []
        self.instances = self.missed = 0
        self.missing: tuple[str, str, str] | None = None
        self.clash: str | None = None

    def run(self) -> None:
        """Visit every place: the k-th operation of a key of a goes with the k-th of its other keys."""
        hopeless = not all(map(self.index_a.may_have, self.more_a)) or not all(map(self.index_b.may_have, self.targets))
        for captures, rows in self.index_a.template(self.source):
            first = self.of_phase(rows, 0)
            if len(first) and hopeless and self.missing is not None:
                self.instances += len(first)
                self.missed += len(first)
            elif len(first):
                self.place(captures, first)

    def of_phase(self, rows: Int64, side: int) -> Int64:
        return rows if self.phase is None else rows[self.phases[side][rows] == self.phase]

    def place(self, captures: Captures, first: Int64) -> None:
        self.instances += len(first)
        keys_a = [pattern.expand(captures) for pattern in self.more_a]
        keys_b = [pattern.expand(captures) for pattern in self.targets]
        found_a = [first, *(self.of_phase(self.index_a.named(key), 0) for key in keys_a)]
        found_b = [self.of_phase(self.index_b.named(key), 1) for key in keys_b]
        count = min(map(len, (*found_a, *found_b)))
        if count < len(first):
            self.missed += len(first) - count
            if self.missing is None:
                sides = "a" * len(keys_a) + "b" * len(keys_b)
                lacking = [len(rows) == count for rows in (*found_a[1:], *found_b)].index(True)
                self.missing = (self.source.expand(captures), [*keys_a, *keys_b][lacking], sides[lacking])
        rows_a = zip(*(rows[:count].tolist() for rows in found_a), strict=True)
        rows_b = zip(*(rows[:count].tolist() for rows in found_b), strict=True)
        for group_a, group_b in zip(rows_a, rows_b, strict=True):
            if self.taken(group_a, self.used_a) or self.taken(group_b, self.used_b):
                self.missed += 1
                if self.clash is None:
                    own = self.source.expand(captures)
                    side, keys = ("b", keys_b) if self.taken(group_b, self.used_b) else ("a", [own, *keys_a])
                    self.clash = f"is ambiguous: '{own}' of a and another both map to '{', '.join(keys)}' of {side}"
                continue
            self.used_a.update(group_a)
            self.used_b.update(group_b)
            self.groups.append((group_a, group_b))

    @staticmethod
    def taken(group: tuple[int, ...], used: set[int]) -> bool:
        return len(set(group)) < len(group) or not used.isdisjoint(group)


def template_pairs(
    of_a: Sequence[Pattern],
    of_b: Sequence[Pattern],
    phase: Phase | None,
    index_a: KeyIndex,
    index_b: KeyIndex,
    phases: tuple[Phases, Phases],
) -> TemplatePairs:
    """All pairs of a template, by its patterns; `phases` are the phases of the rows of a and of b."""
    made = _Pairing(of_a, of_b, phase, index_a, index_b, phases)
    made.run()
    flat_a, group_a = _flat([rows for rows, _ in made.groups])
    flat_b, group_b = _flat([rows for _, rows in made.groups])
    return TemplatePairs(
        groups=made.groups,
        flat_a=flat_a,
        group_a=group_a,
        flat_b=flat_b,
        group_b=group_b,
        instances=made.instances,
        missed=made.missed,
        missing=made.missing,
        clash=made.clash,
    )


def _flat(groups: list[tuple[int, ...]]) -> tuple[Int64, Int64]:
    sizes = np.fromiter(map(len, groups), np.int64, len(groups))
    flat = np.fromiter((row for rows in groups for row in rows), np.int64, int(sizes.sum()))
    return flat, np.repeat(np.arange(len(groups)), sizes)
