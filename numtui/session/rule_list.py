"""The list of rules: what is to be said about each, and the changes that can be made to one.

Nothing here applies anything: a change is an `Edit`, as everywhere.
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
    ModuleRule,
    OpRule,
    PairRule,
    Rule,
    RuleProblem,
    RuleSet,
    TemplateRule,
)
from matchers.rules.resolve import RuleUsage, resolve
from matchers.status import Status
from numtui.query.fields import rows_of_rule
from numtui.session.rule_edits import Edit, EditError

__all__ = ["ORDER", "RuleList", "Stand", "dropped", "matches", "moved", "rule_behind", "rule_text", "toggled"]

ORDER: Final[Mapping[str, str]] = {
    "modules": "Each rule works on the names that those above it made.",
    "ops": "Of two rules about the same op the upper one counts.",
    "templates": "Where two templates want the same operation, the upper one gets it; pairs and apart go before both.",
    "pairs": "Where two pairs want the same operation, the upper one gets it.",
    "apart": "The order means nothing here.",
    "ignore": "The order means nothing here.",
    "tolerance": "The uppermost rule that fits a pair decides.",
}
"""Section -> what the order of its rules means."""


@dataclass(frozen=True, slots=True)
class Stand:
    """How a rule stands.

    Attributes:
        number: from 1 on, in the order of the rules; 0 for what of the file is not understood.
        rule: None for what is not understood.
        use: what became of it; None while that is not known.
        problem: what is not understood, None for a rule.
        unsaved: `new`, `changed`, or empty: whether its file has it like this.
    """

    number: int
    rule: Rule | None
    use: RuleUsage | None = None
    problem: RuleProblem | None = None
    unsaved: str = ""

    @property
    def trouble(self) -> str:
        """What is wrong with it, empty when nothing is."""
        if self.problem is not None:
            return str(self.problem)
        return (self.use.problem or "") if self.use is not None else ""


class RuleList:
    """The rules as they are now, then what is not understood of their file.

    `comparison` may be one under other rules, until these have been matched: what is known of a rule that is the same
    in both still holds well enough to be shown.
    """

    def __init__(self, rules: RuleSet, comparison: Comparison, file: RuleFile) -> None:
        self.rules = rules
        self.matched = comparison.rules == rules
        """Whether the comparison is under these rules."""
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
        """Rules that are not in force."""
        return sum(not rule.enabled for rule in self.rules)

    @property
    def troubled(self) -> list[int]:
        """Places of the rules with a problem, and of what is not understood."""
        return [at for at, use in self._uses.items() if use.problem] + list(range(len(self.rules), len(self)))


def rule_behind(c: Comparison, row: int) -> int:
    """The rule because of which a row is as it is, an index into the rules; -1 where none is.

    That is the rule that pairs it, ignores it, or lets it count as close. A moment for a large log: not for the
    screen's own thread.
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
    """A rule on one line."""
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
    return f"{rule.match}{_scope(rule.side, rule.phase)} up to {rule.rtol:g}"


def _scope(side: str | None, phase: Phase | None) -> str:
    return (f" of {side}" if side else "") + (f" in {phase.label}" if phase is not None else "")


def _join(keys: tuple[str, ...]) -> str:
    return " + ".join(keys)


def matches(rule: Rule, use: RuleUsage) -> str:
    """What a rule does in these two logs, in a sentence without its full stop."""
    n = use.matched
    if isinstance(rule, (PairRule, TemplateRule)):
        missed = f"; {use.missed:,} more of a that it fits find no partner" if use.missed else ""
        return f"makes {n:,} pair{'s' * (n != 1)}{missed}"
    if isinstance(rule, ApartRule):
        return f"keeps {n:,} pair{'s' * (n != 1)} apart"
    operations = f"{n:,} operation{'s' * (n != 1)}"
    if isinstance(rule, ModuleRule):
        return f"renames the modules of {operations} of a"
    verb = {OpRule: "speaks of", IgnoreRule: "ignores"}.get(type(rule), "decides for")
    return f"{verb} {operations} of both logs"


def toggled(rules: RuleSet, at: int) -> Edit:
    """Switch a rule off, or on again; it stays where it is."""
    rule = rules.rules[at]
    other = replace(rule, enabled=not rule.enabled)
    if rule.written is not None:
        other = replace(other, written=switched(rule.written, other))
    return Edit(f"{'enable' if other.enabled else 'disable'} {_named(rule)}", rules.with_at(at, other))


def dropped(rules: RuleSet, at: int) -> Edit:
    """Without a rule."""
    return Edit(f"drop {_named(rules.rules[at])}", rules.with_at(at))


def moved(rules: RuleSet, at: int, by: int) -> Edit:
    """A rule further down in its section (by 1) or further up (by -1).

    Raises:
        EditError: it is the last there, or the first.
    """
    other, rule = at + by, rules.rules[at]
    if not 0 <= other < len(rules) or rules.rules[other].section != rule.section:
        raise EditError(f"this is the {'last' if by > 0 else 'first'} rule of {rule.section}: rules stay in theirs")
    order = list(rules.rules)
    order[at], order[other] = order[other], rule
    title = f"move {_named(rule)} {'down' if by > 0 else 'up'}"
    return Edit(title, RuleSet(tuple(order), rules.problems, rules.path))


def _named(rule: Rule) -> str:
    return f"{rule.section}: {rule_text(rule)}"
