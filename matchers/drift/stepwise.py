"""From a few pairs made by hand to the template that goes on in their steps.

Where names have no number that says which layer is meant, counters may still lead from layer to layer in equal steps.
Two pairs are enough to say which: a person has made them, and sees what the template does before it is in force.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from matchers.arrays import Int64
from matchers.comparison import Comparison
from matchers.drift.progressions import Progression, Steps
from matchers.drift.view import Modules
from matchers.logs.op_log import OpLog
from matchers.rules.model import PairRule, RuleSet, TemplateRule
from matchers.rules.pattern import Pattern
from matchers.rules.resolve import resolve

__all__ = ["Stepwise", "stepwise"]

Numbers = tuple[int, ...]


class Stepwise(NamedTuple):
    """A template, and the pair rules that it says as well."""

    rule: TemplateRule
    replaces: tuple[PairRule, ...]

    def applied(self, rules: RuleSet) -> RuleSet:
        """The rules with the template in place of the pairs."""
        for pair in self.replaces:
            rules = rules.removing(pair)
        return rules.adding(self.rule)


class _Side(NamedTuple):
    """A log, and what its modules are called under the rules."""

    log: OpLog
    modules: Modules

    def kind(self, record: int) -> tuple[object, ...]:
        """What operations have in common whose names differ in numbers only."""
        return self.modules.places[self.log.module[record]].pattern, self.log.op_name(record)

    def numbers(self, record: int) -> Numbers:
        return (*self.modules.places[self.log.module[record]].numbers, int(self.log.counter[record]))


def stepwise(c: Comparison, rules: RuleSet, i: int, j: int) -> Stepwise | None:
    """The template through the pair (i, j) and the pair rules about operations of the same kind.

    None where there is no other one, or where they do not go on in equal steps.
    """
    if c.a.counter[i] < 0 or c.b.counter[j] < 0:
        return None
    resolved = resolve(rules, c.a, c.b)
    a = _Side(c.a, Modules(c.a, resolved.modules_a))
    b = _Side(c.b, Modules(c.b, resolved.modules_b))
    kind = a.kind(i), b.kind(j)
    made: dict[tuple[int, int], PairRule] = {}
    for forced in resolved.forced:
        rule = rules.rules[forced.rule]
        if isinstance(rule, PairRule) and len(forced.a) == len(forced.b) == 1:
            one, other = forced.a[0], forced.b[0]
            if (a.kind(one), b.kind(other)) == kind and c.a.counter[one] >= 0 and c.b.counter[other] >= 0:
                made[one, other] = rule
    pairs = sorted({(i, j), *made}, key=lambda pair: (a.numbers(pair[0]), b.numbers(pair[1])))
    width = len(a.numbers(i))
    progression = _through(np.array([a.numbers(one) + b.numbers(other) for one, other in pairs], np.int64), width)
    if progression is None:
        return None
    steps = Steps.of(progression, width)
    texts = [
        steps.text(side.modules.places[side.log.module[record]].pattern, side.log.op_name(record), holes)
        for side, record, holes in ((a, i, steps.a), (b, j, steps.b))
    ]
    try:
        template = TemplateRule(a=(texts[0],), b=(texts[1],), why=next((r.why for r in made.values() if r.why), None))
    except ValueError:  # a step that leads below 0, or a name that no rule can hold
        return None
    return Stepwise(template, tuple(made.values())) if _makes(template, pairs, c) else None


def _through(numbers: Int64, of_a: int) -> Progression | None:
    """The finest equal steps that lead through all pairs; None where none do."""
    away = numbers[1:] - numbers[0]
    if not len(away) or not away[:, :of_a].any(axis=1).all():
        return None
    finest = int(np.gcd.reduce(away[0]))
    step = away[0] // finest
    if step[:of_a][np.flatnonzero(step[:of_a])[0]] < 0:
        step = -step
    moving = int(np.flatnonzero(step[:of_a])[0])
    times = away[:, moving] // step[moving]
    if (times[:, None] * step != away).any():
        return None
    # the pairs may be from the middle: it begins where a number would be less than 0
    rising = step > 0
    start = numbers[0] - step * int((numbers[0][rising] // step[rising]).min())
    return Progression(np.arange(len(numbers)), tuple(start.tolist()), tuple(step.tolist()))


def _makes(rule: TemplateRule, pairs: Sequence[tuple[int, int]], c: Comparison) -> bool:
    """Whether the template leads from each of the pairs' operations of a to that of b."""
    source, target = Pattern.of(rule.a[0]), Pattern.of(rule.b[0])
    keys = ((c.a.keys[one], c.b.keys[other]) for one, other in pairs)
    return all((read := source.match(key)) is not None and target.expand(read) == other for key, other in keys)
