"""Numbers of micro-batches: to which pass of a step each record belongs, and how many a rank has.

A log may number them itself, or run the same modules forward again after each backward pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from matchers.arrays import Bool, Int64, distinct, marked, one_of
from matchers.graph import spread
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog, Phase, once_per_log
from matchers.ops.laws import rows_where
from matchers.ops.module_path import canonical
from matchers.ops.shapes import numel

__all__ = ["BATCH_RANKS", "batch_ranks", "loss_fills", "micro_batch_numbers", "own_micro_batches"]

BATCH_RANKS = "batch_ranks"
"""Entry of the run info of a virtual log (`matchers.runs.layouts`): by how many its micro-batches are divided."""
_PART = 0.5
"""Operations of a call, as a share of those of a larger one, from which on both may be micro-batches."""


@once_per_log
def micro_batch_numbers(log: OpLog) -> Int64:
    """The micro-batch of each record, from 0; -1 for records outside, and everywhere if there is but one.

    A log that does not number them runs the same modules forward again after each backward pass.
    """
    if (log.micro_batch > 0).any():
        logged = distinct(log.micro_batch[log.micro_batch >= 0])  # a log may number them as it likes
        number = np.where(log.micro_batch >= 0, np.searchsorted(logged, log.micro_batch), -1)
        return _calls_joined(log, _with_preparation(log, number))
    none = np.broadcast_to(np.int64(-1), len(log))
    named = np.array([canonical(name) != "" for name in log.modules] + [False])[log.module]
    forward = (log.phase == Phase.FORWARD) & named
    passes = np.flatnonzero(forward | (log.phase == Phase.BACKWARD))
    begins = passes[1:][forward[passes[1:]] & ~forward[passes[:-1]]]
    ends = np.flatnonzero(log.updates)[:1]
    begins = begins[begins < ends[0]] if len(ends) else begins
    if not len(begins):
        return none
    number = np.repeat(np.arange(len(begins) + 1), np.diff(begins, prepend=0, append=len(log)))
    others = np.flatnonzero(log.phase != Phase.PREPARE)
    for batch, begin in enumerate(begins.tolist(), 1):
        before = others[np.searchsorted(others, begin) - 1]
        number[_alone(log, range(int(before) + 1, begin))] = batch
    number[ends[0] if len(ends) else len(log) :] = -1
    # the modules of each micro-batch, in one ascending row of codes
    rows, width = np.flatnonzero(forward & (number >= 0)), len(log.modules)
    runs = distinct(number[rows] * width + log.module[rows])
    first, last = runs[runs < width], runs[runs >= len(begins) * width] - len(begins) * width
    # what follows the last backward pass, such as clipping, is none
    batches = len(begins) + bool(np.isin(last, first).any())
    number[number >= batches] = -1
    runs = runs[runs < batches * width]
    if batches == 1 or len(runs) != batches * len(first):
        return none
    return number if (runs.reshape(batches, -1) == first + np.arange(batches)[:, None] * width).all() else none


def loss_fills(log: OpLog, flow: Ragged) -> Bool:
    """bool[n]: fills that backward passes begin with: each takes the shape of a loss."""
    backward = log.phase == Phase.BACKWARD
    begun = marked(flow.value[backward[flow.row] & (flow.value >= 0)], len(log)) & ~backward
    return begun & rows_where(log, lambda law: law.constant) & (flow.count == 1)


def own_micro_batches(log: OpLog) -> int:
    """The number of micro-batches of a rank."""
    ranks, many = batch_ranks(log), int(micro_batch_numbers(log).max(initial=0)) + 1
    return many // ranks if ranks <= many else many


def batch_ranks(log: OpLog) -> int:
    """The number of ranks whose micro-batches the log has; 1 if it is that of one rank."""
    ranks = log.header.run.get(BATCH_RANKS)
    return ranks if type(ranks) is int and ranks > 0 else 1


def _with_preparation(log: OpLog, number: Int64) -> Int64:
    """The micro-batches, where what prepares a forward pass, after the backward pass before it, is of that pass."""
    number = number.copy()
    last = 0
    for batch in range(int(number.max()) + 1):
        begins = int(np.argmax(log.micro_batch == batch))
        passed = np.flatnonzero(~one_of(log.phase[last:begins], (Phase.FORWARD, Phase.PREPARE)))
        if batch == 0 or len(passed):
            number[_alone(log, range(last + (int(passed[-1]) + 1 if len(passed) else 0), begins))] = batch
        last = begins
    return number


def _alone(log: OpLog, rows: Iterable[int]) -> list[int]:
    """Those of some records that read nothing but each other; a sum of losses reads what was made before."""
    own = set[int]()
    for row in rows:
        if all(maker < 0 or maker in own for maker in log.producers[row].tolist()):
            own.add(row)
    return sorted(own)


def _calls_joined(log: OpLog, number: Int64) -> Int64:
    """The micro-batches, of which those are one whose results a loss reads together: calls of one model for it."""
    same = list(range(int(number.max()) + 1))
    for one, other in (*_alike(log, number), *_trained(log, number)):
        low, high = sorted((same[one], same[other]))
        same = [low if of == high else of for of in same]
    if len(set(same)) == len(same):
        return number
    kept = np.array(sorted(set(same)))
    return np.where(number >= 0, np.searchsorted(kept, np.array([*same, 0])[number]), -1)


def _alike(log: OpLog, number: Int64) -> Iterator[tuple[int, int]]:
    """Yield micro-batches of which one operation reads results of the same operation, before their backward passes."""
    passed, size = np.cumsum(log.phase == Phase.BACKWARD), numel(log)
    for row in np.flatnonzero((log.phase == Phase.FORWARD) & (log.producers.count > 1) & (number > 0)).tolist():
        made = [at for at in log.producers[row].tolist() if at >= 0 and size[log.shape[at]] > 1]
        first: dict[tuple[int, int], int] = {}
        for maker in made if len(made) > 1 else ():
            if passed[maker] < passed[row]:
                continue
            call, place = int(number[maker]), (int(log.module[maker]), int(log.op[maker]))
            if call >= 0 and log.module[maker] >= 0 and (other := first.setdefault(place, call)) != call:
                yield other, call


def _trained(log: OpLog, number: Int64) -> Iterator[tuple[int, int]]:
    """Yield micro-batches of which one makes a part of the loss of the other, whose backward pass leads back to it.

    Those with about as many operations may be parts of a batch, whose losses a loop adds up.
    """
    forward, backward = log.phase == Phase.FORWARD, log.phase == Phase.BACKWARD
    reader, maker = log.producers.row, log.producers.value
    known = maker >= 0
    reader, maker = reader[known], maker[known]
    last = np.full(int(number.max()) + 2, -1)
    last[number[backward]] = np.flatnonzero(backward)
    parts = forward[reader] & (number[maker] >= 0) & (last[number[maker]] > reader)
    many = np.bincount(number + 1, minlength=len(last))  # outside of all: the first one
    one, other = many[number[reader] + 1], many[number[maker] + 1]
    parts &= (number[reader] >= 0) & (_PART * np.maximum(one, other) > np.minimum(one, other))
    if not parts.any():
        return
    loss = spread(log.producers.start, log.producers.value, loss_fills(log, log.producers), forward, back=True)
    for row, at in zip(reader[parts].tolist(), maker[parts].tolist(), strict=True):
        if loss[row]:
            yield int(number[at]), int(number[row])
