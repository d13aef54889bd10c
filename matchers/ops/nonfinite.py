"""NaN and Inf in one log: the operations that return them, and those that read them."""

from __future__ import annotations

import math

import numpy as np

from matchers.arrays import Bool, Int64
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import upstream
from matchers.ops.placement import MERGED

__all__ = ["broken", "broken_kind", "broken_text", "counted_text", "reads_broken", "where_broken_begins"]


def broken(log: OpLog) -> tuple[Bool, Bool]:
    """bool[n] each: records with NaN, and with Inf, in their outputs."""
    counted = log.counts[0] >= 0
    nan, inf = counted & (log.counts[1] > 0), counted & (log.counts[2] > 0)
    for k, column in enumerate(log.stats):
        said = ~counted & ((log.present >> k & 1) == 1)
        nan |= said & np.isnan(column)
        inf |= said & np.isinf(column)
    values, owner = log.outputs.value.copy(), log.outputs.row
    values[log.outputs.start[:-1][counted & (log.outputs.count > 0)]] = 0  # without a finite number the norm is NaN
    merged = list(log.texts(MERGED))
    if merged:
        values[np.isin(owner, merged) & counted[owner]] = 0  # that of terms is unknown
    nan[owner[np.isnan(values)]] = True
    inf[owner[np.isinf(values)]] = True
    return nan, inf


def reads_broken(log: OpLog, flow: Ragged, made: Bool, kind: np.ufunc) -> Bool:
    """bool[n]: records that read such a value, by their inputs or by the outputs of their producers.

    Args:
        flow: as from `sources`.
        made: the records that return such a value.
        kind: `np.isnan` or `np.isinf`.
    """
    out = np.zeros(len(log), bool)
    out[log.inputs.row[kind(log.inputs.value)]] = True
    known = flow.value >= 0
    out[flow.row[known][made[flow.value[known]]]] = True
    return out


def where_broken_begins(flow: Ragged, ends: Int64, among: Bool) -> Int64:
    """The upstream ends of a set of records: those reached from `ends` within `among` that read none of its members.

    Args:
        flow: as from `sources`.
        ends: records in `among`.
        among: bool[n], the set.
    """
    start = np.zeros(len(among), bool)
    start[ends] = True
    begins = upstream(flow, start, among) & among
    read = (flow.value >= 0) & among[flow.row]
    read[read] = among[flow.value[read]]
    begins[flow.row[read]] = False
    return np.flatnonzero(begins)


def broken_kind(log: OpLog, row: int) -> str:
    """`NaN` or `Inf` in the output of a record; empty if it is finite."""
    if log.counts[0, row] >= 0 and log.counts[1, row] + log.counts[2, row] > 0:
        return "NaN" if log.counts[1, row] > 0 else "Inf"
    counted, values = log.counts[0, row] >= 0, log.outputs[row].tolist()
    if counted:
        values = [] if row in log.texts(MERGED) else values[1:]
    else:
        values += [x for k, x in enumerate(log.stats[:, row].tolist()) if log.present[row] >> k & 1]
    return "NaN" if any(map(math.isnan, values)) else "Inf" if any(map(math.isinf, values)) else ""


def broken_text(log: OpLog, row: int) -> str:
    """`NaN`, or with counts `3 NaN and 1 Inf of 4,096 numbers`; empty if the output is finite."""
    total, nan, inf, _ = (int(x) for x in log.counts[:, row])
    return counted_text(total, nan, inf) if total >= 0 and nan + inf > 0 else broken_kind(log, row)


def counted_text(total: int, nan: int, inf: int) -> str:
    """`3 NaN and 1 Inf of 4,096 numbers`."""
    parts = [f"{count:,} {name}" for count, name in ((nan, "NaN"), (inf, "Inf")) if count > 0]
    return f"{' and '.join(parts)} of {total:,} numbers"
