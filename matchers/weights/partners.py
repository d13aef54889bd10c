"""Partners among the weights of two states: by names, by values under other names, and parts of fused or stacked ones.

A weight has the partner of its name; what is left is looked for by its values, then by the names of those found so.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from matchers.errors import LogError
from matchers.ops.fused import Fused, template
from matchers.ops.module_path import is_within
from matchers.tensor import Tensor
from matchers.weights.fibres import Region, fibre_hashes
from matchers.weights.numbers import coarser, measure, rounded
from matchers.weights.states import State, Weight

__all__ = ["ALIKE", "How", "Pair", "Partners", "filled"]

ALIKE: Final = 0.8
"""Least cosine of two weights that are one weight with other values; those of two others have one near 0."""
_SAMPLE: Final = 2048
_MOST_ALIKE: Final = 512
"""Weights of one shape among which those alike are looked for."""


class How(Enum):
    """Evidence that makes two weights partners."""

    NAME = "name"
    VALUES = "values"
    NAMES_OF_OTHERS = "names of others"
    """Their names differ as those of partners by values do."""
    ALIKE = "alike"
    """Their values are close and those of no others are."""
    ROWS = "digests of rows"
    """The rows of the whole are those of its parts together, by the sums of their digests."""
    TIED = "tied"
    """The partner has another one, by name: two names of one tensor."""


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Two weights, or a part and where it lies in a whole.

    Attributes:
        whole: the side that has the whole, of which the other's weight is a part; None for two of one size.
        region: where it lies there; None without one.
    """

    a: Weight
    b: Weight
    how: How
    whole: str | None = None
    region: Region | None = None

    @property
    def part(self) -> Weight:
        """The smaller one."""
        return self.a if self.whole == "b" else self.b


def filled(template: str, numbers: Sequence[str]) -> str:
    """The name of a template with these numbers."""
    given = iter(numbers)
    return re.sub("#", lambda _: next(given, "#"), template)


