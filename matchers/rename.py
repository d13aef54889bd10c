"""Modules under new names: their rows are matched again, all others keep what the logs' own names gave them.

A rename is the user's word: a row of a module that is called like one of b goes there rather than anywhere else. What
the values of two rows alone have decided stands, whatever the names.
"""

from __future__ import annotations

import numpy as np

from matchers.align import LEFTOVER, Alignment, compete, leftovers, nearest_of_kind
from matchers.arrays import Bool
from matchers.evidence import observe
from matchers.features import Features
from matchers.pairing import Method

__all__ = ["realigned"]

_WORD = 4.0
"""Log odds that a module's new name speaks with, for the module of that name and against all others."""


def realigned(f: Features, auto: Alignment, renamed: Bool) -> Alignment:
    """The alignment of the logs as they are, for features under new names.

    Args:
        f: the features with the new names.
        auto: the alignment without them.
        renamed: bool[n_a], the rows of a whose module is called something else.
    """
    state = auto.state.copy()
    # where the new names are in b
    called = np.zeros(f.names.size + 1, bool)
    called[f.a.module[renamed]] = True
    wanted = called[f.b.module]
    paired = np.flatnonzero(state.of_a >= 0)
    guessed = np.isin(state.method[paired], (Method.ALIGNED, Method.RELAXED))
    again = guessed & (renamed[paired] | wanted[state.of_a[paired]])
    touched = renamed.copy()
    touched[paired[again]] = True
    state.free(paired[again])

    rows_a, rows_b = np.flatnonzero(touched & (state.of_a < 0)), np.flatnonzero(state.of_b < 0)
    if auto.weights is not None:
        i, j = nearest_of_kind(f, rows_a, rows_b, auto.order)
        if len(i):
            score = auto.weights.score(observe(f, i, j, auto.order, state.of_a, state.of_b))
            word = np.where(f.a.module[i] == f.b.module[j], _WORD, -_WORD)
            compete(state, i, j, score + np.where(renamed[i], word, 0.0), 0.0)
    i, j = leftovers(f, auto.order, rows_a[state.of_a[rows_a] < 0], rows_b[state.of_b[rows_b] < 0])
    state.pair(i, j, Method.RELAXED, LEFTOVER)
    return Alignment(state, auto.order, auto.weights)
