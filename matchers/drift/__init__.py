"""Known ways in which the names and operations of two runs drift apart, found in a comparison, and rules about them.

`suggest` asks every detector, tries the rules they propose, and keeps those that part no pair that is sure. Detectors
look at distinct names and at integer columns of rows, so that this is linear in the number of operations.
"""

from __future__ import annotations

from matchers.comparison import Comparison
from matchers.drift.lone import lone_families
from matchers.drift.names import name_families
from matchers.drift.suggestion import Suggestion, together, weigh, with_more
from matchers.drift.view import PairNames

__all__ = ["Suggestion", "suggest", "together", "with_more"]


def suggest(c: Comparison) -> tuple[Suggestion, ...]:
    """The families of drift in a comparison, those first whose rules settle most."""
    if c.matching is None:
        return ()
    names = PairNames(c, c.matching)
    found = [weigh(c, finding) for finding in (*name_families(names), *lone_families(names))]
    return tuple(sorted(found, key=lambda s: (-s.settles, -s.rows, s.name)))
