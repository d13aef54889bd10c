"""Compare the weights of two states: partners, what is equal, what differs and by how much, what is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchers.ops.fused import fused
from matchers.weights.fibres import Unit, fibres
from matchers.weights.numbers import Numbers, Outcome, compare_bits, compare_known
from matchers.weights.partners import How, Pair, Partners
from matchers.weights.parts import Parts
from matchers.weights.states import State, Weight

__all__ = ["Judged", "StateComparison", "compare_states"]


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Two partners, and their difference."""

    pair: Pair
    numbers: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class StateComparison:
    """The difference between two states.

    Attributes:
        judged: every pair; a fused or stacked weight has one for each of its parts.
        only_a, only_b: weights without a partner.
        gaps: (side, name, units without a part, of all units) of weights of which only a part has partners.
        problems: what could not be read.
    """

    a: State
    b: State
    judged: tuple[Judged, ...]
    only_a: tuple[Weight, ...]
    only_b: tuple[Weight, ...]
    gaps: tuple[tuple[str, str, int, int], ...]
    problems: tuple[str, ...]

    def of(self, outcome: Outcome) -> list[Judged]:
        """The pairs of an outcome."""
        return [one for one in self.judged if one.numbers.outcome is outcome]

    @property
    def complete(self) -> bool:
        """True if every weight of both was compared as a whole."""
        alone = self.only_a or self.only_b or self.gaps or self.problems
        return bool(self.judged) and not alone and not self.of(Outcome.NOT_COMPARED)

    @property
    def agrees(self) -> bool:
        """True if all is equal, apart from what was rounded."""
        return self.complete and not self.of(Outcome.DIFFERENT)


def compare_states(a: State, b: State, progress: Callable[[str, float], None] = lambda *_: None) -> StateComparison:
    """Find the partners of all weights, and compare them."""
    found = _partners(a, b, progress)
    reader = _Reader(found)
    judged = []
    for number, pair in enumerate(found.pairs):
        progress("comparing", number / len(found.pairs))
        judged.append(Judged(pair, reader.judge(pair)))
    gaps = [
        (side, name, int(np.sum(~covered)), len(covered))
        for (side, name), covered in found.covered.items()
        if not covered.all()
    ]
    order = {weight.name: k for k, weight in enumerate(a.weights)}
    judged.sort(key=lambda one: (order[one.pair.a.name], one.pair.region is not None and int(one.pair.region.at[0])))
    problems = dict.fromkeys((*a.problems, *b.problems, *found.problems))
    only_a, only_b = (tuple(found.left[side].values()) for side in ("a", "b"))
    return StateComparison(a, b, tuple(judged), only_a, only_b, tuple(gaps), tuple(problems))


def _partners(a: State, b: State, progress: Callable[[str, float], None]) -> Partners:
    found = Partners(a, b, progress)
    found.by_name()
    if all(found.left.values()):
        found.by_values()
    found.of_rows(fused(a.run, b.run))
    parts = Parts(found)
    if all(found.left.values()):
        parts.by_values()
        parts.as_others()
        found.as_others()
    if all(found.left.values()):
        found.alike()
        parts.alike()
        parts.as_others()
        found.as_others()
    if any(found.left.values()):
        found.tied()
    return found


class _Reader:
    """Bits of weights; of a whole they are kept while its parts follow each other."""

    def __init__(self, pairing: Partners) -> None:
        self._pairing = pairing
        self._whole: tuple[Weight, NDArray[Any]] | None = None

    def judge(self, pair: Pair) -> Numbers:
        """Compare two partners."""
        a, b = pair.a, pair.b
        if pair.how is How.ROWS:
            return Numbers(Outcome.EQUAL, pair.part.numel, 0, 0.0)
        if a.part != b.part:
            return Numbers(Outcome.NOT_COMPARED, problem="other shards")
        if a.stored is None or b.stored is None:
            return compare_known(self._pairing.known(a), self._pairing.known(b))
        x, y = (self._bits(weight, keep=pair.whole == side) for weight, side in ((a, "a"), (b, "b")))
        if x is None or y is None:
            return Numbers(Outcome.NOT_COMPARED, problem="cannot be read")
        if (region := pair.region) is not None:
            x, y = (
                _units(each, region.whole)[region.at] if side == pair.whole else _units(each, region.part)
                for each, side in ((x, "a"), (y, "b"))
            )
        return compare_bits(x, y, (a.dtype or "", b.dtype or ""))

    def _bits(self, weight: Weight, *, keep: bool) -> NDArray[Any] | None:
        if self._whole is not None and self._whole[0] is weight:
            return self._whole[1]
        bits = self._pairing.read(weight)
        if keep and bits is not None:
            self._whole = weight, bits
        return bits


def _units(bits: NDArray[Any], unit: Unit) -> NDArray[Any]:
    """The units of a weight; the elements of a bias, which may be stacked, in the order of the rows of its weight."""
    return fibres(bits, unit) if unit is not Unit.ELEMENT else bits.reshape(-1)
