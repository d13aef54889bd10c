"""Report on the weights of checkpoints, or of other single moments, as text (docs/weights.md)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from matchers.weights.numbers import Numbers, Outcome
from matchers.weights.partners import How, Pair
from matchers.weights.state_compare import Judged, StateComparison
from matchers.weights.states import State, Weight
from numtui.text.counts import plural
from numtui.text.safe import safe_text, write_lines

__all__ = ["StateMatrix", "name_of", "numbers_text", "verdict", "write_text"]

_MOST = 12
_MOST_FOLDED = 8
_NAME = 160
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
"""A component of a name that is a number."""


@dataclass(frozen=True, slots=True)
class StateMatrix:
    """Several states compared with one of them.

    Attributes:
        names: of the states, all different.
        reference: index of the one that the others are compared with, as `a`.
        comparisons: by state; None for the reference.
    """

    names: tuple[str, ...]
    states: tuple[State, ...]
    reference: int
    comparisons: tuple[StateComparison | None, ...]

    @property
    def others(self) -> list[tuple[str, StateComparison]]:
        """Name and comparison of all but the reference."""
        return [(name, c) for name, c in zip(self.names, self.comparisons, strict=True) if c is not None]

    @property
    def agrees(self) -> bool:
        return all(c.agrees for _, c in self.others)


def write_text(matrix: StateMatrix, out: TextIO) -> None:
    """Write the comparison: of two states in detail, of more as a table, and what differs first of each."""
    others = matrix.others
    lines = _two(others[0][1]) if len(others) == 1 else _several(matrix)
    write_lines(lines, out)


def _two(c: StateComparison) -> Iterator[str]:
    for side, state in (("a", c.a), ("b", c.b)):
        has = f"{safe_text(state.form, 60)}, {plural(len(state.weights), 'tensor')}"
        yield f"{side}  {safe_text(state.path, _NAME)}  {has}"
    yield ""
    yield f"{verdict(c)}."
    yield from _differing(c)
    yield from _not_compared(c)
    yield from _partners(c)


def verdict(c: StateComparison) -> str:
    """Return what was found in one line: `147 of 148 weights equal; rotary.inv_freq differs`."""
    total = len(c.judged) + len(c.only_a) + len(c.only_b)
    equal, near = c.of(Outcome.EQUAL), c.of(Outcome.ROUNDED)
    said = [f"{len(equal):,} of {plural(total, 'weight')} equal"] if equal or not near else []
    if near:
        number = f"{len(near):,}" if equal else f"{len(near):,} of {plural(total, 'weight')}"
        said.append(f"{number} equal once rounded to {_coarse(near[0].pair)}")
    differing = c.of(Outcome.DIFFERENT)
    zero = [one for one in differing if (side := _all_zero(one.numbers)) is not None and side]
    rest = [one for one in differing if one not in zero]
    for one in zero[:2]:
        said.append(f"{name_of(one.pair, _all_zero(one.numbers) or 'a')} is all zeros in {_all_zero(one.numbers)}")
    if len(zero) > 2:
        said.append(f"{len(zero) - 2:,} more are all zeros on one side")
    if rest:
        said.append(f"{name_of(rest[0].pair)} differs" if len(rest) == 1 else f"{len(rest):,} differ")
    if alone := len(c.only_a) + len(c.only_b):
        said.append(f"{alone:,} without partner")
    if unknown := len(c.of(Outcome.NOT_COMPARED)):
        said.append(f"{unknown:,} not compared")
    if c.gaps:
        said.append(f"{len(c.gaps):,} only in part")
    if c.problems:
        said.append("not all could be read")
    return "; ".join(said)


def _all_zero(numbers: Numbers) -> str | None:
    """The side on which all elements are 0, and not on the other."""
    if numbers.a is None or numbers.b is None or numbers.numel is None:
        return None
    zero = [side for side, (zeros, _) in (("a", numbers.a), ("b", numbers.b)) if zeros == numbers.numel]
    return zero[0] if len(zero) == 1 else None


def _coarse(pair: Pair) -> str:
    from matchers.weights.numbers import coarser

    return coarser(pair.a.dtype, pair.b.dtype) or "another dtype"


def name_of(pair: Pair, side: str = "a") -> str:
    """Return the name of a pair's weight, of a whole with the place of the part."""
    weight = pair.a if side == "a" else pair.b
    name = safe_text(weight.name, _NAME)
    if pair.whole != side or pair.region is None:
        return name
    text = pair.region.text
    return f"{name}{text}" if text.startswith("[") else f"{name}, {text}"


