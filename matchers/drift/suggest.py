"""Known ways in which the names and operations of two runs drift apart, found in a comparison, and rules about them.

`suggest` asks every detector, tries the rules they propose, and keeps those that part no pair that is sure. What is
paired past each other, by a rule of the user or without one, is offered to be realigned. Detectors
look at distinct names and at integer columns of rows, so that this is linear in the number of operations.
"""

from __future__ import annotations

from matchers.comparison import Comparison
from matchers.drift.naming import name_families
from matchers.drift.pair_names import PairNames
from matchers.drift.realign import realignments
from matchers.drift.suggestion import Suggestion, compatible, weigh
from matchers.drift.unpaired_ops import lone_families

__all__ = ["suggest"]


def suggest(c: Comparison) -> tuple[Suggestion, ...]:
    """What rules could settle: first the pairs that are made past each other, then the families of drift, those first
    whose rules settle most.

    Pairs made past each other look like drift; so the families are looked for in what is left when those are mended,
    and what their rules change is counted from there.
    """
    wrong = realignments(c)
    rules = c.rules
    for suggestion in compatible(c, wrong):
        rules = suggestion.applied(rules)
    mended = c.with_rules(rules) if wrong else c
    if mended.matching is None:
        return ()
    names = PairNames(mended, mended.matching)
    weighed = (weigh(mended, finding) for finding in (*name_families(names), *lone_families(names)))
    found = [suggestion for suggestion in weighed if suggestion is not None]
    return (*wrong, *sorted(found, key=lambda s: (-s.settles, -s.rows, s.name)))
