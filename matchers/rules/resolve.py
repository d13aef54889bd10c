"""Resolve rules to rows of two logs, and report rules that fail, conflict or are redundant.

`resolve` runs again after every change of the rules, so the meaning of a rule is cached per log; only new rules are
looked up.

Precedence: a pair rule over a template (the special over the general), the earlier over the later of one kind, and a
pair rule over an `apart` rule. Overridden rules are reported; a redundant rule gets a hint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from matchers.arrays import Bool, Float64, Int32, Int64
from matchers.logs.op_log import OpLog, Phase
from matchers.rules.key_index import key_reference, warm
from matchers.rules.lookup import Lookup, first_rules, in_phase, tell_rows
from matchers.rules.model import (
    ApartRule,
    IgnoreRule,
    LayoutRule,
    ModuleRule,
    OpRule,
    PairRule,
    RuleSet,
    Side,
    TemplateRule,
    ToleranceRule,
)
from matchers.rules.pattern import Pattern, canonical
from matchers.rules.template_pairs import Group, TemplatePairs, template_pairs
from matchers.rules.text_index import TextIndex

__all__ = ["Forced", "OpGroup", "Resolved", "RuleUsage", "key_reference", "resolve", "warm"]


class Forced(NamedTuple):
    """Rows that a rule pairs. `rule` is an index into the rules; `template`: the rule is a template."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    rule: int
    template: bool


class OpGroup(NamedTuple):
    """Equivalent op names; several on one side are a chain, in order."""

    a: tuple[str, ...]
    b: tuple[str, ...]
    rule: int
    phase: Phase | None = None


class RuleUsage(NamedTuple):
    """The effect of one rule.

    Attributes:
        rule: index into the rules.
        matched: pairs made by pairs and templates, else the rows affected (of both logs).
        problem: a sentence with `path:line` (it matches nothing, is ambiguous, contradicts or repeats another); or
            None.
        missed: operations of a that a template matches without finding a partner.
        hint: a sentence with `path:line`: the rule is valid but changes nothing; or None. A rule with a problem has no
            hint.
    """

    rule: int
    matched: int
    problem: str | None
    missed: int = 0
    hint: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Resolved:
    """The rules resolved to rows of a and b.

    Attributes:
        forced: required pairs; no row is in two of them.
        apart: forbidden pairs (row of a, row of b); none is within one of `forced`.
        modules_a, modules_b: the name of each entry of `a.modules`, `b.modules` under the rules.
        op_groups: equivalent op names.
        excluded_a, excluded_b: int32[n_a], int32[n_b]: the number of the first rule that ignores each row, -1 for none.
        tolerance_a, tolerance_b: int64[n_a], int64[n_b]: index of the first matching tolerance rule of each row; the
            number of rules if there is none.
        tolerances: float64[rules + 1], relative error by that index; NaN for other rules.
        usage: one entry per rule, in rule order.
        overriding: indices of rules that override others; removing one would change more than its own rows.
        apart_rules: the index of the rule behind each entry of `apart`.
        repeated: index of a pair rule -> that of the template that makes the same pair.
    """

    forced: tuple[Forced, ...]
    apart: tuple[tuple[int, int], ...]
    modules_a: tuple[str, ...]
    modules_b: tuple[str, ...]
    op_groups: tuple[OpGroup, ...]
    excluded_a: Int32
    excluded_b: Int32
    tolerance_a: Int64
    tolerance_b: Int64
    tolerances: Float64
    usage: tuple[RuleUsage, ...]
    overriding: frozenset[int]
    apart_rules: tuple[int, ...]
    repeated: Mapping[int, int]

    @property
    def ignored_a(self) -> Bool:
        """bool[n_a]: some rule ignores the row."""
        return self.excluded_a >= 0

    @property
    def ignored_b(self) -> Bool:
        """bool[n_b]: some rule ignores the row."""
        return self.excluded_b >= 0

    def pairs_of_rule(self, rule: int) -> int:
        """Number of pairs that a rule makes, or the template that repeats it."""
        return self.usage[self.repeated.get(rule, rule)].matched

    def rtol(self, i: Int64, j: Int64) -> Float64:
        """float64 per pair (i[k], j[k]): tolerance of the first rule that matches either row; NaN without one."""
        return np.asarray(self.tolerances[np.minimum(self.tolerance_a[i], self.tolerance_b[j])])


