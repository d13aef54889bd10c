"""Settings of the optimizers that two runs stepped, as their run info tells them; untrusted, as all of a log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["optimizer_differences"]

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
        only_a, only_b = [value for value in x if value not in y], [value for value in y if value not in x]
        if only_a or only_b:
            found.append((name, _one(only_a or x), _one(only_b or y)))
    return sorted(found, key=lambda each: each[0])


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
