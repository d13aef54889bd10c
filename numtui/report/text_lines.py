"""Lines of the text reports: colours, and wrapping to a width."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from numtui.text.safe import safe_text

__all__ = ["BOLD", "MAX_SENTENCE", "RED", "Paint", "list_lines", "wrapped"]

MAX_SENTENCE = 600
_WIDTH = 118
"""Line width. Longer sentences and lists are wrapped; keys and paths are never broken."""

_MAX_LINES = 12
"""Lines of a list of sentences."""

RED, BOLD, _OFF = "\x1b[31m", "\x1b[1m", "\x1b[0m"


class Paint:
    """Wraps text in ANSI colours, or returns it unchanged."""

    def __init__(self, color: bool) -> None:
        self._color = color

    def __call__(self, code: str, text: str) -> str:
        return f"{code}{text}{_OFF}" if self._color else text


def wrapped(text: str, first: str, rest: str, longest: int = MAX_SENTENCE) -> list[str]:
    """Wrap a sentence or list to the width, with an indent for the first and for the other lines."""
    return textwrap.wrap(
        safe_text(text, longest),
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def list_lines(heading: str, sentences: Sequence[str], indent: int = 2) -> Iterator[str]:
    """Yield a blank line, the heading and the sentences, whose further lines are indented; nothing for none."""
    if not sentences:
        return
    yield ""
    yield heading
    for sentence in sentences[:_MAX_LINES]:
        yield from wrapped(sentence, "  ", "  " + " " * indent)
    if len(sentences) > _MAX_LINES:
        yield f"  ... and {len(sentences) - _MAX_LINES:,} more"
