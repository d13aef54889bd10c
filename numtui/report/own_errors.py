"""Own error of each module: what it gives in b and in a, where both were given the same.

A module gives its outputs, and what it makes itself for the modules that it calls, where these were grafted: what it
gives after that follows from a's values again. Whole numbers among that, as positions or a mask, have no rounding:
others are an infinite error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from capture.keeping.bundle import Bundle
from capture.keeping.form import (
    INPUT_GRADIENTS,
    INPUTS,
    OF_NO_MODULE,
    OF_OPTIMIZER,
    OF_WEIGHTS,
    OUTPUT_GRADIENTS,
    OUTPUTS,
)
from matchers.verdict.tolerance import EPSILON
from numtui.report.kept_boundaries import Group, KeptBoundaries, Key, Side, Values

__all__ = ["BEFORE_OPTIMIZER", "OUTSIDE", "OwnError", "own_errors"]

_EPSILON: Final = {name: EPSILON[name] for name in ("float64", "float32", "float16", "bfloat16")}
"""Distance of 1 to the next number, of the dtypes that numbers are rounded to here."""
OUTSIDE, BEFORE_OPTIMIZER = "(outside modules)", "(before the optimizer)"
"""Done by no module: a loss, by the gradients that enter the models; clipping, by what the optimizer is given."""


@dataclass(frozen=True)
class OwnError:
    """The largest error of a module over its calls, in ε of its dtype; None where its inputs differ or are not kept.

    Attributes:
        forward: of its outputs.
        backward: of the gradients of its inputs.
        weights: of the gradients of its weights.
        dtype: the coarser one of both runs.
        joint: of the gradients of its inputs in place of `backward`, where other operations read these inputs, too:
            their gradients are sums, of which it makes a term.
        inner: of the gradients of weights in modules that it calls and that were given other gradients, by it or by
            other modules that it calls.
    """

    module: str
    forward: float | None
    backward: float | None
    weights: float | None
    dtype: str
    joint: float | None = None
    inner: float | None = None

    @property
    def differs(self) -> bool:
        """True if any of them is not zero."""
        return self.largest > 0

    @property
    def largest(self) -> float:
        """The largest of the three, zero if none is known."""
        return max(self.forward or 0.0, self.backward or 0.0, self.weights or 0.0)

    @property
    def shown(self) -> tuple[str, str, str]:
        """The three as text."""
        forward, backward, weights = map(_shown, (self.forward, self.backward, self.weights))
        return forward, backward, weights

    def as_json(self) -> dict[str, Any]:
        """Return it ready for JSON, which has no infinity."""
        numbers = {"forward": self.forward, "backward": self.backward, "weights": self.weights}
        told = {name: x if x is None or math.isfinite(x) else str(x) for name, x in numbers.items()}
        return {"module": self.module, **told, "dtype": self.dtype}


def _shown(error: float | None) -> str:
    return "-" if error is None else "0" if error == 0 else f"{error:.2g}" if error < 1e5 else f"{error:.1e}"


_GRADIENTS_OF: Final = {INPUT_GRADIENTS: INPUTS, OUTPUT_GRADIENTS: OUTPUTS}
"""Sides of gradients, and those of the tensors that they are of."""


@dataclass(frozen=True)
class _Error:
    """The norm of a difference, that of what it is of, and the coarser dtype of both sides."""

    off: float
    size: float
    dtype: str

    @property
    def in_epsilon(self) -> float:
        """‖y − x‖ / ‖x‖ in ε of the dtype."""
        if self.off == 0:
            return 0.0
        return self.off / self.size / _EPSILON.get(self.dtype, 2.0**-3) if self.size else math.inf


def _all_equal(x: Values, held: Sequence[Values]) -> bool:
    return all(np.array_equal(x.numbers, each.numbers) for each in held)


def _alike_for_all_rows(x: Values, held: Sequence[Values]) -> bool:
    """Return True for a tensor that the rows of the batch do not change, as positions: all ranks hold the same."""
    shape = x.numbers.shape
    same = all(np.array_equal(each.numbers, held[0].numbers, equal_nan=True) for each in held)
    return same and held[0].numbers.shape == shape and math.prod(shape) > 1


class _Both:
    """Boundaries of both runs: what b has of the rows that ranks of a have."""

    def __init__(self, a: KeptBoundaries, b: KeptBoundaries) -> None:
        self.a, self.b = a, b
        self._alike = a.ranks == b.ranks

    def sides(self, key: Key, side: str) -> Iterator[tuple[Side, Side]]:
        """Yield the tensors of a side of a call in a and in b, by the ranks that hold the same rows."""
        a, b = self.a, self.b
        if self._alike:
            for rank in a.ranks:
                yield a.side(key, side, [rank]), b.side(key, side, [rank])
        elif key[0] in OF_NO_MODULE:
            own = max((at for at in b.keys if at[0] == key[0]), key=lambda at: at[2], default=key)
            yield a.side(key, side, a.ranks), b.side(own, side, b.ranks)
        else:
            for (batch, ranks), names in a.rows.groups.items():
                if batch == key[1]:
                    one = a.side(key, side, ranks)
                    yield one, self._rows_of_b(key, side, one, names)

    def _rows_of_b(self, key: Key, side: str, one: Side, names: Sequence[str]) -> Side:
        found: Side = {}
        groups = {
            (batch, ranks): self.b.side((key[0], batch, key[2]), side, ranks) for batch, ranks in self.b.rows.groups
        }
        of_loss = len(one) if side == OUTPUT_GRADIENTS and key in self.a.outermost else 0
        alike = self._alike_in(key, _GRADIENTS_OF[side], one, groups) if side in _GRADIENTS_OF else ()
        for name, x in one.items():
            held = [of[name] for of in groups.values() if name in of]
            if len(held) == len(groups) and "gradients" not in side and _alike_for_all_rows(x, held):
                found[name] = held[0]
            elif held and x.numbers.ndim == 0 and "gradients" in side and _all_equal(x, held):
                found[name] = held[0]  # of a loss that a model returns: it is 1 in any layout
            elif len(held) == len(groups) and name in alike:  # each rank has the terms of its rows
                numbers = np.sum([each.numbers for each in held], axis=0)
                numbers = numbers / self._gradient_factor(x.numbers, numbers, names, of_loss)
                found[name] = Values(numbers, held[0].dtype, held[0].rounds)
            if name in found or not x.rounds:
                continue  # what else is counted depends on the rows that are together

            parts = {group: of[name].numbers for group, of in groups.items() if name in of}
            if (rows := self.b.gathered(names, x.numbers.shape, parts)) is not None:
                if "gradients" in side:
                    rows = rows / self._gradient_factor(x.numbers, rows, names, of_loss)
                found[name] = Values(rows, held[0].dtype, held[0].rounds)
        return found

    def _alike_in(self, key: Key, side: str, names: Container[str], groups: Iterable[Group]) -> set[str]:
        """Return the names of the tensors of a side of a call that the rows of the batch do not change."""
        of_groups = [self.b.side((key[0], batch, key[2]), side, ranks) for batch, ranks in groups]
        found = set()
        for name, x in self.a.side(key, side, self.a.ranks).items() if of_groups else ():
            held = [of[name] for of in of_groups if name in of]
            if name in names and len(held) == len(of_groups) and _alike_for_all_rows(x, held):
                found.add(name)
        return found

    def _gradient_factor(
        self, x: NDArray[np.float64], y: NDArray[np.float64], names: Sequence[str], of_loss: int
    ) -> float:
        """Return by how much gradients in b are larger: of means over fewer rows."""
        return self.b.factor(float(np.linalg.norm(y)), float(np.linalg.norm(x)), len(names), of_loss)

    def given(self, key: Key, side: str) -> bool:
        """Return True if b was given what a was, in the precision of b."""
        for x, y in self.sides(key, side):
            grafted = self.b.grafted(key, side)
            known = {*y} if side in _GRADIENTS_OF else {*y, *grafted}
            unknown = any(of.rounds and name not in known for name, of in x.items())
            if (unknown and not len(x) == len(y) == 1) or not _equal(x, y, grafted):
                return False
        return True

    def summed_alike(self, key: Key, name: str) -> bool:
        """Return False if the gradient of an input is in b not that of the tensor that it is of in a.

        A layout may give a module a tensor of its own, whose gradient is one term of what all readers add up.
        """
        alike = self.a.read_alike(key[0], key[2], name)
        own = self.b.gradient((key[0], key[2], name))  # a graft changes the content between two that read one tensor
        return all(self.b.gradient(place) == own != "" for place in alike if self.b.has((place[0], None, place[1])))

    def errors(self, key: Key, side: str, *, whole_numbers: bool = False) -> dict[str, list[_Error]]:
        """Return the errors of the tensors of a side, by name; of those of whole numbers only if asked."""
        found: dict[str, list[_Error]] = {}
        for x, y in self.sides(key, side):
            for name, (one, other) in _pairs(x, y).items():
                if one.numbers.shape == other.numbers.shape and (whole_numbers or one.rounds):
                    found.setdefault(name, []).append(_error(one, other))
        return found


def own_errors(
    a: Sequence[Bundle], b: Sequence[Bundle], wanted: Callable[[str], bool], sharing: Container[str] = ()
) -> list[OwnError]:
    """Return the errors of the modules that both runs kept, in the order of their first calls.

    Args:
        a, b: bundles of the ranks of each run.
        wanted: returns True for the modules that are looked at.
        sharing: modules whose inputs others read, too.
    """
    both = _Both(KeptBoundaries(a), KeptBoundaries(b))
    by_module: dict[str, list[Key]] = {}
    for key in both.a.keys:
        if both.b.has(key) and key[0] not in OF_NO_MODULE and wanted(key[0]):
            by_module.setdefault(key[0], []).append(key)
    outside = [*_outside(both)]  # first: its gradients tell how those of both runs are scaled
    weights = _weight_errors(both, by_module)
    given = {key: _given(both, key) for keys in by_module.values() for key in keys}
    sound = {module for module, keys in by_module.items() if all(all(given[key]) for key in keys)}
    found = [
        _of_module(module, {key: given[key] for key in keys}, both, weights, sound)
        for module, keys in by_module.items()
    ]
    found = [replace(each, backward=None, joint=each.backward) if each.module in sharing else each for each in found]
    return [*found, *outside, *_before_optimizer(both)]


def _flat(errors: Mapping[str, Sequence[_Error]]) -> list[_Error]:
    return [error for of_name in errors.values() for error in of_name]


def _outside(both: _Both) -> Iterator[OwnError]:
    keys = [key for key in both.a.outermost if both.b.has(key)]
    errors = [error for key in keys for error in _flat(both.errors(key, OUTPUT_GRADIENTS))]
    if errors and all(both.given(key, OUTPUTS) for key in keys):
        yield OwnError(OUTSIDE, None, _worst(errors), None, _coarsest(errors))


def _before_optimizer(both: _Both) -> Iterator[OwnError]:
    if both.a.given_to(OF_OPTIMIZER) != both.b.given_to(OF_OPTIMIZER):
        return  # a norm over all gradients is one over others
    of_weights = [key for key in both.a.keys if key[0] == OF_WEIGHTS and both.b.has((*key[:2], 0))][-1:]
    of_optimizer = [key for key in both.a.keys if key[0] == OF_OPTIMIZER and both.b.has(key)][:1]
    for key, then in zip(of_weights, of_optimizer, strict=False):
        if both.given(key, INPUTS):
            errors = _flat(both.errors(then, INPUTS))
            yield OwnError(BEFORE_OPTIMIZER, None, None, _worst(errors), _coarsest(errors))


def _given(both: _Both, key: Key) -> tuple[bool, bool]:
    """Return whether both runs gave a call the same: forward, and what its backward pass computes with, too."""
    given, entering = (both.given(key, side) for side in (INPUTS, OUTPUT_GRADIENTS))
    return given, given and entering and not both.b.rewritten(key)


def _of_module(
    module: str,
    given: Mapping[Key, tuple[bool, bool]],
    both: _Both,
    weights: Mapping[str, _Error],
    sound: Container[str],
) -> OwnError:
    forward: list[_Error] = []
    backward: list[_Error] = []
    for key, (before, behind) in given.items():
        if before:
            forward += _flat(both.errors(key, OUTPUTS))
        if behind:
            told = both.errors(key, INPUT_GRADIENTS)
            backward += _flat({name: of for name, of in told.items() if both.summed_alike(key, name)})
    for key, side, names in both.b.handed_in(module) if module in sound else ():
        of_side = forward if side == INPUTS else backward
        told = both.errors(key, side, whole_numbers=True)
        of_side += _flat({name: of for name, of in told.items() if name in names})
    of_weights = [weights[module]] if module in sound and module in weights else []
    begin = f"{module}."
    inner = [of for name, of in weights.items() if name.startswith(begin) and name not in sound]
    dtype = _coarsest([*forward, *backward, *of_weights])
    of_inner = _worst(inner) if module in sound else None
    return OwnError(module, _worst(forward), _worst(backward), _worst(of_weights), dtype, inner=of_inner)


def _coarsest(errors: Iterable[_Error]) -> str:
    dtypes = [error.dtype for error in errors]
    rounding = [name for name in dtypes if name.startswith(("float", "bfloat"))]
    return max(rounding or dtypes, key=lambda name: _EPSILON.get(name, 1.0), default="")


def _worst(errors: Sequence[_Error]) -> float | None:
    return max((error.in_epsilon for error in errors), default=None)


def _weight_errors(both: _Both, modules: Container[str]) -> dict[str, _Error]:
    """Return the errors of the gradients of weights after the last backward pass that both runs kept, by module.

    Of all weights of a module together: the gradient of one may be zero but for rounding, as that of the bias of keys.
    """
    keys = [key for key in both.a.keys if key[0] == OF_WEIGHTS and both.b.has((*key[:2], 0))]
    found: dict[str, list[_Error]] = {}
    for name, errors in both.errors(keys[-1], INPUTS).items() if keys else ():
        module = name.rpartition(".")[0]
        while module and module not in modules:
            module = module.rpartition(".")[0]
        found.setdefault(module, []).extend(errors)
    return {
        module: _Error(math.hypot(*(each.off for each in of)), math.hypot(*(each.size for each in of)), _coarsest(of))
        for module, of in found.items()
    }


def _equal(a: Side, b: Side, grafted: Collection[str]) -> bool:
    for name, (x, y) in _pairs(a, b).items():
        if name in grafted:
            continue
        rounded = x.numbers if x.dtype == y.dtype else _rounded(x.numbers, y.dtype)
        if rounded.shape != y.numbers.shape or not np.array_equal(rounded, y.numbers, equal_nan=True):
            return False
    return True


def _pairs(a: Side, b: Side) -> dict[str, tuple[Values, Values]]:
    """Return the tensors of both by their names; one alone also under another name."""
    if len(a) == len(b) == 1:
        return {next(iter(a)): (next(iter(a.values())), next(iter(b.values())))}
    return {name: (a[name], b[name]) for name in a if name in b}


def _error(x: Values, y: Values) -> _Error:
    """Return the error of y, infinite where NaN or Inf is in one alone, or other whole numbers are."""
    dtype = max(x.dtype, y.dtype, key=lambda name: _EPSILON.get(name, 0.0))
    one, other = x.numbers, y.numbers
    if not (x.rounds and y.rounds):
        return _Error(0.0 if np.array_equal(one, other) else math.inf, 1.0, dtype)
    finite = np.isfinite(one) & np.isfinite(other)
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return _Error(math.inf, 1.0, dtype)
    return _Error(float(np.linalg.norm((other - one)[finite])), float(np.linalg.norm(one[finite])), dtype)


def _rounded(values: NDArray[np.float64], dtype: str) -> NDArray[np.float64]:
    """Round numbers to a dtype as torch does: to the nearest, ties to even."""
    from matchers.tensor import to_bfloat16

    with np.errstate(over="ignore"):
        if dtype == "bfloat16":
            bits = to_bfloat16(values.astype(np.float32))
            return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return values.astype(dtype).astype(np.float64) if dtype in _EPSILON else values
