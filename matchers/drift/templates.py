"""Learn templates from pairs: the common form of all pairs of two module patterns, in the grammar of the rules.

A template is proposed only if *every* operation of a that it would match is paired accordingly. Pairs without a plain
template may still advance in equal steps (`matchers.drift.progressions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from matchers.arrays import Int64
from matchers.drift.pair_names import PairNames, Side, key_text
from matchers.drift.progressions import NO_VALUE, Hole, Steps, progressions
from matchers.drift.suggestion import allowed
from matchers.rules.model import TemplateRule

__all__ = ["Learned", "Learner", "heads"]

Learned = tuple[list[TemplateRule], Int64]
"""Templates, and the positions of the pairs that they make among the given ones."""

_HOLES: Final = "ijklm"
_MAX_COUNTERS: Final = 8
"""Maximum number of templates, one per counter, for a pattern whose counters have no common shift."""


class Learner:
    """Learns templates for pairs; created once per comparison."""

    def __init__(self, names: PairNames) -> None:
        self._names = names
        self._ops = np.int64(max(names.ops, 1))
        a = names.c.a
        known = (names.a.op >= 0) & (a.module >= 0) & (a.counter >= 0)
        self._site = np.where(known, names.a.of_row * self._ops + names.a.op, -1)
        self._sites = np.sort(self._site)
        self._span = np.int64(int(a.counter.max(initial=0)) + 2)
        self._at = self._site * self._span + a.counter
        self._counters = np.sort(self._at)
        self._numbers: dict[tuple[bool, int], _Numbers] = {}

    def learn(self, i: Int64, j: Int64, why: str) -> Learned:
        """Learn templates for the pairs of records (i[k], j[k])."""
        names = self._names
        b = names.c.b
        which = np.arange(len(i))
        usable = (self._site[i] >= 0) & (names.b.op[j] >= 0) & (b.module[j] >= 0) & (b.counter[j] >= 0)
        which, i, j = which[usable], i[usable], j[usable]
        if not len(which):
            return [], which
        site_b = names.b.of_row[j] * self._ops + names.b.op[j]
        code = self._site[i] * (site_b.max() + 1) + site_b
        order = np.argsort(code, kind="stable")
        rules: list[TemplateRule] = []
        covered = [which[:0]]
        for group in np.split(order, np.flatnonzero(np.diff(code[order])) + 1):
            for find in (self._group, self._steps):
                found, rows = find(i[group], j[group], why)
                rules += found
                covered.append(which[group[rows]])
                group = np.delete(group, rows)
                if not len(group):
                    break
        return rules, np.concatenate(covered)

    def _group(self, i: Int64, j: Int64, why: str) -> Learned:
        """Templates for pairs with one module pattern and one op on each side."""
        a, b = self._names.a, self._names.b
        nothing: Learned = [], np.zeros(0, np.int64)
        one, other = int(i[0]), int(j[0])
        found = heads([a.places[m].numbers for m in a.log.module[i]], [b.places[m].numbers for m in b.log.module[j]])
        if found is None:
            return nothing

        def rule(counter_a: str, counter_b: str) -> list[TemplateRule]:
            """The template with these counters; none if it pairs equal names, which is no drift."""
            text_a = key_text(a.place(one).pattern, found[0], counter_a, a.log.op_name(one))
            text_b = key_text(b.place(other).pattern, found[1], counter_b, b.log.op_name(other))
            return allowed(TemplateRule, (text_a,), (text_b,), why) if text_a != text_b else []

        before, after = a.log.counter[i].astype(np.int64), b.log.counter[j].astype(np.int64)
        shift = after - before
        if _constant(shift) and not _constant(before) and len(i) == _count(self._sites, int(self._site[one])):
            rules = rule("{n}", Hole(1, int(shift[0])).text("n"))
            return (rules, np.arange(len(i))) if rules else nothing
        if not found[0] or len(np.unique(before)) > _MAX_COUNTERS:
            return nothing
        rules, covered = nothing[0], [nothing[1]]
        for counter in np.unique(before).tolist():
            rows = np.flatnonzero(before == counter)
            same = _constant(after[rows]) and len(rows) > 1
            if same and len(rows) == _count(self._counters, int(self._at[i[rows[0]]])):
                more = rule(str(counter), str(int(after[rows[0]])))
                rules += more
                covered += [rows] * len(more)
        return rules, np.concatenate(covered)

    def _steps(self, i: Int64, j: Int64, why: str) -> Learned:
        """Templates for pairs with one module pattern and one op on each side that advance in equal steps."""
        names = self._names
        known_a, known_b = self._numbers_of(names.a, int(i[0])), self._numbers_of(names.b, int(j[0]))
        numbers = np.concatenate((known_a.of(i), known_b.of(j)), axis=1)
        rules: list[TemplateRule] = []
        covered = np.zeros(len(i), bool)
        width = known_a.values.shape[1]
        for progression in progressions(numbers, width):
            steps = Steps.of(progression, width)
            led = self._led(steps, known_a, known_b)
            if led is None or covered[progression.rows].all():
                continue
            text_a, text_b = steps.texts(names.a, int(i[0]), names.b, int(j[0]))
            if text_a != text_b and (more := allowed(TemplateRule, (text_a,), (text_b,), why)):
                rules += more
                covered |= np.isin(i, led)
        return rules, np.flatnonzero(covered)

    def _led(self, steps: Steps, known_a: _Numbers, known_b: _Numbers) -> Int64 | None:
        """The records of a that the steps map to a record of b; None unless all of them are paired with it."""
        value = steps.value(known_a.values)
        reached = np.flatnonzero(value != NO_VALUE)
        target = np.stack([hole.fill(value[reached]) for hole in steps.b], axis=1)
        goal = np.array([known_b.at.get(tuple(numbers), -1) for numbers in target.tolist()], np.int64)
        led = known_a.records[reached[goal >= 0]]
        return led if (self._names.c.pairing.partner_of_a[led] == goal[goal >= 0]).all() else None

    def _numbers_of(self, side: Side, record: int) -> _Numbers:
        """The numbers of all operations that share module pattern and op with a record."""
        log, site = side.log, self._site if side.is_a else side.of_row * self._ops + side.op
        key = side.is_a, int(site[record])
        if key not in self._numbers:
            records = np.flatnonzero((site == site[record]) & (log.counter >= 0) & (log.module >= 0))
            numbers = [side.numbers(row) for row in records.tolist()]
            self._numbers[key] = _Numbers(records, np.array(numbers, np.int64).reshape(len(records), -1))
        return self._numbers[key]


@dataclass(frozen=True)
class _Numbers:
    """The numbers in the names of some records, ascending: int64[records, k], the counter last."""

    records: Int64
    values: Int64

    @cached_property
    def at(self) -> dict[tuple[int, ...], int]:
        """Numbers -> the record with them."""
        return dict(zip(map(tuple, self.values.tolist()), self.records.tolist(), strict=True))

    def of(self, records: Int64) -> Int64:
        """The numbers of some of the records."""
        return self.values[self.records.searchsorted(records)]


def heads(of_a: Sequence[tuple[int, ...]], of_b: Sequence[tuple[int, ...]]) -> tuple[list[str], list[str]] | None:
    """Placeholders for the numbers in the module paths of the pairs.

    None if a number of b is no number of a (with a constant shift), or if one of a is missing in b: then several
    operations of a would map to one of b, unless another number of a tells the missing one (`stages.3.layers.3`).
    """
    a = np.array(of_a, np.int64).reshape(len(of_a), -1)
    b = np.array(of_b, np.int64).reshape(len(of_b), -1)
    if a.shape[1] > len(_HOLES):
        return None
    holes: list[str] = []
    used: set[int] = set()
    for k in range(b.shape[1]):
        shifts = b[:, [k]] - a
        constant = np.flatnonzero((shifts == shifts[:1]).all(axis=0)).tolist()
        if not constant:
            return None
        # prefer an unused one, then the one at the same position, then one without shift
        at = min(constant, key=lambda at: (at in used, at != k, shifts[0, at] != 0))
        used.add(at)
        holes.append(Hole(1, int(shifts[0, at])).text(_HOLES[at]))
    captured = [f"{{{name}}}" for name in _HOLES[: a.shape[1]]]
    for k in sorted(set(range(a.shape[1])) - used):
        ahead = a[:, [k]] - a
        # two numbers that never change are tied only if they are one
        tied = [(ahead[0, at] != 0, at) for at in used if _constant(ahead[:, at])]
        tied = [(shifted, at) for shifted, at in tied if not (shifted and _constant(a[:, k]))]
        if not tied:
            return None
        at = min(tied)[1]
        captured[k] = Hole(1, int(ahead[0, at])).text(_HOLES[at])
    return captured, holes


def _constant(values: Int64) -> bool:
    return bool((values == values[0]).all())


def _count(ordered: Int64, value: int) -> int:
    """Number of occurrences of a value in a sorted column."""
    return int(ordered.searchsorted(value, "right") - ordered.searchsorted(value))
