"""Fused and stacked weights of one run whose parts the other has, proved by the digests of rows in both headers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, Final, NamedTuple

from matchers.ops.start import known_digests, named

__all__ = ["Fused", "fused", "template"]

_DIGITS: Final = re.compile(r"\d+")
_MOST_KINDS: Final = 12
_64_BITS: Final = (1 << 64) - 1


class Fused(NamedTuple):
    """A weight of one side, and the weights of the other that have its rows, together and in whatever order."""

    side: str
    whole: str
    parts: tuple[str, ...]


def template(name: str) -> tuple[str, tuple[str, ...]]:
    """The name without its numbers, and these."""
    return _DIGITS.sub("#", name), tuple(_DIGITS.findall(name))


def fused(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Fused]:
    """Find the fused weights among those that only one run names, by the run infos."""
    names = [known_digests(run, "parameter_digests") for run in (a, b)]
    sums = [_sums(run) for run in (a, b)]
    left = [
        {name: of for name, of in found.items() if name not in other and known.get(name)}
        for found, known, other in zip(sums, names, reversed(names), strict=True)
    ]
    return [*_of("a", left[0], left[1]), *_of("b", left[1], left[0])]


def _of(side: str, wholes: Mapping[str, tuple[int, int]], parts: Mapping[str, tuple[int, int]]) -> Iterator[Fused]:
    taken: set[str] = set()
    for whole, (total, size) in wholes.items():
        numbers = template(whole)[1]
        kinds: dict[str, list[str]] = defaultdict(list)
        for name, (_, of) in parts.items():
            kind, own = template(name)
            if name not in taken and of < size and own[: len(numbers)] == numbers:
                kinds[kind].append(name)
        found = _chosen(list(kinds.values())[:_MOST_KINDS], parts, total, size)
        if found:
            taken |= set(found)
            yield Fused(side, whole, found)


def _chosen(
    kinds: list[list[str]], parts: Mapping[str, tuple[int, int]], total: int, size: int
) -> tuple[str, ...] | None:
    """The weights, of each kind all or none, whose sums and sizes are those of the whole."""
    of = [(sum(parts[n][0] for n in names), sum(parts[n][1] for n in names), names) for names in kinds]
    for many in range(1, len(of) + 1):
        for some in combinations(of, many):
            if sum(numel for _, numel, _ in some) == size and sum(rows for rows, _, _ in some) & _64_BITS == total:
                found = tuple(name for _, _, names in some for name in names)
                return found if len(found) > 1 else None
    return None


def _sums(run: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """By name the sum of the digests of its rows and the number of its elements, where both are known."""
    sizes = named(run, "start_sketches")
    found = {}
    for name, text in named(run, "row_digests").items():
        entry = sizes.get(name)
        numel = entry[1] if isinstance(entry, list) and len(entry) > 1 else None
        if isinstance(text, str) and re.fullmatch(r"[0-9a-f]{16}", text) and type(numel) is int:
            found[name] = int(text, 16), numel
    return found
