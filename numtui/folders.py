"""User folders of settings and persistent state."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["config_folders", "state_folders"]


def config_folders() -> tuple[Path, ...]:
    """Return the settings folder, then the read-only one of earlier versions if it differs."""
    import platformdirs  # 7 ms of imports that no report needs

    return _folders(platformdirs.user_config_path("numtui"), "XDG_CONFIG_HOME", ".config")


def state_folders() -> tuple[Path, ...]:
    """Return the folder of sessions and unsaved rules, then an earlier one as in `config_folders`."""
    import platformdirs

    return _folders(platformdirs.user_state_path("numtui"), "XDG_STATE_HOME", ".local/state")


def _folders(now: Path, variable: str, default: str) -> tuple[Path, ...]:
    base = os.environ.get(variable, "")
    # The specification ignores relative paths; platformdirs before 4.11.8 does not.
    earlier = (Path(base) if base.startswith("/") else Path.home() / default) / "numtui"
    return tuple(folder for folder in dict.fromkeys((now, earlier)) if folder.is_absolute())
