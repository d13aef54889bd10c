"""Suggestions: families of drift in a comparison, with rules for them and the tested effect of these rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Int32
from matchers.comparison import Comparison
from matchers.drift.red_rows import RedRows
from matchers.pairing.pairing import SURE, Method
from matchers.rules.model import ModuleRule, OpRule, Rule, RuleSet
from matchers.status import Status

__all__ = [
    "Finding",
    "Suggestion",
    "compatible",
    "allowed",
    "failure",
    "found_by",
    "instances",
    "matched",
    "lost_pairs",
    "weigh",
]


def instances(
    a: NDArray[np.integer[Any]] | Sequence[int] | int, b: NDArray[np.integer[Any]] | Sequence[int] | int
) -> Int32:
    """The records of a and of b as int32[2, n]; a single number is repeated."""
    return np.stack(np.broadcast_arrays(np.asarray(a, np.int32), np.asarray(b, np.int32)))


R = TypeVar("R")

_MAX_TRIES: Final = 100_000
"""Maximum number of rules times rows for which a family's rules are tried one by one, if they cannot all apply."""

_COSTS: Final = "a rule for all of them would break {}"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a detector.

    Attributes:
        name: of the family.
        explanation: a sentence or two.
        instances: the operations that show it.
        rules: rules that cover it; empty if there are none.
        no_rule: the reason for missing or partial rules; empty if the rules cover all.
        failed: the detector failed, or the trial of its rules, so nothing is known of this family.
    """

    name: str
    explanation: str
    instances: Int32 = field(compare=False)
    rules: tuple[Rule, ...] = ()
    no_rule: str = ""
    failed: bool = False

    @property
    def rows(self) -> int:
        """Number of operations that show it."""
        return self.instances.shape[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion(Finding):
    """A finding whose rules were tried on the comparison: `rules` are those that break no certain pair.

    Attributes:
        matched: by rule, the number of rows it would match.
        settles: number of instances that these rules account for once applied.
        before, after: rows per status, now and with the rules.
        drops: existing rules to remove first.
        records: operations of a whose pairs are given up on purpose.
        red: red rows that it removes, and the first cause with it.
    """

    matched: tuple[int, ...] = ()
    settles: int = 0
    before: Mapping[Status, int]
    after: Mapping[Status, int]
    drops: tuple[Rule, ...] = ()
    records: frozenset[int] = frozenset()
    red: RedRows = field(default_factory=RedRows.unchanged, compare=False)

    @property
    def changes(self) -> bool:
        """True if there is anything to apply."""
        return bool(self.rules or self.drops)

    @property
    def matters(self) -> bool:
        """True if it changes a verdict, or if nothing is known of it."""
        return bool(self.failed or self.drops or self.effect or self.red.removed.size)

    def applied(self, rules: RuleSet) -> RuleSet:
        """The rules with this suggestion applied; `ValueError` if one that it drops is not among them."""
        return rules.removing(*self.drops).adding(*self.rules)

    @property
    def effect(self) -> dict[Status, int]:
        """Change in the number of rows per status; only statuses that change."""
        change = {status: self.after[status] - n for status, n in self.before.items()}
        return {status: n for status, n in change.items() if n}


def allowed(make: Callable[..., R], a: tuple[str, ...], b: tuple[str, ...], why: str | None) -> list[R]:
    """The rule for these names; none if rules do not allow one of them (an empty one)."""
    try:
        return [make(a=a, b=b, why=why)]
    except ValueError:
        return []


def found_by(name: str, detect: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """The findings of a detector. One that fails costs only these: a finding says so in their place."""
    try:
        yield from tuple(detect())
    except Exception as error:  # noqa: BLE001 - a bug, and no reason to lose all others
        yield failure(name, error)


def failure(name: str, error: Exception) -> Finding:
    """The finding of a detector that failed."""
    told = f"The search for this kind of drift failed ({type(error).__name__}: {error}), a bug; it costs no other kind."
    return Finding(name, told, instances([], []), no_rule="the search failed", failed=True)


def weigh(c: Comparison, finding: Finding) -> Suggestion | None:
    """Try the rules of a finding, leaving out rules that break a certain pair or settle nothing.

    None if all of its rules are already in force.
    """
    try:
        return _weighed(c, finding)
    except Exception as error:  # noqa: BLE001 - as in `found_by`
        return _without_rules(c, failure(finding.name, error), "the search failed")


def _weighed(c: Comparison, finding: Finding) -> Suggestion | None:
    if not finding.rules:
        return _without_rules(c, finding, finding.no_rule)
    there = {replace(rule, why=None) for rule in c.rules.rules}
    rules, no_rule = tuple(rule for rule in finding.rules if replace(rule, why=None) not in there), finding.no_rule
    if not rules:
        return None
    after = c.with_rules(c.rules.adding(*rules))
    lost = lost_pairs(c, after)
    if lost:
        rules, after = _harmless(c, rules)
        no_rule = _COSTS.format("a certain pair" if lost == 1 else f"{lost:,} certain pairs")
    # a template may include a pair whose names happen to be equal
    settles = min(_settled(c, after, rules), finding.rows)
    if not settles:
        return _without_rules(c, finding, no_rule or "a rule would settle nothing new")
    return Suggestion(
        finding.name,
        finding.explanation,
        finding.instances,
        rules,
        no_rule,
        matched=matched(after, rules),
        settles=settles,
        before=c.counts,
        after=after.counts,
        red=RedRows.between(c, after),
    )


def _harmless(c: Comparison, rules: tuple[Rule, ...]) -> tuple[tuple[Rule, ...], Comparison]:
    """As many of the rules as break no certain pair, and the comparison under them; none if trying would take long."""
    kept: tuple[Rule, ...] = ()
    best = c
    if len(rules) > 1 and len(rules) * len(c) <= _MAX_TRIES:
        for rule in rules:
            after = c.with_rules(c.rules.adding(*kept, rule))
            if not lost_pairs(c, after):
                kept, best = (*kept, rule), after
    return kept, best


def compatible(c: Comparison, suggestions: Sequence[Suggestion]) -> tuple[Suggestion, ...]:
    """The suggestions that change rules, without those that break a certain pair in combination with the others.

    Of two that drop the same rule, the first stays.
    """
    kept: list[Suggestion] = []
    rules, records = c.rules, frozenset[int]()
    for suggestion in suggestions:
        taken = [rule for other in kept for rule in other.drops]
        if not suggestion.changes or any(rule in taken for rule in suggestion.drops):
            continue
        more, about = suggestion.applied(rules), records | suggestion.records
        # by itself it has been tried already
        if not kept or not lost_pairs(c, c.with_rules(more), about):
            kept.append(suggestion)
            rules, records = more, about
    return tuple(kept)


def _without_rules(c: Comparison, finding: Finding, why: str) -> Suggestion:
    told = finding.name, finding.explanation, finding.instances
    return Suggestion(*told, no_rule=why, failed=finding.failed, before=c.counts, after=c.counts)


def lost_pairs(before: Comparison, after: Comparison, records: frozenset[int] = frozenset()) -> int:
    """Number of certain pairs that would be lost; those of `records` (of a) are known to be wrong."""
    p = before.pairing
    sure = (p.confidence >= SURE) | (p.method == Method.EXACT)
    if records:
        sure &= ~np.isin(p.lead_a, list(records))
    partner = after.pairing.partner_of_a[p.lead_a[sure]]
    return int(np.count_nonzero(partner != p.lead_b[sure]))


def matched(after: Comparison, rules: tuple[Rule, ...]) -> tuple[int, ...]:
    """By rule, the number of rows it matches in a comparison under it."""
    uses = {id(after.rules.rules[use.rule]): use.matched for use in after.usage}
    return tuple(uses.get(id(rule), 0) for rule in rules)


def _settled(before: Comparison, after: Comparison, rules: tuple[Rule, ...]) -> int:
    """Number of rows that these rules account for."""
    mine = set(map(id, rules))
    total = _renamed(before, after) if any(isinstance(rule, ModuleRule) for rule in rules) else 0
    for use in after.usage:
        rule = after.rules.rules[use.rule]
        if id(rule) in mine and not isinstance(rule, ModuleRule):
            total += _one_thing(after, rule) if isinstance(rule, OpRule) else use.matched
    return total


def _one_thing(after: Comparison, rule: OpRule) -> int:
    """Pairs between the (last) op of one side of the rule and that of the other."""
    a, b, p = after.a, after.b, after.pairing
    ends = [
        np.array([*(name == op for name in log.ops), False])[log.op[lead]]
        for log, lead, op in ((a, p.lead_a, rule.a[-1]), (b, p.lead_b, rule.b[-1]))
    ]
    return int(np.count_nonzero(ends[0] & ends[1]))


def _renamed(before: Comparison, after: Comparison) -> int:
    """Pairs whose modules have one name now and had two before."""
    if before.matching is None or after.matching is None:
        return 0
    p, old, new = after.pairing, before.matching.names.modules_a, after.matching.names
    numbers = {name: at for at, name in enumerate(new.modules_b)}
    target = np.array([*(numbers.get(n, -2) if n != o else -2 for n, o in zip(new.modules_a, old, strict=True)), -2])
    return int(np.count_nonzero(target[after.a.module[p.lead_a]] == after.b.module[p.lead_b]))
