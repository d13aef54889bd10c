"""Module names of both logs as shared numbers: equal numbers mean equal names on either side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from matchers.arrays import Bool, Int64
from matchers.ops.module_path import canonical, template

__all__ = ["ModuleNames", "NameColumns"]


@dataclass(frozen=True, slots=True)
class NameColumns:
    """Columns by module of a log, with one extra entry for "no module".

    Attributes:
        path, pattern: int64[m + 1], numbers of the canonical path and of its template; -1 for no module.
        place: int64[m + 1], number of the template's indices; -1 without indices.
        nameless: bool[m + 1], the log does not know the module.
    """

    path: Int64
    pattern: Int64
    place: Int64
    nameless: Bool


class ModuleNames:
    """The modules of logs `a` and `b`, in the order of their tables."""

    def __init__(self, a: Sequence[str], b: Sequence[str]) -> None:
        self._paths: dict[str, int] = {}
        self._patterns: dict[str, int] = {}
        self._places: dict[str, int] = {}
        self.a = self._numbered(len(a), enumerate(a))
        self.b = self._numbered(len(b), enumerate(b))

    @property
    def size(self) -> int:
        """Number of distinct paths."""
        return len(self._paths)

    def renamed(self, modules_a: Sequence[str], which: Iterable[int]) -> ModuleNames:
        """A copy with other names for some modules of a. All other names keep their numbers."""
        out = object.__new__(ModuleNames)
        out._paths, out._patterns, out._places = dict(self._paths), dict(self._patterns), dict(self._places)
        out.a = out._numbered(len(modules_a), ((at, modules_a[at]) for at in which), self.a)
        out.b = self.b
        return out

    def _numbered(self, size: int, modules: Iterable[tuple[int, str]], start: NameColumns | None = None) -> NameColumns:
        if start is None:
            none = np.full(size + 1, -1, np.int64)
            start = NameColumns(none, none, none, np.ones(size + 1, bool))
        out = NameColumns(start.path.copy(), start.pattern.copy(), start.place.copy(), start.nameless.copy())
        for at, name in modules:
            path = canonical(name)
            parts = template(path)
            out.path[at] = self._paths.setdefault(path, len(self._paths))
            out.pattern[at] = self._patterns.setdefault(parts.pattern, len(self._patterns))
            out.place[at] = self._places.setdefault(parts.place, len(self._places)) if parts.place else -1
            out.nameless[at] = not path
        return out
