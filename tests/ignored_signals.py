"""Signals that whoever runs the tests may ignore, and so the programs that they start."""

from __future__ import annotations

import signal

__all__ = ["hear_again"]


def hear_again() -> None:
    """Undo what a shell does to programs in its background, and `nohup` to others."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
