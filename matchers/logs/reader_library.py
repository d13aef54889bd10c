"""The compiled reader of records, if it can be had. Standard library only, for `numtui --version`.

It is that of the installed wheel, or is compiled at first use (`capture.native_library`), also where that of the wheel
is damaged. It knows nothing of Python: one library serves all versions, and other threads run while it reads.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from threading import Lock

from capture import native_library

__all__ = ["INSTALLED", "SOURCE", "available", "library", "notice"]

SOURCE = Path(__file__).with_name("reader.c")
INSTALLED = native_library.installed(SOURCE)
"""The library in an installed wheel; None in a checkout."""
_ONE_AT_A_TIME = Lock()


def library() -> tuple[ctypes.CDLL | None, str]:
    """Return the compiled reader, or None and the reason. A process tries once."""
    with _ONE_AT_A_TIME:  # of two logs that are read side by side, one compiles it
        return native_library.attempt(SOURCE, INSTALLED)


def available() -> str:
    """`compiled` or `plain`: the reader that logs would be read by. Nothing is compiled or loaded for it."""
    installed = INSTALLED is not None and native_library.is_intact(INSTALLED)
    return "compiled" if installed or native_library.has_compiler() else "plain"


def notice() -> str:
    """Return what slows reading down here; empty where the compiled reader is in use."""
    found, problem = library()
    if found is not None:
        return ""
    return f"logs are read by the plain reader, which takes thirty times as long, of JSON up to five times: {problem}"
