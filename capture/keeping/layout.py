"""Parts of tensors that ranks and micro-batches hold: rows of the batch, known by their bytes, and shards by placement.

Arrays are torch's or numpy's: what is used of them is the same in both. Standard library alone, as the viewer reads it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import Any

from .form import INPUTS, OF_NO_MODULE

__all__ = ["GradientScale", "Group", "NoWhole", "Rows", "batch_of", "cut", "put_together", "row_names"]

Group = tuple[int | None, tuple[int, ...]]
"""A micro-batch, and the ranks that have the same rows of it."""


_ROUNDING = 0.01
"""Of norms of gradients, also in bfloat16, relative."""


class NoWhole(Exception):
    """Raised where parts make no whole, or a whole has no such part: the reason."""


def batch_of(call: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the tensor of a kept call that has the rows of the batch: the first that an outermost module is given."""
    if call["within"] is not None or call["module"] in OF_NO_MODULE:
        return None
    given: Mapping[str, Mapping[str, Any]] = call.get(INPUTS, {})
    return next(iter(given.values()), None)


def row_names(content: bytes, rows: int) -> list[str]:
    """Return a name of each row of a tensor by its bytes, in row-major order."""
    size = len(content) // rows if rows else 0
    return [hashlib.sha256(content[size * k : size * (k + 1)]).hexdigest() for k in range(rows)]


class GradientScale:
    """By how much gradients of a mean over part of the rows of a batch are larger than those of a mean over all.

    Attributes:
        factor: of all gradients, None until two that the loss hands to models show the same one but for rounding, or
            the only one: what something else changes may be nearer to another.
    """

    def __init__(self) -> None:
        self.factor: float | None = None
        self._shown: dict[float, set[float]] = {}
        self._of_loss: dict[float, set[float]] = {}

    def of(self, norm: float, other: float, factor: float, of_loss: int) -> tuple[float, bool]:
        """Return the factor of a gradient, and whether it is that but for rounding; else that of most so far.

        Args:
            norm, other: of the gradient over the part, and over all.
            factor: of means; else, as of sums, it is 1.
            of_loss: number of gradients that this model gets from the loss, if it is one of these; else 0.
        """
        if self.factor is not None:
            return self.factor, True
        if not (norm > 0 and other > 0 and factor > 0):
            return 1.0, False
        off = {each: abs(log(norm / other) - log(each)) for each in (1.0, factor)}
        nearest = min(off, key=off.__getitem__)
        sure = off[nearest] < _ROUNDING
        if not sure and of_loss and len(self._of_loss) == 1:
            (self.factor,) = self._of_loss  # all that tell say the same
            return self.factor, True
        if not sure and self._shown:
            return max(self._shown, key=lambda each: len(self._shown[each])), False
        if sure:
            self._shown.setdefault(nearest, set()).add(other)
        if sure and of_loss:
            self._of_loss.setdefault(nearest, set()).add(other)
            self.factor = nearest if len(self._of_loss[nearest]) >= min(of_loss, 2) else None
        return nearest, sure


