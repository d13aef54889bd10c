"""Keys that are pressed with the mouse."""

from __future__ import annotations

from typing import Any, Final

from textual import events
from textual.app import App

from numtui.actions import key_name
from numtui.tui.textual_shims import pass_on

__all__ = ["press"]

_NAMES: Final = {"esc": "escape", "→": "right", "←": "left", "↓": "down", "↑": "up"}


def press(app: App[Any], keys: str) -> None:
    """Press keys, as they are written on the screen: `enter`, `^s`, `→`, the sequence `z z`."""
    for key in keys.split():
        name = f"ctrl+{key[1:]}" if key[0] == "^" and key[1:] else _NAMES.get(key, key_name(key))
        pass_on(app, events.Key(name, key if len(key) == 1 else None))
