"""What numtui needs of Textual and Textual does not offer, in one place.

Most of it is private in Textual and may change with any release: pyproject.toml therefore allows only the minor version
that the tests pass with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual import events
from textual.binding import BindingsMap

if TYPE_CHECKING:
    from textual.app import App
    from textual.binding import BindingType
    from textual.dom import DOMNode
    from textual.screen import Screen

__all__ = ["bound_action", "rebind", "come_back", "crash_of", "has_terminal", "output_waits", "pass_on"]


def bound_action(node: DOMNode, key: str) -> str | None:
    """The action that a key is bound to on a screen or a widget, after the user's keymap."""
    bindings = node._bindings.key_to_bindings.get(key, ())  # noqa: SLF001 - Textual itself looks it up too late
    return bindings[0].action if bindings else None


def rebind(screen: Screen[Any], bindings: list[BindingType]) -> None:
    """Give a screen these bindings in place of those of its class."""
    screen._bindings = BindingsMap(bindings)  # noqa: SLF001 - Textual's keymap cannot take a key from an action


def crash_of(app: App[Any]) -> Exception | None:
    """The exception that ended the program, None when nothing went wrong."""
    found = app._exception  # noqa: SLF001 - Textual would print it, with all local variables, and return 1
    return getattr(found, "error", found) if found is not None else None


def output_waits(app: App[Any]) -> bool:
    """Whether the terminal has not yet taken what was drawn before: a slow line, a stopped terminal.

    Textual writes from a thread of its own behind a queue; drawing again while that queue holds something would only
    make the lag longer. Without such a thread (tests, other platforms) the answer is no.
    """
    writer = getattr(app._driver, "_writer_thread", None)  # noqa: SLF001 - there is no public way to know
    queue = getattr(writer, "_queue", None)
    return queue is not None and queue.qsize() > 0


def has_terminal(app: App[Any]) -> bool:
    """Whether the terminal is the program's; False from ctrl+z until `fg`."""
    return not getattr(app._driver, "_must_signal_resume", False)  # noqa: SLF001 - the driver alone knows


def come_back(app: App[Any]) -> None:
    """Take the terminal again after the process was stopped and continued.

    Textual takes every SIGCONT for the end of its own ctrl+z. After a `kill -STOP`, for which nothing was put away, it
    would read the keyboard in two threads, wait for ever at the end for the first of them, and draw nothing.
    """
    driver: Any = app._driver  # noqa: SLF001 - as below
    if driver is None or not driver.can_suspend:
        return
    if driver._auto_restart and has_terminal(app):  # noqa: SLF001 - what its own handler asks, and sets
        driver.suspend_application_mode()
        driver._must_signal_resume = True  # noqa: SLF001
    driver._sigcont_application()  # noqa: SLF001


def pass_on(app: App[Any], key: events.Key) -> None:
    """Give a key that was typed for another screen to the one that is shown.

    Not to the program, which may hold keys already that were typed after it.
    """
    (app.focused or app.screen).post_message(events.Key(key.key, key.character))
