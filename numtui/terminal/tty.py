"""What reaches the terminal, and what the terminal can do.

A log is text from another machine. Every piece of it that is printed goes through `safe_text`, on the screen and in
the text report alike, so that a name can neither move the cursor nor turn the reading direction around.
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
    """Whether a stream is connected to a terminal; a closed or missing one is not."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def is_hung_up(descriptor: int) -> bool:
    """Whether the other end of a terminal is gone."""
    watch = select.poll()
    watch.register(descriptor, 0)  # a hang-up is reported without being asked for
    return any(event & select.POLLHUP for _, event in watch.poll(0))


def is_dumb_terminal() -> bool:
    """Whether the terminal can only print lines (`TERM=dumb`, or nothing known about it)."""
    return os.environ.get("TERM", "") in {"", "dumb", "unknown"}


def wants_color(stream: Any, *, no_color: bool = False) -> bool:
    """Whether to colour what is written to `stream`: a capable terminal, and nobody said no (`NO_COLOR`)."""
    return not no_color and not os.environ.get("NO_COLOR") and is_terminal(stream) and not is_dumb_terminal()


def speaks_unicode() -> bool:
    """Whether braille and other drawing characters can be shown: a UTF-8 locale, and not the console of Linux, whose
    fonts lack them.
    """
    import locale  # for one picture

    return "utf" in locale.nl_langinfo(locale.CODESET).lower() and os.environ.get("TERM") != "linux"


def reopen_keyboard() -> bool:
    """Make file descriptor 0 the terminal when standard input is something else; False when there is no terminal.

    Has to happen before Textual is imported, which takes the descriptor as it finds it.
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
    """Forget what standard output could not take; Python would try, and complain, once more at exit."""
    _give_up(sys.stdout)


def give_up_terminal() -> None:
    """Forget what could not be written to a terminal that is gone; Python would change the exit code for it."""
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
    """Let Textual, which draws on standard error, draw on standard output when the former goes to a file."""
    if is_terminal(sys.__stderr__):
        yield
        return
    elsewhere, sys.__stderr__ = sys.__stderr__, sys.__stdout__  # type: ignore[misc]
    try:
        yield
    finally:
        sys.__stderr__ = elsewhere  # type: ignore[misc]
