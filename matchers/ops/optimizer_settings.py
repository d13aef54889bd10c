"""Settings of the optimizers that two runs stepped, as their run info tells them; untrusted, as all of a log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from matchers.ops.json_values import number

__all__ = ["ROUNDING", "no_learning_rate", "optimizer_differences"]

ROUNDING = 2.0**-44
"""Relative difference of two numbers that Python computed in another order: a few hundred ε of its floats."""

_FORMS = frozenset({"optimizer", "parameters", "foreach", "fused", "capturable", "differentiable"})
"""Settings that choose between implementations of the same update."""


def optimizer_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Settings that the optimizers of both runs have and that differ: name, value in a, value in b.

    Of several parameter groups, the values that only one run has. Which parameters have them is not compared: that
    depends on the layout.
    """
    of_a, of_b = (_values(run) for run in (a, b))
    found = []
    for name in of_a.keys() & of_b.keys():
        x, y = of_a[name], of_b[name]
        only_a = [value for value in x if not any(_same(value, other) for other in y)]
        only_b = [value for value in y if not any(_same(value, other) for other in x)]
        if only_a or only_b:
            found.append((name, _one(only_a or x), _one(only_b or y)))
    return sorted(found, key=lambda each: each[0])


def no_learning_rate(run: Mapping[str, Any]) -> bool:
    """True if all optimizers that stepped had a learning rate of 0, as at the begin of a warm-up."""
    rates = _values(run).get("lr", [])
    return bool(rates) and all(number(rate) == 0 for rate in rates)


def _same(x: Any, y: Any) -> bool:
    if x == y:
        return True
    one, other = (value if isinstance(value, list) else [value] for value in (x, y))
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and all(math.isclose(number(v), number(w), rel_tol=ROUNDING) for v, w in pairs)


def _one(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _values(run: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The distinct values of each setting, in their order."""
    found: dict[str, list[Any]] = {}
    for group in run.get("optimizer_settings") or ():
        for name, value in group.items() if isinstance(group, Mapping) else ():
            if name not in _FORMS and value not in found.setdefault(str(name), []):
                found[name].append(value)
    return found
