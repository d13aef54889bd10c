"""Own error of each module: what it gives in b and in a, where both were given the same.

A module gives its outputs, and what it makes itself for the modules that it calls, where these were grafted: what it
gives after that follows from a's values again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from capture.keeping.bundle import Bundle
from capture.keeping.form import INPUT_GRADIENTS, INPUTS, OUTPUT_GRADIENTS, OUTPUTS
from matchers.tensor import Tensor
from numtui.report.elements import read_whole

__all__ = ["BEFORE_OPTIMIZER", "OUTSIDE", "OwnError", "own_errors"]

_EPSILON: Final = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Distance of 1 to the next number, by dtype."""
_OF_WEIGHTS, _OF_OPTIMIZER = "gradients", "optimizer"
OUTSIDE, BEFORE_OPTIMIZER = "(outside modules)", "(before the optimizer)"
"""What no module does: a loss, by the gradients that enter the models; clipping, by what the optimizer is given."""


@dataclass(frozen=True)
class OwnError:
    """The largest error of a module over its calls, in ε of its dtype; None where its inputs differ or are not kept.

    Attributes:
        forward: of its outputs.
        backward: of the gradients of its inputs.
        weights: of the gradients of its weights.
        dtype: the coarser one of both runs.
    """

    module: str
    forward: float | None
    backward: float | None
    weights: float | None
    dtype: str

    @property
    def differs(self) -> bool:
        """True if any of them is not zero."""
        return any((self.forward, self.backward, self.weights))

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


Key = tuple[str, object, int]
Side = dict[str, Tensor]


class _Kept:
    """Kept boundaries of a run, of all its ranks."""

    def __init__(self, bundles: Sequence[Bundle]) -> None:
        self._calls: dict[Key, list[tuple[Path, Mapping[str, Any]]]] = {}
        for bundle in bundles:
            for call in bundle.boundaries:
                if not call["recompute"]:
                    key = call["module"], call["micro_batch"], call["nth"]
                    self._calls.setdefault(key, []).append((bundle.folder, call))

        self._made = {
            told["storage"]
            for of_key in self._calls.values()
            for _, call in of_key
            for side in (OUTPUTS, INPUT_GRADIENTS)
            for told in call.get(side, {}).values()
        }

    @property
    def keys(self) -> list[Key]:
        return list(self._calls)

    @property
    def outermost(self) -> list[Key]:
        named = (_OF_WEIGHTS, _OF_OPTIMIZER)
        return [key for key, of in self._calls.items() if of[0][1]["within"] is None and key[0] not in named]

    def grafted(self, key: Key, side: str) -> set[str]:
        """Return the names of the tensors of a side that were overwritten by those of the other run."""
        return {name for _, call in self._calls.get(key, ()) for name in call.get("grafted", {}).get(side, ())}

    def handed_in(self, module: str) -> Iterator[tuple[Key, str, set[str]]]:
        """Yield sides of calls that a module makes, with the names of the grafted tensors that it made itself."""
        for key, of_key in self._calls.items():
            for side in (INPUTS, OUTPUT_GRADIENTS):
                names = self.grafted(key, side)
                own = {
                    name
                    for _, call in of_key
                    if call["within"] == module
                    for name, told in call.get(side, {}).items()
                    if name in names and told["storage"] not in self._made
                }
                if own:
                    yield key, side, own

    def side(self, key: Key, side: str) -> Side:
        """Return the tensors of one side of a call, as far as the ranks' parts make wholes."""
        found: dict[str, list[tuple[Path, Mapping[str, Any]]]] = {}
        for folder, call in self._calls.get(key, ()):
            for name, told in call.get(side, {}).items():
                found.setdefault(name, []).append((folder, told))
        wholes = {name: read_whole(tuple(parts)) for name, parts in found.items()}
        return {name: whole for name, whole in wholes.items() if whole is not None and whole.is_float}


def own_errors(a: Sequence[Bundle], b: Sequence[Bundle], wanted: Callable[[str], bool]) -> list[OwnError]:
    """Return the errors of the modules that both runs kept, in the order of their first calls.

    Args:
        a, b: bundles of the ranks of each run.
        wanted: returns True for the modules that are looked at.
    """
    one, other = _Kept(a), _Kept(b)
    by_module: dict[str, list[Key]] = {}
    for key in one.keys:
        if key in other.keys and key[0] not in (_OF_WEIGHTS, _OF_OPTIMIZER) and wanted(key[0]):
            by_module.setdefault(key[0], []).append(key)
    weights = _weight_errors(one, other, by_module)
    found = [_of_module(module, keys, one, other, weights) for module, keys in by_module.items()]
    return [*found, *_outside(one, other), *_before_optimizer(one, other)]


def _outside(a: _Kept, b: _Kept) -> Iterator[OwnError]:
    keys = [key for key in a.outermost if key in b.keys]
    if keys and all(_equal(a.side(key, OUTPUTS), b.side(key, OUTPUTS), b.grafted(key, OUTPUTS)) for key in keys):
        pairs = [(a.side(key, OUTPUT_GRADIENTS), b.side(key, OUTPUT_GRADIENTS)) for key in keys]
        errors = [error for x, y in pairs for error in _errors(x, y).values()]
        if errors:
            yield OwnError(OUTSIDE, None, _worst(errors), None, _coarsest(errors))


