"""What makes a program in Python stop for longer than a frame, though nobody asked it to, and what helps."""

from __future__ import annotations

import gc
import sys

__all__ = ["forget_what_stays", "keep_what_is_there", "take_short_turns"]

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
