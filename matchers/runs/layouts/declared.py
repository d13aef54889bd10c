"""The share of each parameter that ranks hold, as the run info says it of the beginning of the step.

It holds for the gradient and the optimizer's states of the parameter, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from matchers.ops.json_values import integers
from matchers.ops.module_path import canonical
from matchers.ops.share import Holds
from matchers.runs.rank_logs import odd_ranks

__all__ = ["Declared", "stand_in"]

_COUNTERS = frozenset({"step"})
"""States that have a form of their own."""


class Declared:
    """The shares that some ranks hold of named tensors."""

    def __init__(self, infos: Sequence[Mapping[str, Any]]) -> None:
        """`infos`: the run info of each rank."""
        self._holds: dict[str, Holds] = {}
        self._share: dict[str, tuple[int, ...]] = {}
        """By parameter in shards, for each rank the first one that holds the same."""
        self._whole: dict[str, tuple[int, ...]] = {}
        digests, placements = (
            [found if isinstance(found := info.get(name), dict) else {} for info in infos]
            for name in ("parameter_digests", "parameter_placements")
        )
        for name in digests[0]:
            where = [of.get(name) for of in placements]
            placed = [of for of in where if isinstance(of, dict)]
            names = str(placed[0].get("placements")) if placed else ""
            whole = integers(placed[0].get("shape")) if placed else None
            if "Shard" in names and len(placed) == len(infos) and whole is not None:
                first: dict[str, int] = {}
                self._holds[canonical(name)] = Holds.SHARD
                self._share[canonical(name)] = tuple(
                    first.setdefault(str(of.get("offsets")), rank) for rank, of in enumerate(placed)
                )
                self._whole[canonical(name)] = whole
            elif "Shard" not in names and "artial" not in names and len({str(of.get(name)) for of in digests}) == 1:
                self._holds[canonical(name)] = Holds.REPLICA

    def holds(self, name: str) -> Holds:
        """The share in a parameter, a gradient (`….grad`) or a state (`….exp_avg`); UNKNOWN if not said."""
        return self._holds.get(self._owner(name), Holds.UNKNOWN)

    def distinct(self, name: str) -> tuple[int, ...]:
        """Ranks that together hold every shard once."""
        return tuple(dict.fromkeys(self._share[self._owner(name)]))

    @cached_property
    def usual(self) -> tuple[int, ...]:
        """For each rank the first one that holds the same of most parameters in shards; empty where there are none."""
        return next((share for share, _ in Counter(self._share.values()).most_common(1)), ())

    def whole(self, name: str, local: tuple[int, ...]) -> tuple[int, ...] | None:
        """The shape of the tensor of which this may be the shape of a shard; None if it is none."""
        whole = self._whole.get(self._owner(name))
        if whole is None or len(whole) != len(local) or local == whole:
            return None
        return whole if all(part <= length for part, length in zip(local, whole, strict=True)) else None

    def _owner(self, name: str) -> str:
        name = canonical(name)
        head, _, state = name.rpartition(".")
        return name if name in self._holds or state in _COUNTERS else head


def stand_in(values: Sequence[object]) -> int:
    """The rank that stands for all where one thing is to be equal on all: one that differs from most, if any does."""
    odd = odd_ranks(dict(enumerate(values)))
    return odd[-1] if odd else 0
