"""Results that one run holds several times over, read as if it held them once.

A table of rotations is [1, tokens, …] where all samples share their positions, and [batch, tokens, …] where each has
its own. By shape, digest and sketch these are two tensors. Where size, norms, extremes and mean say that the one is the
other repeated, both logs have the numbers of one copy. So they have of what is computed of it in the same shapes,
whatever its numbers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from matchers.arrays import Bool, Float64, Int64, marked, numbered_together, stable_order
from matchers.logs.columns import Ragged
from matchers.logs.hashing import mix, shared_ids
from matchers.logs.op_log import STATISTICS, UNKNOWN, OpLog
from matchers.ops.combine import with_values
from matchers.ops.shapes import dimensions
from matchers.ops.values import first_outputs

__all__ = ["held_once"]

_SAME: Final = 1e-9
"""Largest relative difference of numbers of one tensor that were added up in another order, in float64."""
_L1, _L2, _MIN, _MAX, _MEAN = map(STATISTICS.index, ("L1 norm", "L2 norm", "Min", "Max", "Mean"))


def held_once(a: OpLog, b: OpLog) -> tuple[OpLog, OpLog]:
    """Return the logs with one copy of each result that one of them repeats; as they are where neither does.

    Records are compared by module and operation, in their order.
    """
    times = _times(a, b)
    i, j = _candidates(a, b, times)
    many = times[a.shape[i], b.shape[j]]
    same = _alike(first_outputs(a, i).stats, first_outputs(b, j).stats, many)
    held = same | _computed_of(a, b, i, j, same)
    i, j, many, same = i[held], j[held], many[held], same[held]
    if not len(i):
        return a, b
    of_b = many > 1
    once_a = _with_one_copy(a, i[~of_b], 1 / many[~of_b], b, j[~of_b], same[~of_b], UNKNOWN[0])
    return once_a, _with_one_copy(b, j[of_b], many[of_b], a, i[of_b], same[of_b], UNKNOWN[1])


def _times(a: OpLog, b: OpLog) -> Float64:
    """float64[shapes of a + 1, shapes of b + 1]: how many times b's shape is a's repeated, below 1 the other way round.

    0 where neither is, and for "no shape". Missing dimensions in front are of size 1.
    """
    of_a, of_b = ([dimensions(text) for text in log.shapes] for log in (a, b))
    rank = max(map(len, (*of_a, *of_b)), default=0)
    padded = [[(1,) * (rank - len(dims)) + dims for dims in of] for of in (of_a, of_b)]
    x, y = (np.array(of, float).reshape(len(of), rank) for of in padded)
    out = np.zeros((len(a.shapes) + 1, len(b.shapes) + 1))
    if not rank:
        return out
    x, y = x[:, None], y[None]
    more = np.logical_or(x == y, x == 1).all(-1)
    less = np.logical_or(x == y, y == 1).all(-1)
    size_x, size_y = x.prod(-1), y.prod(-1)
    repeats = (more | less) & (size_x != size_y) & (np.minimum(size_x, size_y) > 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        out[:-1, :-1] = np.where(repeats, size_y / size_x, 0.0)
    return out


def _candidates(a: OpLog, b: OpLog, times: Float64) -> tuple[Int64, Int64]:
    """Records with one result that are alike by module and operation, of which one may repeat the other's."""
    module_a, module_b, modules = shared_ids(a.modules, b.modules)
    op_a, op_b, ops = shared_ids(a.ops, b.ops)
    shape_a, shape_b, _ = shared_ids(a.shapes, b.shapes)
    name_a = (module_a * ops)[a.module] + op_a[a.op]
    name_b = (module_b * ops)[b.module] + op_b[b.op]
    many_a, many_b = (np.bincount(name, minlength=modules * ops) for name in (name_a, name_b))
    kinds_a = _kinds(name_a, shape_a[a.shape], modules * ops)
    kinds_b = _kinds(name_b, shape_b[b.shape], modules * ops)
    other = (many_a == many_b) & (kinds_a != kinds_b)
    rows_a, rows_b = np.flatnonzero(other[name_a]), np.flatnonzero(other[name_b])
    at = np.concatenate((rows_a, rows_b))
    part = np.concatenate((_part(a)[rows_a], _part(b)[rows_b]))
    key = numbered_together(np.concatenate((name_a[rows_a], name_b[rows_b])), part)
    left, right = key[: len(rows_a)], key[len(rows_a) :]
    as_often = np.bincount(left, minlength=len(at)) == np.bincount(right, minlength=len(at))
    i, j = (rows[order] for rows, order in ((rows_a, stable_order(left)), (rows_b, stable_order(right))))
    i, j = i[as_often[np.sort(left)]], j[as_often[np.sort(right)]]
    kept = (times[a.shape[i], b.shape[j]] > 0) & (a.outputs.count[i] == 1) & (b.outputs.count[j] == 1)
    return i[kept], j[kept]


