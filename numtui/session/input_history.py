"""History of typed lines by kind of prompt, for the arrow keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["TypedLines", "joined"]

_MAX_LINES = 50
"""Lines kept per kind."""


class TypedLines:
    """Lines of this session and earlier ones by kind, latest last."""

    def __init__(self) -> None:
        self.lines: Mapping[str, tuple[str, ...]] = {}

    def of(self, kind: str) -> tuple[str, ...]:
        """Return the lines of a kind."""
        return self.lines.get(kind, ())

    def add(self, kind: str, text: str) -> None:
        """Add a line, once; a blank one is skipped."""
        if text.strip():
            self.lines = joined(self.lines, {kind: (text,)})


def joined(older: Mapping[str, tuple[str, ...]], newer: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Merge two histories; each line once, at its latest place."""
    kinds = dict.fromkeys((*older, *newer))
    return {kind: _once((*older.get(kind, ()), *newer.get(kind, ()))) for kind in kinds}


def _once(lines: Iterable[str]) -> tuple[str, ...]:
    last_first = dict.fromkeys(reversed(tuple(lines)))
    return tuple(reversed(tuple(last_first)[:_MAX_LINES]))
