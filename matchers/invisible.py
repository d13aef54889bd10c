"""Characters that a reader cannot see: two names that differ by one look equal.

Python's `unicodedata` has the general categories and not this property, so its ranges stand here.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["DEFAULT_IGNORABLE", "is_visible"]

DEFAULT_IGNORABLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""The property Default_Ignorable_Code_Point, of DerivedCoreProperties.txt of Unicode 14.0 to 16.0."""


def is_visible(text: str) -> bool:
    """True if no character of a text is a control character or without width; a space is visible."""
    return text.isprintable() and (text.isascii() or DEFAULT_IGNORABLE.search(text) is None)
