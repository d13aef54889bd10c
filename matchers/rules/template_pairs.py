"""The pairs that a template makes in two logs, without regard to other rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Int64
from matchers.logs.op_log import Phase
from matchers.rules.key_index import KeyIndex
from matchers.rules.pattern import Pattern

__all__ = ["Group", "Members", "TemplatePairs", "template_pairs"]

Group = tuple[tuple[int, ...], tuple[int, ...]]
"""Rows of a and rows of b that are one operation."""
Phases = NDArray[np.int8]


class Members(NamedTuple):
    """The rows of one side in groups: `row[k]` is in group `group[k]`; group by group."""

    row: Int64
    group: Int64


@dataclass
class TemplatePairs:
    """The pairs of a template; without arguments, those of one that matches nothing.

    Attributes:
        groups: one entry per pair; no row is in two of them.
        instances: operations of a that the template matches.
        missed: those of them without partner.
        missing: (key of a, key it lacks, side of that key) of the first one without partner.
        clash: a message about the first row that two of them lead to; None if there is none.
    """

    groups: list[Group] = field(default_factory=list)
    instances: int = 0
    missed: int = 0
    missing: tuple[str, str, str] | None = None
    clash: str | None = None

    @cached_property
    def members(self) -> tuple[Members, Members]:
        """The rows of a, and of b, by group."""
        out = []
        for side in (0, 1):
            sizes = np.fromiter((len(group[side]) for group in self.groups), np.int64, len(self.groups))
            rows = np.fromiter((row for group in self.groups for row in group[side]), np.int64, int(sizes.sum()))
            out.append(Members(rows, np.repeat(np.arange(len(sizes)), sizes)))
        return out[0], out[1]


def template_pairs(
    patterns: Sequence[Pattern], of_a: int, phase: Phase | None, logs: tuple[tuple[KeyIndex, Phases], ...]
) -> TemplatePairs:
    """All pairs of a template: the k-th operation of a key of a goes with the k-th of the other keys of its place.

    Args:
        patterns: of the keys: first `of_a` of a, then those of b.
        phase: only operations of this phase; None: of all.
        logs: the keys and the phases of a and of b.
    """
    made, used = TemplatePairs(), (set[int](), set[int]())
    sides = [0] * of_a + [1] * (len(patterns) - of_a)
    hopeless = not all(logs[side][0].may_have(pattern) for side, pattern in zip(sides[1:], patterns[1:], strict=True))

    def in_phase(rows: Int64, side: int) -> Int64:
        return rows if phase is None else rows[logs[side][1][rows] == phase]

    for captures, rows in logs[0][0].template(patterns[0]):
        first = in_phase(rows, 0)
        made.instances += len(first)
        if hopeless and made.missing is not None:
            made.missed += len(first)
        elif len(first):
            own, keys = partial(patterns[0].expand, captures), [pattern.expand(captures) for pattern in patterns[1:]]
            further = zip(sides[1:], keys, strict=True)
            found = [first, *(in_phase(logs[side][0].named(key), side) for side, key in further)]
            _pair(made, own, keys, found, of_a, used)
    return made


def _pair(
    made: TemplatePairs,
    own: Callable[[], str],
    keys: Sequence[str],
    found: Sequence[Int64],
    of_a: int,
    used: tuple[set[int], set[int]],
) -> None:
    """Add the pairs of one place, by its further keys and the rows of all; `own`: the key that matches the template."""
    count = min(map(len, found))
    if count < len(found[0]):
        made.missed += len(found[0]) - count
        lacking = [len(rows) for rows in found].index(count)
        made.missing = made.missing or (own(), keys[lacking - 1], "a" if lacking < of_a else "b")
    for rows in zip(*(rows[:count].tolist() for rows in found), strict=True):
        a, b = rows[:of_a], rows[of_a:]
        b_taken = len({*b}) < len(b) or not used[1].isdisjoint(b)
        if b_taken or len({*a}) < len(a) or not used[0].isdisjoint(a):
            made.missed += 1
            side, targets = ("b", keys[of_a - 1 :]) if b_taken else ("a", [own(), *keys[: of_a - 1]])
            made.clash = made.clash or (
                f"is ambiguous: '{own()}' of a and another both map to '{', '.join(targets)}' of {side}"
            )
        else:
            used[0].update(a)
            used[1].update(b)
            made.groups.append((a, b))
