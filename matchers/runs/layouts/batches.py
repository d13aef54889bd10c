"""Ranks that read parts of one batch, as the micro-batches of one log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from matchers.arrays import Bool, Float64, Int64, marked, one_of
from matchers.logs.op_log import NO_DIGEST, STATISTICS, OpLog, Phase
from matchers.ops.batch_numbers import BATCH_RANKS, micro_batch_numbers
from matchers.ops.combine import with_values
from matchers.ops.dataflow import sources, upstream
from matchers.ops.laws import additions, copies, in_place
from matchers.ops.micro_batches import accumulations
from matchers.ops.shapes import numel
from matchers.ops.values import first_outputs
from matchers.runs.layouts.pieces import Piece, joined
from matchers.runs.layouts.reduced import ReducedGradients
from matchers.runs.layouts.samples import same_samples

__all__ = ["as_micro_batches"]


_MEAN = STATISTICS.index("Mean")


def as_micro_batches(logs: Sequence[OpLog], updates: OpLog, of: int, others: Sequence[OpLog]) -> OpLog:
    """Join logs: the passes of each as micro-batches, and after them the updates of one.

    They have the order of the other run's micro-batches with the same samples. Where there are none, those of all ranks
    with one number follow each other, as those of a loader that deals them out. What a rank adds up over its own micro-
    batches is a part of the sum over all: of scalars, such as losses, these are known.

    Args:
        updates: whose records that update parameters stand for those of all; it has the rows of `logs[of]`, or of
            no log (-1), and perhaps more updates behind them.
        others: the log to compare with, or those of its ranks, whose order these ranks take over. The first may add up
            gradients that the ranks reduce (`reduced.py`).
    """
    order, pieces = _order(logs, others), list[Piece]()
    passes = [_passes(log) & ~(_starts_of_sums(log) & bool(k)) for k, log in enumerate(logs)]
    copied = [_copies_of_sums(log) for log in logs]
    numbers = [_numbers(log) for log in logs]
    without = [_without_sums(log, number) for log, number in zip(logs, numbers, strict=True)]
    for own, k in order:
        wanted = (numbers[k] == own) & passes[k]
        if (own, k) != order[-1]:
            wanted &= ~copied[k]
        pieces.append(Piece(without[k], np.flatnonzero(wanted), len(pieces), k))
    gradients = ReducedGradients(others[0], pieces, updates)
    rest = np.flatnonzero(~_passes(updates))
    log = gradients.joined(joined(updates, [*gradients.pieces, Piece(updates, rest, -1, of)]), rest, len(logs))
    run = {**log.header.run, BATCH_RANKS: len({of, *(piece.source for piece in pieces)})}
    return _with_totals(replace(log, header=replace(log.header, run=run)), [piece.source for piece in pieces])


def _numbers(log: OpLog) -> Int64:
    """int64[n], the micro-batch of each record, of a running total that of what it adds; 0 outside."""
    number = np.append(micro_batch_numbers(log), -1)
    flow = sources(log)
    for row in np.flatnonzero(_scalar_sums(log) & (number[:-1] < 0)).tolist():
        number[row] = max(number[flow[row]].tolist(), default=-1)
    return np.maximum(number[:-1], 0)


def _order(logs: Sequence[OpLog], others: Sequence[OpLog]) -> list[tuple[int, int]]:
    """The micro-batches, as (number, log), in the order of those of the other run with the same samples."""
    many = [int(micro_batch_numbers(other).max(initial=0)) + 1 for other in others]
    theirs = [(own, k) for k, n in enumerate(many) for own in range(n)]
    places = [[theirs[at] if at >= 0 else None for at in of_log] for of_log in same_samples(logs, others)]
    place = {(own, k): at for k, of_log in enumerate(places) for own, at in enumerate(of_log)}
    known = {mine: at for mine, at in place.items() if at is not None}
    apart = len(known) == len(place) == len({*known.values()})
    in_turn = apart and all(of_log == sorted(filter(None, of_log)) for of_log in places)
    return sorted(place, key=known.__getitem__) if in_turn else sorted(place)


def _passes(log: OpLog) -> Bool:
    """bool[n]: records of the passes; what follows the last one, such as a reduction of gradients, is an update.

    So is what was made for updates before the first one, such as a copy of the model that averages it.
    """
    last = np.flatnonzero(one_of(log.phase, (Phase.FORWARD, Phase.BACKWARD)) & ~log.updates)[-1:]
    before = np.arange(len(log)) <= (last[0] if len(last) else -1)
    of_sums = _scalar_sums(log) | _starts_of_sums(log)
    return np.asarray((before & ~log.updates & ~_made_for_updates(log)) | of_sums)


def _made_for_updates(log: OpLog) -> Bool:
    """bool[n]: records before the first pass that updates read, and no pass does."""
    made_before = log.phase == Phase.PREPARE
    if not made_before.any():
        return made_before
    passes = ~log.updates & ~made_before
    # by the producers that are logged: a copy has the bits of what a pass reads
    read_by_updates, read_by_passes = (upstream(log.producers, of, of | made_before) for of in (log.updates, passes))
    return np.asarray(made_before & read_by_updates & ~read_by_passes)


def _scalar_sums(log: OpLog) -> Bool:
    """bool[n]: a number is added to a running total in place, within the passes; not to a buffer or gradient."""
    found = additions(log) & in_place(log) & (numel(log)[log.shape] == 1) & ~log.updates
    found &= log.phase != Phase.BACKWARD  # in which a bias of one element gets its gradient
    named = log.texts("Parameter")
    found[[row for row in np.flatnonzero(found).tolist() if named.get(row, "").partition(";")[0]]] = False
    return np.asarray(found)


def _starts_of_sums(log: OpLog) -> Bool:
    """bool[n]: numbers that nothing was read for, and that only running totals begin with: the zero of a sum."""
    flow = sources(log)
    known = flow.value >= 0
    of_sum = _scalar_sums(log)
    read, read_elsewhere = np.zeros(len(log), bool), np.zeros(len(log), bool)
    read[flow.value[known & of_sum[flow.row]]] = True
    read_elsewhere[flow.value[known & ~of_sum[flow.row]]] = True
    return np.asarray((log.inputs.count == 0) & (numel(log)[log.shape] == 1) & read & ~read_elsewhere)


def _copies_of_sums(log: OpLog) -> Bool:
    """bool[n]: copies of running totals, such as casts; the whole of it, all ranks have after the last micro-batch."""
    flow = sources(log)
    known = flow.value >= 0
    read = marked(flow.row[known][_scalar_sums(log)[flow.value[known]]], len(log))
    return np.asarray(read & copies(log) & (numel(log)[log.shape] == 1))


def _without_sums(log: OpLog, number: Int64) -> OpLog:
    """The log without the gradients that the rank adds up over its own micro-batches, whose numbers are `number`."""
    if not number.any():
        return log
    rows = np.array([record for record, _, _ in accumulations(log, number, sources(log))], np.int64)
    rows = np.setdiff1d(rows, np.flatnonzero(_scalar_sums(log)))
    return _with_numbers(log, rows, np.full(len(rows), np.nan))


def _with_totals(log: OpLog, source: Sequence[int]) -> OpLog:
    """The log with the running totals of all ranks, and copies of them, in place of those of each.

    Args:
        source: the rank of each micro-batch.
    """
    rows = np.flatnonzero(_scalar_sums(log) & (log.micro_batch >= 0))
    sums: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    seen = Counter[tuple[int, int, int]]()
    for row in rows.tolist():
        module, op, batch = int(log.module[row]), int(log.op[row]), int(log.micro_batch[row])
        sums[module, op, seen[module, op, batch]].append(row)
        seen[module, op, batch] += 1
    value = np.full(len(log), np.nan)
    for found in sums.values():
        total, own = 0.0, dict.fromkeys(source, 0.0)
        for row in found:
            rank, mine = source[int(log.micro_batch[row])], float(log.stats[_MEAN, row])
            total, own[rank] = total + mine - own[rank], mine
            value[row] = total
    flow = sources(log)
    for row in np.flatnonzero(_copies_of_sums(log) & (log.micro_batch >= 0)).tolist():
        value[row] = next((value[maker] for maker in flow[row].tolist() if maker >= 0), np.nan)
    rows = np.union1d(rows, np.flatnonzero(np.isfinite(value)))
    return _with_numbers(log, rows, value[rows])


def _with_numbers(log: OpLog, rows: Int64, value: Float64) -> OpLog:
    """The log with other results of some records: of one element, or NaN for unknown ones."""
    size = np.abs(value)
    stats, nothing = np.stack((size, size, value, value, value)), np.full(len(rows), NO_DIGEST)
    made = replace(first_outputs(log, rows), stats=stats, digest=nothing, sketch=[b""] * len(rows))
    return with_values(log, replace(made, present=np.where(np.isfinite(value), made.present, 0)))
