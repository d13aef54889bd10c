"""NaN and Inf in one log: the operations that return them, and those that read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from matchers.arrays import Bool, Int64, marked
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog, Phase, once_per_log
from matchers.ops.dataflow import WHOLE, sources, upstream, values_read
from matchers.ops.laws import result_limit, rows_where
from matchers.ops.placement import is_merged, merged_records
from matchers.ops.unused_passes import unused_passes
from matchers.ops.values import further, parameter_name

__all__ = ["broken", "broken_kind", "broken_text", "reads_broken", "untaken", "where_broken_begins"]


@once_per_log
def broken(log: OpLog) -> tuple[Bool, Bool]:
    """bool[n] each: records with NaN that a result takes, and with Inf, in what they return or change in place."""
    counted = log.counts[0] >= 0
    nan, inf = counted & (log.counts[1] > 0), counted & (log.counts[2] > 0)
    for k, column in enumerate(log.stats):
        said = ~counted & ((log.present >> k & 1) == 1)
        nan |= said & np.isnan(column)
        inf |= said & np.isinf(column)
    values, owner = log.outputs.value.copy(), log.outputs.row
    values[np.arange(len(owner)) - log.outputs.start[owner] >= result_limit(log)[owner]] = 0
    values[log.outputs.start[:-1][counted & (log.outputs.count > 0)]] = 0  # without a finite number the norm is NaN
    more, spare = further(log), untaken(log)
    told = (more.counts[0] >= 0) & (more.slot > 0) & (more.slot < log.outputs.count[more.maker])
    values[log.outputs.start[more.maker[told]] + more.slot[told]] = 0
    if merged := merged_records(log):
        values[np.isin(owner, merged) & counted[owner]] = 0  # that of terms is unknown
    nan[owner[np.isnan(values)]] = True
    inf[owner[np.isinf(values)]] = True
    nan[[row for row, slot in spare if slot == 0]] = False
    of_nan = (column[more.counts[1] > 0].tolist() for column in (more.maker, more.slot))
    nan[[row for row, slot in zip(*of_nan, strict=True) if (row, slot) not in spare]] = True
    inf[more.maker[more.counts[2] > 0]] = True
    used = ~unused_passes(log)
    return nan & used, inf & used


@once_per_log
def untaken(log: OpLog) -> frozenset[tuple[int, int]]:
    """The values with NaN that no result takes, as (maker, slot) of `Values`: all that is computed of them is finite.

    A placeholder that a mask covers, memory that is overwritten before it is read, a further output of the forward pass
    that nothing reads. Any other value that nothing reads, such as a loss, is a result, and so is what is left in a
    named tensor. Who reads only a shape, returns whole numbers or a part, or sends it to other ranks, does not tell.
    """
    values, n = further(log), len(log)
    nan = np.concatenate((log.counts[1] > 0, values.counts[1] > 0))
    if not nan.any():
        return frozenset()
    maker, slot = np.append(np.arange(n), values.maker), np.append(np.zeros(n, np.int64), values.slot)
    tells = (log.counts[0] >= 0) & (log.dtype >= 0) & _rounds(log.dtypes)[log.dtype]
    tells[values.maker[(values.counts[0] >= 0) & _rounds(values.dtypes)[values.dtype]]] = True
    broken_record = marked(maker[nan], n)
    tells &= ~rows_where(log, lambda law: (law.blind and not law.in_place) or law.communicates)
    tells &= broken_record | ~rows_where(log, lambda law: law.aliases)
    read, reader = values_read(log), log.inputs.row
    seen, by_any = np.zeros((2, len(nan) + 1), bool)
    seen[read[tells[reader]]], by_any[read] = True, True
    flow = sources(log).value
    unknown = (flow >= 0) & (read < 0)  # one of the maker's values is read
    of_unknown, of_broken = (np.isin(np.arange(n), flow[at]) for at in (unknown, unknown & broken_record[reader]))
    spare = (slot > 0) & (log.phase[maker] == Phase.FORWARD) & ~by_any[:-1] & ~of_unknown[maker]
    in_place = rows_where(log, lambda law: law.in_place)
    named = np.zeros(len(nan), bool)
    for v in np.flatnonzero(nan & ((slot < 0) | in_place[maker])).tolist():
        written = -1 - int(slot[v]) if slot[v] < 0 else 0
        named[v] = not parameter_name(log, int(maker[v]), written).startswith("input ")
    lasting = nan & ((~seen[:-1] & ~spare) | named | of_broken[maker])
    ends = marked(maker[lasting], n)
    takes = (read >= 0) & nan[read] & (tells & broken_record)[reader]
    ends = upstream(log.inputs.with_values(np.where(takes, flow, -1)), ends, broken_record)
    lasting[read[takes & ends[reader]]] = True
    lasting[unused_passes(log)[maker]] = False
    return frozenset(zip(maker[nan & ~lasting].tolist(), slot[nan & ~lasting].tolist(), strict=True))


def _rounds(dtypes: Sequence[str]) -> Bool:
    """bool[dtypes + 1], the dtypes that can hold NaN; True for an unknown one."""
    return np.array([*(not name.startswith(WHOLE) for name in dtypes), True])


def reads_broken(log: OpLog, flow: Ragged, made: Bool, kind: np.ufunc) -> Bool:
    """bool[n]: records that read such a value, by their inputs or by the outputs of their producers.

    Args:
        flow: as from `sources`.
        made: the records that return such a value.
        kind: `np.isnan` or `np.isinf`.
    """
    out = marked(log.inputs.row[kind(log.inputs.value)], len(log))
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
    start = marked(ends, len(among))
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
        values = [] if is_merged(log, row) else values[1:]
    else:
        values += [x for k, x in enumerate(log.stats[:, row].tolist()) if log.present[row] >> k & 1]
    return "NaN" if any(map(math.isnan, values)) else "Inf" if any(map(math.isinf, values)) else ""


def broken_text(log: OpLog, row: int) -> str:
    """`NaN`, or of several `3 NaN and 1 Inf of 4,096 numbers`, of the first result that has any; empty for none."""
    values = further(log)
    for counts in (log.counts[:, row], *(values.counts[:, v] for v in values.of(row))):
        total, nan, inf, _ = counts.tolist()
        if total >= 0 and nan + inf > 0:
            return _counted(total, nan, inf)
    return broken_kind(log, row)


def _counted(total: int, nan: int, inf: int) -> str:
    if total == 1:
        return "NaN" if nan > 0 else "Inf"
    parts = [f"{count:,} {name}" for count, name in ((nan, "NaN"), (inf, "Inf")) if count > 0]
    return f"{' and '.join(parts)} of {total:,} numbers"
