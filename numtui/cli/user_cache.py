"""The user's cache of logs and reports, as environment and settings have it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from matchers.errors import InputError
from numtui.folders import cache_folder

if TYPE_CHECKING:
    from matchers.files.cache_folder import CacheFolder
    from numtui.inputs import OpenRequest

__all__ = ["OFF", "keep_for_later", "user_cache"]

OFF = "0"
"""Value of `NUMTUI_CACHE` that turns the cache off."""


def user_cache() -> CacheFolder | None:
    """Return the cache; None where the user has turned it off, or settings cannot be read (the explorer says why)."""
    if os.environ.get("NUMTUI_CACHE") == OFF:
        return None
    from matchers.files.cache_folder import CacheFolder
    from numtui.cli.config import load_config

    try:
        limit = load_config().cache
    except InputError:
        return None
    return CacheFolder(cache_folder(), limit) if limit else None


def keep_for_later(request: OpenRequest) -> None:
    """Store what was read and made, now that the user has it."""
    if request.cache is not None:
        request.cache.flush()
