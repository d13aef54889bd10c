"""Settings of the optimizers that two runs stepped, as their run info tells them; untrusted, as all of a log."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from matchers.ops.arguments import ROUNDING, ArgumentDifference
from matchers.ops.json_values import number
from matchers.ops.module_path import canonical

__all__ = ["SettingDifference", "no_learning_rate", "optimizer_differences"]

_FORMS = frozenset({"optimizer", "parameters", "names", "foreach", "fused", "capturable", "differentiable"})
"""What a group is called and holds, and settings that choose between implementations of the same update."""


@dataclass(frozen=True)
class SettingDifference(ArgumentDifference):
    """A setting of the optimizers that differs.

    Attributes:
        parameters: canonical names of those that it is set for; empty if unknown, or for all that both runs have.
    """

    parameters: tuple[str, ...] = ()

    @property
    def whose(self) -> str:
        """` for norm.weight and 3 more parameters`; empty if it is set for all."""
        if not self.parameters:
            return ""
        more = len(self.parameters) - 1
        return f" for {self.parameters[0]}" + (f" and {more:,} more parameter{'s' * (more > 1)}" if more else "")

    @property
    def text(self) -> str:
        return super().text + self.whose


def optimizer_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[SettingDifference]:
    """Settings that the optimizers of both runs have and that differ, by the parameters that both name.

    Without names, the values that only one run has: which parameters have them is not compared.
    """
    of_a, of_b = _groups(a), _groups(b)
    settings = set().union(*of_a) & set().union(*of_b) - _FORMS
    one, other = _by_parameter(of_a, of_b), _by_parameter(of_b, of_a)
    shared = [name for name in one if name in other]
    found = []
    for setting in sorted(settings):
        if shared:
            both = {name: (one[name].get(setting), other[name].get(setting)) for name in shared}
            parameters = [name for name, values in both.items() if not _same(*values)]
            x, y = (_distinct(both[name][side] for name in parameters) for side in (0, 1))
            whose = tuple(parameters) if len(parameters) < len(shared) else ()
        else:
            x, y = (_distinct(of[setting] for of in groups if setting in of) for groups in (of_a, of_b))
            only_a = [value for value in x if not any(_same(value, another) for another in y)]
            only_b = [value for value in y if not any(_same(value, another) for another in x)]
            x, y, whose = *((only_a or x, only_b or y) if only_a or only_b else ([], [])), ()
        if x or y:
            found.append(SettingDifference(setting, _one(x), _one(y), whose))
    return found


def _groups(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = run.get("optimizer_settings")
    return [dict(group) for group in found if isinstance(group, Mapping)] if isinstance(found, list) else []


def _by_parameter(groups: list[dict[str, Any]], others: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The group of each parameter by its canonical name; of a single group without names, of those that others name."""
    named = others if len(groups) == 1 and "names" not in groups[0] else groups
    found = {
        canonical(name): k
        for k, group in enumerate(named)
        if isinstance(names := group.get("names"), list)
        for name in names
        if isinstance(name, str)
    }
    return {name: groups[k if named is groups else 0] for name, k in found.items()}


def _distinct(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def no_learning_rate(run: Mapping[str, Any]) -> bool:
    """True if all optimizers that stepped had a learning rate of 0, as at the begin of a warm-up."""
    rates = [group["lr"] for group in _groups(run) if "lr" in group]
    return bool(rates) and all(number(rate) == 0 for rate in rates)


def _same(x: Any, y: Any) -> bool:
    if x == y:
        return True
    one, other = (value if isinstance(value, list) else [value] for value in (x, y))
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and all(math.isclose(number(v), number(w), rel_tol=ROUNDING) for v, w in pairs)


def _one(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values
