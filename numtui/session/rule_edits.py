"""Rule edits for key presses, and their effect on the comparison.

An `Edit` is a whole rule set with a title; nothing is applied here. One key press can offer several edits (this row, or
every such operation), among which the user chooses before anything is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

from matchers.comparison import Comparison
from matchers.drift import generalise
from matchers.drift.progressions import Stepwise, stepwise
from matchers.drift.red_rows import RecordPair, RedRows, record_pair_of
from matchers.drift.suggestion import Suggestion
from matchers.errors import UserError
from matchers.logs.op_log import OpLog
from matchers.pairing.pairing import Method
from matchers.rules.model import ApartRule, IgnoreRule, PairRule, Rule, RuleSet, Side
from matchers.rules.resolve import key_reference, resolve
from matchers.status import Status
from numtui.text.counts import plural

__all__ = [
    "Edit",
    "EditError",
    "Effect",
    "RecordPair",
    "ignore_edits",
    "pair_edits",
    "propose_template",
    "realign_edits",
    "record_pair_of",
    "template_edits",
    "unpair_edits",
]

_MAX_KEY = 40
"""Maximum characters of a key in a sentence."""
_MAX_NAMED_RULES = 2
"""Rules named one by one in a title."""


class EditError(UserError):
    """An edit that is impossible on these rows; the message gives the reason."""


P = ParamSpec("P")
T = TypeVar("T")


def _named(edits: Callable[P, T]) -> Callable[P, T]:
    """Refuse rows of which no rule can be written: a rule's names must not be empty, or thousands of letters long."""

    @wraps(edits)
    def of_names(*args: P.args, **options: P.kwargs) -> T:
        try:
            return edits(*args, **options)
        except ValueError as error:
            raise EditError(f"no rule can name this row: {error}") from None

    return of_names


@dataclass(frozen=True, slots=True)
class Edit:
    """The rules after a change; `title` describes the change."""

    title: str
    rules: RuleSet


@_named
def pair_edits(c: Comparison, rules: RuleSet, first: RecordPair, second: RecordPair) -> tuple[Edit, ...]:
    """Pair a of one row with b of the other: first the marked side, then the other way round.

    Rules that pair either record with another one, or keep the two apart, are removed.

    Raises:
        EditError: both rows are only on one side.
    """
    crossed = [(first[0], second[1]), (second[0], first[1])]
    if first[0] < 0 or second[1] < 0:
        crossed.reverse()
    possible = [(a, b) for a, b in crossed if a >= 0 and b >= 0]
    if not possible:
        side = "b" if first[0] < 0 else "a"
        raise EditError(f"both rows are only in {side}: a pair needs one of each side")
    edits = []
    for a, b in possible:
        refs = key_reference(c.a, a), key_reference(c.b, b)
        changed = rules
        for rule in _pairing(c, rules, {a}, {b}):
            changed = changed.removing(rule)
        for _, apart in rules.in_force(ApartRule):
            if (apart.a, apart.b) == refs:
                changed = changed.removing(apart)
        rule = PairRule(a=(refs[0],), b=(refs[1],), why=None)
        edits.append(Edit(f"pair {refs[0]} ↔ {refs[1]}", changed.adding(rule)))
    return tuple(edits)


@_named
def unpair_edits(c: Comparison, rules: RuleSet, row: int) -> tuple[Edit, ...]:
    """Cut a pair: remove the rule that made it, or add a rule that keeps the two apart.

    Raises:
        EditError: the row is not a pair.
    """
    if c.pair[row] < 0:
        raise EditError("this row is unpaired: nothing to cut")
    members_a, members_b = c.members(row)
    a, b = record_pair_of(c, row)
    refs = key_reference(c.a, a), key_reference(c.b, b)
    apart = ApartRule(a=refs[0], b=refs[1], why=None)
    title = " ↔ ".join(dict.fromkeys(refs))
    if c.pairing.method[c.pair[row]] == Method.OVERRIDE:
        without = rules
        for rule in _pairing(c, rules, set(members_a), set(members_b)):
            without = without.removing(rule)
        if without is not rules:
            return (
                Edit(f"drop the rule for {title}", without),
                Edit(f"drop the rule and keep apart {title}", without.adding(apart)),
            )
    return (Edit(f"keep apart {title}", rules.adding(apart)),)


