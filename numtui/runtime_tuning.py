"""GC, allocator and thread-switch tuning for a responsive UI, and for reports."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress

__all__ = ["forget_what_stays", "give_memory_back", "keep_all_until_the_end", "keep_what_is_there", "take_short_turns"]

_TURN = 5e-4
"""Thread switch interval in seconds. Drawing a frame releases the GIL dozens of times, and a computing thread may keep
it this long each time: at Python's default of 5 ms, a frame of 20 ms takes 200 ms while a job runs.
"""


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_KEPT, _LARGE = 256 << 20, 32 << 20
"""Bytes of freed memory that glibc keeps, and of a column that it returns to the system at once."""


def keep_all_until_the_end() -> None:
    """Collect no cycles and keep freed columns for the next ones, in a process that makes one report.

    Memory that glibc gives back costs a page fault every 4 KiB when it is wanted again.
    """
    import ctypes

    gc.disable()
    with suppress(AttributeError, OSError):
        glibc = ctypes.CDLL(None)
        glibc.mallopt(_M_TRIM_THRESHOLD, _KEPT)
        glibc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
        glibc.mallopt(_M_ARENA_MAX, 1)  # what a thread frees is there for all


def take_short_turns() -> None:
    """Shorten the thread switch interval, so that computing threads yield to the screen soon."""
    sys.setswitchinterval(_TURN)


def keep_what_is_there() -> None:
    """Freeze all live objects, so that no collection spends 50 ms on them again."""
    gc.freeze()


def forget_what_stays() -> None:
    """Unfreeze all objects at the end of the program; the process may live on."""
    gc.unfreeze()


def give_memory_back() -> None:
    """Return freed columns to the system; glibc would keep their memory.

    Collects cycles first: a finished worker is part of one, with its job of hundreds of MB.

    Takes about 0.1 s for a million operations: not for the screen's own thread.
    """
    import ctypes  # numpy imports it anyway, but only after the first frame

    gc.collect()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
