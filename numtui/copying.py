"""What of a row can be copied by itself: the keys of its operations, and their source lines."""

from __future__ import annotations

from matchers.comparison import Comparison
from numtui.edits import Spot

__all__ = ["copies_of"]


def copies_of(c: Comparison, spot: Spot) -> list[tuple[str, str]]:
    """(what it is, the text) of the records of a and of b (-1: none), each text once; the key of a comes first."""
    sides = [(side, log, record) for (side, log), record in zip(c.logs, spot, strict=False) if record >= 0]
    found: dict[str, str] = {}
    for what, texts in (
        ("key", [(side, log.keys[record]) for side, log, record in sides]),
        ("source line", [(side, log.location_text(record)) for side, log, record in sides]),
    ):
        alike = len({text for _, text in texts}) < len(sides) or len(sides) == 1
        for side, text in texts:
            if text:
                found.setdefault(text, f"the {what}" if alike else f"{side}'s {what}")
    return [(what, text) for text, what in found.items()]
