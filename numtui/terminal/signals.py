"""Signals that end the program: it puts things in order before, and its exit code is 128 + n."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

__all__ = ["EndedBySignalError", "ending_signals", "raising", "without_keyboard_signals"]

_NO_END: Final = {"KILL", "STOP", "TSTP", "TTIN", "TTOU", "CONT", "CHLD", "URG", "WINCH", "INFO"}
"""Signals that no program handles, or that end none by default."""
_CRASHES: Final = {"ABRT", "BUS", "FPE", "ILL", "SEGV"}
"""Signals after which no Python code may run; `numtui.terminal.crash` is for them."""
_OTHERS: Final = {getattr(signal, f"SIG{name}", None) for name in _NO_END | _CRASHES}


class EndedBySignalError(BaseException):
    """A signal has arrived that ends the program; as KeyboardInterrupt, no error that anybody handles."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code: Final = 128 + number


@contextmanager
def ending_signals(*, crashes: bool = False) -> Iterator[tuple[int, ...]]:
    """Yield the signals that would end the program, which the block may handle; they are as before after it.

    One that is ignored, as SIGHUP by `nohup`, or handled by what is not Python, is not among them. None are outside the
    main thread, which alone may handle signals. `crashes`: SIGABRT too, which Python can handle if another process
    sends it.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in signal.valid_signals() - _OTHERS}
        if crashes:
            handlers[signal.SIGABRT] = signal.getsignal(signal.SIGABRT)
        before = {int(n): handler for n, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    try:
        yield tuple(before)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def raising() -> Iterator[None]:
    """Raise `EndedBySignalError` in the block where a signal would end the process at once, so that it can clean up.

    A second signal does end it at once. SIGINT raises KeyboardInterrupt, as always.
    """
    with ending_signals() as numbers:
        for number in numbers:
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _raise)
        yield


def _raise(number: int, _: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    raise EndedBySignalError(number)


@contextmanager
def without_keyboard_signals() -> Iterator[None]:
    """Ignore Ctrl-C and Ctrl-\\ in the block: the terminal sends them to a program that runs in it, and here, too."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGQUIT)}
    for number in before:
        signal.signal(number, lambda *_: None)  # a started program does not inherit that, unlike SIG_IGN
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
