"""What a record holds of the tensor that it computes, also where the log does not say it.

A log places what is distributed. In between, ranks compute with their local parts as if they were whole tensors, the
heads of one rank between two linear layers, say. Such a part is followed along the data flow: from a record that was
placed to the collective that puts the parts together or adds them up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from matchers.collectives import LOWERED_FROM, collective
from matchers.op_log import NO_DIGEST, OpLog
from matchers.placement import Part, parse_placement, part_of
from matchers.shapes import dimensions, numel

__all__ = ["Held", "held", "other_parts", "wholes"]

_Result = tuple[str, int, tuple[int, ...], float]
"""An op, its phase, the shape that is here, and the share of it."""

_ADDS_UP = frozenset({"allreduce_", "_reduce_scatter_base_"})
_PUTS_TOGETHER = frozenset({"_allgather_base_"})


@dataclass(frozen=True, slots=True)
class Held:
    """Per record: float64 `share`, how many times as large the tensor is as the part of it that is here (1: all of it,
    as far as is known); bool `partial`, a sum over ranks is still to be made.
    """

    share: NDArray[np.float64]
    partial: NDArray[np.bool_]


def _placed(log: OpLog) -> dict[int, Part]:
    """By row, the part that the log says a record holds; parts of one placement and shape are one object."""
    texts = log.texts("Placement")
    known: dict[tuple[bytes, int], Part | None] = {}
    out = {}
    for row in texts:
        key = texts.raw(row), int(log.shape[row])
        if key not in known:
            known[key] = part_of(parse_placement(texts[row]), dimensions(log.shape_text(row)))
        part = known[key]
        if part is not None and log.shape[row] >= 0:
            out[row] = part
    return out


def held(log: OpLog, batch_parts: int = 1) -> Held:
    """What each record holds; everything whole in a log that places nothing.

    Args:
        batch_parts: into how many parts the batch is divided, one of which this log is of. What is computed of it is a
            part until ranks add it up.
    """
    n = len(log)
    parts = _placed(log)
    reads_batch = _reading(log, _batch_digests(log) if batch_parts > 1 else [])
    if not parts and not reads_batch.any():
        return Held(np.ones(n), np.zeros(n, bool))
    share, partial, of_batch = [1.0] * n, [False] * n, reads_batch.tolist()
    size = numel(log)[log.shape].tolist()
    adds_up, puts_together = (_in_any_form(log, names)[log.op].tolist() for names in (_ADDS_UP, _PUTS_TOGETHER))
    start, makers = log.producers.start.tolist(), _makers(log).tolist()
    several = (log.outputs.count > 1).tolist()
    for row in range(n):
        read = [maker for maker in makers[start[row] : start[row + 1]] if 0 <= maker < row]
        found = max((share[maker] for maker in read), default=1.0)
        if of_batch[row]:
            found = max(found, float(batch_parts))
        summed = any(partial[maker] for maker in read)
        part = parts.get(row)
        if part is not None:
            share[row] = math.prod(part.whole) / max(math.prod(part.shape), 1)
            # the log places the first output; another may be of one of the parts that went in
            partial[row] = bool(part.partial) or (several[row] and found > share[row])
        elif adds_up[row] or puts_together[row]:
            grown = size[row] / size[read[-1]] if read and size[row] > 0 and size[read[-1]] > 0 else 1.0
            share[row] = max((found if puts_together[row] else 1.0) / grown, 1.0)
        elif found > 1 and size[row] == 1:  # what was summed over a part is a part of the sum
            partial[row] = True
        else:
            share[row], partial[row] = found, summed
    return Held(np.array(share), np.array(partial, bool))


def _makers(log: OpLog) -> NDArray[np.int64]:
    """Who made what was read: `log.producers.value`, -1 for tensors that are overwritten whatever they held."""
    makers = log.producers.value.astype(np.int64)
    same = log.producers.count == log.input_digests.count
    named, read = same[log.producers.row], same[log.input_digests.row]
    makers[np.flatnonzero(named)[log.input_digests.value[read] == NO_DIGEST]] = -1
    return makers


def _batch_digests(log: OpLog) -> list[int]:
    """Of the tensors that the step was given, as the run info tells them."""
    batch = log.header.run.get("batch")
    texts = [tensor.get("digest") for tensor in batch if isinstance(tensor, Mapping)] if isinstance(batch, list) else []
    return [int(text, 16) for text in texts if isinstance(text, str) and re.fullmatch(r"[0-9a-f]{16}", text)]


def _reading(log: OpLog, digests: list[int]) -> NDArray[np.bool_]:
    """bool[n]: the row reads one of some tensors."""
    rows = np.zeros(len(log), bool)
    rows[log.input_digests.row[np.isin(log.input_digests.value, np.array(digests, np.uint64))]] = True
    return rows


def _in_any_form(log: OpLog, names: frozenset[str]) -> NDArray[np.bool_]:
    return np.array([name in names or LOWERED_FROM.get(name) in names for name in log.ops] + [False])


def wholes(log: OpLog, of: Held, other: OpLog, other_of: Held) -> dict[int, tuple[int, ...]]:
    """By row, the shape of the tensor that a record holds a part of: as the log says it, else the only shape of a whole
    result of that op in the other log that is as much larger in one dimension.
    """
    parts = _placed(log)
    out = {row: part.whole for row, part in parts.items()}
    # ranks exchange parts in any layout
    computed = (of.share > 1) & (log.shape >= 0) & ~collective(log)
    rows = [row for row in np.flatnonzero(computed).tolist() if row not in parts]
    if not rows:
        return out
    there = _results(other, other_of)
    found: dict[_Result, tuple[int, ...] | None] = {}
    for row in rows:
        mine = (log.op_name(row), int(log.phase[row]), dimensions(log.shape_text(row)), float(of.share[row]))
        if mine not in found:
            op, phase, local, share = mine
            larger = [whole for whole in _larger(local, share) if (op, phase, whole, 1.0) in there]
            # where both logs have such parts, they are each other's partners as they are
            found[mine] = larger[0] if len(larger) == 1 and mine not in there else None
        whole = found[mine]
        if whole is not None:
            out[row] = whole
    return out


def _larger(local: tuple[int, ...], share: float) -> Iterable[tuple[int, ...]]:
    """The shapes that are so many times as large in one dimension."""
    if share != int(share):
        return
    for k, length in enumerate(local):
        yield (*local[:k], length * int(share), *local[k + 1 :])


def _results(log: OpLog, of: Held) -> set[_Result]:
    """What operations made what."""
    rows = (log.shape >= 0) & (log.op >= 0)
    combined = np.stack((log.op[rows], log.phase[rows], log.shape[rows], of.share[rows]), axis=1)
    return {
        (log.ops[int(op)], int(phase), dimensions(log.shapes[int(shape)]), share)
        for op, phase, shape, share in np.unique(combined, axis=0).tolist()
    }


def other_parts(a: Held, b: Held, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Bool per pair (i[k], j[k]): one holds more of its tensor than the other, or one a part of a sum."""
    return np.asarray((a.share[i] != b.share[j]) | (a.partial[i] != b.partial[j]))
