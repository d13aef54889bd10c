"""Numbers of one kind: the norms and digests that other tools log need not be comparable with those of a capture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from matchers.arrays import Float64
from matchers.logs.columns import Ragged
from matchers.logs.op_log import STATISTICS, OpLog

__all__ = ["same_numbers", "tell_inputs"]


def tell_inputs(a: OpLog, b: OpLog) -> bool:
    """True if both logs tell norms of what operations read, and of one kind."""
    return a.tells.inputs == b.tells.inputs != "" and a.tells.modules == b.tells.modules


def same_numbers(a: OpLog, b: OpLog) -> tuple[OpLog, OpLog]:
    """The logs, without norms of inputs where theirs are of other kinds, or one has none; so with their digests.

    So, too, with the extremes and means of complex tensors.
    """
    if a.tells.inputs != b.tells.inputs:
        a, b = (replace(log, inputs=Ragged(log.inputs.start, _unread(log))) for log in (a, b))
    if a.tells.digests != b.tells.digests:
        none = (Ragged(np.zeros(len(log) + 1, np.int64), log.digests.value[:0]) for log in (a, b))
        a, b = (replace(log, digests=no, input_digests=no) for log, no in zip((a, b), none, strict=True))
    if a.tells.magnitudes != b.tells.magnitudes:
        a, b = _without_extremes(a), _without_extremes(b)
    return a, b


def _without_extremes(log: OpLog) -> OpLog:
    """The log, of whose complex tensors nothing is told but norms."""
    of_dtype = np.array([*(dtype.startswith("complex") for dtype in log.dtypes), False])  # the last one: unknown
    rows = of_dtype[log.dtype]
    told = [STATISTICS.index(name) for name in ("Min", "Max", "Mean")]
    stats = log.stats.copy()
    for k in told:
        stats[k, rows] = np.nan
    present = log.present & ~np.where(rows, sum(1 << k for k in told), 0).astype(np.uint8)
    return replace(log, stats=stats, present=present)


def _unread(log: OpLog) -> Float64:
    return np.full(len(log.inputs.value), np.nan)