def _before_optimizer(a: _Kept, b: _Kept) -> Iterator[OwnError]:
    of_weights = [key for key in a.keys if key[0] == _OF_WEIGHTS and key in b.keys][-1:]
    of_optimizer = [key for key in a.keys if key[0] == _OF_OPTIMIZER and key in b.keys][:1]
    for key, then in zip(of_weights, of_optimizer, strict=False):
        if _equal(a.side(key, INPUTS), b.side(key, INPUTS), b.grafted(key, INPUTS)):
            errors = [*_errors(a.side(then, INPUTS), b.side(then, INPUTS)).values()]
            yield OwnError(BEFORE_OPTIMIZER, None, None, _worst(errors), _coarsest(errors))


def _of_module(
    module: str, keys: Iterable[Key], a: _Kept, b: _Kept, weights: Mapping[str, Sequence[tuple[float, str]]]
) -> OwnError:
    forward: list[tuple[float, str]] = []
    backward: list[tuple[float, str]] = []
    sound = True
    for key in keys:
        given, entering = (
            _equal(a.side(key, side), b.side(key, side), b.grafted(key, side)) for side in (INPUTS, OUTPUT_GRADIENTS)
        )
        if given:
            forward += _errors(a.side(key, OUTPUTS), b.side(key, OUTPUTS)).values()
        if given and entering:
            backward += _errors(a.side(key, INPUT_GRADIENTS), b.side(key, INPUT_GRADIENTS)).values()
        sound &= given and entering
    for key, side, names in b.handed_in(module) if sound else ():
        found = _errors(a.side(key, side), b.side(key, side))
        of_side = forward if side == INPUTS else backward
        of_side += [error for name, error in found.items() if name in names]
    of_weights = weights.get(module, []) if sound else []
    dtype = _coarsest([*forward, *backward, *of_weights])
    return OwnError(module, _worst(forward), _worst(backward), _worst(of_weights), dtype)


def _coarsest(errors: Iterable[tuple[float, str]]) -> str:
    return max((dtype for _, dtype in errors), key=lambda name: _EPSILON.get(name, 1.0), default="")


def _worst(errors: Sequence[tuple[float, str]]) -> float | None:
    return max((error for error, _ in errors), default=None)


def _weight_errors(a: _Kept, b: _Kept, modules: Container[str]) -> dict[str, list[tuple[float, str]]]:
    """Return the errors of the gradients of weights after the last backward pass that both runs kept, by module."""
    keys = [key for key in a.keys if key[0] == _OF_WEIGHTS and key in b.keys]
    found: dict[str, list[tuple[float, str]]] = {}
    for name, error in _errors(a.side(keys[-1], INPUTS), b.side(keys[-1], INPUTS)).items() if keys else ():
        module = name.rpartition(".")[0]
        while module and module not in modules:
            module = module.rpartition(".")[0]
        found.setdefault(module, []).append(error)
    return found


def _equal(a: Side, b: Side, grafted: Collection[str]) -> bool:
    """Return True if b was given what a was, in the precision of b."""
    for name, (x, y) in _pairs(a, b).items():
        if name in grafted:
            continue
        rounded = _values(x) if x.dtype == y.dtype else _rounded(_values(x), y.dtype)
        if rounded.shape != _values(y).shape or not np.array_equal(rounded, _values(y), equal_nan=True):
            return False
    return True


def _pairs(a: Side, b: Side) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the tensors of both by their names; one alone also under another name."""
    if len(a) == len(b) == 1:
        return {next(iter(a)): (next(iter(a.values())), next(iter(b.values())))}
    return {name: (a[name], b[name]) for name in a if name in b}


def _errors(a: Side, b: Side) -> dict[str, tuple[float, str]]:
    return {name: _error(x, y) for name, (x, y) in _pairs(a, b).items() if x.bits.shape == y.bits.shape}


def _error(x: Tensor, y: Tensor) -> tuple[float, str]:
    """Return ‖y − x‖ / ‖x‖ in ε of the coarser dtype, and that; infinite where NaN or Inf is in one alone."""
    dtype = max(x.dtype, y.dtype, key=lambda name: _EPSILON.get(name, 0.0))
    one, other = _values(x), _values(y)
    finite = np.isfinite(one) & np.isfinite(other)
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return math.inf, dtype
    off = float(np.linalg.norm((other - one)[finite]))
    size = float(np.linalg.norm(one[finite]))
    return (0.0 if off == 0 else math.inf if size == 0 else off / size / _EPSILON.get(dtype, 2.0**-3)), dtype


def _values(tensor: Tensor) -> NDArray[np.float64]:
    assert tensor.values is not None
    return tensor.values.astype(np.float64)


def _rounded(values: NDArray[np.float64], dtype: str) -> NDArray[np.float64]:
    """Round numbers to a dtype as torch does: to the nearest, ties to even."""
    from matchers.tensor import to_bfloat16

    with np.errstate(over="ignore"):
        if dtype == "bfloat16":
            bits = to_bfloat16(values.astype(np.float32))
            return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return values.astype(dtype).astype(np.float64) if dtype in _EPSILON else values
