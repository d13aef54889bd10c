"""Results of collectives put together from what the ranks gave: moved, or added in the orders that there are.

Each way is proved on the bits of all elements. A ring adds each block of the vector from another rank on, so that there
each element for itself has to be a sum in ring order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from matchers.tensor import Tensor, to_bfloat16

__all__ = ["put_together"]

_EXTREMES: Final = {"max": np.maximum, "min": np.minimum}
_MEANS: Final = {"sum": False, "avg": True}


def put_together(given: Sequence[Tensor], result: Tensor, member: int, *, op: str | None, root: int | None) -> str:
    """Say how a member's result is made of what all have given; empty if it is in no way that is known.

    Args:
        given: by the order of the group.
        member: place of the rank in it.
        op: what is reduced by; None where nothing is.
        root: the member that gives or receives alone; None without one.
    """
    if len({(part.dtype, part.bits.size) for part in given}) != 1 or result.dtype != given[0].dtype:
        return ""
    bits, parts = result.bits.ravel(), [part.bits.ravel() for part in given]
    many, size = len(parts), parts[0].size
    if op is None:
        return _moved(parts, bits, member, root)
    own = slice(None) if bits.size == size else slice(member * bits.size, (member + 1) * bits.size)
    if bits.size not in (size, size / many):
        return ""
    where = "" if bits.size == size else f", part {member} of {many}"
    numbers = [part.values for part in given if part.values is not None]
    if op in _EXTREMES and len(numbers) == many:
        values = _EXTREMES[op].reduce(numbers).ravel()[own]
        return f"the {op} of the ranks{where}" if np.array_equal(values.view(bits.dtype), bits) else ""
    if op in _MEANS and given[0].is_float:
        chosen = [_Part(given[0].dtype, values.ravel()[own]) for values in numbers]
        if told := _added(chosen, bits, mean=_MEANS[op]):
            return f"{'mean' if _MEANS[op] else 'sum'} of the ranks {told}{where}"
    return ""


def _moved(parts: Sequence[Any], bits: Any, member: int, root: int | None) -> str:
    many = len(parts)
    if root is not None and np.array_equal(parts[root], bits):
        return f"what rank {root} of the group gave"
    if bits.size == many * parts[0].size and np.array_equal(np.concatenate(parts), bits):
        return "what the ranks gave, one after the other"
    if bits.size == parts[0].size and not bits.size % many:
        pieces = [part.reshape(many, -1)[member] for part in parts]
        if np.array_equal(np.concatenate(pieces), bits):
            return f"piece {member} of what each rank gave"
    return ""


class _Part:
    """The numbers of a rank, with the rounding of its dtype."""

    def __init__(self, dtype: str, values: Any) -> None:
        self.dtype, self.values = dtype, values


def _added(parts: Sequence[_Part], bits: Any, *, mean: bool) -> str:
    """Say in which order and dtype the parts add up to the bits; empty for none."""
    dtype = parts[0].dtype
    for wide in (False, True) if dtype in ("bfloat16", "float16") else (False,):
        kind = "float32" if wide else dtype
        ring = np.zeros((2, bits.size), bool)
        for name, direction, order in _orders(len(parts)):
            total = _sum([parts[k].values for k in order], kind)
            same = _bits(total / len(parts) if mean else total, dtype) == bits
            if same.all():
                return f"{name}, in {kind}"
            if direction:
                ring[max(direction, 0)] |= same
        if ring.all(axis=1).any():
            return f"in ring order, in {kind}"
        if not wide and np.array_equal(_bits(_tree([part.values for part in parts], kind), dtype), bits):
            return f"in a tree, in {kind}"
    return ""


def _orders(many: int) -> Iterator[tuple[str, int, list[int]]]:
    """Yield the name, direction (0 of none) and order of the ways to add one rank after the other."""
    yield "in rank order", 1, list(range(many))
    for direction in (1, -1):
        for start in range(many):
            yield f"along the ring from rank {start}", direction, [(start + direction * k) % many for k in range(many)]


def _sum(values: Sequence[Any], kind: str) -> Any:
    total = values[0]
    for each in values[1:]:
        total = _rounded(total + each, kind)
    return total


def _tree(values: Sequence[Any], kind: str) -> Any:
    while len(values) > 1:
        pairs = [_sum(values[k : k + 2], kind) for k in range(0, len(values), 2)]
        values = pairs
    return values[0]


def _rounded(values: Any, kind: str) -> Any:
    return (to_bfloat16(values).astype(np.uint32) << np.uint32(16)).view(np.float32) if kind == "bfloat16" else values


def _bits(values: Any, dtype: str) -> Any:
    if dtype == "bfloat16":
        return to_bfloat16(np.ascontiguousarray(values, np.float32))
    found = np.ascontiguousarray(values, dtype)
    return found.view(f"u{found.itemsize}")
