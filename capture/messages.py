"""Messages of the capture to the user; they never end the run."""

from __future__ import annotations

import sys
import warnings

__all__ = ["describe", "say", "warn"]


def describe(error: BaseException) -> str:
    """Describe an exception in one line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def say(message: str) -> None:
    """Write one line to standard error, if it is still open."""
    try:
        sys.stderr.write(f"numtui capture: {message}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass


def warn(message: str) -> None:
    """Issue a RuntimeWarning, which programs can catch; where warnings are errors, write to standard error."""
    try:
        warnings.warn(f"numtui capture: {message}", RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        say(message)