def _differing(c: StateComparison) -> Iterator[str]:
    differing = c.of(Outcome.DIFFERENT)
    if not differing:
        return
    yield ""
    yield "Different:"
    if len(differing) > _MOST:
        largest = max(differing, key=lambda one: -1.0 if math.isnan(one.numbers.error) else one.numbers.error)
        yield f"  largest: {name_of(largest.pair)}, {numbers_text(largest.numbers)}"
    for one in differing[:_MOST]:
        a, b = name_of(one.pair), name_of(one.pair, "b")
        yield f"  {a}" if a == b else f"  {a} ⇄ {b}"
        yield f"    {numbers_text(one.numbers)}{_doubt(one.pair)}"
    if len(differing) > _MOST:
        yield f"  … {len(differing) - _MOST:,} more are in --format json"


def _doubt(pair: Pair) -> str:
    """Return the doubt that the two are partners; empty for none."""
    if pair.how is How.ALIKE:
        return "; partners because their values are close"
    return "; partners by the names of others" if pair.how is How.NAMES_OF_OTHERS else ""


def numbers_text(numbers: Numbers) -> str:
    """Return the size of a difference in words."""
    if numbers.problem:
        error = "" if math.isnan(numbers.error) else f", estimated relative error {numbers.error:.2g}"
        return f"{numbers.problem}{error}"
    said = []
    if numbers.differing is not None and numbers.numel is not None:
        few = "only signs of zero, or bits of NaN," if not numbers.differing else f"{numbers.differing:,}"
        inside = "" if numbers.inside is None else f", all in [{numbers.inside}]"
        said.append(f"{few} of {plural(numbers.numel, 'element')}{inside}")
    if math.isnan(numbers.error):
        said.append("size unknown" if not said else "")
    elif math.isinf(numbers.error):
        said.append("b is 0 where a is not")
    elif numbers.error or not numbers.differing:
        about = "" if numbers.differing is not None else "≈ "
        said.append(f"relative error {about}{numbers.error:.2g}")
    if numbers.ulps:
        said.append(f"at most {numbers.ulps:,} ulp" if numbers.ulps < 1 << 20 else "")
    for side, counts in (("a", numbers.a), ("b", numbers.b)):
        if counts is not None and numbers.numel:
            zero, nan = counts
            said.append(f"{nan:,} NaN in {side}" if nan else "")
            said.append(f"all zeros in {side}" if zero == numbers.numel else "")
    return ", ".join(filter(None, said))


def _not_compared(c: StateComparison) -> Iterator[str]:
    lines = []
    for side, weights in (("a", c.only_a), ("b", c.only_b)):
        if weights:
            lines.append(f"  only in {side}: {plural(len(weights), 'weight')}: {_names(weights)}")
    folded: dict[tuple[str, int, int, str], list[str]] = {}
    for side, name, gap, of in c.gaps:
        folded.setdefault((side, gap, of, _NUMBER.sub("*", name)), []).append(name)
    for (side, gap, of, kind), names in folded.items():
        which = safe_text(names[0] if len(names) == 1 else f"{kind} ({len(names)} of them)", _NAME)
        lines.append(f"  {gap:,} of {of:,} rows or columns of {which} in {side} have no partner")
    unknown = c.of(Outcome.NOT_COMPARED)
    for one in unknown[:_MOST]:
        lines.append(f"  {name_of(one.pair)}: {numbers_text(one.numbers)}")
    if len(unknown) > _MOST:
        lines.append(f"  … {len(unknown) - _MOST:,} more")
    trains = [(side, sum(w.optimizer for w in state.weights)) for side, state in (("a", c.a), ("b", c.b))]
    if sum(many > 0 for _, many in trains) == 1:
        side, many = max(trains, key=lambda of: of[1])
        lines.append(f"  {plural(many, 'tensor')} of an optimizer's state, only in {side}")
    if lines:
        yield ""
        yield "Not compared:"
        yield from lines


