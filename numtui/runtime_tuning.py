"""What Python and the C library do on their own and a person would notice, and what is done about it."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress

__all__ = ["forget_what_stays", "give_memory_back", "keep_what_is_there", "take_short_turns"]

_TURN = 5e-4
"""Seconds. Drawing a frame lets go of the interpreter some dozens of times, and each time a thread that computes may
keep it for so long: at Python's own 5 ms, a frame of 20 ms takes 200 while a job runs.
"""


def take_short_turns() -> None:
    """Threads that compute give way to the screen's soon."""
    sys.setswitchinterval(_TURN)


def keep_what_is_there() -> None:
    """What is in memory now stays, so the collector need not look through it again, for 50 ms each time."""
    gc.freeze()


def forget_what_stays() -> None:
    """The program is at its end, though perhaps not the process: the collector looks at everything again."""
    gc.unfreeze()


def give_memory_back() -> None:
    """Columns that are needed no more go back to the system, where the C library would keep them (that of GNU does).

    Before that, those that only a cycle holds: a worker that has ended is part of one, and its job of hundreds of MB.

    Takes some 0.1 s for a million operations: not for the screen's own thread.
    """
    import ctypes  # with numpy it is there; the first frame comes before that

    gc.collect()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