def _kinds(name: Int64, shape: Int64, names: int) -> Float64:
    """float64[names]: equal for two logs that have each shape as often under a name."""
    weight = (mix(np.arange(-1, shape.max(initial=0) + 1).astype(np.uint64)) >> np.uint64(34)).astype(float)
    return np.bincount(name, weight[shape + 1], minlength=names).astype(float)


def _part(log: OpLog) -> Int64:
    """int64[n]: the part of the step that a record belongs to."""
    return (log.micro_batch.astype(np.int64) + 1) * 16 + log.phase * 2 + log.recompute


def _alike(x: Float64, y: Float64, many: Float64) -> Bool:
    """bool[m]: y is the numbers of x repeated, a tensor that has not the same value everywhere."""
    whole = x.copy()
    whole[_L1], whole[_L2] = x[_L1] * many, x[_L2] * np.sqrt(many)
    scale = np.abs(y)
    scale[_MEAN] = scale[_MIN] = scale[_MAX] = np.maximum(np.abs(y[_MIN]), np.abs(y[_MAX]))
    with np.errstate(invalid="ignore"):
        same = (np.abs(whole - y) <= _SAME * scale).all(axis=0)  # False where a number is missing or infinite
    return np.asarray(same & (y[_MIN] < y[_MAX]))


def _computed_of(a: OpLog, b: OpLog, i: Int64, j: Int64, same: Bool) -> Bool:
    """bool[m]: candidates that both runs compute of such results alone, or of others that are computed so.

    What another operation makes may be of each sample.
    """
    found, held = same.copy(), (set(i[same].tolist()), set(j[same].tolist()))
    for k in np.argsort(i, kind="stable").tolist() if same.any() else ():
        made = ({*a.producers[int(i[k])].tolist()} - {-1}, {*b.producers[int(j[k])].tolist()} - {-1})
        if not found[k] and all(reads and reads <= of for of, reads in zip(held, made, strict=True)):
            found[k] = True
            held[0].add(int(i[k]))
            held[1].add(int(j[k]))
    return found


def _with_one_copy(
    log: OpLog, rows: Int64, many: Float64, other: OpLog, others: Int64, same: Bool, unknown: np.uint64
) -> OpLog:
    """The log with one of many copies of some records' results; what reads these reads one copy.

    Args:
        others: the records of the other log that hold them once, whose numbers are the `same`.
    """
    if not len(rows):
        return log
    own, once = first_outputs(log, rows), first_outputs(other, others)
    stats = own.stats.copy()
    stats[_L1], stats[_L2] = stats[_L1] / many, stats[_L2] / np.sqrt(many)
    counts = np.where(own.counts > 0, np.round(own.counts / many), own.counts)
    values = replace(
        own,
        shapes=once.shapes,
        shape=once.shape,
        stats=np.where(same, once.stats, stats),
        counts=np.where(same, once.counts, counts),
        digest=np.full(len(rows), unknown),
        sketch=[b""] * len(rows),
    )
    out = with_values(log, values)
    inputs, input_digests = _inputs(log, out.outputs, marked(rows, len(log)), unknown)
    return replace(out, inputs=inputs, input_digests=input_digests, held_once=len(rows))


def _inputs(log: OpLog, outputs: Ragged, once: Bool, unknown: np.uint64) -> tuple[Ragged, Ragged]:
    """Norms and digests of all inputs, with one copy of these results where a whole one is read."""
    made, owner = log.producers.value, log.producers.row
    at = np.flatnonzero((made >= 0) & once[made])
    slot, reader, made = at - log.producers.start[owner[at]], owner[at], made[at]
    whole = log.inputs.at(reader, slot) == log.outputs.first(made)
    slot, reader, made = slot[whole], reader[whole], made[whole]
    norms, digests = log.inputs.value.copy(), log.input_digests.value.copy()
    norms[log.inputs.start[reader] + slot] = outputs.first(made)
    told = slot < log.input_digests.count[reader]
    digests[log.input_digests.start[reader[told]] + slot[told]] = unknown
    return Ragged(log.inputs.start, norms), Ragged(log.input_digests.start, digests)