def template_edits(c: Comparison, rules: RuleSet, row: int) -> tuple[Edit, ...]:
    """Generalise a pair to all layers: a template that replaces the pair rules it covers.

    Raises:
        EditError: the row is not a pair, or no template covers a sibling.
    """
    try:
        proposal = propose_template(c, rules, row)
    except EditError:
        if (steps := _steps(c, rules, row)) is None:
            raise
        said = f"continues the steps of {len(steps.replaces):,} manual pairs"
        return (Edit(f"{steps.rule.a[0]} ↔ {steps.rule.b[0]}: {said}", steps.applied(rules)),)
    title = f"{' + '.join(proposal.rule.a)} ↔ {' + '.join(proposal.rule.b)}: {proposal.text}"
    return (Edit(title, proposal.applied(rules)),)


def _steps(c: Comparison, rules: RuleSet, row: int) -> Stepwise | None:
    """Return the template that continues the steps of manual pairs; None with fewer than two of them."""
    a, b = c.members(row) if 0 <= row < len(c) else ((), ())
    found = stepwise(c, rules, a[0], b[0]) if len(a) == len(b) == 1 else None
    return found if found is not None and len(found.replaces) > 1 else None


def propose_template(c: Comparison, rules: RuleSet, row: int) -> generalise.Proposal:
    """Return the template for this row and its siblings, with the exceptions.

    Raises:
        EditError: as `template_edits`.
    """
    if not 0 <= row < len(c) or c.pair[row] < 0:
        raise EditError("this row is unpaired: nothing to generalise")
    try:
        return generalise.generalise(c, rules, *c.members(row))
    except generalise.NoTemplateError as error:
        raise EditError(str(error)) from None


def realign_edits(rules: RuleSet, found: Suggestion | None, elsewhere: int) -> tuple[Edit, ...]:
    """Realign a run of mispaired operations by their values.

    Args:
        found: the fix of the run with this row; None when it is in none.
        elsewhere: a row in some run, -1 without any.

    Raises:
        EditError: there is nothing to realign, or the rules changed since the search.
    """
    if found is None:
        where = f"; row {elsewhere + 1} is in one" if elsewhere >= 0 else ""
        raise EditError(f"this row is in no mispaired run{where}")
    try:
        changed = found.applied(rules)
    except ValueError:
        raise EditError("the rules changed meanwhile: try again after matching") from None
    steps = [f"drop {rules.where(rule)}" for rule in found.drops[:_MAX_NAMED_RULES]]
    if len(found.drops) > _MAX_NAMED_RULES:
        steps[-1] += f" and {len(found.drops) - _MAX_NAMED_RULES:,} more"
    if found.rules:
        steps.append(f"add {plural(len(found.rules), 'rule')}")
    return (Edit(f"realign {plural(found.rows, 'row')}: {', '.join(steps)}", changed),)


@_named
def ignore_edits(c: Comparison, rules: RuleSet, row: int) -> tuple[Edit, ...]:
    """Ignore this row, or every operation of its name on its side; on an ignored row, drop the ignore rules."""
    a, b = record_pair_of(c, row)
    side, log, record = (Side.A, c.a, a) if a >= 0 else (Side.B, c.b, b)
    if c.status[row] == Status.IGNORED:
        found = _ignoring(c, rules, a, b)
        if not found:
            raise EditError("no rule of the file ignores this row")
        without = rules
        for rule in found:
            without = without.removing(rule)
        return (Edit(f"stop ignoring {_key(log, record)}", without),)
    key, op = _key(log, record), log.op_name(record)
    return (
        Edit(f"ignore {key}", rules.adding(IgnoreRule(side=side, op=None, match=key, why=None))),
        Edit(f"ignore every {op} of {side}", rules.adding(IgnoreRule(side=side, op=op, match=None, why=None))),
    )


def _pairing(c: Comparison, rules: RuleSet, a: set[int], b: set[int]) -> list[Rule]:
    """Return the pair rules that name one of these records on its side."""
    found = []
    for forced in resolve(rules, c.a, c.b).forced:
        if not forced.template and (a & set(forced.a) or b & set(forced.b)):
            rule = rules.rules[forced.rule]
            if rule not in found:
                found.append(rule)
    return found


def _ignoring(c: Comparison, rules: RuleSet, a: int, b: int) -> list[Rule]:
    """Return the ignore rules that cover record a or record b."""
    found: list[Rule] = []
    for _, rule in rules.in_force(IgnoreRule):
        alone = resolve(RuleSet(rules=(rule,)), c.a, c.b)
        if (a >= 0 and alone.ignored_a[a]) or (b >= 0 and alone.ignored_b[b]):
            found.append(rule)
    return found


