"""Parts make a whole: shards of ranks, micro-batches, terms of a sum. The only place where statistics add up.

L1 norms and counts add up, and so do the squares of L2 norms, and sketches at places of the whole; the extremes are
those of all parts, the mean is the weighted one. Of the terms of a sum only sketches add up. Equal statistics do not
prove equal tensors: the parts may lie in another order.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Float64, Int64
from matchers.logs.columns import Ragged, Strings
from matchers.logs.op_log import NO_DIGEST, STATISTICS, OpLog
from matchers.ops.shapes import dimensions
from matchers.ops.share import Holds, Share
from matchers.ops.sketch import decode_sketches, encode_sketch
from matchers.ops.values import FIELDS, Values

__all__ = ["combine", "folded_counts", "folded_statistics", "joined", "with_values"]


def combine(parts: Values, start: Int64, shares: Sequence[Share]) -> Values:
    """The wholes of parts, a row for each; what the parts do not tell is unknown.

    Args:
        parts: those of one whole together, each part once; of copies, the one that stands for all.
        start: int64[g], the first part of each whole.
        shares: of each whole.
    """
    lead = parts.taken(start)
    holds = np.array([share.holds for share in shares], np.int8)
    shard, lost, norm = (np.isin(holds, of) for of in (Holds.SHARD, (Holds.PARTIAL, Holds.UNKNOWN), Holds.NORM))
    stats = np.where(shard, folded_statistics(parts.stats, parts.counts, parts.numel, start), lead.stats)
    counts = np.where(shard, folded_counts(parts.counts, start), lead.counts)
    present = np.bitwise_and.reduceat(parts.present, start) if len(start) else lead.present
    stats[:, lost], counts[:, lost], present[lost] = np.nan, -1, 0
    ends = [*start[1:].tolist(), len(parts)][: len(start)]
    sketch, shapes, shape = list[bytes](), list(lead.shapes), lead.shape.copy()
    number = {text: k for k, text in enumerate(shapes)}
    for g, (share, first, end) in enumerate(zip(shares, start.tolist(), ends, strict=True)):
        if norm[g]:
            stats[:, g] = np.sum(parts.stats[0, first:end] ** share.power) ** (1 / share.power)
        if share.whole is not None:
            if (text := str(list(share.whole))) not in number:
                number[text] = len(shapes)
                shapes.append(text)
            shape[g] = number[text]
        adds = share.holds == Holds.PARTIAL or (share.holds == Holds.SHARD and share.placed)
        texts = [parts.sketch[k] for k in range(first, end)] if adds else []
        kept = parts.sketch[first] if share.holds == Holds.REPLICA else b""
        sketch.append(encode_sketch(decode_sketches(texts).sum(axis=0) / share.divisor) if adds else kept)
    return replace(
        lead,
        shapes=shapes,
        shape=shape,
        present=present,
        stats=stats,
        counts=counts,
        digest=np.where(holds == Holds.REPLICA, lead.digest, NO_DIGEST),
        sketch=sketch,
        placements=(),
        placed=np.full(len(lead), -1),
    )


def folded_statistics(stats: Float64, counts: Int64, size: Float64, start: Int64) -> Float64:
    """Statistics of whole tensors, float64[5, g] as in `OpLog.stats`; NaN where a part lacks one.

    Args:
        stats: float64[5, m], of all parts, those of one whole together.
        counts: int64[4, m], as in `OpLog.counts`; -1 where unknown.
        size: float64[m], number of elements of each part.
        start: int64[g], the first part of each whole.
    """
    if not len(start):
        return np.empty((len(STATISTICS), 0))
    l1, l2, least, largest, mean = stats
    finite = size - np.maximum(counts[1], 0) - np.maximum(counts[2], 0)
    # a part without a finite value has no extremes and no mean
    least, largest = np.where(finite == 0, np.inf, least), np.where(finite == 0, -np.inf, largest)
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = np.add.reduceat(finite, start)
        out = np.stack(
            (
                np.add.reduceat(np.where(finite == 0, 0.0, l1), start),
                np.sqrt(np.add.reduceat(np.where(finite == 0, 0.0, l2**2), start)),
                np.minimum.reduceat(least, start),
                np.maximum.reduceat(largest, start),
                np.add.reduceat(np.where(finite == 0, 0.0, mean * finite), start) / whole,
            )
        )
    out[:, whole == 0] = np.nan
    return out


def folded_counts(counts: Int64, start: Int64) -> Int64:
    """int64[4, g], the counts of whole tensors; -1 where those of a part are unknown. Arguments as above."""
    if not len(start):
        return counts[:, :0]
    return np.where(np.minimum.reduceat(counts, start, axis=1) < 0, -1, np.add.reduceat(counts, start, axis=1))


def joined(values: Sequence[Values]) -> Values:
    """The rows of several columns one after the other."""
    columns: dict[str, Any] = {}
    for table, index in (("shapes", "shape"), ("dtypes", "dtype"), ("placements", "placed")):
        entries, ids = list[Any](), list[Int64]()
        for each in values:
            of = getattr(each, index)
            ids.append(np.where(of < 0, -1, of + len(entries)))
            entries += getattr(each, table)
        columns[table], columns[index] = entries, np.concatenate(ids)
    for name in ("maker", "slot", "present", "digest"):
        columns[name] = np.concatenate([getattr(each, name) for each in values])
    for name in ("stats", "counts"):
        columns[name] = np.concatenate([getattr(each, name) for each in values], axis=1)
    for name in ("name", "sketch"):
        columns[name] = [one for each in values for one in getattr(each, name)]
    return Values(**columns)


def with_values(log: OpLog, values: Values, unknown: Sequence[tuple[int, int]] = ()) -> OpLog:
    """The log with other versions of tensors.

    Args:
        values: of what a record left in its inputs, all or nothing.
        unknown: (record, slot) of values beside the first outputs that are not known.
    """
    first = np.flatnonzero(values.slot == 0)
    at, lists = values.maker[first], values.slot >= 0
    stats, counts, present = log.stats.copy(), log.counts.copy(), log.present.copy()
    stats[:, at], counts[:, at] = values.stats[:, first], values.counts[:, first]
    # the L1 norm is that of the output, which a log may tell once more
    present[at] = values.present[first] & (present[at] | ~np.uint8(1))
    stats[0, at[present[at] & 1 == 0]] = np.nan
    shapes, shape = _taken_over(log.shapes, log.shape, at, values.shapes, values.shape[first])
    dtypes, dtype = _taken_over(log.dtypes, log.dtype, at, values.dtypes, values.dtype[first])
    lost = np.array([of for of in unknown if of[1] > 0], np.int64).reshape(-1, 2).T
    outputs = _replaced(log.outputs, lost[0], lost[1], np.full(lost.shape[1], np.nan))
    outputs, digests = (
        _replaced(each, values.maker[lists], values.slot[lists], new[lists])
        for each, new in ((outputs, values.l1), (log.digests, values.digest))
    )
    texts = _texts(values, unknown)
    return replace(
        log,
        stats=stats,
        counts=counts,
        present=present,
        shapes=shapes,
        shape=shape,
        dtypes=dtypes,
        dtype=dtype,
        outputs=outputs,
        digests=digests,
        extra={**log.extra, **{name: log.texts(name).changed(of) for name, of in texts.items() if of}},
    )


def _texts(values: Values, unknown: Sequence[tuple[int, int]]) -> dict[str, dict[int, bytes]]:
    """The fields of a log that hold these values, beside its columns; empty texts for unknown ones."""
    texts: dict[str, dict[int, bytes]] = defaultdict(dict)
    left: dict[int, list[dict[str, Any]]] = {}
    for row, slot in unknown:
        texts[f"Output {slot}" if slot > 0 else "Mutated"][row] = b""
    for v, (row, slot) in enumerate(zip(values.maker.tolist(), values.slot.tolist(), strict=True)):
        if slot == 0:
            texts["Sketch"][row] = values.sketch[v]
        elif slot > 0:
            texts[f"Output {slot}"][row] = json.dumps(_entry(values, v)).encode()
        else:
            left.setdefault(row, []).append({"input": -1 - slot, "name": values.name[v], **_entry(values, v)})
    texts["Mutated"] |= {row: json.dumps(entries).encode() for row, entries in left.items()}
    return texts


def _entry(values: Values, v: int) -> dict[str, Any]:
    """A value as the log writes one, without what is unknown."""
    shape, dtype, digest = int(values.shape[v]), int(values.dtype[v]), values.digest[v]
    fields = {
        "shape": list(dimensions(values.shapes[shape])) if shape >= 0 else None,
        "dtype": values.dtypes[dtype] if dtype >= 0 else None,
        **dict(zip(FIELDS, values.stats[:, v].tolist(), strict=True)),
        "counts": values.counts[:, v].tolist() if values.counts[0, v] >= 0 else None,
        "digest": f"{int(digest):016x}" if digest != NO_DIGEST else None,
        "sketch": values.sketch[v].decode() or None,
    }
    return {name: value for name, value in fields.items() if value is not None and value == value}


def _taken_over(table: Strings, column: Int64, rows: Int64, theirs: Sequence[str], ids: Int64) -> tuple[Strings, Int64]:
    """A table and its column, in some rows with entries of another table; -1 for none."""
    number, raw, column = {text: k for k, text in enumerate(table)}, list(table.raw), column.copy()
    for row, k in zip(rows.tolist(), ids.tolist(), strict=True):
        if k >= 0 and theirs[k] not in number:
            number[theirs[k]] = len(raw)
            raw.append(theirs[k].encode())
        column[row] = number[theirs[k]] if k >= 0 else -1
    return Strings(tuple(raw)), column


def _replaced(lists: Ragged, rows: Int64, places: Int64, new: NDArray[Any]) -> Ragged:
    """The lists with other values at some places, if they have them."""
    there = places < lists.count[rows]
    value = lists.value.copy()
    value[lists.start[rows[there]] + places[there]] = new[there]
    return Ragged(lists.start, value)
