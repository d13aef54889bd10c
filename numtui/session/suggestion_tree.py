"""Tree of suggestions: families of drift, their rules, and the operations behind each rule.

Families whose rules change no verdict, and those without rules, are listed only if `everything` is set.

Every accepted rule changes the remaining suggestions. So the families are searched again after each change; accepted
ones stay in their place until they are taken back, and rejected ones are not suggested again.

Pure: nothing here matches or draws. A `Node` is a line of the tree, with a `State`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import numpy as np

from matchers.comparison import Comparison
from matchers.drift.suggestion import Suggestion, compatible
from matchers.rules.emit import flow_item
from matchers.rules.model import Rule, RuleSet
from matchers.rules.scope import reach
from numtui.session.rule_edits import Edit, EditError
from numtui.text.counts import plural

__all__ = ["SuggestedFamily", "Node", "State", "Suggested", "rule_name"]

_MAX_OPERATIONS: Final = 1_000
"""Maximum operations listed under a rule or a family."""


class State(Enum):
    """Decision on a rule, or on a family as a whole."""

    OPEN = "open"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    NEEDLESS = "needs no rule"


@dataclass(frozen=True, slots=True)
class Node:
    """A line of the tree: a family, one of its rules, or one of its operations.

    `rule` is -1 for the family itself and for operations directly below a family without rules; `instance` is an index
    into the family's instances, -1 for a family or rule.
    """

    family: int
    rule: int = -1
    instance: int = -1

    @property
    def parent(self) -> Node | None:
        if self.instance >= 0:
            return replace(self, instance=-1)
        return replace(self, rule=-1) if self.rule >= 0 else None


@dataclass(frozen=True, slots=True)
class SuggestedFamily:
    """A suggestion with its accepted rules.

    `suggestion` has the accepted rules first, then the open ones.
    """

    suggestion: Suggestion
    accepted: frozenset[Rule] = frozenset()

    @property
    def title(self) -> tuple[str, str]:
        """Identity of the family across changes; all mispaired runs share one name."""
        s = self.suggestion
        return s.name, s.explanation if s.records else ""


def rule_name(rule: Rule) -> str:
    """Return the name of a rule in the list of rejected ones."""
    return f"{rule.section}: {flow_item(rule)}"


class Suggested:
    """Suggested families in the order of their first appearance.

    Args:
        rejected: names of rejected rules, from an earlier session.
    """

    def __init__(self, rejected: Collection[str] = ()) -> None:
        self.rejected: set[str] = set(rejected)
        self.families: list[SuggestedFamily] = []
        self.comparison: Comparison | None = None
        """The searched comparison; None before the first search."""
        self.everything = False
        """True to list also what changes no verdict."""
        self._covered: dict[tuple[int, int], tuple[int, ...]] = {}

    def update(self, comparison: Comparison, found: Sequence[Suggestion]) -> None:
        """Take the suggestions for a comparison; families settled by accepted rules stay in place."""
        self.comparison = comparison
        self._covered = {}
        rules = comparison.rules
        new = {SuggestedFamily(s).title: s for s in found}
        families = []
        for family in self.families:
            again = new.pop(family.title, None)
            before, accepted = _in_force(family.suggestion, rules)
            if again is not None:
                families.append(_joined(before, again, accepted))
            elif accepted or _taken_back(before, rules):
                families.append(SuggestedFamily(_only(before, accepted), frozenset(accepted)))
        self.families = families + [SuggestedFamily(s) for s in found if SuggestedFamily(s).title in new]

    def forget(self) -> None:
        """Forget the suggestions of logs that changed; rejected rules stay rejected."""
        self.families, self.comparison, self._covered = [], None, {}

    # -- the tree

    def nodes(self, unfolded: Collection[Node]) -> Iterator[Node]:
        """Yield the lines of the tree with these nodes unfolded."""
        for f, family in self._listed():
            top = Node(f)
            yield top
            if top not in unfolded:
                continue
            if not family.suggestion.rules:
                yield from self._instances(top)
            for r in range(len(family.suggestion.rules)):
                yield (node := Node(f, r))
                if node in unfolded:
                    yield from self._instances(node)

    def _listed(self) -> Iterator[tuple[int, SuggestedFamily]]:
        """Yield the listed families; what was accepted stays."""
        for f, family in enumerate(self.families):
            if self.everything or family.accepted or family.suggestion.matters:
                yield f, family

    def quiet(self) -> list[Suggestion]:
        """Return the families that are not listed, with their open rules."""
        listed = {f for f, _ in self._listed()}
        return [
            _only(s, [rule for rule in s.rules if self._is_open(family, rule)])
            for f, family in enumerate(self.families)
            if f not in listed and self.state(Node(f)) is not State.REJECTED
            for s in (family.suggestion,)
        ]

    def _instances(self, node: Node) -> Iterator[Node]:
        return (replace(node, instance=k) for k in self.instances(node)[:_MAX_OPERATIONS])

    def instances(self, node: Node) -> tuple[int, ...]:
        """Return the operations of a family or of one of its rules, as indices into its instances."""
        if node.instance >= 0:
            return (node.instance,)
        s = self.families[node.family].suggestion
        if node.rule < 0:
            return tuple(range(s.rows))
        key = node.family, node.rule
        if key not in self._covered:
            assert self.comparison is not None
            covers = reach(s.rules[node.rule], self.comparison.a, self.comparison.b).covers(s.instances)
            self._covered[key] = tuple(np.flatnonzero(covers).tolist())
        return self._covered[key]

    def records(self, node: Node) -> tuple[int, int]:
        """Return the records of a and b of an operation; -1 where a run has none."""
        i, j = self.families[node.family].suggestion.instances[:, node.instance].tolist()
        return i, j

    def rule(self, node: Node) -> Rule | None:
        """Return the rule of a line, or the only rule of a family."""
        rules = self.families[node.family].suggestion.rules
        return rules[node.rule] if node.rule >= 0 else rules[0] if len(rules) == 1 else None

    def title(self, node: Node) -> tuple[tuple[str, str], Rule | None]:
        """Return the identity of a family or rule across changes."""
        family = self.families[node.family]
        return family.title, family.suggestion.rules[node.rule] if node.rule >= 0 else None

    def named(self, family: tuple[str, str], rule: Rule | None) -> Node | None:
        """Return the line with this identity; None where it is gone."""
        for f, known in enumerate(self.families):
            if known.title == family:
                rules = known.suggestion.rules
                return Node(f) if rule is None else Node(f, rules.index(rule)) if rule in rules else None
        return None

    def state(self, node: Node) -> State:
        """Return the state of a line; a family is accepted or rejected when no rule of it is open."""
        family = self.families[node.family]
        s = family.suggestion
        if not s.changes:
            return State.NEEDLESS
        if node.rule >= 0:
            return self._of_rule(family, s.rules[node.rule])
        states = {self._of_rule(family, rule) for rule in s.rules}
        if not states:  # it only drops rules
            taken = self.comparison is not None and _taken_back(s, self.comparison.rules)
            return State.ACCEPTED if taken else State.REJECTED if self._dropped(s) in self.rejected else State.OPEN
        if State.OPEN in states:
            return State.OPEN
        return State.ACCEPTED if State.ACCEPTED in states else State.REJECTED

    def _of_rule(self, family: SuggestedFamily, rule: Rule) -> State:
        if rule in family.accepted:
            return State.ACCEPTED
        return State.REJECTED if rule_name(rule) in self.rejected else State.OPEN

    @staticmethod
    def _dropped(s: Suggestion) -> str:
        return "; ".join(f"take back {rule_name(rule)}" for rule in s.drops)

    # -- counts

    def to_settle(self) -> tuple[int, int, int]:
        """Return the listed open families and rules, and the rows that they would settle."""
        families = rules = rows = 0
        for f, family in self._listed():
            if self.state(Node(f)) is State.OPEN:
                left = [k for k, rule in enumerate(family.suggestion.rules) if self._is_open(family, rule)]
                families += 1
                rules += len(left)
                rows += self.settles(Node(f))
        return families, rules, rows

    def settles(self, node: Node) -> int:
        """Return the number of rows that the open rules of a family, or one rule, would settle."""
        family = self.families[node.family]
        s = family.suggestion
        if node.rule >= 0:
            return min(s.matched[node.rule], s.rows)
        done = sum(n for rule, n in zip(s.rules, s.matched, strict=True) if not self._is_open(family, rule))
        return s.settles if not done else max(s.settles - done, 0)

    def _is_open(self, family: SuggestedFamily, rule: Rule) -> bool:
        return self._of_rule(family, rule) is State.OPEN

    # -- decisions

    def accept(self, node: Node, rules: RuleSet) -> Edit:
        """Accept the open rules of a line: a family, or one rule.

        Raises:
            EditError: there is nothing to accept.
        """
        family = self.families[node.family]
        s = family.suggestion
        if not s.changes:
            raise EditError(f"{s.name}: no rule to accept, {s.no_rule}")
        chosen = s.rules if node.rule < 0 or s.drops else (s.rules[node.rule],)
        wanted = tuple(rule for rule in chosen if self._is_open(family, rule))
        if node.rule >= 0 and not wanted and rule_name(s.rules[node.rule]) in self.rejected:
            wanted = chosen  # a single rule is meant, even if rejected before
        if not wanted and (s.rules or self.state(node) is State.ACCEPTED):
            what = "this rule is" if node.rule >= 0 else "all its rules are"
            raise EditError(f"{s.name}: {what} already accepted or rejected")
        return Edit(f"accept {_what(s, wanted)}", _with(replace(s, rules=wanted), rules))

    def accept_all(self, rules: RuleSet, comparison: Comparison) -> Edit:
        """Accept all listed open rules that are compatible. Takes as long as a few comparisons.

        Raises:
            EditError: there is nothing to accept.
        """
        left = []
        for f, family in self._listed():
            if self.state(Node(f)) is State.OPEN:
                wanted = tuple(rule for rule in family.suggestion.rules if self._is_open(family, rule))
                left.append(replace(family.suggestion, rules=wanted))
        chosen = compatible(comparison, left)
        if not chosen:
            raise EditError("nothing left to accept")
        out = rules
        for s in chosen:
            out = _with(s, out)
        number = sum(len(s.rules) for s in chosen)
        return Edit(f"accept {plural(number, 'rule')} for {', '.join(s.name for s in chosen)}", out)

    def take_back(self, node: Node, rules: RuleSet) -> Edit:
        """Take back the accepted rules of a line.

        Raises:
            EditError: none of them was accepted.
        """
        family = self.families[node.family]
        s = family.suggestion
        gone = [rule for rule in s.rules if rule in family.accepted and (node.rule < 0 or rule == s.rules[node.rule])]
        if not gone:
            raise EditError("u undoes what was taken back")
        without = rules
        for rule in gone:
            without = without.removing(rule)
        return Edit(f"take back {_what(s, tuple(gone))}", without)

    def reject(self, node: Node) -> str:
        """Reject a line, or suggest it again; return a message.

        Raises:
            EditError: there is no rule to reject.
        """
        family = self.families[node.family]
        s = family.suggestion
        if not s.changes:
            raise EditError(f"{s.name}: no rule to reject")
        chosen = [s.rules[node.rule]] if node.rule >= 0 else [r for r in s.rules if r not in family.accepted]
        names = {rule_name(rule) for rule in chosen} or {self._dropped(s)}
        if names <= self.rejected:
            self.rejected -= names
            return f"{s.name}: suggested again"
        self.rejected |= names
        return f"{s.name}: {plural(len(chosen), 'rule') if chosen else 'it'} rejected (x takes that back)"


def _in_force(s: Suggestion, rules: RuleSet) -> tuple[Suggestion, list[Rule]]:
    """Return a suggestion with the rules in force in place of its own equal ones, and these; reasons may differ."""
    there = {replace(rule, why=None): rule for rule in rules.rules}
    found = tuple(there.get(replace(rule, why=None), rule) for rule in s.rules)
    return replace(s, rules=found), [rule for rule in found if replace(rule, why=None) in there]


def _taken_back(s: Suggestion, rules: RuleSet) -> bool:
    """True for a suggestion that only drops rules, all of which are gone."""
    return bool(s.drops) and not s.rules and not set(s.drops) & set(rules.rules)


def _only(s: Suggestion, rules: Sequence[Rule]) -> Suggestion:
    """Return a suggestion with some of its rules."""
    kept = set(rules)
    of = [(rule, n) for rule, n in zip(s.rules, s.matched, strict=True) if rule in kept]
    return replace(s, rules=tuple(rule for rule, _ in of), matched=tuple(n for _, n in of))


def _joined(before: Suggestion, again: Suggestion, accepted: Sequence[Rule]) -> SuggestedFamily:
    """Join the accepted rules of a family with its newly found ones."""
    if not accepted:
        return SuggestedFamily(again)
    old = _only(before, accepted)
    fresh = _only(again, [rule for rule in again.rules if rule not in set(accepted)])
    both = np.unique(np.concatenate((before.instances, again.instances), axis=1), axis=1)
    joined = replace(
        again,
        rules=old.rules + fresh.rules,
        matched=old.matched + fresh.matched,
        settles=again.settles + sum(old.matched),
        instances=both,
    )
    return SuggestedFamily(joined, frozenset(accepted))


def _with(s: Suggestion, rules: RuleSet) -> RuleSet:
    there = set(rules.rules)
    for rule in s.drops:
        if rule in there:
            rules = rules.removing(rule)
    return rules.adding(*s.rules)


def _what(s: Suggestion, rules: tuple[Rule, ...]) -> str:
    return f"{s.name} ({plural(len(rules), 'rule')})" if rules else s.name