class Partners:
    """The search for partners.

    Attributes:
        pairs: those found.
        left: by side, in order, the weights without a partner.
        covered: by the name of a whole and its side, its units that have a part: bool[units].
        problems: what could not be read.
    """

    def __init__(self, a: State, b: State, progress: Callable[[str, float], None] = lambda *_: None) -> None:
        self.pairs: list[Pair] = []
        self.problems: list[str] = []
        trains = all(any(w.optimizer for w in state.weights) for state in (a, b))
        self.left = {
            side: {w.name: w for w in state.weights if trains or not w.optimizer}
            for side, state in (("a", a), ("b", b))
        }
        self.covered: dict[tuple[str, str], NDArray[np.bool_]] = {}
        self.states = {"a": a, "b": b}
        self._progress = progress
        self._known: dict[int, Weight] = {}
        self._coarse = self._coarser()
        self._all_stored = all(w.stored is not None for state in (a, b) for w in state.weights)

    # Names

    def by_name(self) -> None:
        for name, a in list(self.left["a"].items()):
            b = self.left["b"].get(name)
            if b is not None and a.fits(b):
                self._add(a, b, How.NAME)

    def _add(self, a: Weight, b: Weight, how: How) -> None:
        self.pairs.append(Pair(a, b, how))
        self.left["a"].pop(a.name, None)
        self.left["b"].pop(b.name, None)

    # Values

    def by_values(self) -> None:
        found: dict[str, dict[Any, list[Weight]]] = {side: defaultdict(list) for side in self.left}
        for side, weights in self.left.items():
            for weight in self.said(weights.values(), "digests"):
                if (key := self._signature(weight)) is not None:
                    found[side][key].append(weight)
        for key, of_a in found["a"].items():
            of_b = found["b"].get(key, [])
            ranked = sorted(
                ((_likeness(x.name, y.name), i, k) for i, x in enumerate(of_a) for k, y in enumerate(of_b)),
                reverse=True,
            )
            for _, i, k in ranked:
                if of_a[i].name in self.left["a"] and of_b[k].name in self.left["b"]:
                    self._add(of_a[i], of_b[k], How.VALUES)

    def _signature(self, weight: Weight) -> Any:
        """A value that is equal for equal weights; None where there is none."""
        if self._all_stored:
            bits = self.bits(weight)
            if bits is None:
                return None
            flat = bits.reshape(1, -1) if bits.ndim < 2 else bits.reshape(-1, bits.shape[-1])
            return weight.shape, bits.dtype.str, fibre_hashes(flat).tobytes()
        digest = self.known(weight).digest
        return None if digest is None or weight.part is not None else digest

    def known(self, weight: Weight) -> Weight:
        """A weight with the numbers that a log would have; those of a stored one are computed once."""
        if weight.stored is None or weight.digest is not None:
            return weight
        if id(weight) not in self._known:
            bits = self.read(weight)
            self._known[id(weight)] = weight if bits is None else measure(weight, bits)
        return self._known[id(weight)]

    def read(self, weight: Weight) -> NDArray[Any] | None:
        """The bits of a weight; None where only numbers are known, or it cannot be read, which is noted."""
        if weight.stored is None:
            return None
        try:
            return weight.stored.bits()
        except (LogError, ValueError, MemoryError) as error:
            text = str(error) if isinstance(error, LogError) else f"{weight.name} cannot be read: {error}"
            if text not in self.problems:
                self.problems.append(text)
            return None

    def bits(self, weight: Weight) -> NDArray[Any] | None:
        """Its bits in the dtype that both sides can have."""
        bits = self.read(weight)
        coarse = coarser(weight.dtype, self._coarse)
        if bits is not None and coarse is not None and coarse != weight.dtype:
            return rounded(bits, weight.dtype or "", coarse)
        return bits

    def _coarser(self) -> str | None:
        """The coarser of the dtypes that most elements of each side have; None where these are one."""
        main = []
        for state in self.states.values():
            sizes: dict[str, int] = defaultdict(int)
            for weight in state.weights:
                sizes[weight.dtype or ""] += weight.numel or 0
            main.append(max(sizes, key=sizes.__getitem__, default=""))
        return coarser(*main)

    def said(self, weights: Any, what: str) -> Iterator[Weight]:
        listed = list(weights)
        for number, weight in enumerate(listed):
            self._progress(what, number / len(listed))
            yield weight

    def of_rows(self, found: Iterable[Fused]) -> None:
        """Pair fused weights of logs with their parts."""
        for of in found:
            other = "b" if of.side == "a" else "a"
            whole = self.left[of.side].pop(of.whole, None)
            for part in [self.left[other].pop(name) for name in of.parts if name in self.left[other]]:
                if whole is not None:
                    a, b = (whole, part) if of.side == "a" else (part, whole)
                    self.pairs.append(Pair(a, b, How.ROWS, of.side))

    # Names, as those of others differ

    def as_others(self) -> None:
        """Pair weights whose names differ as those of partners by values do, or only in their beginning."""
        renamed = {template(pair.a.name): template(pair.b.name) for pair in self.pairs if pair.whole is None}
        starts = [start for start, _ in Counter(map(_starts, self.pairs)).most_common() if all(start)]
        templates = {a: b for (a, of_a), (b, of_b) in renamed.items() if of_a == of_b and a != b}
        for name, weight in list(self.left["a"].items()):
            known, numbers = template(name)
            candidate = self.left["b"].get(filled(templates.get(known, "\0"), numbers))
            if candidate is None and (start := next((s for s in starts if is_within(name, s[0])), None)):
                candidate = self.left["b"].get(start[1] + name[len(start[0]) :])
            candidate = candidate or self._of_longer_name(name, weight)
            if candidate is not None and candidate.fits(weight):
                self._add(weight, candidate, How.NAMES_OF_OTHERS)

    def _of_longer_name(self, name: str, weight: Weight) -> Weight | None:
        """The only one whose name has another beginning, or none."""
        found = [
            w
            for other, w in self.left["b"].items()
            if f".{other}".endswith(f".{name}") or f".{name}".endswith(f".{other}")
        ]
        return found[0] if len(found) == 1 and found[0].fits(weight) else None

    # Values that are close

    def alike(self) -> None:
        """Pair weights of one shape that point in one direction, each the nearest of the other."""
        groups: dict[Any, tuple[list[Weight], list[Weight]]] = defaultdict(lambda: ([], []))
        for side, weights in self.left.items():
            for weight in weights.values():
                if weight.numel and weight.numel > 1 and weight.part is None:
                    groups[weight.shape if self._all_stored else weight.numel][side == "b"].append(weight)
        for of_a, of_b in groups.values():
            if not (of_a and of_b) or len(of_a) > _MOST_ALIKE or len(of_b) > _MOST_ALIKE:
                continue
            vectors = [self._vectors(of, self._all_stored) for of in (of_a, of_b)]
            cosine = vectors[0] @ vectors[1].T
            for i, k in enumerate(cosine.argmax(1)):
                if cosine[i, k] > ALIKE and cosine[:, k].argmax() == i and np.sum(cosine[i] > ALIKE) == 1:
                    self._add(of_a[i], of_b[int(k)], How.ALIKE)

    def _vectors(self, weights: Sequence[Weight], stored: bool) -> NDArray[np.float64]:
        found = np.zeros((len(weights), _SAMPLE if stored else 16))
        for row, weight in zip(found, weights, strict=True):
            if stored:
                bits = self.read(weight)
                values = None if bits is None else _sample(bits, weight.dtype or "")
            else:
                values = np.array(self.known(weight).sketch or ())
            if values is not None and len(values):
                row[: len(values)] = values
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        return np.asarray(np.divide(found, norms, out=np.zeros_like(found), where=norms > 0))

    # Two names of one tensor

    def tied(self) -> None:
        for side, other in (("a", "b"), ("b", "a")):
            shapes = {w.shape for w in self.left[side].values()}
            partners: dict[Any, Weight] = {}
            for pair in self.pairs if shapes else ():
                weight = pair.b if other == "b" else pair.a
                if pair.whole is None and (weight.shape in shapes or None in shapes):
                    key = self._signature(weight)
                    if key is not None and not self._constant(weight):
                        partners.setdefault(key, weight)
            for weight in list(self.left[side].values()):
                key = self._signature(weight)
                if key is not None and (partner := partners.get(key)) is not None:
                    a, b = (weight, partner) if side == "a" else (partner, weight)
                    self.pairs.append(Pair(a, b, How.TIED))
                    self.left[side].pop(weight.name)

    def _constant(self, weight: Weight) -> bool:
        """Return True if all elements are one number, as of many weights before training: equal by chance."""
        bits = self.read(weight)
        if bits is None:
            return weight.counts is not None and weight.counts[0] == weight.counts[3]
        return not bits.size or bool((bits == bits.flat[0]).all())


def _sample(bits: NDArray[Any], dtype: str) -> NDArray[np.float64] | None:
    flat = bits.reshape(-1)
    values = Tensor.of_bits(np.ascontiguousarray(flat[:: max(1, -(-len(flat) // _SAMPLE))]), dtype).values
    return None if values is None else np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0)


def _starts(pair: Pair) -> tuple[str, str]:
    """Return the beginnings of two names before the components that both end with."""
    a, b = pair.a.name.split("."), pair.b.name.split(".")
    if pair.whole is None:
        while a and b and a[-1] == b[-1]:
            a.pop()
            b.pop()
    return ".".join(a), ".".join(b)


def _likeness(a: str, b: str) -> tuple[bool, int, int]:
    """Return the likeness of two names: their numbers, their last components, their length."""
    x, y = a.split(".")[::-1], b.split(".")[::-1]
    same = next((k for k, (one, other) in enumerate(zip(x, y, strict=False)) if one != other), min(len(x), len(y)))
    return template(a)[1] == template(b)[1], same, -abs(len(x) - len(y))
