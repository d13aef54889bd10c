"""First causes where a layout is not merged: only what the values of the two logs prove by themselves.

Ranks then compute for each other what neither log shows, so that healthy runs differ, too. Two things are proof all the
same: an operation that read equal bits and returned other values, and one that only one run has, between a result of
both and a pair that reads this result in the other run. All else that differs, unless it follows from these, is not
judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from matchers.arrays import Bool, one_of
from matchers.causes.causes import Causes
from matchers.causes.consequences import given_numbers
from matchers.logs.columns import repeated
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.dataflow import downstream
from matchers.ops.laws import rows_where
from matchers.rows import Rows
from matchers.status import AGREE, Role, Status
from matchers.verdict.reason import Reason
from matchers.verdict.slots import SlotVerdict

__all__ = ["proven"]


def proven(c: Rows, of_records: Mapping[tuple[str, int], SlotVerdict], *, scaled: bool) -> Causes:
    """Keep of the red rows the proven first causes and their consequences.

    Args:
        of_records: verdicts on single records, by side and record.
        scaled: one run scales its gradients, as was found: what does that proves nothing.
    """
    red = c.verdict >= Status.SHAPE
    grouped = np.append(c.pairing.grouped, False)[c.pair]
    cause = red & c.inputs_equal & (c.verdict != Status.SHAPE) & ~grouped
    # a count may be that of the samples in parts of a batch
    counts = [(row, given_numbers(c, row)) for row in np.flatnonzero(cause).tolist()]
    cause[[row for row, told in counts if told and all(float(n).is_integer() for n in told)]] = False
    alone = _inserted(c, (c.verdict == Status.DIVERGED) & ~cause & ~grouped)
    alone &= ~(c.by_row(_scales_gradients) & scaled)
    follows = downstream(c.edges, cause | alone, c.verdict != Status.EQUAL)  # as consequences do
    alone[c.edges.row[follows[c.edges.value]]] = False  # it follows from another one
    unproven = red & ~follows
    verdict, reason = c.verdict.copy(), c.reason.copy()
    verdict[unproven] = Status.NOT_JUDGED
    reason[unproven & (c.excluded_by < 0)] = Reason.UNKNOWN_LAYOUT
    slots = {row: slot for row, slot in c.slots.items() if not unproven[row]}
    places = {"a": c.at_a, "b": c.at_b}
    told = {(side, record): slot for (side, record), slot in of_records.items() if follows[places[side][record]]}
    found = Causes.none(replace(c, verdict=verdict, reason=reason, slots=slots).with_unpaired(told))
    found.role[red & follows] = Role.RECEIVER
    found.role[cause | alone] = Role.ORIGIN
    found.cause[cause | alone] = True
    return found


def _inserted(c: Rows, differs: Bool) -> Bool:
    """bool[r]: operations of one run between a result that agrees and a pair that reads it in the other run."""
    assert c.flow is not None
    readers = np.flatnonzero(differs)
    flows, rows, ats = (c.flow.a, c.flow.b), (c.row_a, c.row_b), (c.at_a, c.at_b)
    i, j = (row[readers] for row in rows)
    owner, place = repeated(np.arange(len(readers)), np.minimum(flows[0].count[i], flows[1].count[j]))
    makers = [
        np.append(at, -1)[flow.value[flow.start[record[owner]] + place]]
        for flow, record, at in zip(flows, (i, j), ats, strict=True)
    ]
    agrees, computes = one_of(c.verdict, AGREE), (c.pair < 0) & c.by_row(_computes)
    found = np.zeros(len(c), bool)
    for mine, theirs in (makers, makers[::-1]):
        asked = (mine >= 0) & (theirs >= 0)
        mine, theirs = mine[asked], theirs[asked]
        asked = computes[mine] & agrees[theirs]
        for row, read in zip(mine[asked].tolist(), theirs[asked].tolist(), strict=True):
            found[row] |= read in c.edges[row]
    return found


def _computes(log: OpLog) -> Bool:
    return rows_where(log, lambda law: not (law.passes_elements or law.communicates or law.constant))


def _scales_gradients(log: OpLog) -> Bool:
    scales = rows_where(log, lambda law: law.scales and law.in_place)
    return scales & (log.phase == Phase.GRADIENTS)
