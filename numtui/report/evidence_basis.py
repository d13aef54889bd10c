"""What the outcome rests on: what was compared, by what, and what that can and cannot see."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from matchers.comparison import Comparison
from matchers.status import Status
from numtui.report.parts import plural

__all__ = ["agreement", "certificate"]

_AGREE = (Status.EQUAL, Status.SAME_PRINT, Status.CLOSE)


def agreement(c: Comparison) -> str:
    """The outcome of a comparison in which nothing is red, in one sentence."""
    if not len(c):
        return "Nothing to compare: both logs are empty."
    agree = sum(c.counts[status] for status in _AGREE)
    if not agree:
        return "Nothing was compared: no operation of the one run is known in the other."
    agrees = "agrees" if agree == 1 else "agree"
    bits = ", equal bits" if c.counts[Status.EQUAL] == agree else ""
    return f"No divergence: {plural(agree, 'operation')} {agrees}{bits}."


def certificate(c: Comparison) -> Iterator[str]:
    """Sentences about what was compared; none where nothing was."""
    n = c.counts
    if n[Status.EQUAL]:
        what = plural(n[Status.EQUAL], "operation")
        yield f"{what} by digests of inputs and results: no bit of them can differ unseen."
    if n[Status.SAME_PRINT]:
        yield (
            f"{plural(n[Status.SAME_PRINT], 'operation')} by printed norms alone: they cannot see another order of the "
            "elements, signs that L1 and L2 do not know of, or a change below 5e-7."
        )
    if n[Status.CLOSE]:
        yield f"{plural(n[Status.CLOSE], 'operation')} within a tolerance, {_largest(c)}."
    left = {
        "without partner": n[Status.ONLY_A] + n[Status.ONLY_B],
        "run again on one side": n[Status.RECOMPUTE],
        "of other shards": n[Status.SHARDED],
        "parts of sums in another order": n[Status.PARTIAL],
        "logged before they were done": n[Status.UNFINISHED],
        "ignored by rules": n[Status.IGNORED],
    }
    if any(left.values()):
        yield "Not compared: " + ", ".join(f"{k:,} {what}" for what, k in left.items() if k) + "."


def _largest(c: Comparison) -> str:
    from matchers.explain.row import format_error  # not for the rows in machine formats

    close = np.flatnonzero(c.status == Status.CLOSE)
    error = c.error[close]
    if np.isnan(error).all():
        return "whose errors are not known"
    worst = int(close[np.nanargmax(error)])
    return f"the largest error is {format_error(float(c.error[worst]), bool(c.bound[worst]))}"
