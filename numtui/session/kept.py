"""Comparisons of the logs that were looked at last, to return to them without reading and comparing anew."""

from __future__ import annotations

from threading import Lock

from matchers.comparison import Comparison
from numtui.inputs import OpenRequest

__all__ = ["KeptComparisons", "Stamps"]

_NUMBER = 4
_RECORDS = 2_000_000
"""Records of all of them, at about 1 KB each; the last one is kept at any size."""

Stamps = tuple[tuple[int, int], ...]
"""Size and modification time (ns) of each log."""


class KeptComparisons:
    """The last few comparisons by the paths of their logs; any thread may call it."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[Comparison, Stamps]] = {}
        self._lock = Lock()

    def keep(self, request: OpenRequest, comparison: Comparison, stamps: Stamps) -> None:
        """Keep the comparison of logs that were read when they had these stamps; the oldest ones go."""
        with self._lock:
            self._kept.pop((request.path_a, request.path_b), None)
            self._kept[request.path_a, request.path_b] = comparison, stamps
            while len(self._kept) > 1 and (len(self._kept) > _NUMBER or self._records > _RECORDS):
                del self._kept[next(iter(self._kept))]

    @property
    def _records(self) -> int:
        return sum(len(log) for comparison, _ in self._kept.values() for _, log in comparison.logs)

    def find(self, request: OpenRequest, stamps: Stamps) -> Comparison | None:
        """Return the comparison of these logs; None if there is none, or they have changed since."""
        with self._lock:
            comparison, read = self._kept.get((request.path_a, request.path_b), (None, ()))
        return comparison if read == stamps else None
