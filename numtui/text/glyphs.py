"""Glyph, style and word of each status, for the screen and the HTML report."""

from __future__ import annotations

from typing import Final

from matchers.status import Status

__all__ = ["GLYPHS", "STYLES", "WITHOUT_ERROR", "WORDS"]

GLYPHS: Final[dict[Status, str]] = {
    Status.PENDING: " ",
    Status.EQUAL: "≡",
    Status.SAME_PRINT: "=",
    Status.CLOSE: "≈",
    Status.SHARDED: "∥",
    Status.UNFINISHED: "…",
    Status.PARTIAL: "Σ",
    Status.NO_VALUES: "∅",
    Status.NOT_JUDGED: "?",
    Status.RECOMPUTE: "↻",
    Status.IGNORED: "·",
    Status.ONLY_A: "◀",
    Status.ONLY_B: "▶",
    Status.SHAPE: "≠",
    Status.DIVERGED: "✗",
    Status.NAN: "!",
}

STYLES: Final = {
    Status.CLOSE: "close",
    Status.ONLY_A: "alone",
    Status.ONLY_B: "alone",
    Status.SHAPE: "red",
    Status.DIVERGED: "red",
    Status.NAN: "red",
    Status.PENDING: "",
}
"""Names of styles; statuses without one are dimmed."""

WORDS: Final[dict[Status, str]] = {
    Status.SHAPE: "red",
    Status.DIVERGED: "red",
    Status.NAN: "red",
    Status.CLOSE: "close",
    Status.EQUAL: "equal",
    Status.SAME_PRINT: "equal",
    Status.ONLY_A: "only one side",
    Status.ONLY_B: "only one side",
    Status.SHARDED: "not judged",
    Status.UNFINISHED: "not judged",
    Status.PARTIAL: "not judged",
    Status.NO_VALUES: "not judged",
    Status.NOT_JUDGED: "not judged",
    Status.RECOMPUTE: "recompute",
    Status.IGNORED: "ignored",
    Status.PENDING: "",
}
"""The seven words of the screen, in its order; reports have the finer labels of `Status`."""

WITHOUT_ERROR: Final = frozenset(s for s in Status if WORDS[s] in ("not judged", "ignored"))
"""Statuses of rows whose error, if there is one, says nothing: memory not filled yet, a share, a partial sum."""
