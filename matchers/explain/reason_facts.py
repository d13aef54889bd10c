"""The numbers and names behind the reason for a row's status, for reports and the inspector."""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, one_of
from matchers.comparison import Comparison
from matchers.explain.subject import key_of
from matchers.status import Status
from matchers.verdict.list_lengths import length
from matchers.verdict.reason import Reason

__all__ = ["Facts", "has_limit", "reason_facts", "reason_text", "with_names"]

Facts = dict[str, float | int | str]

_NAMED = (
    Reason.LOSS_SCALE,
    Reason.CANCELLATION,
    Reason.OTHER_SCALAR,
    Reason.OTHER_LIST_LENGTH,
    Reason.RECOMPUTED,
    Reason.RECOMPUTED_OTHERWISE,
    Reason.RULE,
)
"""Reasons with facts other than a limit."""


def with_names(c: Comparison) -> Bool:
    """bool[r]: rows whose reason may have facts other than a limit."""
    return one_of(c.reason, _NAMED)


def has_limit(c: Comparison, rows: slice | int = slice(None)) -> Bool:
    """bool: rows whose error was held against `tolerance`."""
    judged = one_of(c.status[rows], (Status.CLOSE, Status.DIVERGED)) | (c.reason[rows] == Reason.ROUNDING_UNLIMITED)
    return np.asarray(judged & np.isfinite(c.tolerance[rows]) & ~np.isnan(c.error[rows]))


def reason_facts(c: Comparison, row: int) -> Facts:
    """The facts of one row's reason; empty where the reason says all.

    `limit`: largest error that was allowed. `factor`: of a's losses and gradients against b's, or of the terms against
    their sum. `a`, `b`: scalar arguments, or numbers of tensors in a list. `of`: the key that a copy repeats. `rule`:
    its number in the list of rules.
    """
    reason, facts = Reason(c.reason[row]), Facts()
    if has_limit(c, row):
        facts["limit"] = float(c.tolerance[row])
    if reason == Reason.LOSS_SCALE:
        facts["factor"] = c.loss_scale
    elif reason == Reason.CANCELLATION and (factor := c.cancellation.get(int(c.pair[row]))):
        facts["factor"] = factor
    elif reason == Reason.OTHER_SCALAR and row in c.slots and (scalars := c.slots[row].scalars):
        facts["a"], facts["b"] = scalars
    elif reason == Reason.OTHER_LIST_LENGTH and min(c.row_a[row], c.row_b[row]) >= 0:
        facts["a"], facts["b"] = length(c.a, int(c.row_a[row])), length(c.b, int(c.row_b[row]))
    elif reason == Reason.RULE:
        facts["rule"] = int(c.excluded_by[row]) + 1
    elif reason in (Reason.RECOMPUTED, Reason.RECOMPUTED_OTHERWISE) and (original := _original(c, row)):
        facts["of"] = original
    return facts


def _original(c: Comparison, row: int) -> str:
    """The key of the operation that a copy repeats; empty where it is unknown."""
    if row in c.mismatch_at:
        found = c.mismatch_at[row]
        return (c.a if found.side == "a" else c.b).keys[found.mismatch.original]
    original = int(c.original[row])
    return key_of(c, original, "a" if c.row_a[row] >= 0 else "b") if original >= 0 else ""


def reason_text(c: Comparison, row: int) -> str:
    """`reason: within-tolerance, limit 1.5e-05`; the word is that of the filter `reason:`."""
    told = [f"reason: {Reason(c.reason[row]).label}"]
    for name, value in reason_facts(c, row).items():
        told.append(f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}")
    return ", ".join(told)
