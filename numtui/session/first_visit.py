"""Memory of a user's first visit to the explorer, kept beside the sessions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from numtui.folders import state_folders

__all__ = ["is_first_visit"]


def is_first_visit(folders: Sequence[Path] | None = None) -> bool:
    """Return True once per user, and record the visit.

    False too where it cannot be recorded: a tour must not come back every time.

    Args:
        folders: state folders, the one to write to first; by default the user's.
    """
    known = state_folders() if folders is None else folders
    try:
        # Who has sessions was here before visits were recorded.
        if not known or any((folder / name).exists() for folder in known for name in ("visited", "sessions")):
            return False
        known[0].mkdir(parents=True, exist_ok=True, mode=0o700)
        (known[0] / "visited").touch(mode=0o600, exist_ok=False)
    except OSError:
        return False
    return True
