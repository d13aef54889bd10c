"""The logged placement of a record: the part of a global tensor that it holds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Final

from matchers.logs.op_log import OpLog
from matchers.ops.json_values import integers

__all__ = [
    "ALONE",
    "AS_PARTS",
    "CONTRADICTED",
    "LAYOUT",
    "MERGED",
    "NOT_SUMMED",
    "REDUCED",
    "Part",
    "describe_placement",
    "is_merged",
    "is_pending",
    "merged_records",
    "part_of",
    "same_part",
    "unsummed",
]

LAYOUT: Final = "Layout"
"""Field of a rank's log, by the user's rules: what the ranks hold of a result (a label of `matchers.ops.share`)."""
MERGED: Final = "Merged"
"""Field of the virtual log of several ranks (`matchers.runs.layouts`): how a record was merged of their parts."""
NOT_SUMMED: Final = ", not summed"
"""End of that field where ranks have terms of a sum which no collective adds up, and something reads them."""
AS_PARTS: Final = ", gathered as parts"
"""The same where a collective puts the terms together like parts."""
ALONE: Final = " alone"
"""End of how a record is merged that one rank has for all."""
REDUCED: Final = " reduced"
"""End of that field in the total of a gradient that ranks reduce."""
CONTRADICTED: Final = "Contradicted"
"""Field of such a log: what the ranks contradict each other in from this record on."""


_ADDS_UP = re.compile(r"_?Partial\((sum|avg)?\)|_MaskPartial\(reduce_op=sum\b.*\)")
_AVERAGE = re.compile(r"_?Partial\(avg\)")
_MASKED = "_MaskPartial("
_NORM = re.compile(r"_?NormPartial\((\d+(?:\.\d+)?)?\)")


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a global tensor.

    Attributes:
        whole, start, shape: the global shape, the part's first place in it, and its own shape.
        names: the placement on each dimension of the mesh, as DTensor writes it; empty if the log does not tell.
        axes: the names of these dimensions.
    """

    whole: tuple[int, ...]
    start: tuple[int, ...]
    shape: tuple[int, ...]
    names: tuple[str, ...] = ()
    axes: tuple[str, ...] = ()

    @property
    def partial(self) -> tuple[str, ...]:
        """The pending sums, or norms, over ranks."""
        return tuple(name for name in self.names if is_pending(name))

    @property
    def pending(self) -> tuple[str, ...]:
        """The dimensions of the mesh over which these are; empty text for one whose name is not known."""
        named = zip(chain(self.axes, repeat("")), self.names, strict=False)
        return tuple(axis for axis, name in named if is_pending(name))

    @property
    def adds_up(self) -> bool:
        """True if it is a term of a sum or an average, not of norms or extremes."""
        return all(map(_ADDS_UP.match, self.partial))

    @property
    def masked(self) -> bool:
        """True for a lookup in the rows of a table that a rank has: a term once all others are set to zero."""
        return any(name.startswith(_MASKED) for name in self.names)

    @property
    def averaged(self) -> tuple[str, ...]:
        """The dimensions of the mesh over which an average is pending."""
        return tuple(axis for axis, name in zip(self.axes, self.names, strict=False) if _AVERAGE.fullmatch(name))

    @property
    def power(self) -> float | None:
        """The p of p-norms of parts, whose p-th powers add up; None for other tensors."""
        found = [_NORM.fullmatch(name) for name in self.partial]
        powers = {float(match[1] or 2) for match in found if match}
        return powers.pop() if all(found) and len(powers) == 1 and min(powers) > 0 else None


def is_pending(text: str) -> bool:
    """True for `Partial`, `_MaskPartial`, `_NormPartial`, as DTensor writes them, and a text with one of them."""
    return "artial" in text


def part_of(placement: Mapping[str, Any] | None, shape: tuple[int, ...]) -> Part | None:
    """The part that a record of a local shape holds: everything without a placement, None if unknown."""
    if placement is None:
        return Part(shape, (0,) * len(shape), shape)
    whole, start = integers(placement.get("shape")), integers(placement.get("offsets"))
    return None if whole is None or start is None else Part(whole, start, shape, *_named(placement))


def _named(placement: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The placement on each dimension of the mesh, and the names of those."""
    names, mesh = placement.get("placements"), placement.get("mesh")
    return tuple(map(str, names)) if isinstance(names, list) else (), tuple(mesh) if isinstance(mesh, dict) else ()


def same_part(x: Part, y: Part) -> bool:
    """True for parts with the same elements in the same order; a whole tensor equals its reshapes."""
    if x.partial != y.partial:
        return False
    if x.shape == x.whole and y.shape == y.whole:
        return math.prod(x.whole) == math.prod(y.whole)
    return (x.whole, x.start, x.shape) == (y.whole, y.start, y.shape)


def merged_records(log: OpLog, how: str = "") -> list[int]:
    """The records that were made of those of several ranks; of them those whose mark ends so, such as REDUCED."""
    return [row for row, told in log.texts(MERGED).items() if told.endswith(how)]


def is_merged(log: OpLog, record: int) -> bool:
    """True for a record that was made of those of several ranks."""
    return record in log.texts(MERGED)


def unsummed(log: OpLog, record: int) -> str:
    """NOT_SUMMED or AS_PARTS where merged ranks read a term each as if it were the sum, or a part; else empty."""
    told = log.texts(MERGED).get(record, "")
    return next((how for how in (NOT_SUMMED, AS_PARTS) if told.endswith(how)), "")


def describe_placement(placement: Mapping[str, Any] | None) -> str:
    """`Shard(0) on dp of [256, 256] from [128, 0]`; empty without a placement."""
    if placement is None:
        return ""
    names, axes = _named(placement)
    texts = (f"{name} on {axes[k]}" if k < len(axes) else name for k, name in enumerate(names))
    text = ", ".join(texts) or "placed"
    whole, start = integers(placement.get("shape")), integers(placement.get("offsets"))
    if whole is not None:
        text += f" of {list(whole)}"
    if start is not None and any(start):
        text += f" from {list(start)}"
    return text
