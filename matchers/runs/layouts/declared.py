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
from matchers.ops.placement import is_pending
from matchers.ops.share import Holds, Share, first_alike
from matchers.runs.rank_logs import odd_ranks

__all__ = ["Declared", "stand_in"]

_COUNTERS = frozenset({"step"})
"""States that have a form of their own."""


class Declared:
    """The shares that some ranks hold of named tensors."""

    def __init__(self, infos: Sequence[Mapping[str, Any]], of_one: Mapping[str, str]) -> None:
        """Read what the ranks say.

        Args:
            infos: the run info of each rank.
            of_one: digests of the parameters of one process, by name.
        """
        self._shares: dict[str, Share] = {}
        self._odd: dict[str, int] = {}
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
                alike = first_alike(str(of.get("offsets")) for of in placed)
                self._shares[canonical(name)] = Share(Holds.SHARD, alike, whole)
            elif "Shard" not in names and not is_pending(names):
                held, right = [str(of.get(name)) for of in digests], of_one.get(canonical(name))
                if len(set(held)) == 1:
                    self._shares[canonical(name)] = Share(Holds.REPLICA)
                elif right in held and (set(held) - {right}).isdisjoint(of_one.values()):
                    self._odd[canonical(name)] = next(rank for rank, own in enumerate(held) if own != right)

    def holds(self, name: str) -> Holds:
        """The share in a parameter, a gradient (`….grad`) or a state (`….exp_avg`); UNKNOWN if not said."""
        return self._of(name).holds

    def distinct(self, name: str) -> list[int]:
        """Ranks that together hold every shard once."""
        return self._of(name).ranks

    def odd(self, module: str) -> tuple[str, int] | None:
        """A parameter of a module, and the rank that begins with another one than one process and some other rank."""
        own = ((name, rank) for name, rank in self._odd.items() if name.rpartition(".")[0] == canonical(module))
        return next(own, None)

    @cached_property
    def usual(self) -> Sequence[int]:
        """For each rank the first one that holds the same of most parameters in shards; empty where there are none."""
        shards = Counter(share.alike for share in self._shares.values() if share.holds == Holds.SHARD)
        return next((alike for alike, _ in shards.most_common(1)), ())

    def whole(self, name: str, local: tuple[int, ...]) -> tuple[int, ...] | None:
        """The shape of the tensor of which this may be the shape of a shard; None if it is none."""
        whole = self._of(name).whole
        if whole is None or len(whole) != len(local) or local == whole:
            return None
        return whole if all(part <= length for part, length in zip(local, whole, strict=True)) else None

    def _of(self, name: str) -> Share:
        name = canonical(name)
        head, _, state = name.rpartition(".")
        return self._shares.get(name if name in self._shares or state in _COUNTERS else head, Share())


def stand_in(values: Sequence[object]) -> int:
    """The rank that stands for all where one thing is to be equal on all: one that differs from most, if any does."""
    odd = odd_ranks(dict(enumerate(values)))
    return odd[-1] if odd else 0
