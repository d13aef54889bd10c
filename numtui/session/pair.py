"""Reading of the two logs of a request: apart from loading, so that reports do not import the session."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Thread

from matchers.comparison import Progress
from matchers.logs.cache import read_cached
from matchers.logs.op_log import OpLog
from matchers.rules.model import RuleSet
from numtui.inputs import OpenRequest

__all__ = ["head_of", "read_pair"]

_TICK = 0.05
"""Seconds between two reports of progress while the other log is waited for."""


def read_pair(request: OpenRequest, progress: Progress | None, rules: RuleSet | None = None) -> tuple[OpLog, OpLog]:
    """Read both logs; the folder of a run stands for all its ranks, which are merged under the rules.

    They are read side by side where the process may use two processors: the compiled reader does not hold the
    interpreter's lock.

    Raises:
        UserError: a log cannot be read; that of a, if neither can.
    """
    if request.merges_ranks:
        from matchers.runs.layouts.read import read_both

        return read_both((request.path_a, request.path_b), request.cache, progress, rules, request.step)

    def tell(done: float) -> None:
        if progress is not None:
            progress("reading", done / 2)

    if _processors() < 2:
        a = read_cached(request.path_a, request.cache, step=request.step, progress=lambda _, done: tell(done))
        return a, read_cached(request.path_b, request.cache, step=request.step, progress=lambda _, done: tell(1 + done))
    other = _Beside(request)
    try:
        a = read_cached(
            request.path_a, request.cache, step=request.step, progress=lambda _, done: tell(done + other.done)
        )
        return a, other.log(lambda: tell(1 + other.done))
    finally:
        other.leave()


def _processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Beside:
    """The reading of log b in a thread of its own.

    `done`: the fraction read so far.
    """

    def __init__(self, request: OpenRequest) -> None:
        self.done = 0.0
        self._left = False
        self._log: OpLog | None = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._read, args=(request,), daemon=True)  # it may wait for a pipe without end
        self._thread.start()

    def log(self, waiting: Callable[[], None]) -> OpLog:
        """Wait for the log; `waiting` is called now and then, and may raise.

        Raises:
            UserError: it cannot be read.
        """
        busy = True
        while busy:
            self._thread.join(_TICK)
            busy = self._thread.is_alive()
            waiting()
        if self._error is not None:
            raise self._error
        assert self._log is not None
        return self._log

    def leave(self) -> None:
        """End the reading, if it is not over, at its next report of progress: nobody waits for the log."""
        self._left = True

    def _read(self, request: OpenRequest) -> None:
        try:
            self._log = read_cached(request.path_b, request.cache, step=request.step, progress=self._note)
        except BaseException as error:  # noqa: BLE001 - raised again where the log is waited for
            self._error = error

    def _note(self, _what: str, done: float) -> None:
        if self._left:
            raise _NobodyWaits
        self.done = done


class _NobodyWaits(Exception):
    """Raised in the reading of a log that nobody waits for."""


def head_of(request: OpenRequest, path: str) -> str:
    """Return the log whose first rows are shown before all is read: of a folder, that of its first rank."""
    if not request.merges_ranks:
        return path
    from matchers.runs.layouts.read import one_log_of

    return one_log_of(path)
