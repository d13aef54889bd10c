"""Values of a run info in words; what the log keeps private of them is a digest."""

from __future__ import annotations

import json

from capture.log_format import PRIVATE, private

__all__ = ["is_private", "same_value", "shown"]

_MAX_LENGTH = 80
_MASK = "***"
"""Mask of any secret in older logs."""


def is_private(value: object) -> bool:
    """True of a text that has a digest in place of something private."""
    return isinstance(value, str) and PRIVATE.search(value) is not None


def same_value(x: object, y: object) -> bool:
    """True if one run keeps private what the other says: an older log, or a path that only one machine has."""
    for said, kept in ((x, y), (y, x)):
        digest = PRIVATE.search(kept) if isinstance(kept, str) else None
        if digest and isinstance(said, str) and not is_private(said):
            at = digest.start()
            return said[:at] == digest.string[:at] and (said[at:] == _MASK or private(said[at:]) == digest[0])
    return False


def shown(value: object) -> str:
    """Return a value as text, cut to what fits into a sentence."""
    if value is None or value == {} or value == []:
        return "not set"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = PRIVATE.sub("(private)", text)
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…"
