"""Copy a pipe to a file while the keyboard can end it: who writes the log may be slow, or never come."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from numtui.terminal.tty import is_terminal

__all__ = ["copied"]

_PIECE = 1 << 20
_SILENCE = 500
"""Milliseconds without a byte after which the user is told what is waited for."""


def copied(source: int, out: BinaryIO, name: str) -> None:
    """Copy what comes from a descriptor, until its end; a FIFO opened without blocking waits for its first writer.

    Raises:
        KeyboardInterrupt: by `q` or Ctrl-C.
        OSError: it cannot be read, or the copy not be written.
    """
    with _keys() as keyboard:
        waiting = select.poll()
        waiting.register(source, select.POLLIN)
        if keyboard >= 0:
            waiting.register(keyboard, select.POLLIN)
        told = False
        while True:
            ready = dict(waiting.poll(_SILENCE))
            if keyboard in ready and os.read(keyboard, 1) in (b"q", b"\x03", b""):
                raise KeyboardInterrupt
            if source in ready:
                if not (data := os.read(source, _PIECE)):
                    return
                out.write(data)
            elif not ready and not told:
                told = True
                sys.stderr.write(f"numtui: waiting for {name} (q gives up)\n")


@contextmanager
def _keys() -> Iterator[int]:
    """Make the keyboard give each key at once; -1 without one."""
    keyboard = 0
    if not is_terminal(sys.__stdin__):
        try:
            keyboard = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            yield -1
            return
    before = None
    try:
        if keyboard >= 0:
            with suppress(OSError, termios.error):
                before = termios.tcgetattr(keyboard)
                tty.setcbreak(keyboard)
        yield keyboard if before is not None else -1
    finally:
        if before is not None:
            with suppress(OSError, termios.error):
                termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        if keyboard:
            os.close(keyboard)
