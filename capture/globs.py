"""Patterns of module paths."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

__all__ = ["inside"]


def inside(module: str, globs: Iterable[str]) -> bool:
    """Return True if a module, or one that it is in, matches one of the patterns."""
    return any(fnmatchcase(module, glob) or fnmatchcase(module, glob + ".*") for glob in globs)
