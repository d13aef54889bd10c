"""What lies in nested lists and dicts of JSON, such as the tensors among arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["leaves"]


def _none(_: Mapping[str, Any]) -> bool:
    return False


def leaves(value: Any, is_leaf: Callable[[Mapping[str, Any]], bool] = _none) -> Iterator[Any]:
    """Yield what is neither a list nor a dict, in order, without nulls; without recursion, as a file may nest deep.

    Args:
        is_leaf: tells which dicts are yielded rather than entered.
    """
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack.extend(reversed(item))
        elif isinstance(item, dict) and not is_leaf(item):
            stack.extend(reversed(item.values()))
        elif item is not None:
            yield item
