"""Pairs whose sides hold different parts of one tensor: shards of it, or terms of a sum over ranks.

Such a pair is not judged by its own numbers, which differ by design. What can be judged is the whole where ranks gather
or sum the parts, the weights that the operation reads, and its scalar arguments (scalars.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int64, columns, marked, one_of
from matchers.laws.law import Bucket, Kind
from matchers.logs.columns import Ragged
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import OpLog
from matchers.ops.batch_numbers import batch_ranks
from matchers.ops.dataflow import DataFlow, upstream
from matchers.ops.laws import filling, rows_where
from matchers.ops.run_info import divided_batch
from matchers.ops.shapes import dimensions, numel
from matchers.ops.shards import ShardInfo, Shards, other_parts
from matchers.ops.values import first_outputs
from matchers.pairing.pairing import Pairing
from matchers.status import AGREE, Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.digests import shared_inputs
from matchers.verdict.judge import Verdicts, judge
from matchers.verdict.judge_values import other_dtypes
from matchers.verdict.loss_scale import terms_without_factor
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative
from matchers.verdict.scalars import of_micro_batches, other_scalars
from matchers.verdict.slots import SlotVerdict
from matchers.verdict.tolerance import DtypePolicy, by_dtype

__all__ = ["judge_parts"]


def judge_parts(case: Case, found: Judgement) -> Judgement:
    """Judge the pairs of parts; the verdicts on all others stay."""
    a, b, shards, pairing, flow = case.a, found.b, case.shards, case.pairing, case.flow
    i, j, verdicts = case.i.copy(), case.j.copy(), found.verdicts
    settled = np.zeros(len(i), bool)
    status = verdicts.status
    apart = other_parts(shards.a, shards.b, i, j)
    reason = np.where(shards.a.partial[i] | shards.b.partial[j], np.int8(Reason.TERM_OF_SUM), Reason.SHARD_OF_WHOLE)
    terms = np.flatnonzero(shards.a.partial[i] != shards.b.partial[j])
    if not (a.members or b.members):  # of which all ranks have the parts
        apart[terms] &= ~_lacks_sum(case, b, i[terms], j[terms])
    apart |= status == Status.SHARDED
    if a.members and b.members:
        arranged = _arranged_otherwise(a, b, i, j)
        reason[arranged & ~apart] = Reason.OTHER_ARRANGEMENT
        apart |= arranged
    if shards.a.parts or shards.b.parts:  # an optimizer reads shards, and this operation left them as they are
        reads = (status == Status.DIVERGED) & a.updates[i]
        apart |= reads & _without_result(a, i) & _without_result(b, j)
    parts = apart & _by_first_output(a, b, i, j, status, case.policy)
    parts[parts] = ~_impossible(a, b, shards, i[parts], j[parts], status[parts])
    verdicts = verdicts.claimed(parts, Status.SHARDED, reason[parts], error=np.nan, bound=False)

    slots: dict[int, SlotVerdict] = {}
    divided = divided_batch(a.header.run, b.header.run)
    if divided is not None and divided.by_all and parts.any():
        slots |= _other_weights(a, b, shards, pairing, np.flatnonzero(parts), flow)
    folded, free = _folded(a)[i] | _folded(b)[j], np.isnan(case.rtol)
    # the scalars of a pair that agrees can differ, too: by less than the tolerance, like what they are applied to
    near = np.flatnonzero(verdicts.status == Status.CLOSE)
    with np.errstate(invalid="ignore"):
        close = relative(a.inputs.first(i[near]), b.inputs.first(j[near])) <= verdicts.tolerance[near]
    judgeable = (parts | marked(near[close], len(i))) & free & ~folded
    slots = other_scalars(a, b, shards, pairing, np.flatnonzero(judgeable)) | slots
    slots |= of_micro_batches(a, b, pairing, np.flatnonzero(folded & free), found.loss_scale)
    slots |= terms_without_factor(case, found)
    verdicts, settled[list(slots)] = verdicts.entered(slots), True
    if not parts.any():
        return replace(found, verdicts=verdicts, parts=apart, settled=settled)
    whole = _Gathered.of(case, b, verdicts.status).before_insertions(case, b)
    verdicts, gathered = _judge_gathered(case, b, verdicts, whole)
    by_whole = gathered[whole.k]
    i[whole.k[by_whole]], j[whole.k[by_whole]] = whole.i[by_whole], whole.j[by_whole]
    return replace(found, verdicts=verdicts, parts=apart, settled=settled, i=i, j=j)


@columns
class _Gathered:
    """Pairs k of shards, and the records i of a and j of b with their whole results; k ascending.

    A shard shows nothing about its whole: no norm of it is known. But the next operation often reads the whole, put
    together by ranks, where its partner reads the unsharded result of the other run. These two are the same tensor, and
    the pair of the shard is judged by them.
    """

    k: Int64
    i: Int64
    j: Int64

    @classmethod
    def of(cls, case: Case, b: OpLog, status: NDArray[np.int8]) -> _Gathered:
        """Find the wholes that partners read at the same place.

        Args:
            b: log b as it is judged.
            status: int8[p]; only SHARDED pairs are looked for.
        """
        a, shards, pairing, flow = case.a, case.shards, case.pairing, case.flow
        single = ~pairing.grouped
        _, _, at_a, at_b = shared_inputs(a, b, case.i[single], case.j[single])
        u, v = flow.a.value[at_a], flow.b.value[at_b]
        whole = _whole(a, shards.a, u, a.inputs.value[at_a]) & _whole(b, shards.b, v, b.inputs.value[at_b])
        whole[whole] = numel(a)[a.shape[u[whole]]] == numel(b)[b.shape[v[whole]]]
        u, v = u[whole], v[whole]
        pair_u, pair_v = pairing.of_a[u], pairing.of_b[v]
        unjudged = np.append(status == Status.SHARDED, True)
        open_ = (pair_u != pair_v) & unjudged[pair_u] & unjudged[pair_v]
        k = np.where(pair_u >= 0, pair_u, pair_v)
        # the first reader decides: all read the same tensors
        k, first = np.unique(k[open_], return_index=True)
        return cls(k, u[open_][first], v[open_][first])

    def before_insertions(self, case: Case, b: OpLog) -> _Gathered:
        """The same, with an earlier whole where that one agrees: one run may change it before the next operation."""
        a, shards, pairing, flow = case.a, case.shards, case.pairing, case.flow
        found = judge(a, b, self.i, self.j, case.rtol[self.k], case.policy)
        records = [[i, j] for i, j in zip(self.i.tolist(), self.j.tolist(), strict=True)]
        sides = (a, shards.a, flow.a, pairing.of_a), (b, shards.b, flow.b, pairing.of_b)
        for n in np.flatnonzero(found.status == Status.DIVERGED).tolist():
            pair = list(records[n])
            for side, (log, of_log, made, of) in enumerate(sides):
                while of[pair[side]] < 0 and (earlier := _earlier(log, of_log, made, of, pair[side])) >= 0:
                    pair[side] = earlier
                    i, j = (np.array([record], np.int64) for record in pair)
                    if judge(a, b, i, j, case.rtol[self.k[n : n + 1]], case.policy).status[0] in AGREE:
                        records[n] = pair
                        break
        i, j = np.array(records, np.int64).reshape(-1, 2).T
        return replace(self, i=i, j=j)


def _earlier(log: OpLog, shards: ShardInfo, flow: Ragged, of: Int64, record: int) -> int:
    """The unpaired record that made a whole tensor of this size for an unpaired one, -1 for none."""
    makers = flow[record]
    makers = makers[makers >= 0]
    size = numel(log)
    whole = (of[makers] < 0) & (shards.share[makers] == 1) & ~shards.partial[makers]
    whole &= (log.outputs.count[makers] == 1) & (size[log.shape[makers]] == size[log.shape[record]])
    return int(makers[whole][0]) if whole.any() else -1


def _whole(log: OpLog, shards: ShardInfo, maker: Int64, read: Float64) -> Bool:
    """bool: the producer exists, holds a whole tensor as its only result, and this is what was read."""
    known = maker >= 0
    made = maker[known]
    known[known] = (
        (shards.share[made] == 1)
        & ~shards.partial[made]
        & (log.outputs.count[made] == 1)
        & (log.outputs.first(made) == read[known])
    )
    return known


def _judge_gathered(case: Case, b: OpLog, verdicts: Verdicts, gathered: _Gathered) -> tuple[Verdicts, Bool]:
    """The verdicts, with those of shards by their wholes; and bool[p], the pairs that were judged so."""
    a, pairing, k = case.a, case.pairing, gathered.k
    found = judge(a, b, gathered.i, gathered.j, case.rtol[k], case.policy)
    comparable = ~one_of(found.status, (Status.SHAPE, Status.SHARDED, Status.UNFINISHED))
    slots = {}
    for n, at in enumerate(np.flatnonzero(comparable).tolist()):
        i, j = int(gathered.i[at]), int(gathered.j[at])
        key = b.keys[j] if j != pairing.lead_b[k[at]] else a.keys[i]
        slots[n] = SlotVerdict.of(key, found, at, gathered=True)
    found, k = found.taken(np.flatnonzero(comparable)), k[comparable]
    judged = marked(k, len(pairing))
    return verdicts.replaced(k, replace(found, inputs_equal=verdicts.inputs_equal[k], slots=slots)), judged


def _other_weights(
    a: OpLog, b: OpLog, shards: Shards, pairing: Pairing, pairs: Int64, flow: DataFlow
) -> dict[int, SlotVerdict]:
    """Verdicts on the pairs among `pairs` that read another weight, by its norms: a gathered one is the whole.

    Where the batch is divided, no result that a rank computes from its share of it can be judged.
    """
    pairs = pairs[~a.updates[pairing.lead_a[pairs]]]  # the optimizer reads shards
    i, j = pairing.lead_a[pairs], pairing.lead_b[pairs]
    k, place, at_a, at_b = shared_inputs(a, b, i, j)
    made_a, made_b = flow.a.value[at_a], flow.b.value[at_b]
    whole_a, whole_b = (
        (made >= 0) & (of.share[made] == 1) & ~of.partial[made] for of, made in ((shards.a, made_a), (shards.b, made_b))
    )
    off = np.nan_to_num(relative(a.inputs.value[at_a], b.inputs.value[at_b]), nan=0.0)
    limit = np.maximum(by_dtype(a.dtypes)[a.dtype[i]], by_dtype(b.dtypes)[b.dtype[j]])[k]
    found = np.flatnonzero((((made_a < 0) & whole_b) | (whole_a & (made_b < 0))) & (off > limit))
    slots = {}
    for n in found[np.argsort(off[found])].tolist():  # the largest is written last
        told = float(off[n]), True, float(limit[n])
        name = f"input {place[n]}"
        slots[int(pairs[k[n]])] = SlotVerdict(name, Status.DIVERGED, Reason.OTHER_WEIGHT, *told, read=True)
    return slots


def _arranged_otherwise(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    """bool[p]: data of another number of ranks, in the order of a buffer, or of what they exchange, by its shape.

    And what ranks add up over samples in one run, and over parts of the model in the other.
    """
    flat = _in_flat_buffers(a)[i] & _in_flat_buffers(b)[j]
    if {_reads_samples(a), _reads_samples(b)} == {False, True}:
        flat |= _reduced(a)[i] & _reduced(b)[j]
    moved = rows_where(a, lambda law: law.moves, i) & rows_where(b, lambda law: law.moves, j)
    ids_a, ids_b, _ = shared_ids(a.shapes, b.shapes)
    return np.asarray(flat | (moved & (ids_a[a.shape[i]] != ids_b[b.shape[j]])))


def _lacks_sum(case: Case, b: OpLog, i: Int64, j: Int64) -> Bool:
    """bool[k]: of one tensor, one run reads what ranks add up, and the other, whose ranks hold the same, the term.

    And does not add up later what it makes of it.
    """
    flow, of_a, of_b = case.flow, case.pairing.of_a, case.pairing.of_b
    if not len(i):
        return np.zeros(0, bool)
    sources = _Sources(case.a, flow.a, of_a), _Sources(b, flow.b, of_b)
    out = np.zeros(len(i), bool)
    for k, (x, y) in enumerate(zip(i.tolist(), j.tolist(), strict=True)):
        for u, v in zip(flow.a[x].tolist(), flow.b[y].tolist(), strict=False):
            (made_a, summed_a), (made_b, summed_b) = sources[0].of(u), sources[1].of(v)
            if summed_a != summed_b and made_a >= 0 <= made_b and of_a[made_a] == of_b[made_b]:
                out[k] = not (sources[1].later[y] if summed_a else sources[0].later[x])
    return out


class _Sources:
    """The paired records that results come from, over unpaired ones that move them or add them up over ranks.

    Attributes:
        later: bool[n], the result, or what linear operations make of it, is added up over ranks.
    """

    def __init__(self, log: OpLog, flow: Ragged, of: Int64) -> None:
        self._flow = flow
        self._passes = (of < 0) & rows_where(log, lambda law: law.moves or law.copies or law.reduces)
        self._adds = rows_where(log, lambda law: law.reduces)
        passes = rows_where(log, lambda law: law.linear or law.moves)
        self.later = upstream(flow, self._adds & (of < 0), passes | self._adds)

    def of(self, record: int) -> tuple[int, bool]:
        """The paired record, -1 for none, and whether a sum over ranks lies between."""
        summed = False
        while record >= 0 and self._passes[record]:
            summed |= bool(self._adds[record])
            made = set(self._flow[record].tolist())
            record = made.pop() if len(made) == 1 else -1
        return record, summed


def _reads_samples(log: OpLog) -> bool | None:
    """True if each of the merged ranks reads samples of its own, False if all read the same; None where some do."""
    many = batch_ranks(log)
    return {1: False, len(log.members): True}.get(many)


def _reduced(log: OpLog) -> Bool:
    """bool[n]: the result of a collective that adds up what ranks have, waited for or not."""
    reduces, made = rows_where(log, lambda law: law.reduces), log.producers.first(np.arange(len(log)), -1)
    return np.asarray(reduces | (rows_where(log, lambda law: law.waits) & np.append(reduces, False)[made]))


def _in_flat_buffers(log: OpLog) -> Bool:
    """bool[n]: the result is a buffer of several tensors, a copy of it, or cut out of one, in an order by ranks."""
    flat = np.array([len(dimensions(shape)) == 1 for shape in log.shapes] + [False])[log.shape]
    flat &= rows_where(log, lambda law: law.kind in (Kind.ALL_GATHER, Kind.REDUCE_SCATTER) and law.in_place)
    made, row = log.producers.value, log.producers.row
    whole = (made >= 0) & flat[made] & (log.shape[made] == log.shape[row])
    flat |= rows_where(log, lambda law: law.moves) & marked(row[whole], len(log))
    return np.asarray(filling(log) | flat | rows_where(log, lambda law: law.bucket is Bucket.CUT))


def _folded(log: OpLog) -> Bool:
    """bool[n]: the record stands for several micro-batches, each with scalars of its own."""
    return marked(log.joined[log.joined >= 0], len(log))


def _without_result(log: OpLog, rows: Int64) -> Bool:
    """Records that returned nothing and changed nothing."""
    changed = marked(log.texts("Mutated").rows, len(log))
    return (log.outputs.count[rows] == 0) & ~changed[rows]


def _by_first_output(a: OpLog, b: OpLog, i: Int64, j: Int64, status: NDArray[np.int8], policy: DtypePolicy) -> Bool:
    """bool[p]: another part may explain the status: neither equal bits nor another dtype."""
    explicable = one_of(status, (Status.SHARDED, Status.DIVERGED, Status.SHAPE, Status.NAN))
    # an operation that returns nothing is judged by what it changed, each tensor by its own placement
    explicable |= one_of(status, (Status.CLOSE, Status.SAME_PRINT)) & (a.shape[i] >= 0) & (b.shape[j] >= 0)
    shape = np.flatnonzero(status == Status.SHAPE)
    explicable[shape[other_dtypes(first_outputs(a, i[shape]), first_outputs(b, j[shape]), policy)]] = False
    return explicable


def _impossible(a: OpLog, b: OpLog, shards: Shards, i: Int64, j: Int64, status: NDArray[np.int8]) -> Bool:
    """bool: the part has more Inf, or more finite numbers, than the whole, or either has NaN or no counts.

    A part may have any share of the whole's infinite numbers: masks are not spread evenly.
    """
    counts = [log.counts[:, rows] for log, rows in ((a, i), (b, j))]
    nan = (counts[0][1] > 0) | (counts[1][1] > 0)
    unknown = (counts[0][0] < 0) | (counts[1][0] < 0)
    share_a, share_b = shards.a.share[i], shards.b.share[j]
    a_is_part = np.where(share_a == share_b, shards.a.partial[i], share_a > share_b)
    part, whole = np.where(a_is_part, counts[0], counts[1]), np.where(a_is_part, counts[1], counts[0])
    finite = part[0] - part[2] > whole[0] - whole[2]
    sums = shards.a.partial[i] | shards.b.partial[j]
    more = (part[2] > whole[2]) | (finite & ~sums)
    return (status == Status.NAN) & (unknown | nan | more)
