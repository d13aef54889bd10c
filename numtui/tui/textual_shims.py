"""Shims for features missing from Textual's public API.

Most of it is private in Textual and may change with any release: pyproject.toml therefore allows only the minor version
that the tests pass with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unicodedata import category
from weakref import WeakKeyDictionary

from textual import events
from textual._xterm_parser import XTermParser
from textual.binding import BindingsMap
from textual.message import Message

from numtui.tui.paste_reader import END, PasteReader

if TYPE_CHECKING:
    from textual.app import App
    from textual.binding import BindingType
    from textual.dom import DOMNode
    from textual.screen import Screen

__all__ = [
    "bound_action",
    "caught",
    "PresentSize",
    "come_back",
    "crash_of",
    "has_terminal",
    "keep_escape",
    "keep_pastes",
    "output_waits",
    "pass_on",
    "rebind",
]

ESCAPE_IN_BETWEEN = "ctrl+left_square_bracket"
"""Name of an `esc` that arrived together with keys before it; it is the same byte."""


class PresentSize:
    """Mixin of a screen: lay it out for the terminal's present size only.

    A screen lays out those that are seen behind it for the size in its own resize event, which makes them send such an
    event to themselves: with two screens behind, two sizes would go back and forth between them for ever.
    """

    app: App[Any]

    def on_resize(self, event: events.Resize) -> None:
        """Drop an event of an earlier size; that of the present size has come or will come."""
        if event.size != self.app.size:
            event.stop()
            event.prevent_default()


def bound_action(node: DOMNode, key: str) -> str | None:
    """Return the action bound to a key on a screen or a widget, after the user's keymap."""
    bindings = node._bindings.key_to_bindings.get(key, ())  # noqa: SLF001 - Textual itself looks it up too late
    return bindings[0].action if bindings else None


def rebind(screen: Screen[Any], bindings: list[BindingType]) -> None:
    """Replace the bindings of a screen's class by these."""
    screen._bindings = BindingsMap(bindings)  # noqa: SLF001 - Textual's keymap cannot take a key from an action


def crash_of(app: App[Any]) -> Exception | None:
    """Return the exception that ended the program, None for a normal exit."""
    found = app._exception  # noqa: SLF001 - Textual would print it, with all local variables, and return 1
    return caught(found) if found is not None else None


def caught(error: Exception) -> Exception:
    """Return the exception itself, without a worker's wrapping."""
    inner: Exception = getattr(error, "error", error)
    return inner


def output_waits(app: App[Any]) -> bool:
    """True while the terminal has not taken the last drawing: a slow line, a stopped terminal.

    Textual writes from its own thread behind a queue; drawing while that queue is not empty would only add lag. False
    without such a thread (tests, other platforms).
    """
    writer = getattr(app._driver, "_writer_thread", None)  # noqa: SLF001 - there is no public way to know
    queue = getattr(writer, "_queue", None)
    return queue is not None and queue.qsize() > 0


def has_terminal(app: App[Any]) -> bool:
    """True while the program has the terminal; False from ctrl+z until `fg`."""
    return not getattr(app._driver, "_must_signal_resume", False)  # noqa: SLF001 - the driver alone knows


def come_back(app: App[Any]) -> None:
    """Take the terminal back after the process was stopped and continued.

    Textual takes every SIGCONT for the end of its own ctrl+z. After a `kill -STOP`, without that ctrl+z, it would read
    the keyboard in two threads, wait for ever for the first of them at exit, and draw nothing.
    """
    driver: Any = app._driver  # noqa: SLF001 - as below
    if driver is None or not driver.can_suspend:
        return
    if driver._auto_restart and has_terminal(app):  # noqa: SLF001 - as its own handler does
        driver.suspend_application_mode()
        driver._must_signal_resume = True  # noqa: SLF001
    driver._sigcont_application()  # noqa: SLF001


def keep_escape() -> None:
    """Let keys that arrive in one burst with `esc` before them be named `alt+…`, all of them.

    Textual does so for letters, takes some digits for characters of a Mac's keyboard, and forgets the `esc` before
    anything else.
    """
    read = XTermParser._sequence_to_key_events  # noqa: SLF001 - its result has no other way to tell
    if getattr(read, "keeps_escape", False):
        return

    def keys(self: XTermParser, sequence: str, alt: bool = False) -> Iterator[events.Key]:
        if sequence == "\x1b":
            yield events.Key(ESCAPE_IN_BETWEEN, sequence)
            return
        if len(sequence) == 2 and sequence[0] == "\x1b" and sequence[1] in "0123456789-=§":
            sequence, alt = sequence[1], True
        for key in read(self, sequence, alt):
            far = alt and not key.key.startswith("alt+")
            yield events.Key(f"alt+{key.key}", key.character) if far else key

    keys.keeps_escape = True  # type: ignore[attr-defined]
    XTermParser._sequence_to_key_events = keys  # type: ignore[method-assign] # noqa: SLF001


def keep_pastes() -> None:
    """Let a bracketed paste be text up to its end, whatever it contains and however slowly it arrives.

    Textual types what follows an `esc` in it as keys: of a coloured line, `m`, `r` and `d` would be commands. Control
    characters are dropped, except tabs and line ends.
    """
    if getattr(XTermParser.feed, "keeps_pastes", False):
        return
    read = XTermParser.feed
    readers: WeakKeyDictionary[XTermParser, PasteReader] = WeakKeyDictionary()

    def feed(self: XTermParser, data: str) -> Iterator[Message]:
        for text, pasted in readers.setdefault(self, PasteReader()).parts(data):
            if not pasted:
                yield from read(self, text)
                continue
            # For Textual, which knows that a paste has begun, it ends at once.
            yield from (event for event in read(self, END) if not isinstance(event, events.Paste))
            # Not every widget of Textual makes control characters harmless.
            yield events.Paste("".join(c for c in text if c in "\t\r\n" or category(c) != "Cc"))
        if not data:  # the end of all input
            yield from read(self, data)

    feed.keeps_pastes = True  # type: ignore[attr-defined]
    XTermParser.feed = feed  # type: ignore[method-assign]


def pass_on(app: App[Any], key: events.Key) -> None:
    """Pass a key typed for another screen to the current one.

    Not to the application, whose queue may already hold later keys.
    """
    (app.focused or app.screen).post_message(events.Key(key.key, key.character))