def resolve(rules: RuleSet, a: OpLog, b: OpLog) -> Resolved:
    """Resolve every rule in both logs. Deterministic, raises nothing: problems are in `usage`."""
    run = _Run(rules, a, b)
    run.rename_modules()
    run.pair()
    run.keep_apart()
    run.fill_templates()
    run.group_ops()
    first_rules(run, LayoutRule)
    tell_rows(run)
    return run.result()


class _Filled(NamedTuple):
    """The pairs of a template as they are if no other rule takes one of the rows."""

    pairs: TemplatePairs
    forced: dict[int, list[Forced]]
    """By the number of the rule."""


class _Run(Lookup):
    """One call of `resolve`."""

    def __init__(self, rules: RuleSet, a: OpLog, b: OpLog) -> None:
        super().__init__(rules, a, b)
        self.missed = [0] * len(rules)
        self.overriding: set[int] = set()
        self.repeated: dict[int, int] = {}
        self.is_pair = np.array([isinstance(rule, PairRule) for rule in rules] + [False])
        # The number of the rule that claims a row, -1 for none.
        self.taken_a = np.full(len(a), -1, np.int64)
        self.taken_b = np.full(len(b), -1, np.int64)
        self.forced: list[Forced] = []
        self.apart: dict[tuple[int, int], int] = {}
        # The same by row of a, and which rows of a have any.
        self.apart_of: dict[int, list[tuple[int, int]]] = {}
        self.kept_apart = np.zeros(len(a), bool)
        self.op_groups: list[OpGroup] = []

    def result(self) -> Resolved:
        excluded_a, excluded_b = (
            np.where(first < len(self.rules), first, -1).astype(np.int32) for first in first_rules(self, IgnoreRule)
        )
        tolerance_a, tolerance_b = first_rules(self, ToleranceRule)
        tolerances = [rule.rtol if isinstance(rule, ToleranceRule) else np.nan for rule in self.rules]
        usage = tuple(
            RuleUsage(
                number,
                self.matched[number],
                self.sentence(number, self.problems[number]),
                self.missed[number],
                None if self.problems[number] else self.sentence(number, [*filter(None, [self.hints.get(number)])]),
            )
            for number in range(len(self.rules))
        )
        return Resolved(
            forced=tuple(self.forced),
            apart=tuple(self.apart),
            modules_a=self.modules_a,
            modules_b=self.modules_b,
            op_groups=tuple(self.op_groups),
            excluded_a=excluded_a,
            excluded_b=excluded_b,
            tolerance_a=tolerance_a,
            tolerance_b=tolerance_b,
            tolerances=np.array([*tolerances, np.nan]),
            usage=usage,
            overriding=frozenset(self.overriding),
            apart_rules=tuple(self.apart.values()),
            repeated=self.repeated,
        )

    def sentence(self, number: int, findings: Sequence[str]) -> str | None:
        return f"{self.rules.where(self.rules.rules[number])}: {'; '.join(findings)}" if findings else None

    # Modules

    def rename_modules(self) -> None:
        """Apply the module rules in order, each to the result of the previous ones."""
        if not self.rules.in_force(ModuleRule):
            return
        names = list(self.modules_a)
        logged = present = TextIndex(names)
        # The rule that gave a module its present name, -1 for the log.
        renamed_by = [-1] * len(names)
        counts = np.bincount(self.a.module[self.a.module >= 0], minlength=len(names))
        stale = False
        in_b = frozenset(self.modules_b)
        touched: list[tuple[int, list[int]]] = []
        for number, rule in self.rules.in_force(ModuleRule):
            source, target = Pattern.of(rule.a), Pattern.of(rule.b)
            matching = present.matching(source)
            renamed = list(matching)
            if source.parts != target.parts:
                for at, captures in matching.items():
                    name, names[at] = names[at], target.expand(captures)
                    if names[at] != name:
                        renamed_by[at] = number
                        stale = True
            if not renamed:
                first = next((renamed_by[at] for at in logged.matching(source)), -1)
                lost = f"has no effect: {self.other(first)} renames these modules first" if first >= 0 else ""
                self.report(number, lost or f"a has no module '{rule.a}'")
                continue
            if stale:
                present, stale = TextIndex(names), False
            self.matched[number] = int(counts[renamed].sum())
            if number in renamed_by:
                touched.append((number, renamed))
            else:
                self.report(number, "has no effect: the new names equal the old ones")
        for number, renamed in touched:
            if not any(names[at] in in_b for at in renamed):
                self.report(number, f"b has no module with the new names, such as '{names[renamed[0]]}'")
        self.modules_a = tuple(names)

    # Pairs

    def rows_of(self, number: int, side: Side, keys: Sequence[str]) -> tuple[int, ...] | None:
        """One row per key; None if a key has none."""
        out: list[int] = []
        for key in keys:
            rows = self.index(side).find(key)
            if not len(rows):
                self.report(number, self.absent(side, key))
                continue
            if len(rows) > 1:
                self.report(
                    number,
                    f"'{key}' is ambiguous: {side} has {len(rows):,} operations with that key; using the first "
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
        swapped = f" ({other} has it: are the sides swapped?)" if len(self.index(other).find(key)) else ""
        return f"{side} has no operation '{key}'{swapped}"

    def pair(self) -> None:
        made: dict[int, Group] = {}
        for number, rule in self.rules.in_force(PairRule):
            rows_a, rows_b = self.rows_of(number, Side.A, rule.a), self.rows_of(number, Side.B, rule.b)
            if rows_a is None or rows_b is None:
                continue
            claims = *self.taken_a[list(rows_a)].tolist(), *self.taken_b[list(rows_b)].tolist()
            if before := [claim for claim in claims if claim >= 0]:
                first = min(before)
                repeats = made[first] == (rows_a, rows_b)
                if not repeats:
                    self.overriding.update(before)
                self.report(
                    number, f"{'repeats' if repeats else 'contradicts'} {self.other(first)}, which takes precedence"
                )
                continue
            self.taken_a[list(rows_a)], self.taken_b[list(rows_b)] = number, number
            made[number] = (rows_a, rows_b)
            self.forced.append(Forced(rows_a, rows_b, number, template=False))
            self.matched[number] = 1

    def keep_apart(self) -> None:
        for number, rule in self.rules.in_force(ApartRule):
            rows_a, rows_b = self.rows_of(number, Side.A, (rule.a,)), self.rows_of(number, Side.B, (rule.b,))
            if rows_a is None or rows_b is None:
                continue
            pair = (rows_a[0], rows_b[0])
            winner = int(self.taken_a[pair[0]])
            if winner >= 0 and winner == self.taken_b[pair[1]]:
                self.overriding.add(winner)
                self.report(number, f"contradicts {self.other(winner)}, which takes precedence")
            elif pair in self.apart:
                self.report(number, f"repeats {self.other(self.apart[pair])}")
            else:
                self.apart[pair] = number
                self.apart_of.setdefault(pair[0], []).append((pair[1], number))
                self.kept_apart[pair[0]] = True
                self.matched[number] = 1

    # Templates

    def fill_templates(self) -> None:
        by_pair_rule = {forced.rule: (forced.a, forced.b) for forced in self.forced}
        seen: dict[tuple[object, ...], int] = {}
        for number, rule in self.rules.in_force(TemplateRule):
            key = (rule.a, rule.b, rule.phase)
            if key in seen:
                self.report(number, f"repeats {self.other(seen[key])}")
                continue
            seen[key] = number
            filled = self.filled(rule)
            pairs = filled.pairs
            self.missed[number] = pairs.missed
            if pairs.clash is not None:
                self.report(number, pairs.clash)
            if pairs.groups:
                self.force(number, filled, by_pair_rule)
            elif not pairs.instances:
                self.report(number, f"a has no operation '{rule.a[0]}'{in_phase(rule.phase)}")
            elif pairs.missing is not None:
                key_a, lacks, side = pairs.missing
                self.report(
                    number,
                    f"{side} has no operation '{lacks}'{in_phase(rule.phase)} for '{key_a}' of a, nor for any other",
                )
        # A pair rule that repeats a template is redundant unless it overrides another rule.
        for pair_rule, template in self.repeated.items():
            if pair_rule not in self.overriding:
                self.hints[pair_rule] = f"is not needed: {self.other(template)} makes this pair too"

    def force(self, number: int, filled: _Filled, by_pair_rule: dict[int, Group]) -> None:
        """Make the pairs of a template, except those that other rules decide."""
        pairs = filled.pairs
        (rows_a, group_a), (rows_b, group_b) = pairs.members
        free = np.ones(len(pairs.groups), bool)
        by_a, by_b = self.taken_a[rows_a], self.taken_b[rows_b]
        free[group_a[by_a >= 0]] = False
        free[group_b[by_b >= 0]] = False
        forbidding: list[int] = []
        for at in np.flatnonzero(self.kept_apart[rows_a]).tolist():
            group = int(group_a[at])
            for row_b, apart in self.apart_of[int(rows_a[at])]:
                if row_b in pairs.groups[group][1]:
                    free[group] = False
                    self.overriding.add(apart)
                    forbidding.append(apart)
        agreed = np.zeros(len(pairs.groups), bool)
        for at in np.flatnonzero((by_a >= 0) & self.is_pair[by_a]).tolist():
            by, group = int(by_a[at]), int(group_a[at])
            if by_pair_rule[by] == pairs.groups[group]:
                agreed[group] = True
                self.repeated.setdefault(by, number)
        if free.all() and number in filled.forced:
            forced = filled.forced[number]
        else:
            staying = (pairs.groups[group] for group in np.flatnonzero(free).tolist())
            forced = [Forced(a, b, number, template=True) for a, b in staying]
        if free.all():
            filled.forced.clear()
            filled.forced[number] = forced
        self.forced += forced
        self.matched[number] = len(forced) + int(np.count_nonzero(agreed))
        self.taken_a[rows_a[free[group_a]]] = number
        self.taken_b[rows_b[free[group_b]]] = number
        by_a, by_b = by_a[~agreed[group_a]], by_b[~agreed[group_b]]
        winners = [int(by) for by in np.unique(np.concatenate((by_a, by_b))) if by >= 0]
        self.overriding.update(winners)
        if not self.matched[number]:
            self.report(number, self.shadowed(winners or forbidding, len(pairs.groups)))
            return
        # Pair rules are meant to override templates; one template overriding another is reported.
        for by in winners:
            if not self.is_pair[by]:
                rows = int(np.count_nonzero(by_a == by)) or int(np.count_nonzero(by_b == by))
                self.report(
                    number, f"{self.other(by)} takes precedence for {rows:,} of its {len(pairs.groups):,} pairs"
                )

    def shadowed(self, winners: Sequence[int], pairs: int) -> str:
        what = "its only pair" if pairs == 1 else f"all of its {pairs:,} pairs"
        return f"has no effect: {self.others(winners, 'already decides', 'already decide')} {what}"

    def filled(self, rule: TemplateRule) -> _Filled:
        """What a template pairs; kept with the keys of a."""
        index_a, index_b = self.index(Side.A), self.index(Side.B)
        asked = (index_b.number, rule.a, rule.b, rule.phase)
        filled = index_a.pairs.get(asked)
        if filled is None and not index_a.may_have(Pattern.of(rule.a[0])):
            filled = index_a.pairs.put(asked, _Filled(TemplatePairs(), {}))
        elif filled is None:
            # Templates that differ only in names and in where they begin to count make the same pairs.
            patterns = canonical((*rule.a, *rule.b))
            same = (index_b.number, tuple(pattern.parts for pattern in patterns), len(rule.a), rule.phase)
            filled = index_a.pairs.get(same)
            if filled is None:
                logs = (index_a, self.a.phase), (index_b, self.b.phase)
                pairs = template_pairs(patterns, len(rule.a), rule.phase, logs)
                filled = index_a.pairs.put(same, _Filled(pairs, {}), len(pairs.groups) + 1)
            index_a.pairs.put(asked, filled)
        assert isinstance(filled, _Filled)
        return filled

    # Ops

    def group_ops(self) -> None:
        before: dict[tuple[object, ...], OpGroup] = {}
        rules = self.rules.in_force(OpRule)
        logs = {side: self.log(side) for side in Side} if rules else {}
        counts = {side: Counter(zip(log.op.tolist(), log.phase.tolist(), strict=True)) for side, log in logs.items()}
        known = {side: {op: at for at, op in enumerate(log.ops)} for side, log in logs.items()}
        for number, rule in rules:
            group = OpGroup(rule.a, rule.b, number, rule.phase)
            what = _what(group)
            covering = [before[what, phase] for phase in {None, rule.phase} if (what, phase) in before]
            if covering:
                first = min(covering, key=lambda other: other.rule)
                verb = "repeats" if (first.a, first.b) == (rule.a, rule.b) else "contradicts"
                self.report(number, f"{verb} {self.other(first.rule)}, which takes precedence")
                continue
            before[what, rule.phase] = group
            self.op_groups.append(group)
            phases = tuple(Phase) if rule.phase is None else (rule.phase,)
            for side, names in ((Side.A, rule.a), (Side.B, rule.b)):
                for name in names:
                    if name not in known[side]:
                        self.report(number, f"{side} has no op '{name}'")
                ops = {known[side][name] for name in names if name in known[side]}
                self.matched[number] += sum(counts[side][op, phase] for op in ops for phase in phases)


def _what(group: OpGroup) -> tuple[object, ...]:
    """The subject of a rule: an earlier rule with the same, of the same phase or all phases, covers it."""
    return ("one", group.b) if len(group.a) == 1 else ("chain", group.a)
