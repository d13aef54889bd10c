"""The loss and the gradient norm of a step, by what reads them: the backward pass and clipping."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from matchers.arrays import Bool, Int64, distinct
from matchers.laws.law import Form
from matchers.logs.columns import Ragged
from matchers.logs.hashing import float_bits
from matchers.logs.op_log import COUNTS, STATISTICS, OpLog, Phase, once_per_log
from matchers.ops.batch_numbers import batch_ranks, loss_fills, micro_batch_numbers
from matchers.ops.dataflow import downstream, sources, upstream
from matchers.ops.laws import collective, rows_where
from matchers.ops.shapes import numel
from matchers.ops.unused_passes import unused_passes

__all__ = ["TrainingScalars", "backward_begins", "training_scalars"]

_EXACT = 1e-6
_MEAN, _NAN, _INF = STATISTICS.index("Mean"), COUNTS.index("nan"), COUNTS.index("inf")


@dataclass(frozen=True, slots=True)
class TrainingScalars:
    """Two numbers that sum up a step; NaN and Inf as the step had them.

    Attributes:
        losses: those that the backward passes begin with, one per micro-batch; empty if unknown.
        gradient_norm: the total that clipping computes; None if unknown.
    """

    losses: tuple[float, ...]
    gradient_norm: float | None


@once_per_log
def training_scalars(log: OpLog) -> TrainingScalars:
    """Find both in a log as it was written. Of ranks with batches of their own, no loss is that of the step."""
    log = log.written
    flow = sources(log)
    scalar = (numel(log)[log.shape] == 1) & ~rows_where(log, lambda law: law.on_lists)
    found = [] if batch_ranks(log) > 1 else _losses(log, flow, scalar)
    losses = tuple(loss for row in found if (loss := _value(log, row)) is not None)
    number = micro_batch_numbers(log)[~unused_passes(log)]
    every = len(losses) == max(len(distinct(number[number >= 0])), 1)
    norm = _gradient_norm(log, flow, scalar)
    return TrainingScalars(losses if every else (), None if norm is None else _value(log, norm))


def _losses(log: OpLog, flow: Ragged, scalar: Bool) -> list[int]:
    """Return the records that make the losses: what the backward passes begin with takes the shape of one.

    None where a forward pass reads a gradient: then a backward pass is a part of the model.
    """
    reader, maker = log.phase[flow.row], np.where(flow.value < 0, Phase.OTHER, log.phase[flow.value])
    if ((reader == Phase.FORWARD) & (maker == Phase.BACKWARD) & np.isfinite(log.inputs.value)).any():
        return []
    fills = backward_begins(log)
    fills = fills[scalar[fills]]
    made, read = flow.value[flow.start[fills]], log.inputs.value[flow.start[fills]]
    made = made[(made >= 0) & scalar[made] & (float_bits(read) == float_bits(log.outputs.first(made)))]
    return [_before_scaling(log, flow, row) for row in made.tolist()]


@once_per_log
def backward_begins(log: OpLog) -> Int64:
    """Return the fills that backward passes begin with: each takes the shape of a loss."""
    return np.flatnonzero(loss_fills(log, sources(log)) & ~unused_passes(log))


def _before_scaling(log: OpLog, flow: Ragged, product: int) -> int:
    """Return the factor of a product that is the loss, if gradients are divided by the other one before the update."""
    made = [maker for maker in flow[product].tolist() if maker >= 0 and log.inputs.count[maker]]
    if len(made) != 1 or not rows_where(log, lambda law: law.form is Form.MULTIPLY, product):
        return product
    loss, scaled = log.outputs.first(np.array([*made, product]))
    rows = np.flatnonzero(log.phase == Phase.GRADIENTS)
    read = log.inputs.value[np.isin(log.inputs.row, rows)]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        divided = np.append(log.outputs.first(rows) / log.inputs.first(rows), read) * scaled / loss
    return made[0] if (abs(divided - 1) < _EXACT).any() else product


def _gradient_norm(log: OpLog, flow: Ragged, scalar: Bool) -> int | None:
    """Return the record of the norm by which clipping changes gradients; None if it clips parts of them apart.

    The norms of parts are read by that of all. What ranks reduce is a norm of a part, too. A power is a norm if it is a
    root: written out, the square of a gradient of one element is none.
    """
    working = log.phase == Phase.GRADIENTS
    norms = working & rows_where(log, lambda law: law.form in (Form.NORM, Form.POWER))
    carries = working & (norms | scalar | rows_where(log, lambda law: law.form is Form.JOIN))
    read = flow.value[norms[flow.row] & (flow.value >= 0)]
    total = norms & scalar & ~upstream(flow, read, carries)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        root = abs(log.outputs.first() ** 2 / log.inputs.first() - 1) < _EXACT
    total &= root | ~rows_where(log, lambda law: law.form is Form.POWER)
    reached = downstream(flow, total, working)
    if np.count_nonzero(total) != 1 or not (reached & ~carries).any() or (reached & collective(log)).any():
        return None
    return int(np.argmax(total))


def _value(log: OpLog, row: int) -> float | None:
    """Return the number that a record of one element makes; None if unknown."""
    if log.counts[_NAN, row] > 0:
        return math.nan
    mean = float(log.stats[_MEAN, row])
    return mean if log.present[row] >> _MEAN & 1 else (math.inf if log.counts[_INF, row] > 0 else None)
