"""Messages of the capture to the user; they never end the run."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress

__all__ = ["describe", "printable", "say", "warn"]


def printable(text: str) -> str:
    """Return text in one line without anything that a terminal acts upon: names may have any characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def describe(error: BaseException) -> str:
    """Describe an exception in one line."""
    try:
        text = str(error).strip().splitlines()
    except Exception:  # noqa: BLE001 an exception of the program has any `__str__`
        text = []
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def say(message: str) -> None:
    """Write one line to standard error, if it can be written."""
    # what stands there may be anything that the program has put there
    with suppress(Exception):
        sys.stderr.write(f"numtui capture: {printable(message)}\n")
        sys.stderr.flush()


def warn(message: str) -> None:
    """Issue a RuntimeWarning, which programs can catch; where warnings raise, write to standard error."""
    try:
        warnings.warn(f"numtui capture: {printable(message)}", RuntimeWarning, stacklevel=3)
    except Exception:  # noqa: BLE001 a filter makes it an error, or the program shows warnings in its own way
        say(message)
