"""Ends of a process from outside: signals, and `std::terminate` of a C++ library; what is recorded is written first.

A rank that waits for another reaches no instruction of Python's, between which Python runs its handlers of signals. So
a thread learns of the signal as well and writes where the main thread does not. A library that gives up in a thread of
its own, as gloo does if members call collectives of different sizes, ends the process without asking Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Termination"]

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Of launchers and schedulers, and of a terminal that is closed."""
_PATIENCE = 1.0
"""Seconds after which a main thread that has not begun to handle the signal counts as waiting."""
_LIMIT = 20.0
"""Seconds for writing besides the main thread, which may wait for a device; launchers kill after 30."""
_ABORTED = "std::terminate was called, see standard error"
_Handler = ctypes.CFUNCTYPE(None)


class Termination:
    """Write what is recorded, and then let happen what would have happened without.

    Args:
        write: called once, with the reason.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._once = threading.Lock()
        self._over = self._written = False
        self._late: signal.Signals | None = None
        self._before: dict[int, Any] = {}
        self._wakeup: tuple[int, int] | None = None
        self._on_terminate: Any = None
        self._terminate_before: Any = None

    def take(self) -> None:
        """Begin to handle the ends, but for a signal that the program ignores."""
        if self._over or self._on_terminate is not None:
            return
        self._on_terminate = _Handler(self._aborting)
        self._terminate_before = _set_terminate(self._on_terminate)
        # outside the main thread, the program owns the signals
        with contextlib.suppress(ValueError):
            for number in _SIGNALS:
                before = signal.getsignal(number)
                if before not in (None, signal.SIG_IGN):  # not Python's, or no end
                    signal.signal(number, self._handle)
                    self._before[number] = before
            if self._before:
                self._listen()

    def give_back(self) -> None:
        """Leave everything as it was, for good; the signal only in the main thread."""
        self._over = True
        if self._terminate_before:
            _set_terminate(self._terminate_before)
            self._terminate_before = None
        if threading.current_thread() is not threading.main_thread():
            return
        if self._wakeup is not None:
            if (other := signal.set_wakeup_fd(-1)) != self._wakeup[1]:
                signal.set_wakeup_fd(other)
            os.close(self._wakeup[1])  # ends the thread
            self._wakeup = None
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, before)

    def forks(self) -> None:
        """Keep the signals of a child from the thread of its parent, also those that come at once."""
        if self._wakeup is not None:
            with contextlib.suppress(ValueError):
                signal.set_wakeup_fd(-1)

    def has_forked(self, *, child: bool) -> None:
        """Undo this in the parent; in the child, there is no such thread."""
        if self._wakeup is None:
            return
        read, write = self._wakeup
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(-1 if child else write, warn_on_full_buffer=False)
        if child:
            os.close(read)
            os.close(write)
            self._wakeup = None

    @contextlib.contextmanager
    def put_off(self) -> Iterator[None]:
        """Let nothing end the process while it writes inside the block, and leave everything as it was after it."""
        self._once.acquire(blocking=False)
        try:
            yield
        finally:
            self._written = True
            self.give_back()
            if (late := self._late) is not None:
                os.kill(os.getpid(), late)

    def _handle(self, number: int, frame: Any) -> None:
        """Handle the signal in the main thread."""
        if self._once.acquire(blocking=False):
            self._write(signal.Signals(number).name)
        else:
            self._late = signal.Signals(number)
            if not self._written:  # but begun, by another thread or by what the signal has interrupted
                return
            self._late = None
        if callable(before := self._before[number]):
            before(number, frame)
        else:
            _end(number)

    def _listen(self) -> None:
        """Start the thread that handles the signal where the main thread cannot."""
        read, write = os.pipe()
        os.set_blocking(write, False)
        other = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        if other != -1:  # an event loop's
            signal.set_wakeup_fd(other)
            os.close(read)
            os.close(write)
            return
        self._wakeup = read, write
        threading.Thread(target=self._watch, args=(read,), name="numtui capture: signals", daemon=True).start()

    def _watch(self, read: int) -> None:
        while numbers := os.read(read, 64):
            for number in self._before.keys() & set(numbers):
                if signal.getsignal(number) != self._handle:
                    continue
                _wait(self._once.locked, _PATIENCE)
                first = self._write_aside(signal.Signals(number).name)
                # the main thread, which began, may wait for a device that no longer answers
                stuck = not first and not self._written and self._late is None
                if (first or stuck) and not callable(self._before[number]):
                    _end(number)
        os.close(read)

    def _aborting(self) -> None:
        """Handle `std::terminate`, in any thread."""
        before = self._terminate_before
        self._write_aside(_ABORTED)
        if before:
            before()

    def _write_aside(self, reason: str) -> bool:
        """Wait for the log to be written, in a thread of its own unless another has begun; return False if one has."""
        first = self._once.acquire(blocking=False)
        if first:
            threading.Thread(target=self._write, args=(reason,)).start()
        _wait(lambda: self._written, _LIMIT)
        return first


def _wait(done: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not done() and time.monotonic() < until:
        time.sleep(_PATIENCE / 100)


def _end(number: int) -> None:
    """End the process as a signal does by default; from any thread, which `signal.signal` is not for."""
    ctypes.pythonapi.PyOS_setsig(int(number), None)
    os.kill(os.getpid(), number)


def _set_terminate(handler: Any) -> Any:
    """Set the handler of `std::terminate` and return the one before, None where there is no C++ library."""
    with contextlib.suppress(OSError, AttributeError):
        function: Any = ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE
        function.argtypes, function.restype = (_Handler,), _Handler
        return function(handler)
    return None
