"""What reaches the terminal, and what the terminal can do.

A log is text from another machine. Every piece of it that is printed goes through `safe_text`, on the screen and in
the text report alike, so that a name can neither move the cursor nor turn the reading direction around.
"""

from __future__ import annotations

import os
import select
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from time import monotonic
from typing import Any, TextIO

__all__ = [
    "ProgressLine",
    "copy_in_tmux",
    "drawing_on_terminal",
    "give_up_stdout",
    "give_up_terminal",
    "is_dumb_terminal",
    "is_hung_up",
    "is_terminal",
    "osc52",
    "reopen_keyboard",
    "safe_text",
    "speaks_unicode",
    "wants_color",
]


def safe_text(text: str, limit: int | None = None) -> str:
    """`text` with nothing in it that a terminal acts upon, one line of it.

    Control characters become visible: C0 and DEL as their symbols (`␛`, `␀`, `␡`), C1 as `\\x9b`; what changes the
    direction of reading, has no width or no meaning as `\\u202e`. A tab becomes a space. With `limit`, at most so
    many characters are returned and `…` is the last of them when something was cut.
    """
    cut = limit is not None and len(text) > limit
    if cut:
        # Before looking at every character: a line of a hostile log can be megabytes long.
        text = text[:limit]
    shown = text if text.isprintable() else "".join(map(_visible_character, text))
    if limit is not None and (cut or len(shown) > limit):
        return shown[: limit - 1] + "…" if limit > 0 else ""
    return shown


@lru_cache(maxsize=4096)
def _visible_character(c: str) -> str:
    if c.isprintable():
        return c
    code = ord(c)
    if c == "\t" or unicodedata.category(c) == "Zs":
        return " "
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


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


def osc52(text: str) -> str:
    """The sequence that asks a terminal to put `text` on the clipboard of the machine it runs on."""
    import base64

    return f"\x1b]52;c;{base64.b64encode(text.encode(errors='replace')).decode()}\x07"


def copy_in_tmux(text: str) -> bool:
    """Inside tmux: copy through its own buffer, which `set-clipboard external` lets pass; False outside or on failure.

    tmux's default swallows OSC 52 from the programs in its panes; `-w` makes tmux itself send it on.
    """
    if not os.environ.get("TMUX"):
        return False
    import subprocess  # 6 ms that a report does not need

    try:
        done = subprocess.run(
            ["tmux", "load-buffer", "-w", "-"],  # noqa: S607 - the tmux of the user's PATH is the one that is meant
            input=text.encode(errors="replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=2,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


class ProgressLine:
    """One line on a terminal that says how far the work is; nothing elsewhere, and nothing for quick work.

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
