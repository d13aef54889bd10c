"""Pairs whose numbers advance in equal steps, and the template for the user's own pairs that do so.

Example: `op_0`, `op_4`, `op_8` of one run are in layers 5, 4, 3 of the other. Counters that run through all layers, or
all micro-batches, encode in steps what the names omit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import mul
from typing import Final, NamedTuple

import numpy as np

from matchers.arrays import Int64
from matchers.comparison import Comparison
from matchers.drift.pair_names import Names, key_text
from matchers.drift.suggestion import allowed
from matchers.rules.model import PairRule, RuleSet, TemplateRule
from matchers.rules.pattern import Pattern
from matchers.rules.resolve import resolve

__all__ = ["NO_VALUE", "Hole", "Steps", "Stepwise", "progressions", "stepwise"]

NO_VALUE: Final = -1
_LEAST: Final = 3
"""Minimum number of pairs in a progression."""
_SHARE: Final = 1 / 64
"""Minimum share of the pairs in a progression that is worth a rule."""
_MIN_SHARE: Final = 1 / 2
"""Minimum share of the pairs in any progression; fewer advance in equal steps by accident."""
_LOOK_AHEAD: Final = 16
"""Number of following pairs tried as the second of a progression."""
_PATIENCE: Final = 32
"""Number of unsuccessful first pairs after which the search ends."""


class Progression(NamedTuple):
    """Pairs in equal steps.

    Attributes:
        rows: positions of the pairs, in step order.
        start: the numbers of the first pair: those of a, then those of b.
        step: the increment of each number from one pair to the next.
    """

    rows: Int64
    start: tuple[int, ...]
    step: tuple[int, ...]


class Hole(NamedTuple):
    """A number of a template: `factor` times the placeholder's value, plus `offset`."""

    factor: int
    offset: int

    def fill(self, value: Int64) -> Int64:
        return self.factor * value + self.offset

    def text(self, name: str) -> str:
        if not self.factor:
            return str(self.offset)
        if self.factor < 0:
            return f"{{{self.offset}-{_times(-self.factor)}{name}}}"
        return f"{{{_times(self.factor)}{name}{f'{self.offset:+d}' if self.offset else ''}}}"


class Steps(NamedTuple):
    """A progression as the holes of a template for a and one for b; hole `by` of a is captured."""

    a: tuple[Hole, ...]
    b: tuple[Hole, ...]
    by: int

    @classmethod
    def of(cls, progression: Progression, of_a: int) -> Steps:
        start, step = np.array(progression.start), np.array(progression.step)
        by = next((at for at in range(of_a) if abs(step[at]) == 1), int(np.flatnonzero(step[:of_a])[0]))
        if step[by] < 0:
            start, step = start + (len(progression.rows) - 1) * step, -step
        if step[by] == 1:  # capture the number itself
            start = start - step * start[by]
        holes = tuple(Hole(factor, offset) for factor, offset in zip(step.tolist(), start.tolist(), strict=True))
        return cls(holes[:of_a], holes[of_a:], by)

    def texts(self, a: Names, i: int, b: Names, j: int) -> tuple[str, str]:
        """The templates of a and of b, for operations with the modules and ops of i and j."""
        # `i` stands for a module's number, `n` for a counter, `k` for a step
        name = "k" if self.a[self.by].factor > 1 else "n" if self.by == len(self.a) - 1 else "i"
        texts = []
        for side, record, holes in ((a, i, self.a), (b, j, self.b)):
            *numbers, counter = (hole.text(name) for hole in holes)
            texts.append(key_text(side.place(record).pattern, numbers, counter, side.log.op_name(record)))
        return texts[0], texts[1]

    def value(self, numbers: Int64) -> Int64:
        """The captured value for each row of a's numbers; `NO_VALUE` for rows that the template does not match."""
        hole = self.a[self.by]
        value, rest = np.divmod(numbers[:, self.by] - hole.offset, hole.factor)
        fits = (rest == 0) & (value >= 0)
        for at, other in enumerate(self.a):
            fits &= numbers[:, at] == other.fill(value)
        return np.where(fits, value, NO_VALUE)


def _times(factor: int) -> str:
    return str(factor) if factor > 1 else ""


