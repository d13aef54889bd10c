"""User folders of settings, persistent state and the cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["cache_folder", "config_folders", "state_folders"]

_NOWHERE = Path("/nonexistent/numtui")
"""The home of users without one, by convention."""


def cache_folder() -> Path:
    """Return the folder of what was read before, beside other caches of this program."""
    import platformdirs

    return _folders(platformdirs.user_cache_path, "XDG_CACHE_HOME", ".cache")[0] / "known-logs"


def config_folders() -> tuple[Path, ...]:
    """Return the settings folder, then the read-only one of earlier versions if it differs."""
    import platformdirs  # 7 ms of imports that no report needs

    return _folders(platformdirs.user_config_path, "XDG_CONFIG_HOME", ".config")


def state_folders() -> tuple[Path, ...]:
    """Return the folder of sessions and unsaved rules, then an earlier one as in `config_folders`."""
    import platformdirs

    return _folders(platformdirs.user_state_path, "XDG_STATE_HOME", ".local/state")


def _folders(now: Callable[[str], Path], variable: str, default: str) -> tuple[Path, ...]:
    base = os.environ.get(variable, "")
    current = []
    with suppress(RuntimeError):  # newer versions refuse a user without a home
        current = [now("numtui")]
    # The specification ignores relative paths; platformdirs before 4.11.8 does not. `~` stays where a user unknown to
    # the system has no HOME: then there is no folder, which is told when something is to be written.
    earlier = Path(base if base.startswith("/") else os.path.expanduser(f"~/{default}")) / "numtui"
    return tuple(folder for folder in dict.fromkeys((*current, earlier)) if folder.is_absolute()) or (_NOWHERE,)
