"""Rows and columns of weights as units: where those of a part lie in a whole, found by their hashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Hash, Int64

__all__ = ["Index", "Region", "Unit", "fibre_hashes", "fibres", "region_of"]

_AGREE: Final = 0.9
"""Part of the rows found that a pattern must explain; the others may be equal to rows elsewhere by chance."""


class Unit(Enum):
    """Elements that are compared as one: those along the last dimension, along the one before it, or single ones."""

    ROW = "row"
    COLUMN = "column"
    ELEMENT = "element"


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """The place of a part in a whole.

    Attributes:
        at: int64[units of the part], their number in the whole, of all its leading dimensions together.
        part, whole: along which dimension a unit lies in either.
        text: the same as an index, as `[3, :14336]`.
    """

    at: Int64
    part: Unit
    whole: Unit
    text: str


def fibres(bits: NDArray[Any], unit: Unit) -> NDArray[Any]:
    """Return the units of a tensor of two or more dimensions as the rows of a matrix."""
    turned = np.swapaxes(bits, -1, -2) if unit is Unit.COLUMN else bits
    return np.ascontiguousarray(turned).reshape(-1, turned.shape[-1])


def fibre_hashes(matrix: NDArray[Any]) -> Hash:
    """uint64[rows]: equal for equal rows. Others may share a hash: whoever finds rows by it compares their bits."""
    size = matrix.shape[1] * matrix.dtype.itemsize
    data = np.ascontiguousarray(matrix).view(np.uint8).reshape(len(matrix), size)
    if size % 8:
        data = np.pad(data, ((0, 0), (0, -size % 8)))
    found = data.view(np.uint64) @ _factors(data.shape[1] // 8) + np.uint64(size)
    return np.asarray(found ^ (found >> np.uint64(32)))


@cache
def _factors(many: int) -> Hash:
    return np.random.default_rng(0).integers(0, 1 << 63, many, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


class Index:
    """The units of several tensors, found by their hashes."""

    def __init__(self, of: Iterable[tuple[int, Hash]]) -> None:
        """Index pairs of a tensor's number and its units' hashes."""
        found = list(of)
        hashes = np.concatenate([hashes for _, hashes in found] or [np.zeros(0, np.uint64)])
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._tensor = np.concatenate([np.full(len(h), k) for k, h in found] or [np.zeros(0, np.int64)])[order]
        self._unit = np.concatenate([np.arange(len(h)) for _, h in found] or [np.zeros(0, np.int64)])[order]

    def find(self, hashes: Hash) -> tuple[int, Int64] | None:
        """Return the tensor with most of these units, and where they are: int64[units], −1 for unknown.

        Units that occur more than once prove nothing and stay unknown. None: nothing was found.
        """
        left, right = (np.searchsorted(self._hashes, hashes, side) for side in ("left", "right"))
        once = right - left == 1
        if not once.any():
            return None
        places = np.minimum(left, len(self._hashes) - 1)
        tensor = int(np.bincount(self._tensor[places[once]]).argmax())
        at = np.where(once & (self._tensor[places] == tensor), self._unit[places], -1)
        return tensor, at.astype(np.int64)


def region_of(at: Int64, shape: Sequence[int], part: Unit, whole: Unit) -> Region | None:
    """Complete where units lie in a whole by the pattern that they show; None where they show none.

    Args:
        at: int64[units], −1 for unknown.
        shape: of the whole.
        part, whole: along which dimension a unit lies.
    """
    known = np.flatnonzero(at >= 0)
    if not len(known):
        return None
    turned = (*shape[:-2], shape[-1], shape[-2]) if whole is Unit.COLUMN else tuple(shape)
    total = int(np.prod(turned[:-1]))
    numbers = np.arange(len(at))
    for block, step, start in _patterns(at, known):
        full = start + numbers // block * step + numbers % block
        agree = float(np.mean(full[known] == at[known]))
        if full[0] >= 0 and full[-1] < total and agree >= _AGREE and len(np.unique(full)) == len(full):
            return Region(full.astype(np.int64), part, whole, _text(start, len(at), block, step, turned, part, whole))
    if len(known) == len(at) and len(np.unique(at)) == len(at):
        text = "its rows in another order" if len(at) == total else "some of its rows, in another order"
        return Region(at, part, whole, text if whole is Unit.ROW else text.replace("rows", "columns"))
    return None


def _patterns(at: Int64, known: Int64) -> Iterable[tuple[int, int, int]]:
    """Yield (units in a block, distance of blocks, first unit) that would explain where units lie."""
    shift, _ = Counter((at[known] - known).tolist()).most_common(1)[0]
    yield len(at), len(at), int(shift)
    if len(known) < 2:
        return
    near = known[1:] - known[:-1] == 1
    breaks = known[1:][near & (np.diff(at[known]) != 1)]
    block = int(np.gcd.reduce(breaks)) if len(breaks) else 0
    if not block or len(at) % block or len(at) == block:
        return
    first, other = known[known < block], known[(known >= block) & (known < 2 * block)]
    if len(first) and len(other):
        start = int(at[first[0]] - first[0])
        yield block, int(at[other[0]] - (other[0] - block)) - start, start


def _text(start: int, many: int, block: int, step: int, shape: Sequence[int], part: Unit, whole: Unit) -> str:
    """The index of units in a whole whose last dimension they fill."""
    height = shape[-2]
    if block != many:
        told = f"{block} of every {step} {whole.value}s from {whole.value} {start}"
    elif many % height == 0 and start % height == 0 and len(shape) > 2:
        first, last = start // height, (start + many) // height
        told = f"[{first}]" if last - first == 1 else f"[{first}:{last}]"
    elif len(shape) > 2 and start // height == (start + many - 1) // height:
        inner = _slice(start % height, start % height + many, height)
        told = f"[{start // height}, {inner}]" if whole is Unit.ROW else f"[{start // height}, :, {inner}]"
    elif len(shape) == 2:
        inner = _slice(start, start + many, height)
        told = "" if inner == ":" else f"[{inner}]" if whole is Unit.ROW else f"[:, {inner}]"
    else:
        told = f"{whole.value}s {start}–{start + many - 1}"
    return told if part is whole else f"{told} transposed".strip()


def _slice(first: int, last: int, size: int) -> str:
    return f"{first or ''}:{'' if last == size else last}"
