"""Capabilities of the terminal, and access to it.

A log is text from another machine: all of it passes through `numtui.text.safe.safe_text` before it is printed, on the
screen and in the text report alike, so that a name can neither move the cursor nor reverse the reading direction.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

__all__ = [
    "drawing_on_terminal",
    "give_up_stdout",
    "give_up_terminal",
    "is_dumb_terminal",
    "is_hung_up",
    "is_terminal",
    "reopen_keyboard",
    "speaks_unicode",
    "wants_color",
]


def is_terminal(stream: Any) -> bool:
    """True for a stream connected to a terminal; False for a closed or missing one."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def is_hung_up(descriptor: int) -> bool:
    """True when the other end of a terminal is gone."""
    watch = select.poll()
    watch.register(descriptor, 0)  # a hang-up is always reported
    return any(event & select.POLLHUP for _, event in watch.poll(0))


def is_dumb_terminal() -> bool:
    """True when the terminal can only print lines (`TERM=dumb`, or an unknown terminal)."""
    return os.environ.get("TERM", "") in {"", "dumb", "unknown"}


def wants_color(stream: Any, *, no_color: bool = False) -> bool:
    """True when `stream` is a terminal with colours and neither `no_color` nor `NO_COLOR` is set."""
    return not no_color and not os.environ.get("NO_COLOR") and is_terminal(stream) and not is_dumb_terminal()


def speaks_unicode() -> bool:
    """True when the terminal can show braille and other drawing characters: a UTF-8 locale, and not the Linux console,
    whose fonts lack them.
    """
    import locale  # for one picture

    return "utf" in locale.nl_langinfo(locale.CODESET).lower() and os.environ.get("TERM") != "linux"


def reopen_keyboard() -> bool:
    """Make file descriptor 0 the terminal when standard input is something else; False when there is no terminal.

    Call it before Textual is imported, which takes the descriptor as it is.
    """
    if is_terminal(sys.__stdin__):
        return True
    try:
        keyboard = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return False
    os.dup2(keyboard, 0)
    if keyboard != 0:
        os.close(keyboard)
    sys.stdin = sys.__stdin__ = os.fdopen(0, encoding="utf-8", closefd=False)  # type: ignore[misc]
    return True


def give_up_stdout() -> None:
    """Discard unwritten standard output; Python would retry, and complain, at exit."""
    _give_up(sys.stdout)


def give_up_terminal() -> None:
    """Discard output for a terminal that is gone; Python would change the exit code for it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _give_up(stream)


def _give_up(stream: TextIO) -> None:
    with suppress(OSError, AttributeError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def drawing_on_terminal() -> Iterator[None]:
    """Let Textual draw on standard output when standard error, its default, goes to a file."""
    if is_terminal(sys.__stderr__):
        yield
        return
    elsewhere, sys.__stderr__ = sys.__stderr__, sys.__stdout__  # type: ignore[misc]
    try:
        yield
    finally:
        sys.__stderr__ = elsewhere  # type: ignore[misc]
