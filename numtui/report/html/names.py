"""The parts in which the two names of a row differ, as numbers: the page cuts the names that it has at these places."""

from __future__ import annotations

from typing import Final

import numpy as np

from matchers.comparison import Comparison
from numtui.report.html.columns import Block
from numtui.text.names import marked_keys, shared_module
from numtui.text.pieces import Line

__all__ = ["add_names"]

_Pattern = tuple[tuple[int, ...], tuple[int, ...], int]
"""Lengths of the pieces of a's name and of b's, negative where marked, and of the module that both begin with."""

_NONE: Final = -1


def add_names(block: Block, c: Comparison) -> None:
    """Add the pattern of each row whose two names differ; thousands of rows share a few hundred patterns."""
    both = np.flatnonzero((c.row_a >= 0) & (c.row_b >= 0))
    number: dict[_Pattern, int] = {}
    known: dict[tuple[str, str], int] = {}
    column = np.full(len(c), _NONE, np.int32)
    for row, i, j in zip(both.tolist(), c.row_a[both].tolist(), c.row_b[both].tolist(), strict=True):
        keys = c.a.keys[i], c.b.keys[j]
        if keys[0] != keys[1]:
            if keys not in known:
                known[keys] = number.setdefault(_pattern(*keys), len(number))
            column[row] = known[keys]
    block.head["nameMarks"] = list(number)
    block.add("nameMark", column)


def _pattern(a: str, b: str) -> _Pattern:
    left, right = marked_keys(a, b)
    return _lengths(left), _lengths(right), shared_module(left, right)


def _lengths(line: Line) -> tuple[int, ...]:
    return tuple(-len(text) if role else len(text) for text, role in line)
