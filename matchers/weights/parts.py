"""Parts of fused, stacked or divided weights: found by rows and columns that are equal, then as other parts lie."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Hash, Int64
from matchers.ops.fused import template
from matchers.tensor import Tensor
from matchers.weights.fibres import Index, Region, Unit, fibre_hashes, fibres, region_of
from matchers.weights.partners import ALIKE, How, Pair, Partners, filled
from matchers.weights.states import Weight

__all__ = ["Parts"]

_UNITS: Final = ((Unit.ROW, Unit.ROW), (Unit.COLUMN, Unit.COLUMN), (Unit.ROW, Unit.COLUMN), (Unit.COLUMN, Unit.ROW))


class Parts:
    """The search for parts among the weights that are left.

    Args:
        found: is given the pairs, and what they cover of their wholes.
    """

    def __init__(self, found: Partners) -> None:
        self._found = found
        self._hashes: dict[tuple[int, Unit], Hash | None] = {}

    def as_others(self) -> None:
        """Find parts of which no unit is equal: where such a part lies in another whole, or in a gap."""
        for whole, part in (("a", "b"), ("b", "a")):
            for _ in range(2):  # a layer like another one, then what is left of it
                self._parts_as_others(whole, part)
        self._flat_parts()

    def by_values(self) -> None:
        """Find parts by their units, whatever the names."""
        for unit, other in _UNITS:
            for whole, part in (("a", "b"), ("b", "a")):
                self._parts_of(whole, part, unit, other)

    def _parts_of(self, whole: str, part: str, unit: Unit, of_whole: Unit) -> None:
        wholes = [w for w in self._wholes(whole) if w.part is None]
        hashed = ((k, hashes) for k, w in enumerate(wholes) if (hashes := self._hashed(w, of_whole)) is not None)
        index = Index(hashed)
        for weight in self._found.said(list(self._found.left[part].values()), "parts"):
            hashes = self._hashed(weight, unit)
            if hashes is None or (found := index.find(hashes)) is None:
                continue
            target = wholes[found[0]]
            if (target.numel or 0) < (weight.numel or 0):
                continue
            region = region_of(found[1], target.shape or (), unit, of_whole)
            if region is not None:
                self._add_part(whole, target, weight, region, How.VALUES)

    def _wholes(self, side: str) -> list[Weight]:
        """Weights of two or more dimensions without a partner, or with parts that leave something uncovered."""
        return [
            w
            for w in self._found.states[side].weights
            if w.name in self._found.left[side] or (side, w.name) in self._found.covered
        ]

    def _hashed(self, weight: Weight, unit: Unit) -> Hash | None:
        if weight.stored is None or len(weight.shape or ()) < 2 or (weight.dtype or "").startswith("complex"):
            return None
        key = id(weight), unit
        if key not in self._hashes:
            bits = self._found.bits(weight)
            self._hashes[key] = None if bits is None or not bits.size else fibre_hashes(fibres(bits, unit))
        return self._hashes[key]

    def _add_part(self, whole: str, target: Weight, weight: Weight, region: Region, how: How) -> bool:
        """Note a part, unless another one lies there; what is left of the whole waits for further ones."""
        shape = target.shape or ()
        units = (target.numel or 0) // (shape[-1] if region.whole is Unit.ROW else shape[-2])
        covered = self._found.covered.setdefault((whole, target.name), np.zeros(units, bool))
        if len(covered) != units or covered[region.at].any():
            return False
        covered[region.at] = True
        side = "a" if whole == "b" else "b"
        a, b = (target, weight) if whole == "a" else (weight, target)
        self._found.pairs.append(Pair(a, b, how, whole, region))
        self._found.left[side].pop(weight.name, None)
        self._found.left[whole].pop(target.name, None)
        return True

    def alike(self) -> None:
        """Find parts whose values are close to rows of a whole that follow each other."""
        for whole, part in (("a", "b"), ("b", "a")):
            for target in self._wholes(whole):
                numbers = template(target.name)[1]
                fitting = [
                    w
                    for w in self._found.left[part].values()
                    if template(w.name)[1][: len(numbers)] == numbers and self._may_lie_in(w, target)
                ]
                matrix = self._directions(target) if fitting else None
                for weight in fitting if matrix is not None else ():
                    assert matrix is not None
                    rows = self._directions(weight)
                    at = None if rows is None else _close_rows(rows, matrix)
                    region = None if at is None else region_of(at, target.shape or (), Unit.ROW, Unit.ROW)
                    if region is not None:
                        self._add_part(whole, target, weight, region, How.ALIKE)

    def _may_lie_in(self, weight: Weight, target: Weight) -> bool:
        shapes = weight.shape or (), target.shape or ()
        stored = weight.stored is not None and target.stored is not None
        return stored and min(map(len, shapes)) > 1 and shapes[0][-1] == shapes[1][-1] and weight.numel != target.numel

    def _directions(self, weight: Weight) -> NDArray[np.float32] | None:
        """float32[rows, elements], each row of length 1; None for what has no numbers."""
        bits = self._found.read(weight)
        values = None if bits is None else Tensor.of_bits(bits, weight.dtype or "").values
        if values is None or values.dtype.kind != "f":
            return None
        rows = np.nan_to_num(values.reshape(-1, values.shape[-1]).astype(np.float32), posinf=0.0, neginf=0.0)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0))

    def _parts_as_others(self, whole: str, part: str) -> None:
        """Pair a part with the place that such a part has in another whole, or with a gap."""
        known: dict[tuple[str, str], list[tuple[tuple[str, ...], tuple[str, ...], Region]]] = defaultdict(list)
        for pair in self._found.pairs:
            if pair.whole == whole and pair.region is not None and pair.region.part is not Unit.ELEMENT:
                of_whole = template((pair.a if whole == "a" else pair.b).name)
                of_part = template(pair.part.name)
                known[of_whole[0], of_part[0]].append((of_whole[1], of_part[1], pair.region))
        if not known:
            return
        targets = {w.name: w for w in self._wholes(whole)}
        for name, weight in list(self._found.left[part].items()):
            kind, numbers = template(name)
            for (whole_kind, part_kind), examples in known.items():
                if part_kind == kind and (placed := _placed(numbers, examples)) is not None:
                    whole_numbers, like = placed
                    target = targets.get(filled(whole_kind, whole_numbers))
                    if target is not None and self._fits(weight, target, like):
                        region = region_of(like.at, target.shape or (), like.part, like.whole)
                        if region is not None and self._add_part(whole, target, weight, region, How.NAMES_OF_OTHERS):
                            break
        for each in targets.values():
            self._fill(whole, part, each)

    def _fits(self, weight: Weight, target: Weight, region: Region) -> bool:
        shape, whole = weight.shape or (), target.shape or ()
        if len(shape) < 2 or len(whole) < 2:
            return False
        long = shape[-1] if region.part is Unit.ROW else shape[-2]
        of_whole = whole[-1] if region.whole is Unit.ROW else whole[-2]
        total = (target.numel or 0) // max(of_whole, 1)
        return long == of_whole and weight.numel == long * len(region.at) and int(region.at.max()) < total

    def _fill(self, whole: str, part: str, target: Weight) -> None:
        """Give the only gap of a whole to the only weight of its size in the module of the other parts."""
        covered = self._found.covered.get((whole, target.name))
        if covered is None or covered.all():
            return
        gap = np.flatnonzero(~covered)
        regions = [p for p in self._found.pairs if p.whole == whole and (p.a if whole == "a" else p.b) is target]
        if not regions or gap[-1] - gap[0] + 1 != len(gap):
            return
        region = regions[0].region
        assert region is not None
        at = region_of(gap.astype(np.int64), target.shape or (), region.part, region.whole)
        modules = {p.part.name.rsplit(".", 2)[0] for p in regions}
        fitting = [
            w
            for w in self._found.left[part].values()
            if w.name.rsplit(".", 2)[0] in modules and at is not None and self._fits(w, target, at)
        ]
        if at is not None and len(fitting) == 1:
            self._add_part(whole, target, fitting[0], at, How.NAMES_OF_OTHERS)

    def _flat_parts(self) -> None:
        """Pair biases of parts with those of wholes as their weights lie there."""
        for pair in list(self._found.pairs):
            if pair.region is None or pair.region.whole is Unit.ELEMENT:
                continue
            whole = pair.whole or ""
            side = "a" if whole == "b" else "b"
            target, part = (pair.a if whole == "a" else pair.b), pair.part
            for name, weight in list(self._found.left[side].items()):
                stem, _, last = name.rpartition(".")
                if stem != part.name.rpartition(".")[0] or len(weight.shape or ()) != 1:
                    continue
                wholes = {w.name: w for w in self._wholes(whole)}
                other = wholes.get(f"{target.name.rpartition('.')[0]}.{last}")
                if (
                    other is not None
                    and weight.numel == len(pair.region.at)
                    and (other.numel or 0) > int(pair.region.at.max())
                ):
                    self._add_flat(whole, other, weight, pair.region)

    def _add_flat(self, whole: str, target: Weight, weight: Weight, region: Region) -> None:
        covered = self._found.covered.setdefault((whole, target.name), np.zeros(target.numel or 0, bool))
        if len(covered) != target.numel or covered[region.at].any():
            return
        covered[region.at] = True
        a, b = (target, weight) if whole == "a" else (weight, target)
        text = region.text.replace(":, ", "").removesuffix(" transposed")
        flat = Region(region.at, Unit.ELEMENT, Unit.ELEMENT, text)
        self._found.pairs.append(Pair(a, b, How.NAMES_OF_OTHERS, whole, flat))
        self._found.left["a" if whole == "b" else "b"].pop(weight.name, None)
        self._found.left[whole].pop(target.name, None)


def _close_rows(rows: NDArray[np.float32], whole: NDArray[np.float32]) -> Int64 | None:
    """Return the places of rows in a whole, by the nearest of the first, middle and last one; None if not in order."""
    some = np.array([0, len(rows) // 2, len(rows) - 1])
    cosine = whole @ rows[some].T
    nearest = cosine.argmax(0)
    start = int(nearest[0])
    close = (cosine.max(0) > ALIKE).all() and (nearest - some == start).all()
    return start + np.arange(len(rows), dtype=np.int64) if close and start + len(rows) <= len(whole) else None


def _placed(
    numbers: tuple[str, ...], examples: Sequence[tuple[tuple[str, ...], tuple[str, ...], Region]]
) -> tuple[tuple[str, ...], Region] | None:
    """The numbers in the name of the whole, and the place in it, of a part with these numbers in its name."""
    for of_whole, of_part, region in examples:
        own = len(of_whole)
        if of_part[:own] == of_whole and of_part[own:] == numbers[own:]:
            return numbers[:own], region
    # the same whole: places that grow evenly with the last number
    near = [(int(of_part[-1]), of_whole, region) for of_whole, of_part, region in examples
            if of_part and of_part[:-1] == numbers[:-1] and of_part[-1] != numbers[-1]]  # fmt: skip
    if len(near) < 2 or len({len(region.at) for _, _, region in near}) > 1:
        return None
    near.sort(key=lambda of: of[0])
    (first, of_whole, low), (last, _, high) = near[0], near[-1]
    step = (int(high.at[0]) - int(low.at[0])) / (last - first)
    start = int(low.at[0]) + step * (int(numbers[-1]) - first)
    if start < 0 or step != int(step):
        return None
    return of_whole, Region(low.at - low.at[0] + int(start), low.part, low.whole, "")
