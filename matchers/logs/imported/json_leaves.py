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
        elif kind is dict and not is_leaf(item):
            stack.extend(reversed(item.values()))
        elif item is not None:
            found.append(item)
    return found
