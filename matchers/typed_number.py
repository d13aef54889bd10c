"""A number as a person types it: what Python reads beyond that (`1_0`, other scripts' digits, blanks) is a mistake."""

from __future__ import annotations

import math
import re

__all__ = ["typed_number"]

_NUMBER = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf)", re.IGNORECASE)


def typed_number(text: str) -> float:
    """The number of a text, infinity included; NaN if it is none."""
    return float(text) if _NUMBER.fullmatch(text) else math.nan
