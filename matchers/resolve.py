"""From rules to rows: what each rule means for these two logs, and what is wrong with it.

`resolve` is asked again after every change of the rules, so what a rule means is remembered per log; only rules that
are new are looked up.

Who wins: a pair rule over a template (the special over the general), the earlier over the later of one kind, and a pair
rule over an `apart` rule. Whatever loses is reported.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchers.key_index import KeyIndex, index_of, key_reference, warm
from matchers.op_log import FloatArray, OpLog
from matchers.pattern import Glob, Pattern
from matchers.rules import (
    ApartRule,
    IgnoreRule,
    ModuleRule,
    OpRule,
    PairRule,
    RuleSet,
    Side,
    TemplateRule,
    ToleranceRule,
)

__all__ = ["Forced", "OpGroup", "Resolved", "RuleUsage", "key_reference", "resolve", "warm"]

Mask = NDArray[np.bool_]
Group = tuple[tuple[int, ...], tuple[int, ...]]

_MOST_TEMPLATES: Final = 64


class Forced(NamedTuple):
    """Rows that a rule makes a pair. `rule` is an index into the rules; `template`: it came from a template."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    rule: int
    template: bool


class OpGroup(NamedTuple):
    """Op names that mean the same; several on one side are a chain, in order."""

    a: tuple[str, ...]
    b: tuple[str, ...]
    rule: int


class RuleUsage(NamedTuple):
    """What became of one rule.

    Attributes:
        rule: index into the rules.
        matched: for pairs and templates the pairs made, else the rows it says something about (of both logs).
        problem: a sentence with `path:line`: it matches nothing, is ambiguous, contradicts or repeats another; or None.
        missed: operations of a that a template matches and for which it found no partner.
    """

    rule: int
    matched: int
    problem: str | None
    missed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Resolved:
    """What the rules mean for a and b; rows everywhere.

    Attributes:
        forced: pairs that must be; no row is in two of them.
        apart: (row of a, row of b) that must not be a pair; none of them is within one of `forced`.
        modules_a, modules_b: the name of each entry of `a.modules`, `b.modules` under the rules.
        op_groups: op names that mean the same.
        ignored_a, ignored_b: bool[n_a], bool[n_b].
        rtol_a, rtol_b: float64[n_a], float64[n_b]: relative error that is close enough, NaN where no rule says.
        usage: one per rule, in the order of the rules.
    """

    forced: tuple[Forced, ...]
    apart: tuple[tuple[int, int], ...]
    modules_a: tuple[str, ...]
    modules_b: tuple[str, ...]
    op_groups: tuple[OpGroup, ...]
    ignored_a: Mask
    ignored_b: Mask
    rtol_a: FloatArray
    rtol_b: FloatArray
    usage: tuple[RuleUsage, ...]


def resolve(rules: RuleSet, a: OpLog, b: OpLog) -> Resolved:
    """Looks every rule up in both logs. Deterministic, raises nothing: what is wrong is in `usage`."""
    run = _Run(rules, a, b)
    run.rename_modules()
    run.pair()
    run.keep_apart()
    run.fill_templates()
    run.group_ops()
    run.ignore()
    run.tolerate()
    return run.result()


@dataclass(slots=True)
class _Filled:
    """What a template means for two logs, whatever the other rules say. Kept between calls.

    `flat_a[i]` is a row of a in group `group_a[i]`; the same for b. `forced` is the finished list for rule number
    `rule`, used as long as no other rule takes one of the rows.
    """

    groups: list[Group]
    flat_a: NDArray[np.int64]
    group_a: NDArray[np.int64]
    flat_b: NDArray[np.int64]
    group_b: NDArray[np.int64]
    instances: int
    missed: int
    missing: tuple[str, str] | None
    clash: str | None
    rule: int = -1
    forced: list[Forced] = field(default_factory=list)


