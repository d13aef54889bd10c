"""Pairs whose numbers go on in equal steps: `op_0`, `op_4`, `op_8` of one run are those of layers 5, 4, 3 in the other.

Counters that go through all layers, or all micro-batches, say in steps what names do not say.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Progression", "progressions"]

Int = NDArray[np.int64]

_LEAST: Final = 3
"""Pairs that make a progression."""
_SHARE: Final = 1 / 64
"""Of the pairs, at least, that are in a progression worth a rule."""
_MOST_OF: Final = 1 / 2
"""Of the pairs that must go on in equal steps; fewer do so by accident."""
_LOOK_AHEAD: Final = 16
"""Following pairs that may be the second of a progression."""
_PATIENCE: Final = 32
"""Pairs that begin none, after which the others are not looked at: there are no equal steps here."""


class Progression(NamedTuple):
    """Pairs in equal steps.

    Attributes:
        rows: positions of the pairs, in the order of the steps.
        start: their numbers at the first of them: those of a, then those of b.
        step: how much each grows from one pair to the next.
    """

    rows: Int
    start: tuple[int, ...]
    step: tuple[int, ...]


def progressions(numbers: Int, of_a: int) -> list[Progression]:
    """The longest runs of pairs in equal steps, each pair in one at most.

    Args:
        numbers: int64[pairs, k]: the numbers in the names of each pair, those of a (`of_a` of them) first.
    """
    if len(numbers) < _LEAST or len(np.unique(numbers[:, :of_a], axis=0)) < len(numbers):
        return []
    least = max(_LEAST, _SHARE * len(numbers))
    rows = list(map(tuple, numbers.tolist()))
    at = {row: position for position, row in enumerate(rows)}
    free = dict.fromkeys(range(len(rows)))
    found = []
    patience = _PATIENCE
    while free and patience:
        first = next(iter(free))
        best: list[int] = []
        for second in _some(free, _LOOK_AHEAD):
            run = _run(rows, at, free, first, second, of_a)
            if len(run) > len(best):
                best = run
        if len(best) >= least:
            start, then = rows[best[0]], rows[best[1]]
            step = tuple(two - one for one, two in zip(start, then, strict=True))
            found.append(Progression(np.array(best, np.int64), start, step))
            for row in best:
                del free[row]
        else:
            patience -= 1
            del free[first]
    return found if sum(len(run.rows) for run in found) >= _MOST_OF * len(rows) else []


def _some(free: dict[int, None], most: int) -> list[int]:
    """The first pairs but one that are in no progression yet."""
    walk = iter(free)
    next(walk)
    return [row for row, _ in zip(walk, range(most), strict=False)]


def _run(
    rows: list[tuple[int, ...]],
    at: dict[tuple[int, ...], int],
    free: dict[int, None],
    first: int,
    second: int,
    of_a: int,
) -> list[int]:
    """The pairs from `first` on in the step that leads to `second`."""
    step = [two - one for one, two in zip(rows[first], rows[second], strict=True)]
    if not any(step[:of_a]):
        return []
    run = [first]
    following = rows[second]
    while (row := at.get(following, -1)) in free:
        run.append(row)
        following = tuple(one + by for one, by in zip(following, step, strict=True))
    return run
