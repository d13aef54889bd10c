"""Parameters that one run has stacked, such as experts, and another one by one.

A stack has the elements of its parts: its norm is the sum of theirs, in double precision, whatever their order.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from matchers.ops.last_contents import GRADIENT, LastContents

__all__ = ["modules_of", "parts_of_stack", "singles"]

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


def singles(of: LastContents, other: LastContents) -> dict[str, tuple[int, float]]:
    """Number of elements, and L1 norm as the step reads it, of each parameter that one run alone updates."""
    return {
        name: (of.left(name).numel, of.before(of.first[name]).l1)
        for name in of.last
        if of.base(name) == name not in other.last and not name.endswith(GRADIENT)
    }


def parts_of_stack(
    name: str,
    numel: int,
    l1: float,
    known: Mapping[str, tuple[int, float]],
    beside: Collection[tuple[str, tuple[str, str]]] = (),
) -> tuple[str, ...]:
    """The parameters of which a stack consists, whose names differ in one number; empty if there are none.

    Args:
        name, numel, l1: of the stack.
        known: number of elements and L1 norm of the parameters to choose from.
        beside: the `modules_of` other stacks. Norms of zeros, of ones and of other tensors that are alike prove no
            stack: they make one where the same modules have another.
    """
    kinds: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in known:
        for number in _NUMBER.finditer(one):
            kinds[one[: number.start()], one[number.end() :]].append(one)
    fits = []
    for parts in map(tuple, kinds.values()):
        elements, norm = (sum(known[part][k] for part in parts) for k in range(2))
        if len(parts) > 1 and elements == numel and math.isclose(norm, l1):
            alike = all(math.isclose(known[part][1] * numel, l1 * known[part][0]) for part in parts)
            if not alike or modules_of(name, parts) in beside:
                fits.append(parts)
    # of norms that are alike by chance, names tell
    return max(fits, key=lambda parts: len(_words(name) & _words(parts[0])), default=())


def modules_of(stack: str, parts: Sequence[str]) -> tuple[str, tuple[str, str]]:
    """The modules of a stack and of its parts, these without the number that tells them apart."""
    one, other = (part.rpartition(".")[0].split(".") for part in parts[:2])
    at = next((k for k, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), len(one))
    return stack.rpartition(".")[0], (".".join(one[:at]), ".".join(one[at + 1 :]))


def _words(name: str) -> set[str]:
    return set(name.replace("_", ".").split("."))
