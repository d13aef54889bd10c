"""Ranks that hold different parts of a tensor or terms of a sum, by the logged placements."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from matchers.ops.json_values import named_integers

__all__ = [
    "adds_up",
    "apart",
    "averaged_over",
    "first_of_each",
    "is_masked",
    "names_of",
    "norm_of_norms",
    "power_of_norms",
    "share_of_each",
]

_ADDS_UP = re.compile(r"_?Partial\((sum|avg)?\)|_MaskPartial\(reduce_op=sum\b.*\)")
_AVERAGE = re.compile(r"_?Partial\(avg\)")
_MASKED = "_MaskPartial("
_NORM = re.compile(r"_?NormPartial\((\d+(?:\.\d+)?)?\)")


def apart(placements: Sequence[Mapping[str, Any]], coordinates: Sequence[Mapping[str, int]]) -> list[int]:
    """The ranks that together hold everything once: one of those that hold the same.

    Args:
        placements, coordinates: of each rank.
    """
    return first_of_each(share_of_each(placements, coordinates))


def share_of_each(
    placements: Sequence[Mapping[str, Any]], coordinates: Sequence[Mapping[str, int]]
) -> list[tuple[object, ...]]:
    """What each rank holds, as something that is equal on those that hold the same. Arguments as of `apart`.

    They hold another part where it begins elsewhere, and another term where they stand elsewhere on a dimension of the
    mesh over which a sum is pending; ranks whose place is not known, all do.
    """
    found: list[tuple[object, ...]] = []
    for rank, (placement, at) in enumerate(zip(placements, coordinates, strict=True)):
        mesh = placement.get("mesh")
        dimensions = [str(name) for name in mesh] if isinstance(mesh, dict) else []
        placed = zip(chain(dimensions, repeat("")), names_of(placement), strict=False)
        terms = [at.get(name, rank) for name, how in placed if "artial" in how]
        found.append((str(placement.get("offsets")), *terms))
    return found


def first_of_each(shares: Sequence[object]) -> list[int]:
    """The first rank of those that hold the same."""
    found: dict[object, int] = {}
    for rank, share in enumerate(shares):
        found.setdefault(share, rank)
    return list(found.values())


def names_of(placement: Mapping[str, Any]) -> tuple[str, ...]:
    """The placement on each dimension of the mesh; empty where the log does not tell."""
    names = placement.get("placements")
    return tuple(map(str, names)) if isinstance(names, list) else ()


def adds_up(partial: Sequence[str]) -> bool:
    """True for placements of terms of a sum or an average, not of norms or extremes."""
    return all(map(_ADDS_UP.match, partial))


def averaged_over(placement: Mapping[str, Any]) -> int:
    """The number of ranks over which an average is pending: the terms add up to so many times the tensor.

    1 without one, 0 if the log does not tell the mesh.
    """
    sizes, found = list(named_integers(placement.get("mesh")).values()), 1
    for name, size in zip(names_of(placement), chain(sizes, repeat(0)), strict=False):
        found *= size if _AVERAGE.fullmatch(name) else 1
    return found


def is_masked(partial: Sequence[str]) -> bool:
    """True for a lookup in the rows of a table that a rank has: a term of a sum once all others are set to zero."""
    return any(name.startswith(_MASKED) for name in partial)


def power_of_norms(names: Sequence[str]) -> float | None:
    """The p of a tensor that is so placed: p-norms of parts, whose p-th powers add up. None for other tensors."""
    found = [_NORM.fullmatch(name) for name in names if "artial" in name]
    powers = {float(match[1] or 2) for match in found if match}
    return powers.pop() if all(found) and len(powers) == 1 and min(powers) > 0 else None


def norm_of_norms(norms: Sequence[float], power: float) -> float:
    """The p-norm of a tensor from those of its parts."""
    return sum(norm**power for norm in norms) ** (1 / power)
