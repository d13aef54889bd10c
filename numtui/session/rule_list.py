"""List of the rules: the state of each, and edits of one rule.

Nothing is applied here: a change is an `Edit`, as everywhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from matchers.comparison import Comparison
from matchers.logs.op_log import Phase
from matchers.pairing.pairing import Method
from matchers.rules.file import RuleFile
from matchers.rules.item import switched
from matchers.rules.model import (
    ApartRule,
    IgnoreRule,
    LayoutRule,
    ModuleRule,
    OpRule,
    PairRule,
    RowsRule,
    Rule,
    RuleProblem,
    RuleSet,
    TemplateRule,
)
from matchers.rules.resolve import RuleUsage, resolve
from matchers.status import Status
from numtui.query.fields import rows_of_rule
from numtui.session.rule_edits import Edit, EditError
from numtui.text.counts import plural

__all__ = ["ORDER", "RuleList", "Stand", "dropped", "matches", "moved", "rule_behind", "rule_text", "toggled"]

ORDER: Final[Mapping[str, str]] = {
    "modules": "Each rule renames the result of the rules above it.",
    "ops": "Of two rules for the same op, the upper one applies.",
    "templates": "Of two templates for the same operation, the upper one applies; pairs and apart come before both.",
    "pairs": "Of two pairs for the same operation, the upper one applies.",
    "apart": "The order has no effect.",
    "ignore": "The order has no effect.",
    "tolerance": "The uppermost rule that matches a pair applies.",
    "rows": "The order has no effect; the logs are cut anew.",
    "layout": "The uppermost rule that matches an operation applies; the logs are merged anew.",
}
"""Meaning of the rule order, by section."""


@dataclass(frozen=True, slots=True)
class Stand:
    """State of a rule in the list.

    Attributes:
        number: from 1, in the order of the rules; 0 for a broken entry of the file.
        rule: None for a broken entry.
        use: matches of the rule; None while unknown.
        problem: the broken entry, None for a rule.
        unsaved: `new`, `changed`, or empty when the file has the same rule.
    """

    number: int
    rule: Rule | None
    use: RuleUsage | None = None
    problem: RuleProblem | None = None
    unsaved: str = ""

    @property
    def trouble(self) -> str:
        """Return the problem of the rule, empty without one."""
        if self.problem is not None:
            return str(self.problem)
        return (self.use.problem or "") if self.use is not None else ""


class RuleList:
    """The current rules, then the broken entries of their file.

    Until the rules are matched, `comparison` may be one under other rules: for a rule in both, its matches still hold
    well enough to be shown.
    """

    def __init__(self, rules: RuleSet, comparison: Comparison, file: RuleFile) -> None:
        self.rules = rules
        self.matched = comparison.rules == rules
        """True when the comparison is under these rules."""
        if self.matched:
            self._uses = dict(enumerate(comparison.usage))
        else:
            known = {id(comparison.rules.rules[use.rule]): use for use in comparison.usage}
            self._uses = {at: known[id(rule)] for at, rule in enumerate(rules) if id(rule) in known}
        self._saved: dict[int | None, list[Rule]] = defaultdict(list)
        for rule in file.rules:
            self._saved[rule.line].append(rule)

    def __len__(self) -> int:
        return len(self.rules) + len(self.rules.problems)

    def __getitem__(self, at: int) -> Stand:
        if at >= len(self.rules):
            return Stand(0, None, problem=self.rules.problems[at - len(self.rules)])
        rule = self.rules.rules[at]
        as_saved = rule.written is None and rule in self._saved.get(rule.line, ())
        unsaved = "" if as_saved else "new" if rule.line is None else "changed"
        return Stand(at + 1, rule, self._uses.get(at), unsaved=unsaved)

    @property
    def disabled(self) -> int:
        """Number of disabled rules."""
        return sum(not rule.enabled for rule in self.rules)

    @property
    def troubled(self) -> list[int]:
        """Places of the rules with a problem and of the broken entries."""
        return [at for at, use in self._uses.items() if use.problem] + list(range(len(self.rules), len(self)))


def rule_behind(c: Comparison, row: int) -> int:
    """Return the index of the rule that decides a row, -1 without one.

    It pairs the row, ignores it, or makes it close. Slow on a large log: not for the screen's own thread.
    """
    if not len(c.rules) or not 0 <= row < len(c):
        return -1
    a, b = int(c.row_a[row]), int(c.row_b[row])
    if c.status[row] == Status.IGNORED:
        return next((number for number, _ in c.rules.in_force(IgnoreRule) if rows_of_rule(c, number)[row]), -1)
    resolved = resolve(c.rules, c.a, c.b)
    if c.pair[row] >= 0 and c.pairing.method[c.pair[row]] in (Method.OVERRIDE, Method.TEMPLATE):
        return next((pair.rule for pair in resolved.forced if a in pair.a and b in pair.b), -1)
    if c.status[row] == Status.CLOSE and a >= 0 and b >= 0:
        first = int(min(resolved.tolerance_a[a], resolved.tolerance_b[b]))
        return first if first < len(c.rules) else -1
    return -1


def rule_text(rule: Rule) -> str:
    """Format a rule on one line."""
    if isinstance(rule, PairRule):
        return f"{_join(rule.a)} ↔ {_join(rule.b)}"
    if isinstance(rule, (TemplateRule, OpRule)):
        return f"{_join(rule.a)} ↔ {_join(rule.b)}{_scope(None, rule.phase)}"
    if isinstance(rule, ApartRule):
        return f"{rule.a} ✗ {rule.b}"
    if isinstance(rule, ModuleRule):
        return f"{rule.a} → {rule.b}"
    if isinstance(rule, IgnoreRule):
        what = " ".join(part for part in (f"op {rule.op}" if rule.op else "", rule.match or "") if part)
        return what + _scope(rule.side, rule.phase)
    if isinstance(rule, RowsRule):
        return f"[{rule.a}] ↔ [{rule.b}]"
    if isinstance(rule, LayoutRule):
        return f"{rule.match}{_scope(rule.side, rule.phase)}: {rule.holds.label}"
    return f"{rule.match}{_scope(rule.side, rule.phase)} up to {rule.rtol:g}"


def _scope(side: str | None, phase: Phase | None) -> str:
    return (f" of {side}" if side else "") + (f" in {phase.label}" if phase is not None else "")


def _join(keys: tuple[str, ...]) -> str:
    return " + ".join(keys)


def matches(rule: Rule, use: RuleUsage) -> str:
    """Describe the matches of a rule in these two logs, in a sentence without its full stop."""
    n = use.matched
    if isinstance(rule, (PairRule, TemplateRule)):
        missed = f"; {use.missed:,} more matching operations of a are unpaired" if use.missed else ""
        return f"makes {plural(n, 'pair')}{missed}"
    if isinstance(rule, ApartRule):
        return f"keeps {plural(n, 'pair')} apart"
    if isinstance(rule, RowsRule):
        return f"tells the common rows of {plural(n, 'pair')} of results"
    operations = plural(n, "operation")
    if isinstance(rule, ModuleRule):
        return f"renames the modules of {operations} of a"
    if isinstance(rule, LayoutRule):
        return f"says what merged ranks hold of {operations}"
    verb = {OpRule: "covers", IgnoreRule: "ignores"}.get(type(rule), "sets the tolerance of")
    return f"{verb} {operations} of both logs"


def toggled(rules: RuleSet, at: int) -> Edit:
    """Disable or enable a rule in place."""
    rule = rules.rules[at]
    other = replace(rule, enabled=not rule.enabled)
    if rule.written is not None:
        other = replace(other, written=switched(rule.written, other))
    return Edit(f"{'enable' if other.enabled else 'disable'} {_named(rule)}", rules.with_at(at, other))


def dropped(rules: RuleSet, at: int) -> Edit:
    """Drop a rule."""
    return Edit(f"drop {_named(rules.rules[at])}", rules.with_at(at))


def moved(rules: RuleSet, at: int, by: int) -> Edit:
    """Move a rule down in its section (by 1) or up (by -1).

    Raises:
        EditError: it is already the last or the first.
    """
    other, rule = at + by, rules.rules[at]
    if not 0 <= other < len(rules) or rules.rules[other].section != rule.section:
        raise EditError(
            f"this is the {'last' if by > 0 else 'first'} rule of {rule.section}; rules stay in their section"
        )
    order = list(rules.rules)
    order[at], order[other] = order[other], rule
    title = f"move {_named(rule)} {'down' if by > 0 else 'up'}"
    return Edit(title, RuleSet(tuple(order), rules.problems, rules.path))


def _named(rule: Rule) -> str:
    return f"{rule.section}: {rule_text(rule)}"
