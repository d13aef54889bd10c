"""What the capture says to the person who started the run. Neither way of saying it can end the run."""

from __future__ import annotations

import sys
import warnings

__all__ = ["say", "warn"]


def say(message: str) -> None:
    """One line on standard error, whatever became of that."""
    try:
        sys.stderr.write(f"numtui capture: {message}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass


def warn(message: str) -> None:
    """A RuntimeWarning, so that a program can see it; where warnings are errors, a line on standard error."""
    try:
        warnings.warn(f"numtui capture: {message}", RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        say(message)
