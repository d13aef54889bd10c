"""Shared state for resolving all rules in two logs, and the row rules: which rows are ignored, and with which
tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from matchers.arrays import Bool, Float64, Int32, Int64
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.placement import MERGED
from matchers.rules.key_index import KeyIndex, index_of
from matchers.rules.model import IgnoreRule, LayoutRule, RuleSet, Side, ToleranceRule
from matchers.rules.pattern import Glob
from matchers.rules.text_index import TextIndex

__all__ = ["Lookup", "check_layouts", "excluded_rows", "in_phase", "in_side", "tolerances_of_rows"]


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

    def in_phase(self, side: Side, rows: Bool, phase: Phase | None) -> Bool:
        """bool[n], those of some rows that are of a phase; all of them for None."""
        return rows if phase is None else rows & (self.log(side).phase == phase)

    def of_op(self, side: Side, glob: str) -> Bool:
        """bool[n], the rows whose op matches a glob."""
        log = self.log(side)
        if side not in self._ops:
            self._ops[side] = TextIndex(log.ops)
        # One extra entry for rows without an op, whose number is -1.
        matching = np.zeros(len(log.ops) + 1, bool)
        matching[self._ops[side].globbed(Glob.of(glob))] = True
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


def in_side(side: Side | str | None) -> str:
    """The scope of a rule, to follow "in "."""
    return "either log" if side is None else str(side)


def in_phase(phase: Phase | None) -> str:
    """The phase of a rule, as the end of a sentence."""
    return "" if phase is None else f" in {phase.label}"


def excluded_rows(look: Lookup) -> tuple[Int32, Int32]:
    """(int32[n_a], int32[n_b]): the number of the first rule that ignores each row, -1 for none."""
    first = _unclaimed(look)
    for number, rule in look.rules.in_force(IgnoreRule):
        masks = {side: _ignored(look, side, rule) for side in Side if rule.side in (None, side)}
        look.matched[number] = sum(int(np.count_nonzero(mask)) for mask in masks.values())
        before = _claim(look, number, masks, first) if look.matched[number] else []
        if not look.matched[number]:
            named = ((rule.op, f"op '{rule.op}'"), (rule.match, f"key '{rule.match}'"))
            what = " and ".join(text for value, text in named if value is not None)
            look.report(number, f"matches nothing in {in_side(rule.side)}{in_phase(rule.phase)}: {what}")
        elif before:
            who = look.others(before, "ignores", "ignore")
            look.hints[number] = f"is not needed: {who} all its matches"
    a, b = (np.where(first[side] < len(look.rules), first[side], -1).astype(np.int32) for side in Side)
    return a, b


def tolerances_of_rows(look: Lookup) -> tuple[Int64, Int64, Float64]:
    """The tolerance rules by row: (int64[n_a], int64[n_b], float64[rules + 1]).

    The first two give the number of the first matching tolerance rule of each row, or the number of rules if there is
    none. The last gives the relative error by that number, NaN for other rules.
    """
    first = _unclaimed(look)
    tolerances = np.full(len(look.rules) + 1, np.nan)
    for number, rule in look.rules.in_force(ToleranceRule):
        tolerances[number] = rule.rtol
        _claim_keys(look, number, rule, [side for side in Side if rule.side in (None, side)], first)
    return first[Side.A], first[Side.B], tolerances


def check_layouts(look: Lookup) -> None:
    """Count the operations of merged ranks that layout rules are about; the logs are already merged by them."""
    first = _unclaimed(look)
    for number, rule in look.rules.in_force(LayoutRule):
        merged = [side for side in Side if rule.side in (None, side) and look.log(side).texts(MERGED)]
        if merged:
            _claim_keys(look, number, rule, merged, first)
        else:
            look.hints[number] = "is not needed: no ranks are merged here"


def _claim_keys(
    look: Lookup, number: int, rule: ToleranceRule | LayoutRule, sides: Sequence[Side], first: Mapping[Side, Int64]
) -> None:
    """Give a rule the rows of some sides whose keys it matches and that no rule before it has."""
    masks = {side: look.in_phase(side, look.index(side).glob(rule.match), rule.phase) for side in sides}
    before = _claim(look, number, masks, first)
    look.matched[number] = sum(int(np.count_nonzero(first[side] == number)) for side in masks)
    if before:
        look.report(number, f"has no effect: {look.others(before, 'matches', 'match')} first")
    elif not look.matched[number]:
        look.report(number, f"matches nothing in {in_side(rule.side)}{in_phase(rule.phase)}: key '{rule.match}'")


def _unclaimed(look: Lookup) -> dict[Side, Int64]:
    """By row, the first rule that matches it: none so far."""
    return {side: np.full(len(look.log(side)), len(look.rules)) for side in Side}


def _claim(look: Lookup, number: int, masks: Mapping[Side, Bool], first: Mapping[Side, Int64]) -> list[int]:
    """Assign the unclaimed rows of its masks to a rule; if there are none, return the rules that have them."""
    none = len(look.rules)
    masks = {side: mask for side, mask in masks.items() if mask.any()}
    if not masks:
        return []
    fresh = {side: mask & (first[side] == none) for side, mask in masks.items()}
    if any(mask.any() for mask in fresh.values()):
        for side, mask in fresh.items():
            first[side][mask] = number
        return []
    return np.unique(np.concatenate([first[side][mask] for side, mask in masks.items()])).tolist()


def _ignored(look: Lookup, side: Side, rule: IgnoreRule) -> Bool:
    if rule.op is None:
        return look.in_phase(side, look.index(side).glob(rule.match or ""), rule.phase)
    mask = look.in_phase(side, look.of_op(side, rule.op), rule.phase)
    return mask if rule.match is None else mask & look.index(side).glob(rule.match)
