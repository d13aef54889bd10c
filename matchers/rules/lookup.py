"""Shared state for resolving all rules in two logs, and the rules about rows: what is ignored, tolerated, held."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from matchers.arrays import Bool, Int64, distinct, marked
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.row_index import dimensions_of
from matchers.rules.key_index import KeyIndex, index_of
from matchers.rules.model import IgnoreRule, LayoutRule, RowsRule, RuleSet, Side, ToleranceRule
from matchers.rules.pattern import Glob
from matchers.rules.text_index import TextIndex

__all__ = ["Lookup", "first_rules", "in_phase"]


class Lookup:
    """Rules and two logs, with the findings on each rule.

    Attributes:
        modules_a, modules_b: the module names after renaming.
        matched, problems, hints: by the number of a rule, see `matchers.rules.resolve.RuleUsage`.
    """

    def __init__(self, rules: RuleSet, a: OpLog, b: OpLog) -> None:
        self.rules = rules
        self.a, self.b = a, b
        self.modules_a, self.modules_b = tuple(a.modules), tuple(b.modules)
        self.matched = [0] * len(rules)
        self.problems: list[list[str]] = [[] for _ in rules]
        self.hints: dict[int, str] = {}
        self._indices: dict[Side, KeyIndex] = {}
        self._ops: dict[Side, TextIndex] = {}

    def log(self, side: Side) -> OpLog:
        return self.a if side is Side.A else self.b

    def index(self, side: Side) -> KeyIndex:
        """The key index of a side, built when the first rule needs it: most comparisons have no rules."""
        index = self._indices.get(side)
        if index is None:
            modules = self.modules_a if side is Side.A else self.modules_b
            index = self._indices[side] = index_of(self.log(side), modules)
        return index

    def of_op(self, side: Side, glob: str) -> Bool:
        """bool[n], the rows whose op matches a glob."""
        log = self.log(side)
        if side not in self._ops:
            self._ops[side] = TextIndex(log.ops)
        # One extra entry for rows without an op, whose number is -1.
        matching = marked(self._ops[side].globbed(Glob.of(glob)), len(log.ops) + 1)
        return np.asarray(matching[log.op])

    def report(self, number: int, problem: str) -> None:
        """Record a problem of a rule, once."""
        if problem not in self.problems[number]:
            self.problems[number].append(problem)

    def other(self, number: int) -> str:
        """A rule as the subject of a sentence about another one."""
        rule = self.rules.rules[number]
        return self.rules.where(rule) if rule.line is None else f"the rule at {self.rules.where(rule)}"

    def others(self, numbers: Sequence[int], one: str, many: str) -> str:
        """The first of some rules and the number of further ones, with a verb."""
        if len(numbers) == 1:
            return f"{self.other(numbers[0])} {one}"
        return f"{self.other(numbers[0])} and {len(numbers) - 1} more {many}"


def in_phase(phase: Phase | None) -> str:
    """The phase of a rule, as the end of a sentence."""
    return "" if phase is None else f" in {phase.label}"


def first_rules(look: Lookup, kind: type[IgnoreRule | ToleranceRule | LayoutRule]) -> tuple[Int64, Int64]:
    """int64[n_a], int64[n_b]: number of the first rule of a kind that matches each row, of all rules where none does.

    Records what each rule matches, and what is wrong with it. (By layout rules the logs are already merged.)
    """
    none = len(look.rules)
    first = {side: np.full(len(look.log(side)), none) for side in Side}
    for number, rule in look.rules.in_force(kind):
        sides = [side for side in Side if rule.side in (None, side)]
        if isinstance(rule, LayoutRule):
            sides = [side for side in sides if look.log(side).members]
            if not sides:
                look.hints[number] = "is not needed: no ranks are merged here"
                continue
        masks = {side: mask for side in sides if (mask := _matching(look, side, rule)).any()}
        before = [first[side][mask] for side, mask in masks.items()]
        claimed = sum(int(np.count_nonzero(rules == none)) for rules in before)
        for side, mask in masks.items():
            first[side][mask & (first[side] == none)] = number
        ignores = isinstance(rule, IgnoreRule)
        look.matched[number] = sum(map(len, before)) if ignores else claimed
        if not masks:
            where = "either log" if rule.side is None else str(rule.side)
            look.report(number, f"matches nothing in {where}{in_phase(rule.phase)}: {_named(rule)}")
        elif not claimed:
            earlier = distinct(np.concatenate(before)).tolist()
            if ignores:
                look.hints[number] = f"is not needed: {look.others(earlier, 'ignores', 'ignore')} all its matches"
            else:
                look.report(number, f"has no effect: {look.others(earlier, 'matches', 'match')} first")
    return first[Side.A], first[Side.B]


def tell_rows(look: Lookup) -> None:
    """Record how many results each rule about rows is about, and what is wrong with it; their logs are already cut."""
    told, known = look.log(Side.A).rows_told, all(len(look.log(side).texts("Rows")) for side in Side)
    for number, rule in look.rules.in_force(RowsRule):
        look.matched[number] = told.get((rule.a, rule.b), 0)
        if not known:
            look.hints[number] = "is not needed: these logs do not tell rows (numtui capture --rows)"
        elif not look.matched[number]:
            many = dimensions_of(rule.a)
            rows = f"rows of {many} dimension{'s' * (many > 1)}"
            look.report(number, f"matches nothing: no pair of results has {rows}, others in a than in b, with both")


def _matching(look: Lookup, side: Side, rule: IgnoreRule | ToleranceRule | LayoutRule) -> Bool:
    """bool[n]: the rows that a rule matches."""
    op = rule.op if isinstance(rule, IgnoreRule) else None
    masks = [] if op is None else [look.of_op(side, op)]
    if rule.match is not None:
        masks.append(look.index(side).glob(rule.match))
    if rule.phase is not None:
        masks.append(look.log(side).phase == rule.phase)
    return np.logical_and.reduce(masks) if len(masks) > 1 else masks[0]


def _named(rule: IgnoreRule | ToleranceRule | LayoutRule) -> str:
    op = rule.op if isinstance(rule, IgnoreRule) else None
    return " and ".join(f"{what} '{text}'" for what, text in (("op", op), ("key", rule.match)) if text is not None)
