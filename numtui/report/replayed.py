"""What replays of kept operations show: do they give the bits of the log, what was asked otherwise, who is right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Final

from capture.keeping.form import AGAIN, ONCE_MORE, WIDE, given_to, results_of

__all__ = [
    "Case",
    "Replayed",
    "asked_otherwise",
    "certificate",
    "other_inputs",
    "verdict",
]

_CLEARLY: Final = 4
"""How many times nearer to float64 the side is that it sides with: two ways to round one result differ by less."""
_INPUTS = re.compile(r"^  Input digests: (.*)$", re.MULTILINE)
_NAME = re.compile(r"\W*(\w+)(?:=[^=]*)?$")
_BUNDLE = re.compile(r"rank_(\d+)_kept")
_WIDTHS = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Replayed:
    """A kept call and what came of running it again.

    Attributes:
        call: its entry in the manifest.
        results: by the name of a variant, what it gave (`capture.keeping.perform`).
        folder: of the bundle; None without its contents.
    """

    call: Mapping[str, Any]
    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    folder: Path | None = None

    @property
    def rank(self) -> int | None:
        """The rank that kept it, by the name of its bundle; None without one."""
        found = _BUNDLE.fullmatch(self.folder.name) if self.folder is not None else None
        return int(found[1]) if found else None

    @property
    def recorded(self) -> tuple[str, ...]:
        """The digests of the log; `-` where it has none."""
        return (*self.call["digests"]["returned"], *self.call["digests"]["left"])

    def gave(self, variant: str) -> tuple[str, ...] | None:
        """Return the digests that a variant gave; None if it did not run."""
        found = self.results.get(variant, {})
        return (*found["returned"], *found["written"]) if "returned" in found else None

    @property
    def not_run(self) -> str:
        """Why it was not run as captured; empty if it was."""
        found = self.results.get(AGAIN, {})
        return str(found.get("refused") or found.get("failed") or "")

    @property
    def odd(self) -> str:
        """What came out other than in the log: `other bits in result 3`; of a call that was not run, why."""
        pairs = enumerate(zip(self.gave(AGAIN) or (), self.recorded, strict=False))
        odd = [str(k) for k, (gave, want) in pairs if want not in (gave, "-")]
        many = f" in result{'s' * (len(odd) > 1)} {', '.join(odd)} of {len(self.recorded)}"
        return self.not_run or f"other bits{many if odd and len(self.recorded) > 1 else ''}"

    @property
    def certified(self) -> bool:
        """True if the replay gives the bits of the log."""
        gave = self.gave(AGAIN)
        return gave is not None and same_bits(gave, self.recorded)

    @property
    def together(self) -> str:
        """Rule by which a collective's result is made of what the ranks gave; empty for other operations."""
        return str(self.results.get(AGAIN, {}).get("together") or "")

    @property
    def parts(self) -> list[str]:
        """The contents that the ranks gave to a collective."""
        return list(self.results.get(AGAIN, {}).get("parts") or ())

    def distance(self, side: str) -> tuple[float, float] | None:
        """Return how far a side's result is from this call in float64: relative, and in ε of its dtype."""
        found = self.results.get(WIDE, {}).get("distance", {}).get(side)
        return None if found is None else (float(found[0]), float(found[1]))

    @property
    def other_bits(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The variants that give other bits than as captured, with these."""
        for name in self.results:
            gave = self.gave(name)
            if gave is not None and gave != self.gave(AGAIN):
                yield name, gave


@dataclass(frozen=True, slots=True)
class Case:
    """An operation that was kept in one run or in both.

    Attributes:
        why: why the plan has it; empty without one.
        sides: what was replayed, by side, `a` and `b`; `a` alone for a single bundle.
        lacks: the run of the plan that has no such operation, empty if both have it.
    """

    why: str
    sides: Mapping[str, Replayed]
    lacks: str = ""


def same_bits(gave: tuple[str, ...], recorded: tuple[str, ...]) -> bool:
    """Return True for equal digests, but for those that a log does not have."""
    return len(gave) == len(recorded) and all(want in (one, "-") for one, want in zip(gave, recorded, strict=True))


def certificate(case: Case, side: str) -> str:
    """Say whose bits the replay of a side gives."""
    own, other = case.sides[side], next((case.sides[name] for name in case.sides if name != side), None)
    if own.not_run:
        return f"not run: {own.not_run}"
    gave = own.gave(AGAIN) or ()
    if own.certified:
        shared = other is not None and same_bits(gave, other.recorded)
        made = f": {own.together}" if own.together else ""
        return f"replays to its bits{', which the other has too' if shared else ''}{made}"
    return "replays to the other's bits" if other and same_bits(gave, other.recorded) else "replays to other bits"


def asked_otherwise(case: Case) -> list[str]:
    """Return in what the calls of both sides differ besides what their inputs hold: operator, arguments, forms."""
    a, b = (case.sides[side].call for side in "ab")
    found = [] if a["operator"] == b["operator"] else [f"operator {a['operator']} in a, {b['operator']} in b"]
    reductions = [call.get("group", {}).get("op") for call in (a, b)]
    found += [f"reduction {reductions[0]} in a, {reductions[1]} in b"] if reductions[0] != reductions[1] else []
    given_a, given_b = _given(a), _given(b)
    for name in dict.fromkeys([*given_a, *given_b]):
        found += _differences(name, given_a.get(name), given_b.get(name))
    return found


def _given(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by the names of its schema."""
    declared = str(call.get("schema", "")).partition("(")[2].rpartition(") ->")[0]
    names = [found[1] for part in declared.replace("*, ", "").split(", ") if (found := _NAME.search(part))]
    named = {names[k] if k < len(names) else str(k): tree for k, tree in enumerate(call["args"])}
    return named | dict(call["kwargs"])


def _differences(name: str, a: Any, b: Any) -> Iterator[str]:
    if isinstance(a, dict) and isinstance(b, dict) and "tensor" in a and "tensor" in b:
        for what in ("dtype", "shape", "strides"):
            if a["tensor"][what] != b["tensor"][what]:
                yield f"{what} of {name} {shown(a['tensor'][what])} in a, {shown(b['tensor'][what])} in b"
                return
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and any(isinstance(x, dict) for x in a):
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _differences(f"{name}[{k}]", x, y)
    elif a != b:
        yield f"{name} {shown(a)} in a, {shown(b)} in b"


def shown(tree: Any) -> str:
    """Return an argument as a person reads it."""
    if isinstance(tree, list):
        return f"[{', '.join(map(shown, tree))}]"
    if isinstance(tree, dict):
        ((tag, told),) = tree.items()
        if tag == "float":
            return repr(float.fromhex(told))
        if tag == "tensor":
            return f"{told['dtype']}{shown(told['shape'])}"
        return str(told) if tag != "complex" else repr(complex(*map(float.fromhex, told)))
    return str(tree)


def other_inputs(case: Case) -> list[int]:
    """Return the numbers of the inputs that hold other bits on both sides, by the digests of their records."""
    a, b = (_INPUTS.search(case.sides[side].call["record"]) for side in "ab")
    if a is None or b is None:
        return []
    pairs = zip(a[1].split(", "), b[1].split(", "), strict=False)
    return [k for k, (x, y) in enumerate(pairs) if x != y]


def verdict(case: Case) -> str:
    """Say in a sentence what the replays of a case show."""
    if lost := _not_of_its_parts(case):
        return lost
    for side, replayed in case.sides.items():
        if replayed.not_run:
            return f"not replayed: {replayed.not_run}"
        if not replayed.certified:
            return _uncertain(side, replayed)
    if len(case.sides) < 2:
        (side,) = case.sides
        missing, own = f"{case.lacks} has no such operation; " if case.lacks else "", case.sides[side]
        elsewhere = _of_other_run(own)
        told = own.together or f"{side} {_of_itself(own.distance(side))}"
        return f"{missing}{told}{f'; {elsewhere}' if elsewhere else _depends(case)}"
    a, b = case.sides["a"], case.sides["b"]
    if a.recorded == b.recorded:
        return f"same bits in both runs{_depends(case)}"
    asked = asked_otherwise(case)
    inputs = other_inputs(case)
    if asked:
        return f"asked otherwise: {'; '.join(asked[:2])}: {_sided(case)}"
    if inputs:
        which = ", ".join(map(str, inputs))
        if a.together:
            return (
                f"given otherwise: input{'s' if len(inputs) > 1 else ''} {which}: {a.together} in a, {b.together} in b"
            )
        return f"given otherwise: input{'s' if len(inputs) > 1 else ''} {which}: {_sided(case)}"
    if (whose := [k for k, (x, y) in enumerate(zip(a.parts, b.parts, strict=False)) if x != y]) or a.together:
        ranks = a.call["group"]["ranks"]
        if whose:
            return f"given otherwise by rank{'s' * (len(whose) > 1)} {', '.join(str(ranks[k]) for k in whose)}"
        return f"given the same: {a.together} in a, {b.together} in b"
    for side, other in (("a", b), ("b", a)):
        for name, gave in case.sides[side].other_bits:
            if same_bits(gave, other.recorded):
                return f"asked the same; {name}, {side} gives the other's bits: {_sided(case)}"
    return f"asked the same, other bits: {_sided(case)}"


def _not_of_its_parts(case: Case) -> str:
    """Say that one side of a collective returned something else than the ranks gave; empty if none did."""
    for side, other in ("ab", "ba") if len(case.sides) > 1 else ():
        wrong, right = case.sides[side], case.sides[other]
        if wrong.not_run and right.together and wrong.parts == right.parts:
            return f"given the same: {other} is {right.together}; {side} is not, and is wrong"
    return ""


def _uncertain(side: str, replayed: Replayed) -> str:
    gave, more = replayed.gave(AGAIN), replayed.gave(ONCE_MORE)
    if more is not None and more != gave:
        return f"{side} gives other bits each time: nondeterministic"
    for name, found in replayed.other_bits:
        if same_bits(found, replayed.recorded):
            return f"{side} replays to its bits only {name}"
    return f"{side} gives other bits here: another machine or version, or memory that was not kept"


def _of_other_run(own: Replayed) -> str:
    """Name the variant that gives the bits which the plan, or the table of `--against`, has of the other run."""
    many = len(own.call["digests"]["returned"])
    records = [record for record in own.call.get("planned", ()) if isinstance(record, dict)]
    planned = [record.get(name) for record in records for name in ("outputs_a", "outputs_b")]
    others = [tuple(bits) for bits in planned if isinstance(bits, list) and bits != list(own.recorded[:many])]
    found = (name for name, gave in own.other_bits if gave[:many] in others)
    return next((f"{name}, it gives the other run's bits" for name in found), "")


def _depends(case: Case) -> str:
    """Name the variants that give other bits, other than those that change every sum."""
    names = dict.fromkeys(name for each in case.sides.values() for name, _ in each.other_bits)
    return f"; its bits depend on the way: {', '.join(names)}" if names else ""


def _of_itself(distance: tuple[float, float] | None) -> str:
    if distance is None:
        return "replays to its bits"
    return f"is {distance[1]:.3g} ε from float64" if isfinite(distance[1]) else "is not finite, in float64 it is"


def _sided(case: Case) -> str:
    """Say which side float64 sides with: the one that is clearly nearer by the calls of both, or by the wider one."""
    references = [side for side in "ab" if _width(case, side) == max(_width(case, "a"), _width(case, "b"))]
    nearer = []
    for reference in references:
        found = [case.sides[reference].distance(side) for side in "ab"]
        if found[0] is None or found[1] is None:
            return "no float64 to side with"
        x, y = found[0][0], found[1][0]
        nearer.append("a" if x * _CLEARLY < y else "b" if y * _CLEARLY < x else "")
    own = [case.sides[side].distance(side) for side in "ab"]
    at = case.sides[references[0]] if len(set(nearer)) == 1 else None
    far = [at.distance(side) for side in "ab"] if at is not None else own
    told = ", ".join(f"{side} {_size(case, one)}" for side, one in zip("ab", far, strict=True) if one is not None)
    if len(set(nearer)) == 1 and nearer[0]:
        return f"float64 sides with {nearer[0]} ({told})"
    if nearer == ["a", "b"]:
        return f"float64 confirms each for what it was asked ({told})"
    return f"float64 sides with neither ({told})"


def _size(case: Case, distance: tuple[float, float]) -> str:
    """Return a distance in ε where both sides have the same, else relative."""
    dtypes = {told["dtype"] for each in case.sides.values() for told in results_of(each.call)[:1]}
    return f"{distance[1]:.3g} ε" if len(dtypes) == 1 else f"{distance[0]:.2g}"


def _width(case: Case, side: str) -> int:
    """Return the bytes of the narrowest float among the inputs of a side; 0 without one."""
    dtypes = (told["dtype"] for told in given_to(case.sides[side].call))
    return min((_WIDTHS[dtype] for dtype in dtypes if dtype in _WIDTHS), default=0)
