"""Realign mispaired runs of operations, by changing the rules so that pairs agree with their numbers.

A shift (mispaired_runs.py) is proposed only after a trial: the run must come out fine, and no fine row may turn red. A
shift due to a user's rule is mended by dropping that rule, if the matching then does the rest; else by a template, or
by one pair rule per operation.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from matchers.arrays import Int64, one_of
from matchers.comparison import Comparison
from matchers.drift.mispaired_runs import Shift, find_shifts
from matchers.drift.pair_names import PairNames
from matchers.drift.red_rows import RedRows
from matchers.drift.suggestion import Suggestion, allowed, failure, instances, lost_pairs, matched, weigh
from matchers.drift.templates import Learner
from matchers.rules.key_index import key_reference
from matchers.rules.model import PairRule, Rule, TemplateRule
from matchers.status import AGREE, Status

__all__ = ["realignments"]

_NAME: Final = "realign"
_WHY: Final = "these have the same numbers"
_MAX_SHIFTS: Final = 8
"""Maximum number of shifts tried; each takes a few comparisons."""
_MAX_PAIRS: Final = 1_000
"""Maximum number of pair rules tried for a run."""
_SHARE: Final = 2 / 3
"""Minimum share of a run that has to come out fine."""
_NAMED: Final = 2
"""Maximum number of rules named in a sentence."""
_NUMBERS: Final = ("no", "one", "two", "three")


class _Change(NamedTuple):
    """Rules to drop, and rules to add."""

    drops: tuple[Rule, ...]
    rules: tuple[Rule, ...]


class _Trial(NamedTuple):
    """A beneficial change: the comparison with it, and the records of a that it makes fine."""

    change: _Change
    after: Comparison
    mended: Int64
    settles: int


def realignments(c: Comparison) -> tuple[Suggestion, ...]:
    """Rule changes that make runs of red pairs fine without cost to fine ones.

    Without red rows there are none. If the search fails, the last one says so.
    """
    found: list[Suggestion] = []
    try:
        for shift in find_shifts(c)[:_MAX_SHIFTS]:
            if any(suggestion.records.issuperset(shift.i.tolist()) for suggestion in found):
                continue
            best = _best(c, shift)
            if best is not None:
                found.append(_suggestion(c, shift, best))
    except Exception as error:  # noqa: BLE001 - a bug costs what it prevents from being found, and is said
        found += filter(None, [weigh(c, failure(_NAME, error))])
    return tuple(found)


def _best(c: Comparison, shift: Shift) -> _Trial | None:
    """The change that makes most of the run fine; of equals, the smallest."""
    drops = tuple(c.rules.rules[rule] for rule in shift.rules)
    if any(isinstance(rule, TemplateRule) for rule in drops) and _right_elsewhere(c, shift):
        return _tried(c, shift, _Change((), _pairs(c, shift)))
    alone = _tried(c, shift, _Change(drops, ())) if drops else None
    if alone is not None and alone.settles == len(shift.i):
        return alone
    pairs = _tried(c, shift, _Change(drops, _pairs(c, shift)))
    if pairs is None or (alone is not None and alone.settles >= pairs.settles):
        return alone
    templates = _tried(c, shift, _Change(drops, _templates(c, pairs)))
    return templates if templates is not None and templates.settles >= pairs.settles else pairs


def _pairs(c: Comparison, shift: Shift) -> tuple[Rule, ...]:
    i, j = shift.i[shift.witness], shift.j[shift.witness]
    return tuple(
        rule
        for one, other in zip(i.tolist(), j.tolist(), strict=True)
        for rule in allowed(PairRule, (key_reference(c.a, one),), (key_reference(c.b, other),), _WHY)
    )


def _templates(c: Comparison, pairs: _Trial) -> tuple[Rule, ...]:
    """Templates in place of the pairs, as far as they cover them."""
    if c.matching is None:
        return ()
    j = pairs.after.pairing.partner_of_a[pairs.mended]
    return tuple(Learner(PairNames(c, c.matching)).learn(pairs.mended, j, _WHY)[0])


def _right_elsewhere(c: Comparison, shift: Shift) -> bool:
    """True if the rules behind the shift make more pairs that are fine."""
    status = c.status[c.at_a[shift.made]]
    return int(np.count_nonzero(one_of(status, AGREE))) > len(shift.i)


def _tried(c: Comparison, shift: Shift, change: _Change) -> _Trial | None:
    """The change applied; None if it does not make the run fine, or breaks fine rows."""
    rules = c.rules.removing(*change.drops).adding(*change.rules)
    if rules == c.rules or len(change.rules) > _MAX_PAIRS:
        return None
    after = c.with_rules(rules)
    fine = one_of(after.status, AGREE)[after.at_a]
    mended = np.flatnonzero(c.red[c.at_a] & fine)
    settles = int(np.count_nonzero(fine[shift.i]))
    trial = _Trial(change, after, mended, settles)
    if settles < _SHARE * len(shift.i) or lost_pairs(c, after, _given_up(shift, trial)) or _spoiled(c, after):
        return None
    return trial


def _given_up(shift: Shift, trial: _Trial) -> frozenset[int]:
    """The records of a whose pairs are known to be wrong."""
    by_rules = shift.made.tolist() if trial.change.drops else ()
    return frozenset((*shift.i.tolist(), *trial.mended.tolist(), *by_rules))


def _suggestion(c: Comparison, shift: Shift, trial: _Trial) -> Suggestion:
    status = trial.after.status[trial.after.at_a[shift.i]]
    equal = int(np.count_nonzero(one_of(status, (Status.EQUAL, Status.SAME_PRINT))))
    finding = _finding(c, shift, equal, trial.settles - equal)
    return Suggestion(
        name=_NAME,
        explanation=f"{finding} {_remedy(c, shift, trial.change)}".strip(),
        instances=instances(shift.i, shift.j),
        rules=trial.change.rules,
        matched=matched(trial.after, trial.change.rules),
        settles=trial.settles,
        before=c.counts,
        after=trial.after.counts,
        drops=trial.change.drops,
        records=_given_up(shift, trial),
        red=RedRows.between(c, trial.after),
    )


def _spoiled(before: Comparison, after: Comparison) -> bool:
    """True if a record loses a fine pair, or the number of red rows does not fall."""
    for was, now in ((before.at_a, after.at_a), (before.at_b, after.at_b)):
        if (one_of(before.status, AGREE)[was] & ~one_of(after.status, AGREE)[now]).any():
            return True
    return int(after.red.sum()) >= int(before.red.sum())


# Text


def _finding(c: Comparison, shift: Shift, equal: int, close: int) -> str:
    total = len(shift.i)
    rows = "row" if total == 1 else "rows"
    differing = f"{total:,} {rows} of {_modules(c, shift.i)} {'differs' if total == 1 else 'differ'} as paired"
    if shift.by:
        number = abs(shift.by)
        places = _NUMBERS[number] if number < len(_NUMBERS) else str(number)
        where = f"paired {places} further {'down' if shift.by > 0 else 'up'}"
    else:
        where = f"paired by {'its' if total == 1 else 'their'} numbers"
    verdicts = [f"{count} {word}" for count, word in ((equal, "equal as printed"), (close, "close")) if count]
    if total == 1:
        return f"{differing}; {where}, it is {'equal as printed' if equal else 'close'}."
    many, _, word = verdicts[0].partition(" ")
    first = f"all {total} are" if int(many) == total else f"{many} of {total} {'is' if many == '1' else 'are'}"
    return f"{differing}; {where}, {first} {' and '.join((word, *verdicts[1:]))}."


def _modules(c: Comparison, rows: Int64) -> str:
    """The module of some records, or the common pattern of several: `layers.*.attention`."""
    names = [c.a.modules[at] for at in np.unique(c.a.module[rows]).tolist()]
    parts = [name.split(".") for name in names]
    if len({len(part) for part in parts}) > 1:
        return f"{names[0]} and others"
    text = ".".join(part[0] if len(set(part)) == 1 else "*" for part in zip(*parts, strict=True))
    return text if len(names) == 1 else f"{text} ({len(names)} modules)"


def _remedy(c: Comparison, shift: Shift, change: _Change) -> str:
    if not shift.rules:
        return ""
    named = ", ".join(c.rules.where(c.rules.rules[rule]) for rule in shift.rules[:_NAMED])
    if len(shift.rules) > _NAMED:
        named += f" and {len(shift.rules) - _NAMED} more"
    one = len(shift.rules) == 1
    source = f"The rule{'' if one else 's'} at {named} {'makes' if one else 'make'} these pairs"
    if not change.drops:
        return f"{source} and is right elsewhere: pair rules for these rows override it."
    if not change.rules:
        return f"{source}; without {'it' if one else 'them'} the matching finds the right ones."
    return f"{source} and must be dropped."
