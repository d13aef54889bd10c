"""Folder for the files of the campaign: in memory where possible, as millions of saves wear out a disk."""

from __future__ import annotations

import os

__all__ = ["fast_folder"]


def fast_folder() -> str | None:
    """A folder in memory; None where there is none, for the usual place of temporary files."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
