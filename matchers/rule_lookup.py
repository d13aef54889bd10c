"""One look at all rules in two logs: what they look things up in, and what is found out about each rule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from matchers.arrays import Bool
from matchers.key_index import KeyIndex, index_of
from matchers.logs.op_log import OpLog, Phase
from matchers.rules import RuleSet, Side

__all__ = ["Lookup", "in_phase", "in_side"]


class Lookup:
    """Rules and two logs.

    Attributes:
        modules_a, modules_b: what the modules are called, once they have been renamed.
        matched, problems, hints: by the number of a rule, see `matchers.resolve.RuleUsage`.
    """

    def __init__(self, rules: RuleSet, a: OpLog, b: OpLog) -> None:
        self.rules = rules
        self.a, self.b = a, b
        self.modules_a, self.modules_b = tuple(a.modules), tuple(b.modules)
        self.matched = [0] * len(rules)
        self.problems: list[list[str]] = [[] for _ in rules]
        self.hints: dict[int, str] = {}
        self._indices: dict[Side, KeyIndex] = {}

    def log(self, side: Side) -> OpLog:
        return self.a if side is Side.A else self.b

    def index(self, side: Side) -> KeyIndex:
        """Made when the first rule needs it: most comparisons have no rules."""
        index = self._indices.get(side)
        if index is None:
            modules = self.modules_a if side is Side.A else self.modules_b
            index = self._indices[side] = index_of(self.log(side), modules)
        return index

    def of_phase(self, side: Side, phase: Phase | None) -> Bool:
        """bool[n], the rows of a phase; all without one."""
        log = self.log(side)
        return np.ones(len(log), bool) if phase is None else np.asarray(log.phase == phase)

    def report(self, number: int, problem: str) -> None:
        """Something is wrong with a rule; said once."""
        if problem not in self.problems[number]:
            self.problems[number].append(problem)

    def other(self, number: int) -> str:
        """A rule as the subject of a sentence about another."""
        rule = self.rules.rules[number]
        return self.rules.where(rule) if rule.line is None else f"the rule at {self.rules.where(rule)}"

    def others(self, numbers: Sequence[int], one: str, many: str) -> str:
        """The first of some rules and how many more, with a verb."""
        if len(numbers) == 1:
            return f"{self.other(numbers[0])} {one}"
        return f"{self.other(numbers[0])} and {len(numbers) - 1} more {many}"


def in_side(side: Side | str | None) -> str:
    """Where a rule applies, for "in …"."""
    return "either log" if side is None else str(side)


def in_phase(phase: Phase | None) -> str:
    """The phase that a rule is about, as the end of a sentence."""
    return "" if phase is None else f" in {phase.label}"
