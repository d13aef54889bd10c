"""Files that a log cannot be: devices, which never end. Cheap to import, for the command line."""

from __future__ import annotations

import os
import stat

from matchers.errors import LogError

__all__ = ["refuse_device"]


def refuse_device(name: str, status: os.stat_result) -> None:
    """Refuse a device such as `/dev/zero`: not a pipe, nor `/dev/null`, which is an empty file.

    Raises:
        LogError: it is one.
    """
    if stat.S_ISBLK(status.st_mode) or (stat.S_ISCHR(status.st_mode) and not _is_null(status)):
        raise LogError(f"{name}: is a device, not a log: name a file, a pipe or a run folder")


def _is_null(status: os.stat_result) -> bool:
    try:
        return status.st_rdev == os.stat(os.devnull).st_rdev
    except OSError:
        return False
