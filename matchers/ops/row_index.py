"""Indices of rows, as people write them: `:, 9` is row 9 of each sample, `0, 4:12` are eight rows of the first one."""

from __future__ import annotations

import math
import re
from typing import Final

import numpy as np

from matchers.arrays import Int64

__all__ = ["dimensions_of", "normal_index", "picked"]

_PART: Final = re.compile(r"(?P<one>\d{1,9})|(?P<start>\d{0,9}):(?P<stop>\d{0,9})")


def normal_index(text: str) -> str:
    """The index without brackets and needless space.

    Raises:
        ValueError: it is no index; a sentence without its subject.
    """
    parts = [part.strip() for part in text.strip().removeprefix("[").removesuffix("]").split(",")]
    if not all(_PART.fullmatch(part) for part in parts):
        raise ValueError(f"must be an index of rows such as ':, 9' or '0, 4:12', not '{text}'")
    return ", ".join(parts)


def dimensions_of(index: str) -> int:
    """Number of dimensions that a normal index has."""
    return index.count(",") + 1


def picked(index: str, of: tuple[int, ...]) -> Int64 | None:
    """int64: the numbers of the rows that a normal index names, where these dimensions number them; None for none."""
    parts = index.split(", ")
    if len(parts) != len(of):
        return None
    along = []
    for part, size in zip(parts, of, strict=True):
        start, colon, stop = part.partition(":")
        first = int(start or 0)
        last = int(stop or size) if colon else first + 1
        if not first < last <= size:
            return None
        along.append(np.arange(first, last))
    return np.arange(math.prod(of)).reshape(of)[np.ix_(*along)].ravel()
