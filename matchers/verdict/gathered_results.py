"""Results of shards, judged by what ranks gather or sum from them.

A shard shows nothing about its whole: no norm of it is known. But the next operation often reads the whole, put
together by ranks, where its partner reads the unsharded result of the other run. These two are the same tensor, and the
pair of the shard is judged by them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int32, Int64, columns
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog
from matchers.ops.shapes import numel
from matchers.ops.shards import ShardInfo
from matchers.status import AGREE, Status
from matchers.verdict.case import Case
from matchers.verdict.digests import shared_inputs
from matchers.verdict.judge import Verdicts, judge
from matchers.verdict.slots import SlotVerdict

__all__ = ["Gathered", "judge_gathered"]


@columns
class Gathered:
    """Pairs k of shards, and the records i of a and j of b with their whole results; k ascending."""

    k: Int64
    i: Int64
    j: Int64

    @classmethod
    def of(cls, case: Case, b: OpLog, status: NDArray[np.int8]) -> Gathered:
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
        pair_u, pair_v = pairing.of_a[u].astype(np.int64), pairing.of_b[v].astype(np.int64)
        unjudged = np.append(status == Status.SHARDED, True)
        open_ = (pair_u != pair_v) & unjudged[pair_u] & unjudged[pair_v]
        k = np.where(pair_u >= 0, pair_u, pair_v)
        # the first reader decides: all read the same tensors
        k, first = np.unique(k[open_], return_index=True)
        return cls(k, u[open_][first], v[open_][first])

    def before_insertions(self, case: Case, b: OpLog) -> Gathered:
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


def _earlier(log: OpLog, shards: ShardInfo, flow: Ragged, of: Int32, record: int) -> int:
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


def judge_gathered(case: Case, b: OpLog, verdicts: Verdicts, gathered: Gathered) -> tuple[Verdicts, Bool]:
    """The verdicts, with those of shards by their wholes; and bool[p], the pairs that were judged so."""
    a, pairing, k = case.a, case.pairing, gathered.k
    found = judge(a, b, gathered.i, gathered.j, case.rtol[k], case.policy)
    comparable = ~np.isin(found.status, (Status.SHAPE, Status.SHARDED, Status.UNFINISHED))
    slots = {}
    for n, at in enumerate(np.flatnonzero(comparable).tolist()):
        i, j = int(gathered.i[at]), int(gathered.j[at])
        key = b.keys[j] if j != pairing.lead_b[k[at]] else a.keys[i]
        slots[n] = SlotVerdict.of(key, found, at, gathered=True)
    found, k = found.taken(np.flatnonzero(comparable)), k[comparable]
    judged = np.zeros(len(pairing), bool)
    judged[k] = True
    return verdicts.replaced(k, replace(found, inputs_equal=verdicts.inputs_equal[k], slots=slots)), judged
