"""The errors that operations receive: what each pair, and each record without a partner, reads of which others."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import fields

import numpy as np

from matchers.arrays import Bool, Float64, Int64, columns
from matchers.logs.columns import Ragged, repeated
from matchers.logs.op_log import NO_DIGEST, OpLog
from matchers.ops.dataflow import DataFlow, values_read, whole_numbers
from matchers.ops.laws import rows_where
from matchers.ops.shapes import reduction_length
from matchers.pairing.pairing import Pairing
from matchers.verdict.relative_error import relative
from matchers.verdict.tolerance import EPSILON, MOST_ALLOWED, UNKNOWN_SCORES, UNSEEN, UNSURE, rounding, shorter_sum

__all__ = ["Inputs", "Nodes", "own_rounding", "unpaired_rounding"]


class Nodes:
    """The pairs, then the unpaired records of a, then those of b; the last node is that of no record.

    Unpaired records count as correct: they hand on the largest error of their inputs and add their own rounding.

    Attributes:
        a, b: int64[n + 1], the node of each record; the last entry is that of no record.
        pairs, nothing: number of the pairs, and the last node.
        own: float64, the error that rounding in the operation itself can make.
        order: the nodes in the order of dispatch of a, an unpaired record of b before the pair that follows it.
        sure: bool, a pair that is hardly a wrong one.
        placed: bool, a pair whose two sides list the same inputs.
        parts: bool, a pair of different parts of a tensor, whose norms cannot be compared.
        settled: bool, a pair that agrees.
        whole: bool, a pair of different whole numbers.
        values: float64, by value of a (see `values_read`), its error where its pair was judged by another result: of
            numbers and their places, by these; NaN for others.
    """

    def __init__(
        self, a: OpLog, b: OpLog, pairing: Pairing, own: Float64, coarsest: float, *, values: Float64, **of_pairs: Bool
    ) -> None:
        """The nodes of two logs; `own` and masks by pair, `coarsest` as of `rounding`."""
        self.pairs = len(pairing)
        alone_a, alone_b = np.flatnonzero(pairing.of_a < 0), np.flatnonzero(pairing.of_b < 0)
        self.nothing = self.pairs + len(alone_a) + len(alone_b)
        self.a, self.b = (np.append(of, self.nothing) for of in (pairing.of_a, pairing.of_b))
        self.a[alone_a], self.b[alone_b] = np.split(np.arange(self.pairs, self.nothing), [len(alone_a)])
        masks = {"sure": pairing.confidence >= UNSURE, "placed": ~pairing.assembled, **of_pairs}
        rest = np.zeros(self.nothing + 1 - self.pairs, bool)
        self.values = values
        self.sure, self.placed, self.parts, self.settled, self.whole = (
            np.append(masks[name], rest) for name in ("sure", "placed", "parts", "settled", "whole")
        )
        unpaired = unpaired_rounding(a, alone_a, b, coarsest), unpaired_rounding(b, alone_b, a, coarsest)
        self.own = np.concatenate((own, *unpaired, [0.0]))
        judged = np.flatnonzero(~of_pairs["settled"])
        by_b = judged[np.argsort(pairing.lead_b[judged])]
        # the first pair, in the order of a, of those after a record of b
        first = np.minimum.accumulate(np.append(pairing.lead_a[by_b], len(a))[::-1])[::-1]
        before = first[np.searchsorted(pairing.lead_b[by_b], alone_b)]
        place = np.concatenate((pairing.lead_a[judged], alone_a, before - 0.5))
        self.order = np.concatenate((judged, np.arange(self.pairs, self.nothing)))[np.argsort(place, kind="stable")]

    def counts(self, a: OpLog, b: OpLog) -> Bool:
        """bool[nothing - pairs]: the unpaired records, in the order of their nodes, whose results are whole numbers."""
        sides = ((a, self.a), (b, self.b))
        return np.concatenate([whole_numbers(log)[self.alone(of[:-1])] for log, of in sides])

    def alone(self, node: Int64) -> Bool:
        """bool: the nodes are records without a partner."""
        return (node >= self.pairs) & (node < self.nothing)


def unpaired_rounding(log: OpLog, rows: Int64, other: OpLog, coarsest: float) -> Float64:
    """float64[k]: rounding of unpaired records; a dtype that the other log lacks is no reason to be coarse.

    Arguments as of `own_rounding`; `other` is the log that lacks them.
    """
    named = [name for name in other.dtypes if name in EPSILON]
    instead = max(named, key=lambda name: EPSILON[name], default="")
    # a collective that adds up has a term per rank
    by_element = rows_where(log, lambda law: law.by_element or law.reduces, rows)
    own = own_rounding(log, rows, by_element, coarsest, other.dtypes, instead)
    # there are many of them after each other: a short sum has no need of what a long one may take
    for code, name in enumerate(log.dtypes):
        summed = ~by_element & (log.dtype[rows] == code)
        own[summed] *= shorter_sum(name, reduction_length(log)[rows[summed]])
    return np.where(rows_where(log, lambda law: law.moves, rows), 0.0, own)


def own_rounding(
    log: OpLog,
    rows: Int64,
    by_element: Bool,
    coarsest: float,
    known: Container[str] | None = None,
    instead: str = "float32",
) -> Float64:
    """float64[k]: the error that rounding in an operation itself can make, see `rounding`.

    Args:
        by_element: bool[k], each element is computed by itself.
        known: dtypes that count; for others, and for none, `instead` does.
    """
    names = [name if known is None or name in known else instead for name in (*log.dtypes, instead)]
    tables = [np.array([rounding(name, one, log.tells.exact, coarsest) for name in names]) for one in (False, True)]
    return np.where(by_element, *(table[log.dtype[rows]] for table in reversed(tables)))


@columns
class Inputs:
    """What nodes read: an entry for each input of their two sides, in the order of the nodes.

    Attributes:
        node: int64, the node that reads it.
        one, other: int64, the nodes that made it in a and in b, as far as their errors count.
        error, norm: float64, its error and the change of its norm, as far as the logs print it.
        unless: float64, the norms tell nothing where this exceeds the error of `one`: two different parts of it.
        score: float64, the largest number in it.
        picked: bool, it holds whole numbers that the two sides decided differently.
        crossed: bool, the two surely are partners of others.
    """

    node: Int64
    one: Int64
    other: Int64
    error: Float64
    norm: Float64
    unless: Float64
    score: Float64
    picked: Bool
    crossed: Bool

    @classmethod
    def of(cls, a: OpLog, b: OpLog, pairing: Pairing, flow: DataFlow, nodes: Nodes) -> Inputs:
        """The inputs of all nodes; the norms and digests of b are those of its log."""
        by_place, of_sides = _by_place(a, b, pairing, flow, nodes), []
        for log, made, node in ((a, flow.a, nodes.a), (b, flow.b, nodes.b)):
            reader, maker = node[made.row], node[made.value]
            # of a pair of several operations, all that they read of others
            k = np.flatnonzero(~nodes.placed[reader] & (maker != reader) & (maker != nodes.nothing))
            zero, no = np.zeros(len(k)), np.zeros(len(k), bool)
            score = _magnitude(log, made.value[k])
            nothing = np.full(len(k), nodes.nothing)
            of_sides.append(cls(reader[k], maker[k], nothing, zero, zero, zero, score, nodes.whole[maker[k]], no))
        columns = [
            np.concatenate([getattr(part, name) for part in (by_place, *of_sides)])
            for name in [field.name for field in fields(cls)]
        ]
        order = np.argsort(columns[0], kind="stable")
        return cls(*(column[order] for column in columns))


def _by_place(a: OpLog, b: OpLog, pairing: Pairing, flow: DataFlow, nodes: Nodes) -> Inputs:
    """The inputs of pairs of two operations, place by place."""
    read = np.flatnonzero(nodes.placed[: nodes.pairs] & ~nodes.settled[: nodes.pairs])
    i, j = pairing.lead_a[read], pairing.lead_b[read]
    k, place = repeated(np.arange(len(read)), np.maximum(flow.a.count[i], flow.b.count[j]))
    in_b = np.where(flow.exchanged(i, j, pairing.of_a, pairing.of_b)[k], 1 - place, place)
    one, other = a.input_digests.at(i[k], place, NO_DIGEST), b.input_digests.at(j[k], in_b, NO_DIGEST)
    news = (one != other) | (one == NO_DIGEST)
    k, place, in_b = k[news], place[news], in_b[news]
    i, j, k = i[k], j[k], read[k]
    made_a, made_b = flow.a.at(i, place, -1), flow.b.at(j, in_b, -1)
    x, y = a.inputs.at(i, place), b.inputs.at(j, in_b)
    u, v = nodes.a[made_a], nodes.b[made_b]
    both = (u < nodes.pairs) & (v < nodes.pairs)
    sure = nodes.sure[k]
    crossed = sure & both & (u != v) & nodes.sure[u] & nodes.sure[v]
    # an input from an unpaired operation, another tensor, or another part, brings no error to compare with
    other_tensor = (
        crossed | (sure & (nodes.alone(u) | nodes.alone(v))) | nodes.parts[k] | nodes.parts[u] | nodes.parts[v]
    )
    for log, made, of, lead, at in ((a, flow.a, pairing.of_a, i, place), (b, flow.b, pairing.of_b, j, in_b)):
        other_tensor |= _reads_alone_in_a_part(log, made, of, lead, at)
    change = relative(x, y)
    change[other_tensor | ~np.isfinite(change)] = 0.0
    # two partners' results are too much alike for parts of them to differ by this: so they are others
    with np.errstate(divide="ignore", invalid="ignore"):
        least = change * x / (UNSEEN * a.outputs.first(made_a))
    alike = both & (u == v) & nodes.sure[u] & (change > 0) & (a.outputs.count[made_a] == 1) & (least > nodes.own[u])
    equal = both & (u == v) & nodes.settled[u]
    change[alike & equal] = 0.0
    outside = ((u == nodes.nothing) & (v == nodes.nothing)) | ((change > 0) & equal)
    error = change
    if a.texts("Sketch") and b.texts("Sketch"):
        # a parameter, an uncaptured tensor, or one of a list that was left as it was: its error can only be guessed
        # from its norm, which may agree by chance
        guess = np.where(change > 0, np.maximum(UNSEEN * change, nodes.own[k]), 0.0)
        error = np.where(outside, guess, change)
    # another batch or mask is no rounding and excuses nothing
    excuses = ~outside | ((error <= MOST_ALLOWED) & ~((x == np.floor(x)) & (y == np.floor(y))))
    score = np.fmax(*(_magnitude(log, made) for log, made in ((a, made_a), (b, made_b))))
    # the values at the places that noise decides differ by noise, as those that they are the largest of
    valued = both & (u == v) & np.isfinite(nodes.values).any()
    told = np.full(len(u), np.nan)
    told[valued] = nodes.values[Ragged(a.inputs.start, values_read(a)).at(i[valued], place[valued], -1)]
    valued = np.isfinite(told)
    error = np.where(valued, told, error)
    change, outside = np.where(valued, np.minimum(change, error), change), outside | valued
    u, v = (np.where(outside, nodes.nothing, node) for node in (u, v))
    return Inputs(
        k,
        u,
        v,
        np.where(excuses, error, 0.0),
        np.where(excuses, change, 0.0),
        np.where(alike, least, 0.0),
        score,
        nodes.whole[u] | nodes.whole[v],
        crossed,
    )


def _reads_alone_in_a_part(log: OpLog, made: Ragged, of: Int64, lead: Int64, place: Int64) -> Bool:
    """bool: of several micro-batches that a record stands for, one reads an unpaired operation at this place."""
    stands, width = log.joined[made.row], int(made.count.max(initial=0)) + 1
    alone = np.flatnonzero((made.value >= 0) & (stands >= 0) & (np.append(of, 0)[made.value] < 0))
    return np.isin(lead * width + place, stands[alone] * width + alone - made.start[made.row[alone]])


def _magnitude(log: OpLog, maker: Int64) -> Float64:
    """float64: the largest number in a record's output, or a default if the log does not give it; 0 for no record."""
    largest = np.abs(log.stats[3, maker])
    return np.where(maker < 0, 0.0, np.where(np.isfinite(largest), largest, UNKNOWN_SCORES))
