"""Losses that only one run divides: by the number of its micro-batches, where the other averages over all samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from matchers.comparison import Comparison
from matchers.drift.suggestion import Finding, instances
from matchers.ops.shapes import numel
from matchers.status import Status
from matchers.verdict.loss_scale import EXACT
from matchers.verdict.reason import Reason

__all__ = ["divided_losses"]


def divided_losses(c: Comparison) -> Iterator[Finding]:
    """Losses and gradients of micro-batches that differ by a constant factor."""
    pairs = np.flatnonzero(c.pair >= 0)
    if c.loss_scale != 1:
        rows = np.flatnonzero(c.reason == Reason.LOSS_SCALE)
        said = f"Every loss and gradient of a is {c.loss_scale:g} times that of b until it is reduced: one run divides"
        yield _finding(
            c, rows, f"{said} losses by the number of micro-batches, the other averages gradients over ranks."
        )
        return
    batches = c.a.batches, c.b.batches
    if batches[0] == batches[1]:
        return
    one = numel(c.a)[c.a.shape[c.row_a[pairs]]] == 1
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = c.b.outputs.first(c.row_b[pairs]) / c.a.outputs.first(c.row_a[pairs])
    factors = (batches[0] / batches[1], batches[1] / batches[0])
    constant = np.any([np.abs(ratio / factor - 1) < EXACT for factor in factors], axis=0)
    rows = pairs[one & constant & (c.status[pairs] == Status.NOT_JUDGED)]
    if len(rows):
        a, b = (f"{n} micro-batch{'es' * (n > 1)}" for n in batches)
        yield _finding(
            c, rows, f"Each loss is a mean over one micro-batch ({a} in a, {b} in b) and divided by their number."
        )


def _finding(c: Comparison, rows: np.ndarray[tuple[int], np.dtype[np.int64]], text: str) -> Finding:
    shown = instances(c.row_a[rows], c.row_b[rows])
    return Finding("divided losses", text, shown, no_rule="totals are judged as they are, so none is needed")
