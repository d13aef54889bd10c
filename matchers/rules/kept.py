"""Results that are kept for the next call, as many as are worth their memory."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Kept"]

_T = TypeVar("_T")


class Kept(Generic[_T]):
    """Results by what they were made of. When they weigh more than `most` together, all of them are forgotten."""

    __slots__ = ("_found", "_most", "_taken")

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._found: dict[Hashable, _T] = {}

    def get(self, key: Hashable) -> _T | None:
        """The result of a key; None if it is not kept."""
        return self._found.get(key)

    def put(self, key: Hashable, result: _T, weight: int = 1) -> _T:
        """Keep a result, and return it."""
        self._taken += weight
        if self._taken > self._most:
            self._found.clear()
            self._taken = weight
        self._found[key] = result
        return result
