"""Weights of one run that the other has under other names, proved by digests in both headers: fused, stacked, renamed.

Where a log has none, sizes, norms and sums after the step make it likely.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any, Final, NamedTuple

from matchers.ops.json_values import number
from matchers.ops.start import known_digests, named

__all__ = ["Fused", "fused", "fused_by_norms", "fused_otherwise", "renamed", "sizes", "template"]

_DIGITS: Final = re.compile(r"\d+")
_INDEX: Final = re.compile(r"(?<![^.])\d+(?![^.])")
"""Of a layer or an expert; the digit of `w1` is part of its name."""
_MOST_KINDS: Final = 12
_64_BITS: Final = (1 << 64) - 1
_ALIKE: Final = 1e-3
"""Relative difference of squared norms of the same weights after one step, in which a bug may have changed them."""
_Same = Callable[[int, str, Sequence[str]], bool]
"""True if the weight of this side (0, 1) and those of the other have the same numbers."""


class Fused(NamedTuple):
    """A weight of one side, and the weights of the other that have its rows, together and in whatever order.

    One part is the same weight under another name; if both runs have that name, the weight is a copy of it.
    """

    side: str
    whole: str
    parts: tuple[str, ...]


def template(name: str) -> tuple[str, tuple[str, ...]]:
    """The name without its numbers, and these."""
    return _DIGITS.sub("#", name), tuple(_DIGITS.findall(name))


def fused(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Fused]:
    """Find the fused weights among those that only one run names, by the run infos."""
    sums = [_sums(run) for run in (a, b)]
    known = [{name for name, of in found.items() if of} for found in sums]

    def same(side: int, whole: str, parts: Sequence[str]) -> bool:
        return sum(sums[1 - side][name] for name in parts) & _64_BITS == sums[side][whole]

    return _fused(a, b, known, same)


def renamed(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Fused]:
    """Find the weights under other names, and copies of weights that both name; in order where several are equal."""
    digests = [known_digests(run, "parameter_digests") for run in (a, b)]
    of = [defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)]
    common = {digest: name for name, digest in digests[0].items() if digests[1].get(name) == digest}
    for own, other, held in zip(digests, reversed(digests), of, strict=True):
        for name in own.keys() - other.keys():
            held[own[name]].append(name)
    out = []
    for digest in of[0].keys() | of[1].keys():
        x, y = sorted(of[0][digest]), sorted(of[1][digest])
        if len(x) == len(y):
            out += [Fused("a", one, (other,)) for one, other in zip(x, y, strict=True)]
        elif digest in common:
            out += [Fused(side, name, (common[digest],)) for side, names in (("a", x), ("b", y)) for name in names]
    return sorted(out)


def fused_otherwise(a: Mapping[str, Any], b: Mapping[str, Any], found: Sequence[Fused]) -> list[Fused]:
    """Those that are named and sized as found ones of other layers, and have other rows than their parts."""
    kinds = {(of.side, _INDEX.sub("#", of.whole)): {_INDEX.sub("#", part) for part in of.parts} for of in found}
    proven = {(of.side, of.whole) for of in found}
    out = []
    for side, run, other in (("a", a, b), ("b", b, a)):
        many = sizes(other)
        inside = _by_layer(many if kinds else ())
        for whole, size in sizes(run).items() if kinds else ():
            if (side, whole) in proven or not (of_parts := kinds.get((side, _INDEX.sub("#", whole)))):
                continue
            names = inside.get(tuple(_INDEX.findall(whole)), ())
            parts = tuple(name for name in names if _INDEX.sub("#", name) in of_parts)
            if sum(many[part] for part in parts) == size:
                out.append(Fused(side, whole, parts))
    return out


def fused_by_norms(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Fused]:
    """Find those that have as many elements, and after the step nearly the norm and the sum of their parts."""
    ends, many = [_ends(run) for run in (a, b)], [sizes(run) for run in (a, b)]

    def same(side: int, whole: str, parts: Sequence[str]) -> bool:
        square, total = (sum(ends[1 - side][name][k] for name in parts) for k in (0, 1))
        norm, of = ends[side][whole]
        most = math.sqrt(norm * many[side][whole])  # a sum of so many numbers of this norm
        return math.isclose(square, norm, rel_tol=_ALIKE) and abs(total - of) <= _ALIKE * most

    return _fused(a, b, [set(of) for of in ends], same)


def sizes(run: Mapping[str, Any]) -> dict[str, int]:
    """The numbers of elements of parameters and buffers, by name, where the log tells them."""
    told = named(run, "start_sketches").items()
    return {name: of[1] for name, of in told if isinstance(of, list) and len(of) > 1 and type(of[1]) is int}


def _fused(a: Mapping[str, Any], b: Mapping[str, Any], known: Sequence[set[str]], same: _Same) -> list[Fused]:
    names = [known_digests(run, "parameter_digests") for run in (a, b)]
    left = [
        {name: size for name, size in sizes(run).items() if name in own and name not in other and mine.get(name)}
        for run, own, mine, other in zip((a, b), known, names, reversed(names), strict=True)
    ]
    return [*_of(0, left[0], left[1], same), *_of(1, left[1], left[0], same)]


def _by_layer(names: Iterable[str]) -> Mapping[tuple[str, ...], list[str]]:
    """The names by their indices, all of them and the first ones: of the layer, and of the expert in it."""
    inside = defaultdict[tuple[str, ...], list[str]](list)
    for name in names:
        numbers = _INDEX.findall(name)
        for depth in range(len(numbers) + 1):
            inside[tuple(numbers[:depth])].append(name)
    return inside


def _of(side: int, wholes: Mapping[str, int], parts: Mapping[str, int], same: _Same) -> Iterator[Fused]:
    taken, inside = set[str](), _by_layer(parts if wholes else ())
    for whole, size in wholes.items():
        kinds: dict[str, list[str]] = defaultdict(list)
        for name in inside.get(tuple(_INDEX.findall(whole)), ()):
            if name not in taken and parts[name] < size:
                kinds[_INDEX.sub("#", name)].append(name)
        found = _chosen(list(kinds.values())[:_MOST_KINDS], parts, size, partial(same, side, whole))
        if found:
            taken |= set(found)
            yield Fused("ab"[side], whole, found)


def _chosen(
    kinds: list[list[str]], parts: Mapping[str, int], size: int, same: Callable[[Sequence[str]], bool]
) -> tuple[str, ...] | None:
    """The weights, of each kind all or none, that have as many elements as the whole and are the same."""
    of = [(sum(parts[name] for name in names), names) for names in kinds]
    for many in range(1, len(of) + 1):
        for some in combinations(of, many):
            found = tuple(name for _, names in some for name in names)
            if sum(numel for numel, _ in some) == size and same(found):
                return found if len(found) > 1 else None
    return None


def _sums(run: Mapping[str, Any]) -> dict[str, int]:
    """By name the sum of the digests of its rows, where it is known."""
    told = named(run, "row_digests").items()
    return {name: int(text, 16) for name, text in told if isinstance(text, str) and re.fullmatch(r"[0-9a-f]{16}", text)}


def _ends(run: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """By name the square of the norm and the sum of the elements after the step, where these are known."""
    told, many = named(run, "end_state").items(), sizes(run)
    numbers = {name: (number(of[1]), number(of[2])) for name, of in told if isinstance(of, list) and len(of) > 2}
    finite = {name: of for name, of in numbers.items() if name in many and all(map(math.isfinite, of))}
    return {name: (l2 * l2, mean * many[name]) for name, (l2, mean) in finite.items()}
