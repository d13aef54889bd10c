"""Ranks that hold different parts of a tensor or terms of a sum, by the logged placements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

__all__ = [
    "adds_up",
    "apart",
    "averaged_over",
    "first_alike",
    "is_masked",
    "names_of",
    "norm_of_norms",
    "power_of_norms",
    "shares",
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
    return list(dict.fromkeys(shares(placements, coordinates)))


def shares(placements: Sequence[Mapping[str, Any]], coordinates: Sequence[Mapping[str, int]]) -> list[int]:
    """For each rank the first one that holds the same. Arguments as of `apart`.

    They hold another part where it begins elsewhere, and another term where they stand elsewhere on a dimension of the
    mesh over which a sum is pending; ranks whose place is not known, all do.
    """
    found: list[tuple[object, ...]] = []
    for rank, (placement, at) in enumerate(zip(placements, coordinates, strict=True)):
        placed = zip(chain(_dimensions(placement), repeat("")), names_of(placement), strict=False)
        terms = [at.get(name, rank) for name, how in placed if "artial" in how]
        found.append((str(placement.get("offsets")), *terms))
    return first_alike(found)


def first_alike(held: Iterable[object]) -> list[int]:
    """For each rank the first one that holds the same."""
    first: dict[object, int] = {}
    return [first.setdefault(what, rank) for rank, what in enumerate(held)]


def _dimensions(placement: Mapping[str, Any]) -> list[str]:
    mesh = placement.get("mesh")
    return [str(name) for name in mesh] if isinstance(mesh, dict) else []


def names_of(placement: Mapping[str, Any]) -> tuple[str, ...]:
    """The placement on each dimension of the mesh; empty where the log does not tell."""
    names = placement.get("placements")
    return tuple(map(str, names)) if isinstance(names, list) else ()


def adds_up(partial: Sequence[str]) -> bool:
    """True for placements of terms of a sum or an average, not of norms or extremes."""
    return all(map(_ADDS_UP.match, partial))


def averaged_over(placement: Mapping[str, Any], coordinates: Sequence[Mapping[str, int]]) -> int:
    """The number of these ranks over which an average is pending: their terms add up to so many times the tensor.

    1 without one, 0 where a rank does not tell its place on the mesh.
    """
    found = set()
    for at in coordinates:
        placed = zip(_dimensions(placement), names_of(placement), strict=False)
        found.add(tuple(at.get(name) for name, how in placed if _AVERAGE.fullmatch(how)))
    return 0 if any(None in places for places in found) else len(found)


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
