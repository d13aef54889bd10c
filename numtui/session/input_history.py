"""What was typed as the answer to a question, by the kind of the question: the arrow keys bring it back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["TypedLines", "joined"]

_MAX_LINES = 50
"""Lines of a kind that are kept."""


class TypedLines:
    """The lines of a sitting and of those before it, the last one of each kind at the end."""

    def __init__(self) -> None:
        self.lines: Mapping[str, tuple[str, ...]] = {}

    def of(self, kind: str) -> tuple[str, ...]:
        """The lines of a kind."""
        return self.lines.get(kind, ())

    def add(self, kind: str, text: str) -> None:
        """Keep a line, once; a blank one is none."""
        if text.strip():
            self.lines = joined(self.lines, {kind: (text,)})


def joined(older: Mapping[str, tuple[str, ...]], newer: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The lines of both, each once, at its last place."""
    kinds = dict.fromkeys((*older, *newer))
    return {kind: _once((*older.get(kind, ()), *newer.get(kind, ()))) for kind in kinds}


def _once(lines: Iterable[str]) -> tuple[str, ...]:
    last_first = dict.fromkeys(reversed(tuple(lines)))
    return tuple(reversed(tuple(last_first)[:_MAX_LINES]))
