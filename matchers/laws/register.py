"""The law of each operation by its name: torch's own facts, then what a reviewer knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from matchers.laws.law import Law
from matchers.laws.reviewed import REVIEWED

__all__ = ["ADDS_TO", "known", "law"]

ADDS_TO: Final = "add_"
"""The operation that adds a tensor to another in place."""

_FACTS: Final = Path(__file__).with_name("torch_operations.txt")
_LISTS: Final = "_foreach_"
_FLAGS: Final = {
    "pointwise": "pointwise",
    "random": "random",
    "lists": "on_lists",
    "shaped-by-data": "data_decides",
    "constant": "blind",
    "tensors-alone": "determined",
}
"""Facts of torch by the attribute of a law that they are."""
_HANDED_DOWN: Final = (
    *("form", "pointwise", "passes_on", "aliases", "casts", "selects", "random", "nondeterministic", "blind"),
    *("factor", "of_scores", "amplifies"),
)
"""Attributes that an operation on lists, or in place, shares with the one of its base name."""


@cache
def law(name: str) -> Law:
    """Return the law of an operation: `mm`, `add_`, `_foreach_add_`; without its namespace and overload.

    A name whose overloads disagree has the careful default. An operation that nobody knows writes to its first tensor
    if its name ends like that of torch's operations in place.
    """
    base = _base(name)
    found = dict[str, Any](base=base)
    if base != name:
        of = law(base)
        found |= {attribute: getattr(of, attribute) for attribute in _HANDED_DOWN}
    if name.startswith(_LISTS):  # a position is that of a tensor, not of a list
        found |= {"passes_on": None, "aliases": False, "factor": None}
    told = _facts().get(name)
    if told is None:
        found |= {"writes": (0,)} if name.endswith("_") and not name.endswith("__") else {}
    else:
        found |= _attributes(told.split())
    # a kernel that adds up may do so in another order each time
    found["determined"] = found.get("determined", False) and found.get("pointwise", False)
    return replace(Law(**found), **_reviewed().get(name, {}))


def known() -> frozenset[str]:
    """Return the names of all operations in the register."""
    return frozenset((*_facts(), *_reviewed()))


def _base(name: str) -> str:
    """The name without the marks of lists and of writing in place."""
    base = name.removeprefix(_LISTS)
    return base[:-1] if base.endswith("_") and not base.endswith("__") else base


def _attributes(facts: list[str]) -> dict[str, Any]:
    """The attributes of a law that torch's facts tell."""
    found: dict[str, Any] = {}
    for fact in facts:
        name, _, value = fact.partition("=")
        if name in _FLAGS:
            found[_FLAGS[name]] = True
        elif name == "writes":
            found["writes"] = (*found.get("writes", ()), int(value))
        elif name == "view":
            found |= {"passes_on": int(value), "aliases": True}
    return found


@cache
def _facts() -> Mapping[str, str]:
    """The facts of each operation by its name; where several namespaces have it, torch's own counts."""
    lines = [line.partition(" ") for line in _FACTS.read_text("ascii").splitlines() if "::" in line.partition(" ")[0]]
    lines.sort(key=lambda line: line[0].startswith("aten::"))
    return {name.partition("::")[2]: told for name, _, told in lines}


@cache
def _reviewed() -> Mapping[str, Mapping[str, Any]]:
    """The facts that reviewers know, by the name of the operation; a later entry adds to an earlier one."""
    found: dict[str, dict[str, Any]] = {}
    for entry in REVIEWED:
        for name in entry.names.split():
            found.setdefault(name, {}).update(entry.attributes)
    return found
