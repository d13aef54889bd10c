"""Infer which shard each record holds, even without a logged placement.

A log places distributed tensors only. In between, ranks compute with their local parts as if they were whole tensors,
such as one rank's heads between two linear layers. Such a part is followed along the data flow, from a placed record to
the collective that gathers the parts or sums them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from matchers.arrays import Bool, Float64, Int64, columns, marked
from matchers.laws.law import Kind
from matchers.logs.op_log import NO_DIGEST, OpLog
from matchers.ops.json_values import hex_digest, parsed_object
from matchers.ops.laws import collective, rows_where
from matchers.ops.placement import Part, part_of
from matchers.ops.run_info import divided_batch
from matchers.ops.shapes import dimensions, numel

__all__ = ["ShardInfo", "Shards", "global_shapes", "infer_shards", "other_parts"]

_Result = tuple[str, int, tuple[int, ...], float]
"""An op, its phase, its local shape, and the ratio of global to local size."""

_MAX_ELEMENTS = 1 << 62
"""More elements than any tensor has."""


@columns
class ShardInfo:
    """The share of its global tensor that each record holds.

    Attributes:
        share: float64, the ratio of global to local size (1: the whole tensor, as far as is known).
        partial: bool, a sum over ranks is pending.
        placed: int64, the logged placement as an index into `parts` (-1: none).
        parts: the distinct logged parts.
    """

    share: Float64
    partial: Bool
    placed: Int64
    parts: tuple[Part, ...]


@columns
class Shards:
    """The shards that the records of both logs hold."""

    a: ShardInfo
    b: ShardInfo

    @classmethod
    def of(cls, a: OpLog, b: OpLog) -> Shards:
        """Infer the shards of two logs, one of which may be of a part of the other's batch."""
        divided = divided_batch(a.header.run, b.header.run)

        def inferred(side: str, log: OpLog) -> ShardInfo:
            return infer_shards(log, divided.parts if divided is not None and divided.side == side else 1)

        return cls(inferred("a", a), inferred("b", b))


def infer_shards(log: OpLog, batch_parts: int = 1) -> ShardInfo:
    """The shard of each record; all records are whole in a log without placements.

    Args:
        batch_parts: number of parts of the batch, of which this log reads one. Results of the batch are partial until
            ranks sum them.
    """
    n = len(log)
    placed, parts = _placed(log)
    reads_batch = _reading(log, _batch_digests(log) if batch_parts > 1 else [])
    if not parts and not reads_batch.any():
        return ShardInfo(np.ones(n), np.zeros(n, bool), placed, parts)
    given = np.where(reads_batch, float(batch_parts), 1.0).tolist()
    share, partial = [1.0] * n, [False] * n
    share_of = [max(math.prod(part.whole) / math.prod(part.shape), 1.0) for part in parts]
    partial_of = [bool(part.partial) for part in parts]
    size = numel(log)[log.shape].tolist()
    exchanges = rows_where(log, lambda law: law.kind in _EXCHANGES).tolist()
    puts_together = rows_where(log, lambda law: law.kind is Kind.ALL_GATHER).tolist()
    several, part_of_row = (log.outputs.count > 1).tolist(), placed.tolist()
    start, makers = _makers(log)
    # sequential, because each row may depend on earlier ones
    for row in range(n):
        read = makers[start[row] : start[row + 1]]
        found, summed = given[row], False
        for maker in read:
            found, summed = max(found, share[maker]), summed or partial[maker]
        part = part_of_row[row]
        if part >= 0:
            share[row] = share_of[part]
            # the placement covers the first output; a further one may come from one of the sharded inputs
            partial[row] = partial_of[part] or (several[row] and found > share_of[part])
        elif exchanges[row]:
            grown = size[row] / size[read[-1]] if read and size[row] > 0 and size[read[-1]] > 0 else 1.0
            share[row] = max((found if puts_together[row] else 1.0) / grown, 1.0)
        elif found > 1 and size[row] == 1:  # a sum over a shard is a partial sum
            partial[row] = True
        else:
            share[row], partial[row] = found, summed
    _give_back(share, partial, part_of_row, start, makers)
    return ShardInfo(np.array(share), np.array(partial, bool), placed, parts)


def _give_back(
    share: list[float], partial: Sequence[bool], placed: Sequence[int], start: Sequence[int], makers: Sequence[int]
) -> None:
    """Let what no operation made have the share of a placed record that reads it: a weight that was cast."""
    for row in (row for row, part in enumerate(placed) if part >= 0):
        read = makers[start[row] : start[row + 1]]
        if share[row] > 1 and not partial[row] and all(share[maker] == 1 for maker in read):
            for maker in read:
                if start[maker] == start[maker + 1] and placed[maker] < 0:
                    share[maker] = share[row]


