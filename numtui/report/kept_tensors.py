"""Tensors of kept operations: how many elements differ, by what, and a picture of where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from matchers.elements.differences import differences
from matchers.elements.picture import LARGEST, Picture
from matchers.tensor import Tensor
from numtui.report.elements import Parts, read_whole
from numtui.text.counts import plural

__all__ = ["LEVELS", "Elements", "read_elements"]

LEVELS: Final = (0, 1, 2, 2, 3, 3, 4, 4, 4, 4, 5)
"""The level of a cell by its digit: from equal over a few steps to what is not finite."""


@dataclass(frozen=True, eq=False)
class Elements:
    """A tensor of a row: its name, what is said of it, and its picture.

    Attributes:
        told: how many elements differ, where, by which pattern; of one side, how many are not finite.
        picture: None where the sides have other dtypes or shapes, or are too large.
    """

    name: str
    form: str
    told: str
    picture: Picture | None


def read_elements(name: str, sides: Mapping[str, Parts]) -> Elements:
    """Read a tensor of kept calls, on each side that has it. Takes a while for a large one.

    Raises:
        OSError: a content cannot be read.
    """
    tensors = {side: read_whole(parts) for side, parts in sides.items()}
    forms = [_form(parts, tensors[side]) for side, parts in sides.items()]
    form = " ⇄ ".join(dict.fromkeys(forms))
    whole = [(side, tensor) for side, tensor in tensors.items() if tensor is not None]
    if len(whole) < len(sides):
        lacking = next(side for side, tensor in tensors.items() if tensor is None)
        return Elements(name, form, f"{lacking}: the parts of the ranks make no whole tensor", None)
    (side, a), b = whole[0], whole[1][1] if len(whole) > 1 else None
    if b is None:
        return _of_one(name, form, side, a)
    found = differences(a, b)
    pictured = a.dtype == b.dtype and a.bits.shape == b.bits.shape and a.bits.size <= LARGEST
    return Elements(name, form, found.text, Picture(a, b) if pictured else None)


def _form(parts: Parts, whole: Tensor | None) -> str:
    told = parts[0][1]
    if len(parts) == 1 or whole is None:
        return f"{list(told['shape'])} {told['dtype']}"
    return f"{list(whole.bits.shape[: len(told['shape'])])} {told['dtype']} of {len(parts)} ranks"


def _of_one(name: str, form: str, side: str, tensor: Tensor) -> Elements:
    picture = Picture(tensor) if tensor.bits.size <= LARGEST else None
    if picture is None:
        return Elements(name, form, f"{side} alone; too large for a picture", None)
    odd = f"{picture.many:,} of {plural(tensor.bits.size, 'element')} NaN or infinite" if picture.many else "all finite"
    return Elements(name, form, f"in {side} alone: {odd}", picture)
