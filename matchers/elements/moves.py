"""Moves: b has the elements of a at other places. Each is proved by moving a's bits and comparing them with b's."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations
from typing import Any

import numpy as np

from matchers.arrays import Int64

__all__ = ["moved"]

_MOST_LISTED = 8


def moved(a: Any, b: Any) -> str:
    """Say how b's bits are those of a, moved: `rolled by 1 along dimension 1`; empty if they are not.

    Args:
        a, b: arrays of unsigned integers.
    """
    if a.size != b.size or not a.size:
        return ""
    if a.shape == b.shape:
        rows = [(dim, *_slices(a, b, dim)) for dim in range(a.ndim) if a.shape[dim] > 1]
        for dim, x, y in rows:
            if told := _permuted(x, y, dim):
                return told
        for dim, x, y in rows:
            if told := _shifted(a, b, x, y, dim):
                return told
    elif np.array_equal(a.reshape(-1), b.reshape(-1)):
        return f"in the shape {list(b.shape)} instead of {list(a.shape)}, in the same order"
    for i, j in combinations(range(a.ndim), 2):
        turned = a.swapaxes(i, j)
        if turned.shape == b.shape and np.array_equal(turned, b):
            return f"transposed: dimensions {i} and {j} exchanged"
        if np.array_equal(turned.reshape(b.shape), b):
            return f"with dimensions {i} and {j} exchanged in memory, in the shape {list(b.shape)}"
    return ""


def _slices(a: Any, b: Any, dim: int) -> tuple[list[bytes], list[bytes]]:
    """Return the bytes of each slice along a dimension."""
    both = (np.ascontiguousarray(np.moveaxis(each, dim, 0)) for each in (a, b))
    x, y = ([each[k].tobytes() for k in range(len(each))] for each in both)
    return x, y


def _permuted(x: list[bytes], y: list[bytes], dim: int) -> str:
    if x == y or Counter(x) != Counter(y):
        return ""
    left: dict[bytes, list[int]] = defaultdict(list)
    for k in range(len(x) - 1, -1, -1):
        if x[k] != y[k]:
            left[x[k]].append(k)
    taken = [k if x[k] == y[k] else left[y[k]].pop() for k in range(len(x))]
    return _named(np.array(taken), dim)


def _named(taken: Int64, dim: int) -> str:
    """Name a permutation: `taken[k]` is the slice of a that is slice k of b."""
    n, unit = len(taken), ""
    for size in range(n // 2, 1, -1):
        blocks = taken.reshape(-1, size) if n % size == 0 else taken[:0].reshape(0, 1)
        if len(blocks) and (blocks[:, 0] % size == 0).all() and (np.diff(blocks, axis=1) == 1).all():
            taken, unit = blocks[:, 0] // size, f"blocks of {size} "
            break
    own = np.arange(len(taken))
    other = np.flatnonzero(taken != own)
    along = f"of dimension {dim}"
    if len(other) == 2:
        return f"with {unit}{other[0]} and {other[1]} {along} exchanged"
    if len(step := np.unique((own - taken) % len(taken))) == 1:
        by = int(step[0]) - (len(taken) if 2 * step[0] > len(taken) else 0)
        return f"rolled by {by * (n // len(taken))} along dimension {dim}"
    if (taken == own[::-1]).all():
        return f"with {unit}{along} in reverse".replace("with of", "with the slices of")
    told = ", ".join(f"{k} from {taken[k]}" for k in other[:_MOST_LISTED].tolist())
    more = f" and {len(other) - _MOST_LISTED} more" if len(other) > _MOST_LISTED else ""
    return f"with {unit or 'slices '}{along} permuted: {told}{more}"


def _shifted(a: Any, b: Any, x: list[bytes], y: list[bytes], dim: int) -> str:
    """Name a shift whose end holds something else, if more than half of the slices follow it and it moves them."""
    place = {each: k for k, each in enumerate(x) if x.count(each) == 1} if len(x) < 1 << 12 else {}
    steps = Counter(k - place[each] for k, each in enumerate(y) if each in place)
    by, many = steps.most_common(1)[0] if steps else (0, 0)
    if by == 0 or 2 * many <= len(x):
        return ""
    n = len(x)
    from_a, to_b = (range(n - by), range(by, n)) if by > 0 else (range(-by, n), range(n + by))
    if not np.array_equal(a.take(from_a, axis=dim), b.take(to_b, axis=dim)):
        return ""
    end = "first" if by > 0 else "last"
    return f"shifted by {by} along dimension {dim}, with other values in the {end} {abs(by)}"
