"""Values of the JSON in a log's fields, which is untrusted text."""

from __future__ import annotations

import json
import math
import re
from typing import Any

__all__ = ["hex_digest", "integers", "named_integers", "number", "parsed", "parsed_object"]

_HEXADECIMAL = re.compile("[0-9a-fA-F]{1,16}")
_LARGEST = 1 << 62
"""JSON has integers of any size; no count, length or rank is as large."""


def parsed(raw: bytes | str) -> Any:
    """The value of a field; None if it is empty or broken."""
    try:
        return json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        return None


def parsed_object(raw: bytes | str) -> dict[str, Any] | None:
    """The object of a field; None for anything else."""
    value = parsed(raw)
    return value if isinstance(value, dict) else None


def integers(value: object, length: int | None = None) -> tuple[int, ...] | None:
    """A list of integers, of this length if one is given; None for anything else."""
    if not isinstance(value, list) or not all(map(_is_integer, value)):
        return None
    return tuple(value) if length in (None, len(value)) else None


def named_integers(value: object) -> dict[str, int]:
    """The integers of an object by their names; empty for anything else."""
    return {str(name): n for name, n in value.items() if _is_integer(n)} if isinstance(value, dict) else {}


def _is_integer(value: object) -> bool:
    return type(value) is int and -_LARGEST < value < _LARGEST


def number(value: object) -> float:
    """A number; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # JSON has integers of any size
        return math.nan


def hex_digest(value: object) -> int | None:
    """A digest of up to 16 hexadecimal digits; None for anything else."""
    return int(value, 16) if isinstance(value, str) and _HEXADECIMAL.fullmatch(value) else None