def progressions(numbers: Int64, of_a: int) -> list[Progression]:
    """The longest runs of pairs in equal steps, each pair in one at most.

    Args:
        numbers: int64[pairs, k]: the numbers in the names of each pair, those of a (`of_a` of them) first.
    """
    if len(numbers) < _LEAST or len(np.unique(numbers[:, :of_a], axis=0)) < len(numbers):
        return []
    least = max(_LEAST, _SHARE * len(numbers))
    rows = list(map(tuple, numbers.tolist()))
    # a number for each row, such that equal steps are equal differences, also just beyond the rows
    base = 6 * int(np.abs(numbers).max()) + 1
    weights = [base**k for k in range(numbers.shape[1])]
    codes = [sum(map(mul, row, weights)) for row in rows]
    at = {code: position for position, code in enumerate(codes)}
    free = dict.fromkeys(range(len(rows)))
    found = []
    patience = _PATIENCE
    while free and patience:
        first = next(iter(free))
        best: list[int] = []
        for second in islice(free, 1, _LOOK_AHEAD + 1):
            run = _run(codes, at, free, first, second)
            if len(run) > len(best):
                best = run
        if len(best) >= least:
            start, then = rows[best[0]], rows[best[1]]
            step = tuple(two - one for one, two in zip(start, then, strict=True))
            found.append(Progression(np.array(best, np.int64), start, step))
            for row in best:
                del free[row]
        else:
            patience -= 1
            del free[first]
    return found if sum(len(run.rows) for run in found) >= _MIN_SHARE * len(rows) else []


def _run(codes: list[int], at: dict[int, int], free: dict[int, None], first: int, second: int) -> list[int]:
    """The pairs from `first` on in the step from `first` to `second`."""
    run = [first]
    following = codes[second]
    step = following - codes[first]
    while (row := at.get(following, -1)) in free:
        run.append(row)
        following += step
    return run


class Stepwise(NamedTuple):
    """A template, and the pair rules that it replaces."""

    rule: TemplateRule
    replaces: tuple[PairRule, ...]

    def applied(self, rules: RuleSet) -> RuleSet:
        """The rules with the template in place of the pairs."""
        return rules.removing(*self.replaces).adding(self.rule)


def stepwise(c: Comparison, rules: RuleSet, i: int, j: int) -> Stepwise | None:
    """The template through the pair (i, j) and the pair rules about operations of the same kind.

    None if there are no such rules, or if the pairs do not advance in equal steps.
    """
    if c.a.counter[i] < 0 or c.b.counter[j] < 0:
        return None
    resolved = resolve(rules, c.a, c.b)
    a, b = Names(c.a, resolved.modules_a), Names(c.b, resolved.modules_b)
    kind = _kind(a, i), _kind(b, j)
    made: dict[tuple[int, int], PairRule] = {}
    for forced in resolved.forced:
        rule = rules.rules[forced.rule]
        if isinstance(rule, PairRule) and len(forced.a) == len(forced.b) == 1:
            one, other = forced.a[0], forced.b[0]
            if (_kind(a, one), _kind(b, other)) == kind and c.a.counter[one] >= 0 and c.b.counter[other] >= 0:
                made[one, other] = rule
    pairs = sorted({(i, j), *made}, key=lambda pair: (a.numbers(pair[0]), b.numbers(pair[1])))
    width = len(a.numbers(i))
    progression = _through(np.array([a.numbers(one) + b.numbers(other) for one, other in pairs], np.int64), width)
    if progression is None:
        return None
    steps = Steps.of(progression, width)
    text_a, text_b = steps.texts(a, i, b, j)
    why = next((rule.why for rule in made.values() if rule.why), None)
    for template in allowed(TemplateRule, (text_a,), (text_b,), why):  # not for a step below 0
        if _makes(template, pairs, c):
            return Stepwise(template, tuple(made.values()))
    return None


def _kind(side: Names, record: int) -> tuple[object, ...]:
    """The common part of operations whose names differ only in numbers."""
    return side.place(record).pattern, side.log.op_name(record)


def _through(numbers: Int64, of_a: int) -> Progression | None:
    """The finest equal steps through all pairs; None if there are none."""
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
    # the pairs may start in the middle: extend the progression down to 0
    rising = step > 0
    start = numbers[0] - step * int((numbers[0][rising] // step[rising]).min())
    return Progression(np.arange(len(numbers)), tuple(start.tolist()), tuple(step.tolist()))


def _makes(rule: TemplateRule, pairs: Sequence[tuple[int, int]], c: Comparison) -> bool:
    """True if the template maps each pair's operation of a to that of b."""
    source, target = Pattern.of(rule.a[0]), Pattern.of(rule.b[0])
    keys = ((c.a.keys[one], c.b.keys[other]) for one, other in pairs)
    return all((read := source.match(key)) is not None and target.expand(read) == other for key, other in keys)
