"""Causes behind the first ones, and what is left to explain if some rows were equal.

Downstream of a first cause all numbers differ, so that they say nothing about a second mistake. Arguments still do: no
input brings a fraction about. Whole numbers count what a form of the step has, backward operations are given what
autograd kept of the forward ones, and a line with a first cause is that cause. Less surely, an operation that
only one run has tells, too.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from matchers.arrays import Bool, Int64, marked
from matchers.causes.consequences import adrift, given_fraction, places
from matchers.causes.unpaired_branches import Branches
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import Phase
from matchers.ops.dataflow import downstream
from matchers.rows import Rows
from matchers.status import Status

__all__ = ["explained_by", "further_causes", "possible_causes"]


def further_causes(c: Rows, asked_otherwise: Bool) -> tuple[tuple[int, ...], ...]:
    """The rows of each cause downstream of a first one that no input brings about: it was given another fraction.

    Args:
        asked_otherwise: bool[r], as of `Comparison`.
    """
    asked = _asked(c, asked_otherwise)
    if c.merged:
        asked[:] = False
    for row in np.flatnonzero(asked).tolist():
        asked[row] = given_fraction(c, row)
    return tuple(places(c, asked))


def possible_causes(c: Rows, asked_otherwise: Bool, further: Iterable[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """The rows of each operation downstream of a first cause that may be a cause, or else the form of the step.

    It was asked something else; or, in the forward pass, only one run has it and its like in other layers has a
    partner. Not what hangs together with a cause over such operations, nor a region whose results agree.
    """
    alone = (c.pair < 0) & (c.status != Status.RECOMPUTE)
    forward = c.by_row(lambda log: log.phase == Phase.FORWARD)
    known = c.cause | marked([row for rows in further for row in rows], len(c))
    odd = alone & _behind(c) & forward & ~downstream(c.edges, known, alone)
    odd &= ~c.covered
    branches = Branches(c, c.edges)
    for row in np.flatnonzero(odd).tolist():
        odd[row] = branches.is_odd(row)
    return tuple(places(c, odd | (_asked(c, asked_otherwise) & ~known)))


def explained_by(c: Rows, assumed: Int64, causes: Bool) -> Bool:
    """bool[r]: red rows and causes that no other cause leads to if the results of some rows were equal, those too.

    Args:
        assumed: these rows.
        causes: bool[r], rows that start all causes that are known.
    """
    equal, different = marked(assumed, len(c)), c.status != Status.EQUAL
    before, after = causes | equal, causes & ~equal
    known = downstream(c.edges, before, different | before)
    lost, last = adrift(c, known, causes)
    known[lost] = True
    left = downstream(c.edges, after, (different & ~equal) | after)
    left[lost] = left[last]
    left = downstream(c.edges, left, (different & ~equal) | left)
    return (c.red | before) & known & ~left


def _asked(c: Rows, asked_otherwise: Bool) -> Bool:
    """bool[r]: red rows of the forward pass and the optimizer behind a first cause that were asked something else."""
    asked = c.by_row(lambda log: (log.phase == Phase.FORWARD) | (log.phase == Phase.OPTIMIZER))
    return asked & asked_otherwise & c.red & _behind(c)


def _behind(c: Rows) -> Bool:
    """bool[r]: rows that a first cause leads to, and at whose source lines there is none."""
    of_a, of_b, _ = shared_ids(c.a.locations, c.b.locations)
    lines = [
        np.append(of[log.location], -1)[record] for of, log, record in ((of_a, c.a, c.row_a), (of_b, c.b, c.row_b))
    ]
    known = np.concatenate([line[c.cause & (line >= 0)] for line in lines])
    behind = downstream(c.edges, c.cause, (c.status != Status.EQUAL) | c.cause)
    return behind & ~c.cause & ~np.isin(lines[0], known) & ~np.isin(lines[1], known)
