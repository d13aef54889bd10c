"""Choices that rounding decides, such as the expert of a token, and what of two runs cannot be compared behind them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from matchers.arrays import Int64, one_of
from matchers.laws.law import Form
from matchers.ops.dataflow import whole_numbers
from matchers.ops.laws import rows_where
from matchers.ops.run_info import Note, Severity
from matchers.ops.tensor_rows import rows_of
from matchers.rows import Rows
from matchers.status import Status
from matchers.verdict.reason import Reason

__all__ = ["choice_notes"]


def choice_notes(c: Rows) -> Iterator[Note]:
    """Yield what rounding has chosen otherwise, if operations behind it are not compared.

    `37 of 4,096 tokens chose otherwise within rounding, layers.3.router/op_5_topk first: 91 operations behind are not
    compared`. How many tokens these are, rows tell (`numtui capture --rows`).
    """
    behind = int(np.count_nonzero(c.reason == Reason.CHOSEN_OTHERWISE))
    if not behind or not len(chosen := _choices(c)):
        return
    first = c.a.keys[int(c.row_a[chosen[0]])]
    left = f"{behind:,} operation{'s' * (behind != 1)} behind {'are' if behind != 1 else 'is'} not compared"
    told = [_tokens(c, row) for row in chosen.tolist()]
    many = sum(other for other, _ in told)
    if all(tokens for _, tokens in told):
        text = f"{many:,} of {max(tokens for _, tokens in told):,} tokens chose otherwise within rounding"
        if len(chosen) > 1:
            text = f"{text} in {len(chosen):,} places"
        yield Note(Severity.SUSPICIOUS, "choices", f"{text}, {first} first: {left}")
        return
    op = c.a.op_name(int(c.row_a[chosen[0]]))
    text = f"{len(chosen):,} choice{'s differ' if len(chosen) != 1 else ' differs'} within rounding, {first} first"
    yield Note(Severity.SUSPICIOUS, "choices", f"{text}: {left}; capture --rows '*/{op}' tells how many tokens")


def _choices(c: Rows) -> Int64:
    """The rows of choices that differ and are not red: by the places of the largest values."""
    near = np.flatnonzero(
        (c.pair >= 0) & one_of(c.verdict, (Status.CLOSE, Status.NOT_JUDGED)) & (c.reason != Reason.TIED)
    )
    of_places = whole_numbers(c.a)[c.row_a[near]] | np.isin(near, [*c.slots])
    return near[rows_where(c.a, lambda law: law.form is Form.RANK, c.row_a[near]) & of_places]


def _tokens(c: Rows, row: int) -> tuple[int, int]:
    """The tokens of a choice that chose otherwise, and all of them; zeros where the logs do not tell its rows."""
    x, y = (rows_of(log, int(record)) for log, record in ((c.a, c.row_a[row]), (c.b, c.row_b[row])))
    last = max(x.keys() & y.keys(), default=-1)
    if last < 0 or len(x[last]) != len(y[last]):
        return 0, 0
    return int(np.count_nonzero(x[last].digest != y[last].digest)), len(x[last])
