"""The one first cause of runs that begin with other weights, of which the logs have norms alone.

How much such weights differ is not known (their norms may agree where they do not), so where an error jumps says
nothing: a step before this one has the first cause. What weights do not explain stays: NaN, shapes, arguments,
operations that only one run has.
"""

from __future__ import annotations

from matchers.causes.causes import Causes
from matchers.causes.first_difference import Equality, Kind, first_difference
from matchers.ops.shapes import sharded_runs
from matchers.status import Role, Status
from matchers.verdict.comparability import other_weights
from matchers.verdict.reason import Reason

__all__ = ["blame_weights"]


def blame_weights(found: Causes) -> None:
    """Blame the first reader of other weights in place of what differs in value behind it."""
    c = found.c
    follow = found.cause & (c.pair >= 0) & (c.verdict != Status.NAN) & (c.verdict != Status.SHAPE)
    follow &= c.reason != Reason.ARGUMENTS
    if not follow.any() or c.start.weights is not None or sharded_runs(c.a, c.b):
        return
    if other_weights(c.a, c.b, c.pairing, c.flow) is None:
        return
    first = first_difference(c, Equality(c))
    if first is not None and first.kind == Kind.START and not first.by_digest:
        found.acquit(follow.nonzero()[0], for_=first.row)
        if c.red[first.row]:
            found.role[first.row] = Role.UNKNOWN
