"""Evidence behind the outcome: rows compared per method (digests, printed norms, tolerance), and its limits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from matchers.comparison import Comparison
from matchers.status import Status
from numtui.report.parts import plural

__all__ = ["agreement", "certificate"]

_AGREE = (Status.EQUAL, Status.SAME_PRINT, Status.CLOSE)


def agreement(c: Comparison) -> str:
    """Return the outcome of a comparison without red rows, in one sentence."""
    if not len(c):
        return "Nothing to compare: both logs are empty."
    agree = sum(c.counts[status] for status in _AGREE)
    if not agree:
        return "Nothing was compared: no operation of one run has a match in the other."
    agrees = "agrees" if agree == 1 else "agree"
    bits = " bitwise" if c.counts[Status.EQUAL] == agree else ""
    return f"No divergence: {plural(agree, 'operation')} {agrees}{bits}."


def certificate(c: Comparison) -> Iterator[str]:
    """Yield sentences about the evidence; none where nothing was compared."""
    n = c.counts
    if n[Status.EQUAL]:
        what = plural(n[Status.EQUAL], "operation")
        yield f"{what} by digest: inputs and outputs are bitwise equal."
    if n[Status.SAME_PRINT]:
        yield (
            f"{plural(n[Status.SAME_PRINT], 'operation')} by printed norms, which miss reordering, "
            "sign flips (L1, L2) and changes below 5e-7."
        )
    if n[Status.CLOSE]:
        yield f"{plural(n[Status.CLOSE], 'operation')} within tolerance, {_largest(c)}."
    left = {
        "unpaired": n[Status.ONLY_A] + n[Status.ONLY_B],
        "recomputed on one side": n[Status.RECOMPUTE],
        "sharded differently": n[Status.SHARDED],
        "partial sums in another reduction order": n[Status.PARTIAL],
        "without values": n[Status.NO_VALUES],
        "not judged": n[Status.NOT_JUDGED],
        "logged before they finished": n[Status.UNFINISHED],
        "ignored by rules": n[Status.IGNORED],
    }
    if any(left.values()):
        yield "Not compared: " + ", ".join(f"{k:,} {what}" for what, k in left.items() if k) + "."


def _largest(c: Comparison) -> str:
    from matchers.explain.sentences import format_error  # not for the rows in machine formats

    close = np.flatnonzero(c.status == Status.CLOSE)
    error = c.error[close]
    if np.isnan(error).all():
        return "errors unknown"
    worst = int(close[np.nanargmax(error)])
    return f"largest error {format_error(float(c.error[worst]), bool(c.bound[worst]))}"
