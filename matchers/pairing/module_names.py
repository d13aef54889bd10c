"""Module names of both logs as shared numbers: equal numbers mean equal names on either side."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from matchers.arrays import Bool, Int32, Int64, columns
from matchers.ops.module_path import canonical, template

__all__ = ["ModuleNames", "NameColumns", "Words"]

_WORD = re.compile("[a-z]+|[0-9]+")
_WORD_EDGES = (30.0, 50.0, 70.0)
"""Edges of the bins of the similarity of two paths' words, in percent."""
_COMPARED = 1 << 16
"""Largest number of pairs of names whose words are compared."""


@columns
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


@columns
class Words:
    """Similarity of the words of two modules' names.

    Attributes:
        at_a, at_b: int64[patterns + 1], place of a pattern in the table; the last one for a name that both logs have,
            and for no name.
        table: int64, bins of the similarity: 0 to 3 the more alike; 4 in the last row and column, not compared.
    """

    at_a: Int64
    at_b: Int64
    table: Int64

    def bins(self, pattern_a: Int32, pattern_b: Int32) -> Int64:
        """The bins of pairs of patterns."""
        return np.asarray(self.table[self.at_a[pattern_a], self.at_b[pattern_b]])


def _positions(patterns: Sequence[int], size: int) -> Int64:
    """int64[size + 1], position of each number in a list; the list's length where it is not in it."""
    out = np.full(size + 1, len(patterns), np.int64)
    out[list(patterns)] = np.arange(len(patterns))
    return out


def _words(pattern: str) -> str:
    """`layers.{}.self_attn.q_proj` as `layers self attn q proj`."""
    return " ".join(_WORD.findall(pattern.lower()))


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

    @cached_property
    def words(self) -> Words:
        """The similarity of the words of names that only one log has."""
        here, there = (sorted({*side.pattern.tolist()} - {-1}) for side in (self.a, self.b))
        only_a, only_b = sorted({*here} - {*there}), sorted({*there} - {*here})
        bins = np.full((len(only_a) + 1, len(only_b) + 1), len(_WORD_EDGES) + 1, np.int64)
        if only_a and only_b and len(only_a) * len(only_b) <= _COMPARED:
            from rapidfuzz import fuzz, process  # for two implementations only

            text = [_words(pattern) for pattern in self._patterns]
            alike = process.cdist([text[k] for k in only_a], [text[k] for k in only_b], scorer=fuzz.token_set_ratio)
            bins[:-1, :-1] = np.digitize(alike, _WORD_EDGES)
        return Words(_positions(only_a, len(self._patterns)), _positions(only_b, len(self._patterns)), bins)

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
        columns = [start.path.tolist(), start.pattern.tolist(), start.place.tolist(), start.nameless.tolist()]
        for at, name in modules:
            path = canonical(name)
            parts = template(path)
            for column, value in zip(
                columns,
                (
                    self._paths.setdefault(path, len(self._paths)),
                    self._patterns.setdefault(parts.pattern, len(self._patterns)),
                    self._places.setdefault(parts.place, len(self._places)) if parts.place else -1,
                    not path,
                ),
                strict=True,
            ):
                column[at] = value
        return NameColumns(*map(np.array, columns))
