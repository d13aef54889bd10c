"""Gradients that one run lacks: of what a module is given, and of weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capture.keeping.bundle import Bundle
from capture.keeping.form import INPUT_GRADIENTS, INPUTS, OF_NO_MODULE, OF_OPTIMIZER, OUTPUT_GRADIENTS

__all__ = ["LostGradients", "lost_gradients"]


@dataclass(frozen=True)
class LostGradients:
    """Parts of gradients that b lacks and a has.

    Attributes:
        cut_in: modules in which a gradient ends in b alone: of what they give another module, or take from it.
        weights: modules with weights of which the optimizer of one run alone was given a gradient.
    """

    cut_in: Sequence[str] = ()
    weights: frozenset[str] = frozenset()


def lost_gradients(a: Iterable[Bundle], b: Iterable[Bundle]) -> LostGradients:
    """Compare the boundaries that both runs kept."""
    of_a, of_b = _first_calls(a), _first_calls(b)
    lost = {key for key, call in of_a.items() if key in of_b and _loses(call, of_b[key])}
    losing = {module for module, _ in lost}
    within = (of_a[key]["within"] for key in of_a if key in lost)
    cut_in = tuple(module for module in dict.fromkeys(within) if module is not None and module not in losing)
    one, other = ({name for key, call in of.items() if key[0] == OF_OPTIMIZER for name in call.get(INPUTS, ())}
                  for of in (of_a, of_b))  # fmt: skip
    differ = one ^ other if one and other else ()
    return LostGradients(cut_in, frozenset(name.rpartition(".")[0] for name in differ))


def _first_calls(bundles: Iterable[Bundle]) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Return the calls of one rank in one micro-batch, by module and number."""
    found: dict[tuple[str, int], Mapping[str, Any]] = {}
    for bundle in bundles:
        for call in bundle.boundaries:
            if not call["recompute"] and not call.get("missed"):
                found.setdefault((call["module"], call["nth"]), call)
    return found


def _loses(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Return True if b lacks the gradient of an output, or that of an input though it has the input."""
    if a["module"] in OF_NO_MODULE:
        return False
    behind, before = (set(a.get(side, ())) - set(b.get(side, ())) for side in (OUTPUT_GRADIENTS, INPUT_GRADIENTS))
    return bool(behind) or not before.isdisjoint(b.get(INPUTS, ()))