_EXCHANGES = (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER)


def _placed(log: OpLog) -> tuple[Int64, tuple[Part, ...]]:
    """`ShardInfo.placed` and `ShardInfo.parts`."""
    texts = log.texts("Placement")
    out, parts = np.full(len(log), -1, np.int64), list[Part]()
    known: dict[tuple[bytes, int], int] = {}
    shape = log.shape.tolist() if texts else []
    for row in texts:
        key = texts.raw(row), shape[row]
        if key not in known:
            part = part_of(parsed_object(texts[row]), dimensions(log.shape_text(row))) if shape[row] >= 0 else None
            known[key] = -1
            if part is not None and all(0 < math.prod(dims) < _MAX_ELEMENTS for dims in (part.whole, part.shape)):
                known[key] = len(parts)
                parts.append(part)
        out[row] = known[key]
    return out, tuple(parts)


def _makers(log: OpLog) -> tuple[list[int], list[int]]:
    """Producers of each row as offsets and rows, without those of inputs that are overwritten unread."""
    owner, makers = log.producers.row, log.producers.value
    known = (makers >= 0) & (makers < owner)
    same = log.producers.count == log.input_digests.count
    named, read = same[owner], same[log.input_digests.row]
    known[np.flatnonzero(named)[log.input_digests.value[read] == NO_DIGEST]] = False
    start = np.concatenate(([0], np.cumsum(np.bincount(owner[known], minlength=len(log)))))
    return start.tolist(), makers[known].tolist()


def _batch_digests(log: OpLog) -> list[int]:
    """Digests of the step's input tensors, from the run info."""
    batch = log.header.run.get("batch")
    tensors = batch if isinstance(batch, list) else ()
    found = (hex_digest(tensor.get("digest")) for tensor in tensors if isinstance(tensor, Mapping))
    return [digest for digest in found if digest is not None]


def _reading(log: OpLog, digests: list[int]) -> Bool:
    """bool[n]: the row reads one of these tensors."""
    return marked(log.input_digests.row[np.isin(log.input_digests.value, np.array(digests, np.uint64))], len(log))


def global_shapes(log: OpLog, of: ShardInfo, other: OpLog, other_of: ShardInfo) -> tuple[list[tuple[int, ...]], Int64]:
    """Distinct shapes of the tensors that records hold a part of, and per row an index into them, -1 for none.

    The shape is the logged one, or else the only shape of a whole result of that op in the other log that is larger by
    `share` in one dimension.
    """
    shapes = list(dict.fromkeys(part.whole for part in of.parts))
    number = {shape: k for k, shape in enumerate(shapes)}
    index = np.array([*(number[part.whole] for part in of.parts), -1], np.int64)[of.placed]
    # the exchanged parts of a collective have any layout
    rows = np.flatnonzero((of.share > 1) & (of.placed < 0) & (log.shape >= 0) & (log.op >= 0) & ~collective(log))
    if not len(rows):
        return shapes, index
    there = set(_results(other, other_of, np.flatnonzero((other.shape >= 0) & (other.op >= 0)))[0])
    mine, which = _results(log, of, rows)
    found = np.full(len(mine), -1, np.int64)
    for k, result in enumerate(mine):
        op, phase, local, share = result
        larger = [whole for whole in _larger(local, share) if (op, phase, whole, 1.0) in there]
        # parts that both logs have are paired as they are
        if len(larger) == 1 and result not in there:
            found[k] = number.setdefault(larger[0], len(number))
    index[rows] = found[which]
    return list(number), index


def _larger(local: tuple[int, ...], share: float) -> Iterable[tuple[int, ...]]:
    """The shapes that are `share` times as large in one dimension."""
    if share != int(share):
        return
    for k, length in enumerate(local):
        yield (*local[:k], length * int(share), *local[k + 1 :])


def _results(log: OpLog, of: ShardInfo, rows: Int64) -> tuple[list[_Result], Int64]:
    """Distinct results (op, phase, shape, share) of some rows, and per row an index into them."""
    combined = np.stack((log.op[rows], log.phase[rows], log.shape[rows], of.share[rows]), axis=1)
    distinct, which = np.unique(combined, axis=0, return_inverse=True)
    return [
        (log.ops[int(op)], int(phase), dimensions(log.shapes[int(shape)]), share)
        for op, phase, shape, share in distinct.tolist()
    ], which.reshape(-1)


def other_parts(a: ShardInfo, b: ShardInfo, i: Int64, j: Int64) -> Bool:
    """Bool per pair (i[k], j[k]): the two hold different shares of their tensors, or only one is a partial sum."""
    return np.asarray((a.share[i] != b.share[j]) | (a.partial[i] != b.partial[j]))
