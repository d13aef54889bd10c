"""Progress line on standard error for long work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic
from typing import TextIO

from numtui.terminal.tty import is_dumb_terminal, is_terminal
from numtui.text.safe import safe_text

__all__ = ["ProgressLine"]


class ProgressLine:
    """Progress of long work, on one line of a terminal; silent elsewhere and for quick work.

    Used as a context manager and called as `matchers.comparison.Progress`.
    """

    _QUIET_SECONDS = 0.5
    _INTERVAL_SECONDS = 0.1

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._enabled = is_terminal(self._stream) and not is_dumb_terminal()
        self._clock = clock
        self._next = clock() + self._QUIET_SECONDS
        self._shown = False

    def __call__(self, what: str, fraction: float) -> None:
        if not self._enabled or (now := self._clock()) < self._next:
            return
        self._next = now + self._INTERVAL_SECONDS
        self._shown = True
        self._stream.write(f"\r\x1b[K{safe_text(what, 60)} {max(0.0, min(fraction, 1.0)):4.0%}")
        self._stream.flush()

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