class Rows:
    """Rows of the batches of a step.

    Args:
        names: by rank and micro-batch.
    """

    def __init__(self, names: Mapping[tuple[int, int | None], Sequence[str]]) -> None:
        found: dict[tuple[int | None, tuple[str, ...]], list[int]] = {}
        for (rank, batch), of in names.items():
            found.setdefault((batch, tuple(of)), []).append(rank)
        self._of_group: dict[Group, tuple[str, ...]] = {
            (batch, tuple(sorted(ranks))): of for (batch, of), ranks in found.items()
        }

    @property
    def groups(self) -> Mapping[Group, tuple[str, ...]]:
        """The names of the rows of each group."""
        return self._of_group

    @property
    def total(self) -> int:
        """Number of rows in the step."""
        return sum(map(len, self._of_group.values()))

    def gathered(
        self, names: Sequence[str], shape: Sequence[int], fetch: Callable[[Group], Any], empty: Callable[..., Any]
    ) -> Any:
        """Return a tensor of other rows: each from where it is, in a shape whose first dimension has the rows.

        Args:
            fetch: returns the tensor of a group.
            empty: makes an array of a shape, like another one.

        Raises:
            NoWhole: a row is nowhere, or the tensors do not consist of rows.
        """
        places: dict[str, list[tuple[Group, int]]] = {}
        for group, of in self._of_group.items():
            for k, name in enumerate(of):
                places.setdefault(name, []).append((group, k))
        if not names or any(name not in places for name in names):
            raise NoWhole("that run had other rows of the batch")
        used: dict[str, int] = {}
        sources = []
        for name in names:
            nth = used[name] = used.get(name, -1) + 1
            sources.append(places[name][min(nth, len(places[name]) - 1)])
        held = {group: fetch(group) for group, _ in dict.fromkeys(sources)}
        first = held[sources[0][0]]
        if len(held) == 1 and self._of_group[sources[0][0]] == tuple(names):
            return first
        each, odd = divmod(shape[0] if shape else 0, len(names))
        fits = all(
            len(array.shape) == len(shape) and array.shape[0] == each * len(self._of_group[group])
            for group, array in held.items()
            if each  # else of no rows, as a scalar
        )
        if odd or not each or not fits:
            if tuple(first.shape) == tuple(shape) and len(held) == 1:
                return first  # the same for all rows
            raise NoWhole("it does not consist of the rows of the batch")
        out = empty(tuple(shape), first)
        for k, (group, at) in enumerate(sources):
            out[each * k : each * (k + 1)] = held[group][each * at : each * (at + 1)]
        return out


def put_together(parts: Sequence[tuple[Mapping[str, Any], Any]], empty: Callable[..., Any]) -> Any:
    """Return the whole of the parts that ranks hold, each with its form (`placement`).

    Raises:
        NoWhole: they make none.
    """
    if not parts:
        raise NoWhole("that run kept no such call")
    told, first = parts[0]
    placement = told.get("placement")
    if placement is None or all(kind == "Replicate" for kind in _kinds(placement)):
        if len({form.get("storage") for form, _ in parts}) > 1:
            raise NoWhole("ranks hold different values, and nothing says how they make a whole")
        return first
    shape = _shape(placement)
    out = empty(shape, first)
    done = set()
    for form, part in parts:
        at = _span(form.get("placement"), part.shape, shape)
        out[at] = part
        done.add(tuple((one.start, one.stop) for one in at))
    size = sum(_product(stop - start for start, stop in spans) for spans in done)
    if size != _product(shape):
        raise NoWhole("the parts that were kept make no whole")
    return out


def cut(whole: Any, placement: Mapping[str, Any] | None, shape: Sequence[int]) -> Any:
    """Return the part of a whole that a rank holds.

    Raises:
        NoWhole: it is none of it.
    """
    if placement is None or all(kind == "Replicate" for kind in _kinds(placement)):
        return whole
    return whole[_span(placement, shape, _shape(placement))]


def _span(placement: Any, shape: Sequence[int], whole: Sequence[int]) -> tuple[slice, ...]:
    offsets = placement.get("offsets") if isinstance(placement, dict) else None
    if offsets is None or len(offsets) != len(whole) or any(k.startswith("Strided") for k in _kinds(placement)):
        raise NoWhole("where its parts are is not known")
    spans = tuple(slice(start, start + size) for start, size in zip(offsets, shape, strict=True))
    if tuple(_shape(placement)) != tuple(whole) or any(at.stop > n for at, n in zip(spans, whole, strict=True)):
        raise NoWhole("its parts are of different wholes")
    return spans


def _kinds(placement: Mapping[str, Any]) -> list[str]:
    kinds = [str(kind) for kind in placement.get("placements", ())]
    if any("Partial" in kind.partition("(")[0] for kind in kinds):  # of a masked lookup: `_MaskPartial`
        raise NoWhole("it is a term of a sum that is still to be added up")
    return kinds


def _shape(placement: Mapping[str, Any]) -> tuple[int, ...]:
    if not isinstance(shape := placement.get("shape"), list):
        raise NoWhole("the shape of the whole is not known")
    return tuple(shape)


def _product(sizes: Any) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product
