"""A terminal that is usable after a crash of the interpreter: SIGSEGV, SIGABRT and the like, when no Python code runs.

The handler is C, as one in Python would wait for the interpreter that has crashed (`restore.c`; in the wheel, else
compiled at first use). Without a compiler the terminal stays as it is.
"""

from __future__ import annotations

import ctypes
import faulthandler
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from capture import native_library

__all__ = ["INSTALLED", "SOURCE", "restored_after_crash"]

SOURCE: Final = Path(__file__).with_name("restore.c")
INSTALLED: Final = native_library.installed(SOURCE)
"""The library in an installed wheel; None in a checkout."""

_OFF: Final = (2026, 1000, 1003, 1015, 1016, 1006, 1004, 2004, 2048)
"""Modes to reset: synchronised drawing, the mouse, focus, pastes and sizes that are reported."""
_RESTORED: Final = ("".join(f"\x1b[?{mode}l" for mode in _OFF) + "\x1b[0m\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h").encode()
"""Undoes all that Textual's driver sets; the keyboard protocol first, which each screen of a terminal has."""


@contextmanager
def restored_after_crash() -> Iterator[Callable[[], None] | None]:
    """Restore the terminal when the process crashes in the block, then print where; nothing has changed it before.

    Yields what restores it at once, for a process that exits without its own end; None where there is no library.
    """
    library = _library()
    traces = not faulthandler.is_enabled()
    if traces:
        faulthandler.enable(2, all_threads=False)
    if library is not None and not library.terminal_guard(
        _descriptor(sys.__stdin__), _descriptor(sys.__stderr__), _RESTORED
    ):
        library = None
    try:
        yield None if library is None else library.terminal_restore
    finally:
        if library is not None:
            library.terminal_release()
        if traces:
            faulthandler.disable()


def _descriptor(stream: TextIO | None) -> int:
    return -1 if stream is None else stream.fileno()


def _library() -> ctypes.CDLL | None:
    return native_library.attempt(SOURCE, INSTALLED)[0]
