"""Rows that two runs have in common where they compute others beside them, proved by what the logs say of rows.

A decode step has one row of each sequence of a prefill, packed sequences have no padding, a call of one sequence has
those of a batch. Which rows are the same is told by their values: in many pairs of operations, the row of one run that
is nearest to a row of the other is the same.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from matchers.arrays import Float64, Int64, columns
from matchers.ops.row_index import picked
from matchers.ops.tensor_rows import TensorRows, distances

__all__ = ["CommonRows", "common_rows", "rows_told"]

_NEAR = 0.05
"""Largest relative distance of the nearest row that tells which it is."""
_AS_NEAR = 4.0
"""Rows that are at most so many times as far as the nearest may be meant as well."""
_SAME = 1e-2
"""Largest relative distance of all rows of one result whose own order is believed."""
_ALSO = 1e-6
"""Rows that are this near may be meant as well: they are equal but for rounding."""
_MOST = 1 << 22
"""Distances that are computed for one kind of shapes; where one pair has more, only equal digests count."""

Of = tuple[tuple[int, ...], tuple[int, ...]]
"""The dimensions that number the rows of both runs."""


@columns
class CommonRows:
    """The rows that two results have in common: int64[m] each, ascending in that of fewer rows."""

    a: Int64
    b: Int64


def common_rows(
    pairs: Sequence[tuple[TensorRows, TensorRows]], told: Mapping[Of, CommonRows] | None = None
) -> list[CommonRows | None]:
    """Find the common rows of each pair of results.

    Args:
        told: those that are known, by dimensions.

    Those of results with rows of the same dimensions are all rows; None without a proved row. Which rows are common is
    told by all results of the same dimensions together, but for rows whose order is that of the data, such as of tokens
    sorted by expert.
    """
    kinds: dict[Of, list[int]] = defaultdict(list)
    for k, (x, y) in enumerate(pairs):
        kinds[x.of, y.of].append(k)
    found: list[CommonRows | None] = [None] * len(pairs)
    for (of_x, of_y), which in kinds.items():
        together = (told or {}).get((of_x, of_y)) or _common([pairs[k] for k in which])
        for k in which:
            found[k] = together
            if together is not None and of_x != of_y and len(of_x) == len(of_y) == 1:
                own = None if _fits(pairs[k], together) else _common([pairs[k]])
                if own is not None and len(own.a) == len(together.a) and _fits(pairs[k], own):
                    found[k] = own
    return found


def rows_told(indices: Sequence[tuple[str, str]], kinds: Iterable[Of]) -> dict[Of, tuple[CommonRows, Int64]]:
    """The common rows that pairs of indices name, by dimensions, and which pairs of indices do.

    Of those whose rows are the same ones numbered through, too.
    """
    found: dict[Of, tuple[CommonRows, Int64]] = {}
    kinds = [of for of in kinds if of[0] != of[1]]
    for of_x, of_y in kinds:
        named = [(picked(a, of_x), picked(b, of_y)) for a, b in indices]
        fits = [(k, x, y) for k, (x, y) in enumerate(named) if x is not None and y is not None and len(x) == len(y)]
        if fits:
            rows = np.unique(np.concatenate([np.stack((x, y)) for _, x, y in fits], axis=1), axis=1)
            order = np.argsort(rows[int(math.prod(of_x) > math.prod(of_y))], kind="stable")
            found[of_x, of_y] = CommonRows(rows[0, order], rows[1, order]), np.array([k for k, _, _ in fits])
    through = {((math.prod(of_x),), (math.prod(of_y),)): rows for (of_x, of_y), rows in found.items()}
    return {**{of: through[of] for of in kinds if of in through}, **found}


def _common(pairs: list[tuple[TensorRows, TensorRows]]) -> CommonRows | None:
    (x, y), *_ = pairs
    if x.of == y.of:
        return CommonRows(np.arange(len(x)), np.arange(len(x)))
    fewer, more = _by_votes(pairs if len(x) <= len(y) else [(one, other) for other, one in pairs])
    if not len(fewer):
        return None
    return CommonRows(fewer, more) if len(x) <= len(y) else CommonRows(more, fewer)


def _fits(pair: tuple[TensorRows, TensorRows], rows: CommonRows) -> bool:
    """True if all rows are near each other."""
    return bool(np.all(distances(pair[0].taken(rows.a), pair[1].taken(rows.b)) <= _SAME))


def _by_votes(pairs: list[tuple[TensorRows, TensorRows]]) -> tuple[Int64, Int64]:
    """The rows of the tensor with fewer rows that the other has too, ascending, and these rows of the other."""
    fewer, more = len(pairs[0][0]), len(pairs[0][1])
    # single numbers are near each other by chance
    telling = [pair for pair in pairs if not pair[0].single] or pairs
    if fewer * more > _MOST:
        return _by_digests(telling)
    votes = np.zeros((fewer, more))
    for x, y in telling[: _MOST // (fewer * more)]:
        of_pair = _votes(x, y)
        if 2 * np.count_nonzero(of_pair.any(axis=1)) >= fewer:  # else the runs differ, and rows are alike by chance
            votes += of_pair
    taken = np.full(fewer, -1)
    free = np.ones(more, bool)
    # the surest rows first; of equal ones that beside the next row's, else equal rows are given out in their order
    for row in np.argsort(-votes.max(axis=1, initial=0.0), kind="stable").tolist():
        of_row = np.where(free, votes[row], 0.0)
        if (most := of_row.max(initial=0.0)) > 0:
            equal = np.flatnonzero(of_row == most)
            beside = [taken[near] + row - near for near in (row - 1, row + 1) if 0 <= near < fewer and taken[near] >= 0]
            taken[row] = at = [*equal[np.isin(equal, beside)], *equal][0]
            free[at] = False
    known = np.flatnonzero(taken >= 0)
    return known, taken[known]


def _by_digests(pairs: list[tuple[TensorRows, TensorRows]]) -> tuple[Int64, Int64]:
    """The same by digests that occur once in either tensor: the first pair that has the digest of a row decides."""
    taken, free = np.full(len(pairs[0][0]), -1), np.ones(len(pairs[0][1]), bool)
    for x, y in pairs:
        once = [np.unique(rows.digest, return_index=True, return_counts=True) for rows in (x, y)]
        left, right = (dict(zip(of[many == 1].tolist(), at[many == 1].tolist(), strict=True)) for of, at, many in once)
        for digest in left.keys() & right.keys():
            if taken[left[digest]] < 0 and free[right[digest]]:
                taken[left[digest]], free[right[digest]] = right[digest], False
    known = np.flatnonzero(taken >= 0)
    return known, taken[known]


def _votes(x: TensorRows, y: TensorRows) -> Float64:
    """float64[rows of x, rows of y]: 1 for the row of y that is nearest to a row of x, shared by those as near."""
    out = np.zeros((len(x), len(y)))
    for row in range(len(x)):
        near = np.nan_to_num(distances(x.taken(np.array([row])), y), nan=np.inf)
        if (least := near.min()) <= _NEAR:
            which = near <= max(_AS_NEAR * least, _ALSO)
            out[row, which] = 1.0 / np.count_nonzero(which)
    return out
