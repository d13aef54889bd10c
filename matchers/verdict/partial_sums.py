"""Sums that the two runs add in different order: (x + g) + h against x + (g + h).

The intermediate results have no counterpart in the other run, so their differences are meaningless: gradients of a
tensor that is used several times arrive in any order, and ranks count other samples. Only the total shows if the sum is
right.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Int64, marked, one_of
from matchers.logs.op_log import OpLog, once_per_pair
from matchers.ops.dataflow import DataFlow, Readers, sources
from matchers.ops.laws import additions, rows_where
from matchers.ops.module_path import canonical
from matchers.ops.shapes import numel
from matchers.pairing.pairing import Pairing
from matchers.status import AGREE, Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative
from matchers.verdict.tolerance import EPSILON, default_tolerance

__all__ = ["judge_chunks", "judge_sums", "partial_sums", "sums_claimed"]


def judge_sums(case: Case, found: Judgement) -> Judgement:
    """Claim intermediate results of sums: PARTIAL where the total agrees, NOT_JUDGED where it is not judged."""
    agree, unjudged = sums_claimed(case, found.verdicts.status, found.loss_scale)
    found = found.claimed(agree, Status.PARTIAL, Reason.REORDERED_SUM)
    return found.claimed(unjudged, Status.NOT_JUDGED, Reason.REORDERED_SUM)


def sums_claimed(case: Case, status: NDArray[np.int8], scale: float) -> tuple[Int64, Int64]:
    """The pairs that `judge_sums` claims, of verdicts with this status (int8[p])."""
    status = np.where(case.excluded, np.int8(Status.IGNORED), status)
    return partial_sums(case.a, case.b, case.pairing, status, case.flow, scale)


def partial_sums(
    a: OpLog, b: OpLog, pairing: Pairing, status: NDArray[np.int8], flow: DataFlow, scale: float = 1.0
) -> tuple[Int64, Int64]:
    """Red pairs that are intermediate results of a sum, and that nothing else reads: by a total that is not red.

    Returns:
        those whose total agrees, and those whose total is not judged.

    Args:
        status: int8[p], the verdict of each pair.
        flow: used only if an addition is red.
        scale: the factor of a's gradients against b's.
    """
    red = np.flatnonzero(status >= Status.SHAPE)
    i, j = pairing.lead_a[red], pairing.lead_b[red]
    adds, reduces = additions(a)[i] & additions(b)[j], rows_where(a, lambda law: law.reduces).any()
    if not adds.any() and not reduces:
        return red[:0], red[:0]
    sums = _sums(a, flow.readers_a), _sums(b, flow.readers_b)
    # what a rank hands to a reduction is a term, whatever computed it from the samples of this rank
    red = red[adds | (sums[0].reduced(i) & sums[1].reduced(j))]
    totals_a, totals_b = sums[0].totals(pairing.lead_a[red]), sums[1].totals(pairing.lead_b[red])
    agree = _by_total(sums, pairing, red, (totals_a, totals_b), one_of(status, AGREE))
    agree |= _crossed(a, b, pairing, red, totals_a, totals_b, scale)
    agree |= _alone(a, b, pairing.of_a, totals_a, pairing.lead_b[red], scale)
    agree |= _alone(b, a, pairing.of_b, totals_b, pairing.lead_a[red], 1 / scale)
    unjudged = _by_total(sums, pairing, red, (totals_a, totals_b), status == Status.NOT_JUDGED)
    return red[agree], red[unjudged & ~agree]


def _by_total(
    sums: tuple[_Sums, _Sums],
    pairing: Pairing,
    red: Int64,
    totals: tuple[Sequence[Int64], Sequence[Int64]],
    judged: Bool,
) -> Bool:
    """Mask of red pairs whose total is one of the pairs `judged` (bool[p])."""
    judged = np.append(judged, False)
    # the pair of each total, -1 if it is none of them
    pairs_a, pairs_b = (
        [np.where(judged[of[total]] & (total >= 0), of[total], -1) for total in chain]
        for of, chain in zip((pairing.of_a, pairing.of_b), totals, strict=True)
    )
    found = np.zeros(len(red), bool)
    for pair in pairs_a:
        for other in pairs_b:
            found |= (pair >= 0) & (pair == other)
    for pairs, of_other, leads in ((pairs_a, sums[1], pairing.lead_b), (pairs_b, sums[0], pairing.lead_a)):
        for pair in pairs:
            left = np.flatnonzero((pair >= 0) & ~found)
            found[left] = of_other.may_read(leads[pair[left]], leads[red[left]])
    return found


def _crossed(
    a: OpLog,
    b: OpLog,
    pairing: Pairing,
    red: Int64,
    totals_a: Sequence[Int64],
    totals_b: Sequence[Int64],
    scale: float,
) -> Bool:
    """Mask of red pairs in which the total of one run is paired with a part of it in the other; the totals agree."""
    found = np.zeros(len(red), bool)
    i, j = pairing.lead_a[red], pairing.lead_b[red]
    place = np.full(len(a) + 1, -1)
    place[i] = np.arange(len(red))
    for total in totals_a:
        others = place[total]
        crossed = np.any([chain[others] == j for chain in totals_b], axis=0) & (others >= 0)
        for k in np.flatnonzero(crossed).tolist():
            other = int(others[k])
            one, there = a.outputs.first(total[[k]]), b.outputs.first(j[[k]])
            change = np.fmin(relative(one, there), relative(one, scale * there))
            if change[0] <= default_tolerance(a.dtype_text(int(total[k]))):
                found[[k, other]] = True
    return found


def _alone(log: OpLog, other: OpLog, of: Int64, totals: Sequence[Int64], rows: Int64, scale: float) -> Bool:
    """Mask of red pairs whose part in one log has a total without a partner: what the other log has at the pair."""
    found = np.zeros(len(rows), bool)
    for total in totals:
        at = np.flatnonzero((total >= 0) & (of[total] < 0))
        one, there = (
            np.stack((of_log.outputs.first(records), of_log.stats[1][records]))
            for of_log, records in ((log, total[at]), (other, rows[at]))
        )
        change = np.fmin(relative(one, there), relative(one, scale * there)).max(axis=0)
        found[at] |= change <= [default_tolerance(log.dtype_text(row)) for row in total[at].tolist()]
    return found


def judge_chunks(case: Case, found: Judgement) -> Judgement:
    """Claim scalars computed from unpaired tensors of other sizes, a whole loss and that of a chunk: NOT_JUDGED.

    And what is computed from these.
    """
    a, b, pairing, flow = case.a, case.b, case.pairing, case.flow
    k = np.flatnonzero(found.verdicts.status == Status.DIVERGED)
    size_a, size_b = numel(a), numel(b)
    i, j = pairing.lead_a[k], pairing.lead_b[k]
    scalars = (size_a[a.shape[i]] == 1) & (size_b[b.shape[j]] == 1) & (flow.a.count[i] > 0) & (flow.b.count[j] > 0)
    k, i, j = k[scalars], i[scalars], j[scalars]
    made_a, made_b = flow.a.value[flow.a.start[i]], flow.b.value[flow.b.start[j]]
    known = (made_a >= 0) & (made_b >= 0)
    after, source = k[known], (pairing.of_a[made_a[known]], pairing.of_b[made_b[known]])
    alone = known.copy()
    alone[alone] = (pairing.of_a[made_a[alone]] < 0) & (pairing.of_b[made_b[alone]] < 0)
    k, made_a, made_b = k[alone], made_a[alone], made_b[alone]
    other = size_a[a.shape[made_a]] != size_b[b.shape[made_b]]
    # an operation that both runs have as often is no chunk in one of them
    other[other] = [
        _like(a, x) != _like(b, y) for x, y in zip(made_a[other].tolist(), made_b[other].tolist(), strict=True)
    ]
    chunks = marked(k[other], len(found.verdicts.status) + 1)
    while (further := after[chunks[source[0]] & chunks[source[1]] & ~chunks[after]]).size:
        chunks[further] = True
    return found.claimed(chunks[:-1], Status.NOT_JUDGED, Reason.OTHER_CHUNK)


def _like(log: OpLog, record: int) -> tuple[str, str, int, int]:
    """Module, op and phase of a record, and the number of such records."""
    same = (log.module == log.module[record]) & (log.op == log.op[record]) & (log.phase == log.phase[record])
    name = canonical(log.module_name(record))
    return name, log.op_name(record), int(log.phase[record]), int(np.count_nonzero(same))


class _Sums:
    """The additions (also those of ranks, and casts between) of one log that are the only consumers of a result."""

    def __init__(self, log: OpLog, readers: Readers) -> None:
        self._log, self._unread = log, readers.none
        self._reduces = np.append(rows_where(log, lambda law: law.reduces), False)
        adds = np.append(additions(log) | rows_where(log, lambda law: law.casts), False) | self._reduces
        self._into = np.where(adds[readers.only], readers.only, -1)

    def reduced(self, rows: Int64) -> Bool:
        """Mask of results that a collective alone reads, which adds them up over ranks."""
        return np.asarray(self._reduces[self._into[rows]])

    def totals(self, rows: Int64) -> list[Int64]:
        """The chain of additions that each row's result flows into, as long as nothing else reads it."""
        out: list[Int64] = []
        total = self._into[rows]
        while (total >= 0).any():
            out.append(total)
            total = self._into[total]
        return out

    def may_read(self, totals: Int64, rows: Int64) -> Bool:
        """Mask of additions with an external input that may be the row's result after an uncaptured cast.

        Only results without any other known consumer qualify.
        """
        out = np.zeros(len(rows), bool)
        made = self._log.outputs.first(rows)
        for k in np.flatnonzero(self._unread[rows] & (totals > rows)).tolist():
            read = self._log.inputs[totals[k]][sources(self._log)[totals[k]] < 0]
            out[k] = bool((relative(read, np.full_like(read, made[k])) <= EPSILON["bfloat16"] / 2).any())  # cast
        return out


_sums = once_per_pair(_Sums)
