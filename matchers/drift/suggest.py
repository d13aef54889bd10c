"""Suggest rules for known kinds of drift between the names and operations of two runs.

`suggest` runs every detector, tries the proposed rules, and keeps those that break no certain pair. Mispaired runs, due
to a rule or not, get a proposal to realign them. Detectors look at distinct names and at integer columns, so the time
is linear in the number of operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from matchers.comparison import Comparison
from matchers.drift.divided_losses import divided_losses
from matchers.drift.name_families import name_families
from matchers.drift.pair_names import PairNames
from matchers.drift.realign import realignments
from matchers.drift.suggestion import Finding, Suggestion, compatible, found_by, weigh
from matchers.drift.unpaired_ops import unpaired_families

__all__ = ["families", "suggest"]


def suggest(c: Comparison) -> tuple[Suggestion, ...]:
    """Suggest rules: first for mispaired runs, then for families of drift, those that settle most first.

    Mispaired runs look like drift, so the families are searched with those mended, and their effect is counted from
    there.
    """
    wrong = realignments(c)
    rules = c.rules
    for suggestion in compatible(c, wrong):
        rules = suggestion.applied(rules)
    mended = c.with_rules(rules) if rules is not c.rules else c
    weighed = (
        weigh(mended, finding)
        for finding in (*families(mended), *found_by("divided losses", partial(divided_losses, mended)))
    )
    found = [suggestion for suggestion in weighed if suggestion is not None]
    return (*wrong, *sorted(found, key=lambda s: (-s.settles, -s.rows, s.name)))


def families(c: Comparison) -> Iterator[Finding]:
    """The families of drift that names and unpaired operations show; a detector that fails costs only its own."""

    def of_names() -> Iterator[Finding]:
        if c.matching is not None:
            names = PairNames(c, c.matching)
            yield from found_by("drift of names", partial(name_families, names))
            yield from found_by("unpaired operations", partial(unpaired_families, names))

    yield from found_by("known kinds of drift", of_names)