class _Run:
    """One call of `resolve`."""

    def __init__(self, rules: RuleSet, a: OpLog, b: OpLog) -> None:
        self.rules = rules
        self.a, self.b = a, b
        self.matched = [0] * len(rules)
        self.missed = [0] * len(rules)
        self.problems: list[list[str]] = [[] for _ in rules]
        self.modules_a, self.modules_b = tuple(a.modules), tuple(b.modules)
        # The number of the rule that has taken a row, -1 for none.
        self.taken_a = np.full(len(a), -1, np.int64)
        self.taken_b = np.full(len(b), -1, np.int64)
        self.forced: list[Forced] = []
        self.apart: dict[tuple[int, int], int] = {}
        self.op_groups: list[OpGroup] = []
        self.ignored_a, self.ignored_b = np.zeros(len(a), bool), np.zeros(len(b), bool)
        self.rtol_a, self.rtol_b = np.full(len(a), np.nan), np.full(len(b), np.nan)
        self._indices: dict[Side, KeyIndex] = {}

    def result(self) -> Resolved:
        usage = tuple(
            RuleUsage(
                number,
                self.matched[number],
                f"{self.rules.where(rule)}: {'; '.join(self.problems[number])}" if self.problems[number] else None,
                self.missed[number],
            )
            for number, rule in enumerate(self.rules)
        )
        return Resolved(
            forced=tuple(self.forced),
            apart=tuple(self.apart),
            modules_a=self.modules_a,
            modules_b=self.modules_b,
            op_groups=tuple(self.op_groups),
            ignored_a=self.ignored_a,
            ignored_b=self.ignored_b,
            rtol_a=self.rtol_a,
            rtol_b=self.rtol_b,
            usage=usage,
        )

    def index(self, side: Side) -> KeyIndex:
        """Made when the first rule needs it: most comparisons have no rules."""
        index = self._indices.get(side)
        if index is None:
            log, modules = (self.a, self.modules_a) if side is Side.A else (self.b, self.modules_b)
            index = self._indices[side] = index_of(log, modules)
        return index

    def report(self, number: int, problem: str) -> None:
        if problem not in self.problems[number]:
            self.problems[number].append(problem)

    def other(self, number: int) -> str:
        """A rule as the subject of a sentence about another."""
        rule = self.rules.rules[number]
        return self.rules.where(rule) if rule.line is None else f"the rule at {self.rules.where(rule)}"

    # Modules

    def rename_modules(self) -> None:
        """Each rule works on what the rules before it made."""
        names = list(self.modules_a)
        counts: NDArray[np.int64] | None = None
        in_b = frozenset(self.modules_b)
        touched: list[tuple[int, list[int]]] = []
        for number, rule in enumerate(self.rules):
            if not isinstance(rule, ModuleRule):
                continue
            source, target = Pattern.of(rule.a), Pattern.of(rule.b)
            renamed: list[int] = []
            for at, name in enumerate(names):
                captures = source.match(name)
                if captures is not None:
                    names[at] = target.expand(captures)
                    renamed.append(at)
            if not renamed:
                self.report(number, f"a has no module '{rule.a}'")
                continue
            if counts is None:
                counts = np.bincount(self.a.module[self.a.module >= 0], minlength=len(names))
            self.matched[number] = int(counts[renamed].sum())
            touched.append((number, renamed))
        for number, renamed in touched:
            if not any(names[at] in in_b for at in renamed):
                self.report(number, f"b has no module of the new names, such as '{names[renamed[0]]}'")
        self.modules_a = tuple(names)

    # Pairs

    def rows_of(self, number: int, side: Side, keys: Sequence[str]) -> tuple[int, ...] | None:
        """One row per key; None when a key names none."""
        out: list[int] = []
        for key in keys:
            rows = self.index(side).find(key)
            if not len(rows):
                self.report(number, self.absent(side, key))
                continue
            if len(rows) > 1:
                self.report(
                    number,
                    f"'{key}' is ambiguous: {side} has {len(rows)} operations of that key; the first is taken "
                    f"(write '{key}#1' to '{key}#{len(rows)}')",
                )
            out.append(int(rows[0]))
        if len(out) < len(keys):
            return None
        if len(set(out)) < len(out):
            self.report(number, f"names the same operation of {side} twice")
            return None
        return tuple(out)

    def absent(self, side: Side, key: str) -> str:
        other = Side.B if side is Side.A else Side.A
        swapped = f" ({other} has: are the sides exchanged?)" if len(self.index(other).find(key)) else ""
        return f"{side} has no operation '{key}'{swapped}"

    def pair(self) -> None:
        made: dict[int, Group] = {}
        by_a: dict[int, int] = {}
        by_b: dict[int, int] = {}
        for number, rule in enumerate(self.rules):
            if not isinstance(rule, PairRule):
                continue
            rows_a, rows_b = self.rows_of(number, Side.A, rule.a), self.rows_of(number, Side.B, rule.b)
            if rows_a is None or rows_b is None:
                continue
            before = [by_a[row] for row in rows_a if row in by_a] + [by_b[row] for row in rows_b if row in by_b]
            if before:
                first = min(before)
                verb = "repeats" if made[first] == (rows_a, rows_b) else "contradicts"
                self.report(number, f"{verb} {self.other(first)}, which goes first")
                continue
            by_a.update(dict.fromkeys(rows_a, number))
            by_b.update(dict.fromkeys(rows_b, number))
            made[number] = (rows_a, rows_b)
            self.forced.append(Forced(rows_a, rows_b, number, template=False))
            self.matched[number] = 1
        if made:
            self.taken_a[list(by_a)] = list(by_a.values())
            self.taken_b[list(by_b)] = list(by_b.values())

    def keep_apart(self) -> None:
        for number, rule in enumerate(self.rules):
            if not isinstance(rule, ApartRule):
                continue
            rows_a, rows_b = self.rows_of(number, Side.A, (rule.a,)), self.rows_of(number, Side.B, (rule.b,))
            if rows_a is None or rows_b is None:
                continue
            pair = (rows_a[0], rows_b[0])
            winner = int(self.taken_a[pair[0]])
            if winner >= 0 and winner == self.taken_b[pair[1]]:
                self.report(number, f"contradicts {self.other(winner)}, which goes first")
            elif pair in self.apart:
                self.report(number, f"repeats {self.other(self.apart[pair])}")
            else:
                self.apart[pair] = number
                self.matched[number] = 1

    # Templates

    def fill_templates(self) -> None:
        pairs = [forced for forced in self.forced if not forced.template]
        for number, rule in enumerate(self.rules):
            if isinstance(rule, TemplateRule):
                filled = self.filled(rule)
                self.missed[number] = filled.missed
                if filled.clash is not None:
                    self.report(number, filled.clash)
                if filled.groups:
                    self.force(number, filled)
                    self.find_needless(number, filled, pairs)
                elif not filled.instances:
                    self.report(number, f"a has no operation '{rule.a}'")
                elif filled.missing is not None:
                    self.report(
                        number,
                        "b has no operation '{1}' for '{0}' of a, and none for the others".format(*filled.missing),
                    )

    def force(self, number: int, filled: _Filled) -> None:
        """Makes the pairs of a template, but for those that other rules decide."""
        free = np.ones(len(filled.groups), bool)
        by_a, by_b = self.taken_a[filled.flat_a], self.taken_b[filled.flat_b]
        free[filled.group_a[by_a >= 0]] = False
        free[filled.group_b[by_b >= 0]] = False
        for row_a, row_b in self.apart:
            for group in filled.group_a[filled.flat_a == row_a].tolist():
                if row_b in filled.groups[group][1]:
                    free[group] = False
        if free.all():
            if filled.rule != number:
                filled.rule = number
                filled.forced = [Forced(rows_a, rows_b, number, template=True) for rows_a, rows_b in filled.groups]
            forced = filled.forced
        else:
            staying = [filled.groups[group] for group in np.flatnonzero(free).tolist()]
            forced = [Forced(rows_a, rows_b, number, template=True) for rows_a, rows_b in staying]
        self.forced += forced
        self.matched[number] = len(forced)
        self.taken_a[filled.flat_a[free[filled.group_a]]] = number
        self.taken_b[filled.flat_b[free[filled.group_b]]] = number
        # Pair rules may take from a template, that is what they are for; templates may not take from each other.
        losers = [int(by) for by in np.unique(np.concatenate((by_a, by_b))) if by >= 0]
        for by in losers:
            if isinstance(self.rules.rules[by], TemplateRule):
                rows = int(np.count_nonzero(by_a == by)) or int(np.count_nonzero(by_b == by))
                self.report(number, f"{self.other(by)} goes first for {rows} of its {len(filled.groups)} pairs")

    def find_needless(self, number: int, filled: _Filled, pairs: list[Forced]) -> None:
        """A pair rule that says what a template says as well can go."""
        for forced in pairs:
            for group in filled.group_a[filled.flat_a == forced.a[0]].tolist():
                if filled.groups[group] == (forced.a, forced.b):
                    self.report(forced.rule, f"is not needed: {self.other(number)} makes this pair too")

    def filled(self, rule: TemplateRule) -> _Filled:
        index_a, index_b = self.index(Side.A), self.index(Side.B)
        cache: dict[tuple[str, tuple[str, ...]], _Filled]
        owner, cache = index_a.cache.get("templates", (None, {}))
        if owner is None or owner() is not index_b:
            cache = {}
            index_a.cache["templates"] = (weakref.ref(index_b), cache)
        key = (rule.a, rule.b)
        filled = cache.get(key)
        if filled is None:
            if len(cache) >= _MOST_TEMPLATES:
                cache.clear()
            filled = cache[key] = _fill(rule, index_a, index_b)
        return filled

    # Ops, ignore, tolerance

    def rows_with_op(self, side: Side, names: Sequence[str]) -> int:
        log = self.a if side is Side.A else self.b
        known = {name: at for at, name in enumerate(log.ops)}
        wanted = [known[name] for name in names if name in known]
        return int(np.isin(log.op, wanted).sum()) if wanted else 0

    def group_ops(self) -> None:
        for number, rule in enumerate(self.rules):
            if not isinstance(rule, OpRule):
                continue
            self.op_groups.append(OpGroup(rule.a, rule.b, number))
            for side, names in ((Side.A, rule.a), (Side.B, rule.b)):
                log = self.a if side is Side.A else self.b
                for name in names:
                    if name not in set(log.ops):
                        self.report(number, f"{side} has no op '{name}'")
                self.matched[number] += self.rows_with_op(side, names)

    def ignore(self) -> None:
        for number, rule in enumerate(self.rules):
            if not isinstance(rule, IgnoreRule):
                continue
            for side, log, ignored in ((Side.A, self.a, self.ignored_a), (Side.B, self.b, self.ignored_b)):
                if rule.side is not None and rule.side is not side:
                    continue
                mask = np.ones(len(log), bool)
                if rule.op is not None:
                    glob = Glob.of(rule.op)
                    # One more for rows without an op, whose number is -1.
                    ops = np.fromiter((*map(glob.match, log.ops), False), bool, len(log.ops) + 1)
                    mask &= ops[log.op]
                if rule.match is not None:
                    mask &= self.index(side).glob(rule.match)
                self.matched[number] += int(mask.sum())
                ignored |= mask
            if not self.matched[number]:
                where = "either log" if rule.side is None else str(rule.side)
                named = ((rule.op, f"op '{rule.op}'"), (rule.match, f"key '{rule.match}'"))
                what = " and ".join(text for value, text in named if value is not None)
                self.report(number, f"matches nothing in {where}: {what}")

    def tolerate(self) -> None:
        seen: list[tuple[int, Mask, Mask]] = []
        for number, rule in enumerate(self.rules):
            if not isinstance(rule, ToleranceRule):
                continue
            mask_a, mask_b = self.index(Side.A).glob(rule.match), self.index(Side.B).glob(rule.match)
            new_a, new_b = mask_a & np.isnan(self.rtol_a), mask_b & np.isnan(self.rtol_b)
            self.rtol_a[new_a] = rule.rtol
            self.rtol_b[new_b] = rule.rtol
            self.matched[number] = int(new_a.sum() + new_b.sum())
            if not self.matched[number]:
                if not (mask_a.any() or mask_b.any()):
                    self.report(number, f"matches nothing in either log: key '{rule.match}'")
                else:
                    before = [n for n, x, y in seen if (x & mask_a).any() or (y & mask_b).any()]
                    self.report(number, f"has no effect: {self.other(before[0])} matches first")
            seen.append((number, mask_a, mask_b))


