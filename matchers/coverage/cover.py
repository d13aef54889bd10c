"""The outcome for each operation of two logs: was it compared, does something vouch for it, or nothing?"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int64, marked, numbered_together, one_of
from matchers.coverage.calls import around_call, made_of_result
from matchers.laws.law import Form
from matchers.logs.columns import Ragged
from matchers.logs.op_log import NO_DIGEST, STATISTICS, OpLog, Phase, is_mark, once_per_pair
from matchers.ops.dataflow import upstream
from matchers.ops.laws import communicating, copies, rows_where
from matchers.ops.shapes import numel
from matchers.rows import Rows
from matchers.status import AGREE, Status
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative
from matchers.verdict.tolerance import SAME_NUMBERS

__all__ = ["ENOUGH", "Cover", "any_pair_compared", "covers"]

ENOUGH: Final = 0.5
"""A part of a log was not compared if this fraction of it is neither compared nor covered."""
_DIFFERS: Final = (
    Reason.CANCELLATION,
    Reason.ROUNDING_UNLIMITED,
    Reason.CHOSEN_OTHERWISE,
    Reason.REARRANGED,
    Reason.TIED,
    Reason.UNSIZED,
)
"""Reasons for not judging a result of which both runs have the same kind, with other bits."""
_MEAN: Final = STATISTICS.index("Mean")
_SUMMED: Final = 64 * 2.0**-24
"""Relative difference of one number that is summed in float32, in another order."""


class Cover(IntEnum):
    """The outcome for one operation."""

    NOT_COUNTED = 0
    COMPARED = 1
    COVERED = 2
    UNCOVERED = 3
    IGNORED = 4


def covers(c: Rows, kept: tuple[Bool, Bool] | None) -> NDArray[np.int8]:
    """int8[r] of `Cover`, by row.

    Args:
        kept: bool[n_a], bool[n_b], the records that wrote named tensors whose last contents all agree; may be
            empty for none.
    """
    agrees = one_of(c.verdict, (*AGREE, Status.PARTIAL))  # of partial sums, the total was compared
    cover = _by_verdict(c, agrees)
    for log, at in ((c.a, c.at_a), (c.b, c.at_b)):  # an expert without tokens, which the other run may skip
        cover[at[(numel(log)[log.shape] == 0) & (c.pair[at] < 0)]] = Cover.NOT_COUNTED
    for side, (log, at, other) in enumerate(((c.a, c.at_a, c.b), (c.b, c.at_b, c.a))):
        left = cover == Cover.UNCOVERED
        around = around_call(log, other) | made_of_result(c, side, left & (c.pair < 0), cover == Cover.COMPARED)
        cover[at[around & left[at]]] = Cover.NOT_COUNTED
    cover[c.status == Status.IGNORED] = Cover.IGNORED
    left = cover == Cover.UNCOVERED
    if left.any() and agrees.any() and c.flow is not None:
        vouched, absent = np.ones(len(c), bool), _absent(c, cover)
        for side, (log, at, flow) in enumerate(((c.a, c.at_a, c.flow.a), (c.b, c.at_b, c.flow.b))):
            wrote = kept[side] if kept is not None and len(kept[side]) else np.zeros(len(log), bool)
            holds = _vouched(log, flow, at, agrees[at], c.red[at], wrote, one_of(c.reason, _DIFFERS)[at])
            vouched[at[~holds]] = False
            absent[at[upstream(flow, wrote, np.ones(len(log), bool))]] = False
        cover[left & vouched & ~absent] = Cover.COVERED
        cover[_same_totals(c, cover == Cover.UNCOVERED)] = Cover.COVERED
        cover[_same_counts(c, cover == Cover.UNCOVERED)] = Cover.COVERED
        for log, at, flow in ((c.a, c.at_a, c.flow.a), (c.b, c.at_b, c.flow.b)):
            cover[at[_exact_copies(log, flow, cover[at] == Cover.COVERED, agrees[at])]] = Cover.COMPARED
    return cover


def _by_verdict(c: Rows, agrees: Bool) -> NDArray[np.int8]:
    """int8[r] of `Cover`: what the verdict on a row by itself says."""
    cover = np.full(len(c), Cover.UNCOVERED, np.int8)
    cover[agrees | c.red | c.cause] = Cover.COMPARED  # a first cause of one run only was found without a partner
    cover[c.status == Status.PARTIAL] = Cover.COVERED
    cover[c.status == Status.RECOMPUTE] = Cover.NOT_COUNTED
    cover[c.of_other_ranks] = Cover.NOT_COUNTED
    return cover


def any_pair_compared(c: Rows) -> bool:
    """True if a pair is among what `covers` finds compared; not all of that, but found much faster."""
    agrees = one_of(c.verdict, (*AGREE, Status.PARTIAL))
    of_pairs = (c.pair >= 0) & (c.status != Status.IGNORED)
    return bool((of_pairs & (_by_verdict(c, agrees) == Cover.COMPARED)).any())


def _absent(c: Rows, cover: NDArray[np.int8]) -> Bool:
    """bool[r]: rows of a phase that the other log does not have, or beyond its start or end if that is half of a log.

    No other form of them can be in the other log, and what reads them may have been read from anywhere.
    """
    absent = np.zeros(len(c), bool)
    counted = (cover == Cover.COMPARED) | (cover == Cover.UNCOVERED)
    common = np.flatnonzero(c.pair >= 0)
    ends = (slice(0, common[0]), slice(common[-1] + 1, None)) if len(common) else ()
    for log, mine, other, theirs in ((c.a, c.row_a, c.b, c.row_b), (c.b, c.row_b, c.a, c.row_a)):
        counts = counted & (mine >= 0)
        for end in ends:
            if 0 < ENOUGH * counts.sum() <= counts[end].sum() and not (theirs[end] >= 0).any():
                absent[end] = True
        of_phase = np.append(log.phase, -1)[mine]
        for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.AFTER):
            rows = of_phase == phase
            if not (other.phase == phase).any() and not (rows & (cover == Cover.COMPARED)).any():
                absent |= rows
    return absent


def _vouched(log: OpLog, flow: Ragged, at: Int64, agrees: Bool, red: Bool, kept: Bool, differs: Bool) -> Bool:
    """bool[n]: the record agrees, or an error in it would have shown.

    What it made is read by one that agrees, directly or through others, and by no red one; or nothing reads it, and it
    is a constant or a copy of what agrees. Of what differs, all that read it must agree; and an update by a gradient
    that differs says nothing of it.

    Args:
        flow: the record that made each input of each record.
        at: by record, the row; the members of a group do not vouch for each other.
        agrees, red: by record, its row was compared and agrees; is red.
        kept: by record, what it wrote agrees at the end of the step.
        differs: by record, its result differs, by what could not be judged.
    """
    n, every = len(at), np.ones(len(at), bool)
    unknown = ~(agrees | red)
    holds = agrees | (unknown & kept)
    edge = np.flatnonzero(np.append(unknown & ~holds, False)[flow.value])
    makers, readers = flow.value[edge], flow.row[edge]
    asked = (at[makers] != at[readers]) & ~rows_where(log, lambda law: law.blind, readers)
    told = asked & (red[readers] | ((differs & (log.phase == Phase.BACKWARD))[makers] & log.updates[readers]))
    asked &= ~marked(makers[told], n)[makers]
    while True:
        value = np.full(len(flow.value), -1)
        value[edge[asked]] = makers[asked]
        vouched = upstream(flow.with_values(value), holds, every)
        waits = vouched & ~holds & differs & marked(makers[asked & ~vouched[readers]], n)
        if not waits.any():
            break
        asked &= ~waits[makers]
    doubted = marked(flow.row[np.append(~vouched, False)[flow.value]], n)
    # made for a log or a metric as a rule
    simple = rows_where(log, lambda law: law.constant or law.copies or law.form is Form.JOIN)
    return vouched | (unknown & simple & ~_read(log, flow)[0] & ~doubted)


@once_per_pair
def _read(log: OpLog, flow: Ragged) -> tuple[Bool, Bool]:
    """bool[n]: the record is read, and its numbers are; not by what communicates: a buffer to receive in is no result.

    Args:
        flow: as of `_vouched`.
    """
    silent, blind = communicating(log), rows_where(log, lambda law: law.blind)
    read, told = (marked(flow.value[(flow.value >= 0) & ~but[flow.row]], len(log)) for but in (silent, silent | blind))
    return read, told


def _exact_copies(log: OpLog, flow: Ragged, asked: Bool, agrees: Bool) -> Int64:
    """The records, of those asked for, that copy the whole of what agrees, bit by bit, perhaps in another order.

    Args:
        flow: the record that made each input of each record.
        asked, agrees: by record.
    """
    rows = np.flatnonzero(asked & copies(log) & (log.inputs.count == 1) & (log.input_digests.count == 1))
    maker, made = flow.first(rows, -1), log.digests.first(rows, NO_DIGEST)
    known = (made == log.input_digests.first(rows, NO_DIGEST)) & ~is_mark(made) & (maker >= 0)
    rows, maker = rows[known], maker[known]
    off = relative(log.outputs.first(rows), log.outputs.first(maker))
    rows, maker = rows[off <= SAME_NUMBERS], maker[off <= SAME_NUMBERS]
    found = agrees.copy()
    for row, source in zip(rows.tolist(), maker.tolist(), strict=True):  # of a copy of a copy, too
        found[row] |= found[source]
    return rows[found[rows]]


def _same_totals(c: Rows, left: Bool) -> Bool:
    """bool[r]: unpaired rows that lead to a result with whose total both runs end, and which no other row reads.

    Such is a loss that is added up to be told, or whose terms are told one by one.

    Args:
        left: bool[r], rows that are not compared.
    """
    assert c.flow is not None
    alone, ends = list[tuple[Bool, Int64, Ragged]](), list[tuple[Int64, Float64]]()
    for log, at, flow, of in ((c.a, c.at_a, c.flow.a, c.pairing.of_a), (c.b, c.at_b, c.flow.b, c.pairing.of_b)):
        own = (of < 0) & left[at] & (~log.updates | ((log.phase == Phase.AFTER) & (numel(log)[log.shape] == 1)))
        rows = np.flatnonzero(own & ~_read(log, flow)[1] & (log.inputs.count > 0) & (log.shape >= 0))
        alone.append((own, at, flow))
        ends.append((rows, log.stats[_MEAN, rows] * numel(log)[log.shape[rows]]))
    found = np.zeros(len(c), bool)
    same = _near(ends[0][1], ends[1][1]), _near(ends[1][1], ends[0][1])
    for (own, at, flow), (rows, _), matched in zip(alone, ends, same, strict=True):
        leads = upstream(flow, rows[matched], own)
        found[at[leads & own]] = True
    return found


def _same_counts(c: Rows, left: Bool) -> Bool:
    """bool[r]: unpaired counters of an optimizer's steps, of parameters that the other run has in one, with the count
    of pairs that are equal.

    Args:
        left: bool[r], rows that are not compared.
    """
    found = np.zeros(len(c), bool)
    for log, at in ((c.a, c.at_a), (c.b, c.at_b)):
        counts = (log.phase == Phase.OPTIMIZER) & (numel(log)[log.shape] == 1) & log.updates
        bits = np.stack((log.op, log.digests.first(missing=NO_DIGEST).view(np.int64)))
        rows = np.flatnonzero(counts & left[at] & (c.pair[at] < 0) & ~is_mark(bits[1].view(np.uint64)))
        equal = np.flatnonzero(counts & (c.verdict[at] == Status.EQUAL))
        ids = numbered_together(*np.concatenate((bits[:, rows], bits[:, equal]), axis=1))
        found[at[rows[np.isin(ids[: len(rows)], ids[len(rows) :])]]] = True
    return found


def _near(totals: Float64, others: Float64) -> Bool:
    """bool[n]: one of the others is the same number, summed in another order; whole numbers are so by chance."""
    with np.errstate(invalid="ignore"):
        others, far = np.sort(others), _SUMMED * np.abs(totals)
        first, last = np.searchsorted(others, totals - far), np.searchsorted(others, totals + far, side="right")
        return np.asarray((first < last) & (np.abs(totals - np.round(totals)) > far))