def _names(weights: Sequence[Weight]) -> str:
    folded = _folded([weight.name for weight in weights])
    more = f" and {len(folded) - 4:,} more kinds" if len(folded) > 4 else ""
    return ", ".join(safe_text(name, _NAME) + (f" ({many})" if many > 1 else "") for name, many in folded[:4]) + more


def _folded(names: Sequence[str]) -> list[tuple[str, int]]:
    """Names that differ in numbers only as one, with their count."""
    counted: dict[str, list[str]] = {}
    for name in names:
        counted.setdefault(_NUMBER.sub("*", name), []).append(name)
    return [(of[0] if len(of) == 1 else name, len(of)) for name, of in counted.items()]


_KINDS = {
    How.NAMES_OF_OTHERS: ", by the names of others",
    How.ALIKE: ", because their values are close",
    How.ROWS: ", by the digests of their rows",
    How.TIED: ": two names of one tensor",
}


def _partners(c: StateComparison) -> Iterator[str]:
    """Say which weights are partners under other names, by which evidence."""
    others = [one for one in c.judged if one.pair.how is not How.NAME or one.pair.region is not None]
    if not others:
        return
    yield ""
    yield "Partners under other names, or parts of fused and stacked weights:"
    folded: dict[tuple[str, str, How], list[Judged]] = {}
    for one in others:
        texts = (_NUMBER.sub("*", name_of(one.pair, side).split("[")[0]) + _place(one.pair, side) for side in "ab")
        a, b = texts
        folded.setdefault((a, b, one.pair.how), []).append(one)
    ordered = sorted(folded.items(), key=lambda item: -len(item[1]))
    for (a, b, how), of in ordered[:_MOST_FOLDED]:
        first = of[0].pair
        names = (name_of(first), name_of(first, "b")) if len(of) == 1 else (a, b)
        times = f" ({len(of):,} times)" if len(of) > 1 else ""
        yield f"  {names[0]} ↔ {names[1]}{times}{_KINDS.get(how, '')}"
    if rest := sum(len(of) for _, of in ordered[_MOST_FOLDED:]):
        yield f"  … {rest:,} more are in --format json"


def _place(pair: Pair, side: str) -> str:
    """The place of a part, with the number of the expert left open."""
    if pair.whole != side or pair.region is None or not pair.region.text.startswith("["):
        return ""
    return re.sub(r"^\[\d+(?=[,\]])", "[*", pair.region.text)


def _several(matrix: StateMatrix) -> Iterator[str]:
    reference = matrix.states[matrix.reference]
    name = safe_text(matrix.names[matrix.reference], 100)
    yield f"Against {name}: {safe_text(reference.form, 60)}, {plural(len(reference.weights), 'tensor')}"
    yield ""
    titles = ("equal", "rounded", "differ", "not compared")
    width = max(len(safe_text(name, 40)) for name, _ in matrix.others)
    yield f" {'':{width}}  " + "  ".join(titles) + "  first that differs"
    for name, c in matrix.others:
        differing = c.of(Outcome.DIFFERENT)
        numbers = (
            len(c.of(Outcome.EQUAL)),
            len(c.of(Outcome.ROUNDED)),
            len(differing),
            len(c.of(Outcome.NOT_COMPARED)) + len(c.only_a) + len(c.only_b) + len(c.gaps),
        )
        cells = "  ".join(f"{number or '–':>{len(title)}}" for number, title in zip(numbers, titles, strict=True))
        first = f"{name_of(differing[0].pair)}, {numbers_text(differing[0].numbers)}" if differing else ""
        yield f" {safe_text(name, 40):{width}}  {cells}  {first}".rstrip()
    for name, c in matrix.others:
        if not c.agrees:
            yield ""
            yield f"{safe_text(name, 100)}: {verdict(c)}."
