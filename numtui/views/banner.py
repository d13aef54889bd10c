"""The verdict in one line: how much is red, where it begins, and why."""

from __future__ import annotations

from pathlib import PurePath

import numpy as np

from matchers.comparison import Comparison
from matchers.coverage.cover import Cover
from matchers.single_run import explained
from matchers.status import Status
from numtui.query.source_line import source_lines
from numtui.query.view import same_file, uncompared
from numtui.session.what_if import WhatIf
from numtui.text.counts import plural
from numtui.text.lines import Line, fit_line, line_width, width_of
from numtui.text.names import MAX_KEY_LENGTH
from numtui.text.safe import safe_text
from numtui.text.short_names import shortened

__all__ = ["assuming", "banner"]

_NAME = 20
"""Cells that a name has before a reason or a place: a layer, a module and its operation."""


def banner(c: Comparison, width: int) -> Line:
    """Return the verdict, in the longest form that has room; empty where all agrees, and until all is compared."""
    causes = len(c.starts)
    differ = c.cause if causes else c.red
    if c.counts[Status.PENDING] and not c.single:
        return []
    if same_file(c):
        return [(" a and b are the same file", "close")]
    if not differ.any():
        return [] if c.single or c.coverage.enough else _not_compared(c, width)
    key, forms = _told(c, int(np.argmax(differ)), causes)
    for before, reason, place in forms:
        after: Line = [(reason, ""), (f" · {place}" if place else "", "key")]
        left = width - line_width(before) - line_width(after)
        if left >= min(width_of(key), _NAME):
            break
    return fit_line([*before, (shortened(key, left), "cause"), *after], width)


def assuming(found: WhatIf, width: int) -> Line:
    """Return what is left if some rows were equal."""
    if len(found.assumed) == 1:
        which = f"row {found.assumed[0] + 1:,}"
    else:
        which = f"{plural(len(found.assumed), 'row')} from {found.assumed[0] + 1:,} on"
    return fit_line([(f" without {which}: ", "close"), (f"{found.told} · esc ends", "")], width)


def _not_compared(c: Comparison, width: int) -> Line:
    """Say that nothing is red, and how much of the logs that does not cover."""
    from numtui.report.gate import fails  # with the reports, which the first screen does not need

    rows = len(uncompared(c))
    counted = f"{rows:,} not compared" if rows else f"not compared: {c.coverage.missing}"
    exits = " (exit 1)" if fails(c) else ""
    which = f", chiefly {c.coverage.missing}" if rows and c.coverage.missing else ""
    told = f" no red row, {counted}{exits}{which} · I, then enter, lists them"
    short = f" no red row, {counted}{exits} · I enter: why"
    return fit_line([(told if width_of(told) <= width else short, "close")], width)


def _told(c: Comparison, row: int, causes: int) -> tuple[str, list[tuple[Line, str, str]]]:
    """Return the name of a row, and what may stand around it, from long to short: how much is red, why, where."""
    head = "NaN or Inf" if c.single else "red"
    of = len(c) if c.single else np.count_nonzero(c.coverage.cover == Cover.COMPARED)
    role, _, told = explained(c, row).headline.partition(": ")
    likely = "likely " if role.startswith("LIKELY") else ""
    begins = f"{plural(causes, 'cause')}, {likely}first" if causes > 1 else f"{likely}begins" if causes else "first"
    counted = (f" {head}: {np.count_nonzero(c.red):,} of {of:,}", "red")
    before: Line = [counted, (f" · {begins} at row {row + 1:,}, ", "")]
    brief: Line = [counted, (f" · {likely}row {row + 1:,}, ", "")]
    log, record = c.shown(row)
    why = f", {safe_text(told.partition('; ')[0])}" if told else ""
    source = next((safe_text(line) for line in source_lines(c, row)), "")
    file = PurePath(source).name
    key = safe_text(log.keys[record], MAX_KEY_LENGTH)
    return key, [(before, why, source), (before, why, file), (before, "", file), (before, "", ""), (brief, "", "")]
