"""Known differences: a file of rows that a comparison may show without failing, each with a reason.

Unlike a rule it changes no verdict: what is allowed is as red as before, in every report; only the exit code lets it
pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from matchers.arrays import Bool
from matchers.comparison import Comparison
from matchers.key_index import index_of
from matchers.status import Role, Status

__all__ = ["AllowEntry", "AllowList", "Allowed"]


@dataclass(frozen=True, slots=True)
class AllowEntry:
    """One known difference.

    Attributes:
        match: glob over the keys of either side.
        why: the reason, in the user's words.
        statuses: what the rows may be; empty for anything.
        up_to: the relative error up to which they may be it; inf for any.
        consequences: whether what only follows from these rows is allowed as well.
        line: 1-based line of the file.
    """

    match: str
    why: str
    statuses: frozenset[Status]
    up_to: float
    consequences: bool
    line: int


@dataclass(frozen=True, slots=True)
class Allowed:
    """What an `AllowList` lets pass: `rows` is bool[r]; `stale` are the entries that no row needs."""

    rows: Bool
    stale: tuple[AllowEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class AllowList:
    """The entries of a file (`numtui.report.allow_file` reads it)."""

    path: str
    entries: tuple[AllowEntry, ...]

    def apply(self, c: Comparison) -> Allowed:
        """The rows of a comparison that the entries let pass."""
        rows, explained, stale = np.zeros(len(c), bool), np.zeros(len(c), bool), []
        judged = c.red | c.cause | (c.status == Status.ONLY_A) | (c.status == Status.ONLY_B)
        for entry in self.entries:
            found = judged & _matching(c, entry)
            rows |= found
            if entry.consequences:
                explained |= found
            if not found.any():
                stale.append(entry)
        return Allowed(rows | _consequences(c, explained), tuple(stale))


def _matching(c: Comparison, entry: AllowEntry) -> Bool:
    found = np.zeros(len(c), bool)
    for log, records in ((c.a, c.row_a), (c.b, c.row_b)):
        # The extra entry answers for record -1, a row that this side does not have.
        found |= np.append(index_of(log, tuple(log.modules)).glob(entry.match), False)[records]
    if entry.statuses:
        found &= np.isin(c.status, list(entry.statuses))
    if entry.up_to < math.inf:
        # Rows without an error (of one side only, of another shape) have none that is too large.
        found &= ~(c.error > entry.up_to)
    return found


def _consequences(c: Comparison, explained: Bool) -> Bool:
    """The rows that are `explained`, and the red ones that follow from nothing else.

    A receiver follows from the red rows that made its inputs. Where the log does not tell who made them, it may follow
    from any first cause before it, so all of these have to be explained.
    """
    if c.flow is None or not explained.any():
        return explained
    out = explained.copy()
    guilty = c.red | c.cause
    others = np.flatnonzero(c.cause & ~explained)
    unexplained_from = int(others[0]) if len(others) else len(c)
    for row in np.flatnonzero((c.role == Role.RECEIVER) & ~c.cause & ~explained).tolist():
        sources = [
            int(at[maker])
            for flow, record, at in ((c.flow.a, int(c.row_a[row]), c.at_a), (c.flow.b, int(c.row_b[row]), c.at_b))
            for maker in flow[record]
            if maker >= 0
        ]
        red = [source for source in sources if guilty[source] and source != row]
        out[row] = all(out[source] for source in red) if red else row < unexplained_from
    return out
