"""The logged placement of a record: the part of a global tensor that it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from matchers.logs.op_log import OpLog
from matchers.ops.json_values import integers

__all__ = [
    "AS_PARTS",
    "LAYOUT",
    "MERGED",
    "NOT_SUMMED",
    "REDUCED",
    "Part",
    "describe_placement",
    "part_of",
    "same_part",
    "unsummed",
]

LAYOUT: Final = "Layout"
"""Field of a rank's log, by the user's rules: what the ranks hold of a result (a label of `matchers.ops.holds`)."""
MERGED: Final = "Merged"
"""Field of the virtual log of several ranks (`matchers.runs.layouts`): how a record was merged of their parts."""
NOT_SUMMED: Final = ", not summed"
"""End of that field where ranks have terms of a sum which no collective adds up, and something reads them."""
AS_PARTS: Final = ", gathered as parts"
"""The same where a collective puts the terms together like parts."""
REDUCED: Final = " reduced"
"""End of that field in the total of a gradient that ranks reduce."""


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a global tensor: the global shape, the part's start and shape, and its pending sums over ranks."""

    whole: tuple[int, ...]
    start: tuple[int, ...]
    shape: tuple[int, ...]
    partial: tuple[str, ...] = ()


def part_of(placement: Mapping[str, Any] | None, shape: tuple[int, ...]) -> Part | None:
    """The part that a record of a local shape holds: everything without a placement, None if unknown."""
    if placement is None:
        return Part(shape, (0,) * len(shape), shape)
    whole, start = integers(placement.get("shape")), integers(placement.get("offsets"))
    if whole is None or start is None:
        return None
    names = placement.get("placements")
    partial = tuple(str(name) for name in names if "artial" in str(name)) if isinstance(names, list) else ()
    return Part(whole, start, shape, partial)


def same_part(x: Part, y: Part) -> bool:
    """True for parts with the same elements in the same order; a whole tensor equals its reshapes."""
    if x.partial != y.partial:
        return False
    if _is_whole(x) and _is_whole(y):
        return _size(x.whole) == _size(y.whole)
    return (x.whole, x.start, x.shape) == (y.whole, y.start, y.shape)


def _is_whole(part: Part) -> bool:
    return part.shape == part.whole


def _size(shape: tuple[int, ...]) -> int:
    n = 1
    for length in shape:
        n *= length
    return n


def unsummed(log: OpLog, record: int) -> str:
    """NOT_SUMMED or AS_PARTS where merged ranks read a term each as if it were the sum, or a part; else empty."""
    told = log.texts(MERGED).get(record, "")
    return next((how for how in (NOT_SUMMED, AS_PARTS) if told.endswith(how)), "")


def describe_placement(placement: Mapping[str, Any] | None) -> str:
    """`Shard(0) on dp of [256, 256] from [128, 0]`; empty without a placement."""
    if placement is None:
        return ""
    names = placement.get("placements")
    mesh = placement.get("mesh")
    axes = list(mesh) if isinstance(mesh, dict) else []
    texts = []
    for k, name in enumerate(names if isinstance(names, list) else []):
        texts.append(f"{name} on {axes[k]}" if k < len(axes) else str(name))
    text = ", ".join(texts) or "placed"
    whole, start = integers(placement.get("shape")), integers(placement.get("offsets"))
    if whole is not None:
        text += f" of {list(whole)}"
    if start is not None and any(start):
        text += f" from {list(start)}"
    return text
