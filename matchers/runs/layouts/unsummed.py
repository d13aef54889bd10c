"""Terms of a sum that ranks read as if they were the sum, or parts, for no collective adds them up."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, marked
from matchers.laws.law import Form, Kind
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import upstream
from matchers.ops.json_values import integers, parsed_object
from matchers.ops.laws import additions, collective, rows_where
from matchers.ops.placement import AS_PARTS, NOT_SUMMED
from matchers.ops.shapes import numel
from matchers.ops.share import Holds

__all__ = ["read_unsummed"]


def read_unsummed(
    log: OpLog,
    flow: Ragged,
    holds: NDArray[np.int8],
    placed: Bool,
    summed: Bool,
    inferred: Sequence[int],
    ranks: AbstractSet[int],
) -> dict[int, str]:
    """By record with terms that no collective adds up, how they are read: NOT_SUMMED or AS_PARTS.

    Where it is only inferred that they are terms, parts of a whole may well be made of them: what reads one is misled
    if its own result is neither a part nor whole, and so is an update, a collective that gathers parts, and what is
    placed as a part. Losses of ranks are gathered to be told.

    Args:
        log, flow: of a rank, as of `sources`.
        holds: int8[n] of `Holds`.
        placed: bool[n], the log says what ranks hold.
        summed: bool[n], the ranks sum up the plain result.
        inferred: records with terms of which no collective tells.
        ranks: those that hold the terms.
    """
    partial, guessed = holds == Holds.PARTIAL, marked(list(inferred), len(log))
    left = partial & ~(summed & ~placed) & ~_summed(log, flow, placed, partial, ranks)
    as_whole = log.updates | ((holds == Holds.UNKNOWN) & (log.shape >= 0))
    as_parts = placed & (holds == Holds.SHARD) & ~collective(log)
    as_parts |= _gathering(log, flow) & (holds == Holds.REPLICA)
    whole, parts = (guessed & upstream(flow, misled, misled | guessed) for misled in (as_whole, as_parts))
    out = dict.fromkeys(np.flatnonzero(left & parts & (numel(log)[log.shape] != 1)).tolist(), AS_PARTS)
    return out | dict.fromkeys(np.flatnonzero(left & (placed | whole)).tolist(), NOT_SUMMED)


def _summed(log: OpLog, flow: Ragged, placed: Bool, partial: Bool, ranks: AbstractSet[int]) -> Bool:
    """bool[n]: nothing reads the result, or a collective that reduces it does, perhaps after it was scaled, moved or
    added up.

    One among other ranks alone adds up no terms of these.
    """
    reduces = rows_where(log, lambda law: law.reduces)
    among = reduces.copy()
    groups = log.texts("Group")
    for row in (row for row in groups if reduces[row]):
        members = integers((parsed_object(groups[row]) or {}).get("ranks"))
        among[row] = members is None or len(ranks & set(members)) != 1
    linear = rows_where(log, lambda law: law.linear or law.adds_rows or law.form is Form.SUM)
    unread = np.bincount(flow.value[flow.value >= 0], minlength=len(log)) == 0
    # a buffer that nothing reads is perhaps read under another name
    ends = among | (unread & rows_where(log, lambda law: law.form is Form.FILL))
    through = ends | reduces | rows_where(log, lambda law: law.moves) | np.where(placed, partial, linear)
    return upstream(flow, ends, through) | unread


def _gathering(log: OpLog, flow: Ragged) -> Bool:
    """bool[n]: the record gathers parts of tensors from the ranks, and nothing adds up what it gathered."""
    gathers = rows_where(log, lambda law: law.kind in (Kind.ALL_GATHER, Kind.GATHER))
    gathered = gathers.copy()
    hands_on = rows_where(log, lambda law: law.copies or law.form is Form.JOIN or law.waits)
    for row in np.flatnonzero(hands_on).tolist():
        gathered[row] = any(maker >= 0 and gathered[maker] for maker in flow[row].tolist())
    adds = rows_where(log, lambda law: law.form in (Form.SUM, Form.MEAN))
    for row in np.flatnonzero(additions(log)).tolist():
        adds[row] = all(maker >= 0 and gathered[maker] for maker in flow[row].tolist())
    return gathers & ~upstream(flow, adds, adds | hands_on)
