"""Causes that isolation finds beside those of a comparison: behind a graft, and where a difference is not yet red."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from matchers.arrays import Bool, marked
from matchers.causes.consequences import places
from matchers.causes.unpaired_branches import Branches
from matchers.comparison import Comparison
from matchers.logs.columns import Ragged
from matchers.ops.dataflow import downstream, upstream
from matchers.status import Status
from matchers.verdict.reason import Reason
from numtui.report.explained import explained

__all__ = ["beginning", "behind_grafts", "first_apart"]

_MOST = 1000
"""Each is a walk over the data flow; an optimizer by hand has some for each weight."""


def behind_grafts(c: Comparison, known: Iterable[int], open_within: Bool, cut: Bool) -> list[tuple[int, ...]]:
    """Return red rows that begin causes of their own, by places in the program.

    A comparison takes for a consequence also what a cause leads to over rows that agree but for rounding, as their
    elements may differ. Behind a graft they do not, and an error that is more than rounding begins anew. Only runs of
    other layouts are meant: in others what agrees behind a graft is equal, which the comparison knows.

    Args:
        known: rows of the causes that are known.
        open_within: bool[r], rows with no graft between them and a known cause.
        cut: bool[r], rows of gradients that one run lacks: they lead to sums without such a term.
    """
    agree = (c.status == Status.EQUAL) | ((c.status == Status.CLOSE) & ~c.bound & ~open_within)
    open_ = (c.pair < 0) | ~agree
    before = marked([*known], len(c))
    apart = first_apart(c.edges, c.red, open_, explained(c, np.flatnonzero(before | cut), open_))
    found = places(c, apart | before)
    return [rows for rows in found if not before[list(rows)].any()]  # else of a known cause, at other weights say


def first_apart(flow: Ragged, red: Bool, open_: Bool, known: Bool) -> Bool:
    """Return the first red rows that are not explained, and to which none of them leads over open rows: bool[r].

    Args:
        flow: the rows that each row reads.
        red, open_, known: bool[r]; known ones are explained.
    """
    found = np.zeros(len(red), bool)
    for _ in range(_MOST):
        left = np.flatnonzero(red & ~known & ~downstream(flow, found, open_ | found))
        if not len(left):
            break
        found[left[0]] = True
    return found


def beginning(c: Comparison, row: int) -> int:
    """Return where the difference begins that a row shows which was asked the same: itself, or an operation before it.

    An operation that one run alone has in that module, or in the one around it, may lead to it over results in which
    the difference is small beside larger numbers, as those of a mask, or changes no norm.
    """
    if c.pair[row] < 0 or c.inputs_equal[row] or c.reason[row] == Reason.ARGUMENTS:
        return row
    within = _of_module(c, row) & (c.status != Status.EQUAL) & (c.phase == c.phase[row])
    before = upstream(c.edges, marked([row], len(c)), within)
    alone = [at for at in np.flatnonzero(before & within & (c.pair < 0)).tolist() if at < row]
    branches = Branches(c, c.edges) if alone else None
    return next((at for at in alone if branches is not None and branches.is_odd(at)), row)


def _of_module(c: Comparison, row: int) -> Bool:
    """bool[r]: rows of the module of a row, and of the module around it, in either run."""
    found = np.zeros(len(c), bool)
    for log, at, record in ((c.a, c.at_a, c.row_a[row]), (c.b, c.at_b, c.row_b[row])):
        name = log.modules[log.module[record]]
        meant = [one for one, each in enumerate(log.modules) if each in (name, name.rpartition(".")[0])]
        found[at[np.isin(log.module, meant)]] = True
    return found