def _key(log: OpLog, record: int) -> str:
    key: str = log.keys[record]
    return key


@dataclass(frozen=True, slots=True)
class Effect:
    """Effect of a rule change on the comparison.

    Attributes:
        paired: records of a that get a partner, or a different one.
        cut: records of a that lose theirs, whether or not they get another.
        cut_pair: the first of them and what it was paired with, by their keys; empty where none is cut.
        red_before, red_after: number of red rows.
        cause_before, cause_after: key of the earliest first cause, None without one. (Row numbers change, because rows
            merge and split.)
        cause_moved: the earliest first cause is another operation.
        cause_ignored: a rule newly ignores it.
        ignored: how many more rows are ignored.
        red: the red rows that are removed.
    """

    paired: int
    cut: int
    cut_pair: tuple[str, ...]
    red_before: int
    red_after: int
    cause_before: str | None
    cause_after: str | None
    cause_moved: bool
    cause_ignored: bool
    ignored: int
    red: RedRows

    @classmethod
    def between(cls, old: Comparison, new: Comparison) -> Effect:
        before, after = old.pairing.partner_of_a, new.pairing.partner_of_a
        changed = before != after
        cut = np.flatnonzero(changed & (before >= 0))
        red = RedRows.between(old, new)
        spots = red.cause_before, red.cause_after
        keys = [
            _key(c.a, a) if a >= 0 else _key(c.b, b) if b >= 0 else None
            for c, (a, b) in zip((old, new), spots, strict=True)
        ]
        stays = not red.cause_moved
        return cls(
            paired=int(np.count_nonzero(changed & (after >= 0))),
            cut=len(cut),
            cut_pair=(_key(old.a, int(cut[0])), _key(old.b, int(before[cut[0]]))) if len(cut) else (),
            red_before=int(np.count_nonzero(old.red)),
            red_after=int(np.count_nonzero(new.red)),
            cause_before=keys[0],
            cause_after=keys[1],
            cause_moved=red.cause_moved,
            cause_ignored=stays and _ignored(new, spots[1]) and not _ignored(old, spots[0]),
            ignored=new.counts[Status.IGNORED] - old.counts[Status.IGNORED],
            red=red,
        )

    def cuts_besides(self, title: str) -> str:
        """Name the first pair that is cut, where the title of the change does not: `cuts layers.0…wq/op_0_mm`."""
        if all(key in title for key in self.cut_pair):
            return ""
        return f"cuts {' ↔ '.join(dict.fromkeys(map(_short, self.cut_pair)))}"

    def sentence(self) -> str:
        """`pairs 1 row · 74 fewer red · first cause moves from layers.0/op_1_mm to layers.3/op_0_add`."""
        parts = []
        if self.paired:
            parts.append(f"pairs {plural(self.paired, 'row')}")
        if self.cut:
            parts.append(f"cuts {plural(self.cut, 'pair')}")
        if self.ignored:
            parts.append(f"{'ignores' if self.ignored > 0 else 'stops ignoring'} {plural(abs(self.ignored), 'row')}")
        if not parts:
            parts.append("no new pairs")
        change = self.red_after - self.red_before
        parts.append(
            f"{abs(change):,} {'fewer' if change < 0 else 'more'} red" if change else f"still {self.red_after:,} red"
        )
        if self.cause_before is not None and self.cause_after is None:
            parts.append(f"first cause {_short(self.cause_before)} disappears")
        elif self.cause_before is None and self.cause_after is not None:
            parts.append(f"new first cause {_short(self.cause_after)}")
        elif self.cause_before is not None and self.cause_after is not None and self.cause_moved:
            parts.append(f"first cause moves from {_short(self.cause_before)} to {_short(self.cause_after)}")
        elif self.cause_ignored:
            parts.append("it remains the first cause")
        return " · ".join(parts)


def _ignored(c: Comparison, spot: RecordPair) -> bool:
    return bool(c.status[c.at_a[spot[0]] if spot[0] >= 0 else c.at_b[spot[1]]] == Status.IGNORED)


def _short(key: str) -> str:
    """Cut a key in the middle: its layer and its end tell keys apart."""
    head = ".".join(key.split(".")[:2])
    head = head if len(head) < _MAX_KEY // 2 else ""
    return key if len(key) <= _MAX_KEY else f"{head}…{key[len(head) + 1 - _MAX_KEY :]}"
