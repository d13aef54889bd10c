"""The share of a tensor that ranks hold: a copy, a part, a term of a sum, of their own or by a logged placement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from matchers.ops.placement import Part
from matchers.status import LabelledEnum

__all__ = ["Holds", "Share", "averaged_over", "first_alike", "placed_share", "placed_shares"]


class Holds(LabelledEnum):
    """The share of a tensor that the ranks hold. NORM: the norm of a shard, of one element."""

    REPLICA = 0
    SHARD = 1
    PARTIAL = 2
    UNKNOWN = 3
    NORM = 4


@dataclass(frozen=True, slots=True)
class Share:
    """What some ranks hold of a tensor, and how their parts make the whole.

    Attributes:
        alike: for each rank the first that holds the same; of copies, only the one that stands for all.
        whole: the shape of the whole; None where that of the parts is its own.
        placed: the places of the parts are known: their sketches add up.
        divisor: of terms, the number by which their sum is divided: more than 1 for an average.
        power: in which norms of parts add up.
        known_by: what tells it, if that is no placement: ` by its shape`.
    """

    holds: Holds = Holds.UNKNOWN
    alike: Sequence[int] = (0,)
    whole: tuple[int, ...] | None = None
    placed: bool = False
    divisor: int = 1
    power: float = 2.0
    known_by: str = ""

    @property
    def ranks(self) -> list[int]:
        """The ranks whose parts make the whole, each part once."""
        return list(dict.fromkeys(self.alike))


def placed_share(parts: Sequence[Part], coordinates: Sequence[Mapping[str, int]], *, masked: bool = True) -> Share:
    """The share of ranks whose parts are placed; of copies, the first stands for all.

    Args:
        parts, coordinates: of each rank.
        masked: of rows that ranks look up in their parts of a table, those of the others are zero.
    """
    part = parts[0]
    if not part.partial:
        whole = all(of.whole == of.shape for of in parts)  # a rank may have all, and others nothing
        return (
            Share(Holds.REPLICA, placed=True)
            if whole
            else Share(Holds.SHARD, placed_shares(parts, coordinates), part.whole, placed=True)
        )
    alike, power = placed_shares(parts, coordinates), part.power
    if power is not None:
        return Share(Holds.UNKNOWN if part.shape else Holds.NORM, alike, part.whole, placed=True, power=power)
    divisor = averaged_over(part, coordinates)
    if not part.adds_up or not divisor or not (masked or not part.masked):
        return Share(Holds.UNKNOWN, alike, part.whole, placed=True)
    return Share(Holds.PARTIAL, alike, part.whole, placed=True, divisor=divisor)


def placed_shares(parts: Sequence[Part], coordinates: Sequence[Mapping[str, int]]) -> tuple[int, ...]:
    """For each rank the first one that holds the same.

    They hold another part where it begins elsewhere, and another term where they stand elsewhere on a dimension of the
    mesh over which a sum is pending; ranks whose place is not known, all do.
    """
    found: list[tuple[object, ...]] = []
    for rank, (part, at) in enumerate(zip(parts, coordinates, strict=True)):
        found.append((part.start, *(at.get(axis, rank) for axis in part.pending)))
    return first_alike(found)


def first_alike(held: Iterable[object]) -> tuple[int, ...]:
    """For each rank the first one that holds the same."""
    first: dict[object, int] = {}
    return tuple(first.setdefault(what, rank) for rank, what in enumerate(held))


def averaged_over(part: Part, coordinates: Sequence[Mapping[str, int]]) -> int:
    """The number of these ranks over which an average is pending: their terms add up to so many times the tensor.

    1 without one, 0 where a rank does not tell its place on the mesh.
    """
    found = {tuple(at.get(name) for name in part.averaged) for at in coordinates}
    return 0 if any(None in places for places in found) else len(found)
