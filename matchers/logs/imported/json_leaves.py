"""Leaves of nested lists and dicts of JSON, such as the tensors among arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["leaves"]


def _none(_: Mapping[str, Any]) -> bool:
    return False


def leaves(value: Any, is_leaf: Callable[[Mapping[str, Any]], bool] = _none) -> list[Any]:
    """Return what is neither a list nor a dict, in order, without nulls; without recursion, as a file may nest deep.

    Args:
        is_leaf: tells which dicts are returned rather than entered.
    """
    found = []
    stack = [value]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind is list:
            stack += item[::-1]
        elif kind is not dict:
            if item is not None:
                found.append(item)
        elif is_leaf(item):
            found.append(item)
        elif item:
            stack += [*item.values()][::-1]
    return found
