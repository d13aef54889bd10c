"""The verdict in one line: how much is red, where it begins, and why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

import numpy as np

from matchers.comparison import Comparison
from matchers.coverage import Cover
from matchers.single_run import explained
from matchers.status import Status
from numtui.query.source_line import source_lines
from numtui.text.counts import plural
from numtui.text.lines import Line, fit_line, line_width
from numtui.text.names import MAX_KEY_LENGTH
from numtui.text.safe import safe_text
from numtui.text.short_names import shortened

__all__ = ["banner"]

_NAME = 28
"""Cells of a shortened name: a layer, a module and its operation."""


def banner(c: Comparison, width: int) -> Line:
    """Return the verdict, in the longest form that has room; empty where nothing is red, or compared yet."""
    rows = np.flatnonzero(c.cause if c.cause.any() else c.red)
    if (c.counts[Status.PENDING] and not c.single) or not len(rows):
        return []
    *shorter, shortest = _forms(c, rows)
    return next((line for line in shorter if line_width(line) <= width), fit_line(shortest, width))


def _forms(c: Comparison, rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Iterator[Line]:
    """Yield the verdict from long to short; `rows`: the first causes, or else the red rows."""
    row = int(rows[0])
    head = "NaN or Inf" if c.single else "red"
    of = len(c) if c.single else np.count_nonzero(c.coverage.cover == Cover.COMPARED)
    role, _, told = explained(c, row).headline.partition(": ")
    likely = "likely " if role.startswith("LIKELY") else ""
    begins = f"{likely}begins" if len(rows) == 1 else f"{plural(len(rows), 'cause')}, {likely}first"
    begins += f" at row {row + 1:,}"
    if not c.cause.any():
        begins = f"first at row {row + 1:,}, without a first cause"
    counted: Line = [(f" {head}: {np.count_nonzero(c.red):,} of {of:,}", "red"), (f" · {begins}, ", "")]
    log, record = c.shown(row)
    key = safe_text(log.keys[record], MAX_KEY_LENGTH)
    why = f", {safe_text(told.partition('; ')[0])}" if told else ""
    source = next((safe_text(line) for line in source_lines(c, row)), "")
    file = PurePath(source).name
    for name, reason, place in (
        (key, why, source),
        (shortened(key, _NAME), why, source),
        (shortened(key, _NAME), why, file),
        (shortened(key, _NAME), "", file),
        (shortened(key, 18), "", file),
        (shortened(key, 18), "", ""),
    ):
        yield [*counted, (name, "cause"), (reason, ""), (f" · {place}" if place else "", "key")]
