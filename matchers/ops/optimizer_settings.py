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
"""Name and content of a group, and settings that choose between implementations of the same update."""


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
    one, other = _by_parameter(of_a, of_b), _by_parameter(of_b, of_a)
    shared = [name for name in one if name in other]
    alike: dict[tuple[int, int], list[str]] = {}
    for name in shared:
        alike.setdefault((one[name], other[name]), []).append(name)
    found = []
    for setting in sorted(set().union(*of_a) & set().union(*of_b) - _FORMS):
        if shared:
            both = {at: (of_a[at[0]].get(setting), of_b[at[1]].get(setting)) for at in alike}
            apart = [at for at, values in both.items() if not _same(*values)]
            x, y = (_distinct(both[at][side] for at in apart) for side in (0, 1))
            whose = [name for at in apart for name in alike[at]] if len(apart) < len(alike) else []
        else:
            x, y = (_distinct(of[setting] for of in groups if setting in of) for groups in (of_a, of_b))
            only_a = [value for value in x if not any(_same(value, another) for another in y)]
            only_b = [value for value in y if not any(_same(value, another) for another in x)]
            x, y, whose = *((only_a or x, only_b or y) if only_a or only_b else ([], [])), []
        if x or y:
            found.append(SettingDifference(setting, _one(x), _one(y), tuple(whose)))
    return found


def _groups(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = run.get("optimizer_settings")
    return [dict(group) for group in found if isinstance(group, Mapping)] if isinstance(found, list) else []


def _by_parameter(groups: list[dict[str, Any]], others: list[dict[str, Any]]) -> dict[str, int]:
    """The number of each parameter's group, by canonical name; a single group without names has what others name."""
    alone = len(groups) == 1 and "names" not in groups[0]
    return {
        canonical(name): 0 if alone else k
        for k, group in enumerate(others if alone else groups)
        if isinstance(names := group.get("names"), list)
        for name in names
        if isinstance(name, str)
    }


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
