"""The folders of this user: settings, and state that outlives a session."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["config_folders", "state_folders"]


def config_folders() -> tuple[Path, ...]:
    """The folder of the settings, and, where earlier versions had another, that one too: it is read only."""
    import platformdirs  # 7 ms with what it imports, which no report needs

    return _folders(platformdirs.user_config_path("numtui"), "XDG_CONFIG_HOME", ".config")


def state_folders() -> tuple[Path, ...]:
    """The folder of sessions and unsaved rules, and an earlier one as `config_folders` has it."""
    import platformdirs

    return _folders(platformdirs.user_state_path("numtui"), "XDG_STATE_HOME", ".local/state")


def _folders(now: Path, variable: str, default: str) -> tuple[Path, ...]:
    base = os.environ.get(variable, "")
    # The specification wants a relative path to be ignored, which platformdirs before 4.11.8 does not.
    earlier = (Path(base) if base.startswith("/") else Path.home() / default) / "numtui"
    return tuple(folder for folder in dict.fromkeys((now, earlier)) if folder.is_absolute())
