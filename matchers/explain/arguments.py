"""Differences between the arguments of a row's two sides, in words."""

from __future__ import annotations

import numpy as np

from matchers.comparison import Comparison
from matchers.laws.register import law
from matchers.logs.op_log import Phase
from matchers.ops.arguments import ArgumentDifference, argument_differences, tells_arguments
from matchers.ops.laws import functional
from matchers.ops.optimizer_settings import optimizer_differences
from matchers.status import Role
from matchers.verdict.arguments import SAME_DIMENSION, SAME_NUMBER, explained_by, perhaps_read

__all__ = ["argument_reasons", "asked_at_its_line", "asked_otherwise"]


def argument_reasons(c: Comparison, row: int) -> list[tuple[ArgumentDifference, str]]:
    """The arguments that a pair was given otherwise, each with the form of the step that explains it, or empty.

    Of a row without a partner those of the two operations that leave something else.
    """
    i, j = int(c.row_a[row]), int(c.row_b[row])
    if c.pair[row] < 0 and (left := c.last_contents.of_row(i, j)):
        i, j = left[0].a, left[0].b
    if min(i, j) < 0 or not (tells_arguments(c.a) and tells_arguments(c.b)):
        return []
    one, other = c.a.op_name(i), c.b.op_name(j)
    if functional(one) != functional(other) and (c.pair[row] >= 0 or law(one).base != law(other).base):
        return []
    found = argument_differences(c.a, c.b, i, j)
    return [(difference, explained_by(c.a, c.b, i, j, difference, c.loss_scale)) for difference in found]


def asked_otherwise(c: Comparison, row: int) -> str:
    """`eps 1e-05 in a, 1e-06 in b`: the arguments of a row that differ and that nothing explains; else empty.

    Of an optimizer's step its settings, which its operations get as they compute with them.
    """
    log, record = c.shown(row)
    if log.phase[record] == Phase.OPTIMIZER:
        settings = optimizer_differences(c.a.header.run, c.b.header.run)
        if settings:
            return ", ".join(each.text for each in settings)
    told = argument_reasons(c, row)
    left = [difference for difference, why in told if not why]
    if not left and c.cause[row] and c.role[row] == Role.ORIGIN:  # its inputs agree: the form explains nothing here
        left = [difference for difference, why in told if why not in (SAME_DIMENSION, SAME_NUMBER)]
    return ", ".join(_told(c, row, difference) for difference in left)


def asked_at_its_line(c: Comparison, row: int) -> str:
    """`self 10000.0 in a, 9000.0 in b`: how all operations of the other run at a row's line were asked, and this one.

    Of a row without a partner. Empty where one was asked the same, or two something else.
    """
    log, record = c.shown(row)
    other = c.b if log is c.a else c.a
    place, op = log.location_text(record), functional(log.op_name(record))
    if not place or not (tells_arguments(c.a) and tells_arguments(c.b)):
        return ""
    lines = [k for k, text in enumerate(other.locations) if text == place]
    ops = [k for k, name in enumerate(other.ops) if functional(name) == op]
    there = np.isin(other.location, lines) & np.isin(other.op, ops) & (other.phase == log.phase[record])
    told = set()
    for at in np.flatnonzero(there)[:_MOST_AT_A_LINE].tolist():
        i, j = (record, at) if log is c.a else (at, record)
        told.add(", ".join(each.text for each in argument_differences(c.a, c.b, i, j)))
    return told.pop() if len(told) == 1 else ""


_MOST_AT_A_LINE = 256
"""Operations of one kind at one line that are looked at, such as those of all layers."""


def _told(c: Comparison, row: int, difference: ArgumentDifference) -> str:
    read = perhaps_read(c.a, c.b, int(c.row_a[row]), int(c.row_b[row]), difference)
    return difference.text + (f", perhaps read at {read.place}" if read is not None else "")