def _fill(rule: TemplateRule, index_a: KeyIndex, index_b: KeyIndex) -> _Filled:
    """All pairs of a template: the k-th operation of a key of a with the k-th of its key of b."""
    targets = [Pattern.of(b) for b in rule.b]
    source = Pattern.of(rule.a)
    groups: list[Group] = []
    used: dict[int, str] = {}
    missed = instances = 0
    missing: tuple[str, str] | None = None
    clash: str | None = None
    for captures, rows in index_a.template(source):
        instances += len(rows)
        keys = [target.expand(captures) for target in targets]
        found = [index_b.named(key) for key in keys]
        count = min(len(rows), *map(len, found))
        if count < len(rows):
            missed += len(rows) - count
            if missing is None:
                missing = (
                    source.expand(captures),
                    next(k for k, f in zip(keys, found, strict=True) if len(f) == count),
                )
        for group_a, group_b in zip(
            rows[:count].tolist(), zip(*(f[:count].tolist() for f in found), strict=True), strict=True
        ):
            if len(set(group_b)) < len(group_b) or any(row in used for row in group_b):
                missed += 1
                if clash is None:
                    keys_b = ", ".join(keys)
                    clash = f"is ambiguous: '{source.expand(captures)}' of a and another both lead to '{keys_b}' of b"
                continue
            used.update(dict.fromkeys(group_b, keys[0]))
            groups.append(((group_a,), group_b))
    sizes = np.fromiter((len(group_b) for _, group_b in groups), np.int64, len(groups))
    return _Filled(
        groups=groups,
        flat_a=np.fromiter((group_a[0] for group_a, _ in groups), np.int64, len(groups)),
        group_a=np.arange(len(groups)),
        flat_b=np.fromiter((row for _, group_b in groups for row in group_b), np.int64, int(sizes.sum())),
        group_b=np.repeat(np.arange(len(groups)), sizes),
        instances=instances,
        missed=missed,
        missing=missing,
        clash=clash,
    )
