"""The explorer as a Textual program: theme, signals, and the way out.

`run_app` is what the command line calls. Importing this module imports Textual, which costs a third of a second: it is
imported only when there is a screen to fill.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from functools import partial
from typing import ClassVar

from textual.app import App
from textual.screen import Screen

from matchers.errors import InputError, UserError
from numtui.inputs import OpenRequest
from numtui.loading import open_heads
from numtui.screens.explorer import Explorer
from numtui.session import Session

__all__ = ["Numtui", "run_app"]

_PATIENCE = 3.0
"""Seconds that an orderly end may take after a signal; a terminal that is gone must not hold the process."""


def _palette() -> type:
    # The palette is opened seldom, and what it needs is not free to import.
    from numtui.screens.palette import ActionProvider

    return ActionProvider


class Numtui(App[None]):
    """One session on one terminal."""

    TITLE = "numtui"
    CSS_PATH = "app.tcss"
    COMMANDS: ClassVar = {_palette}

    def __init__(self, session: Session, request: OpenRequest | None = None) -> None:
        theme = request.theme if request is not None else None
        # The terminal's own sixteen colours, unless the user wants a theme: with native colours from the start,
        # because Textual chooses what NO_COLOR does when the program is made, not when the theme is.
        super().__init__(ansi_color=True if theme is None else None)
        self.animation_level = "none"
        self.error: UserError | None = None
        self.explorer = Explorer(session, request)
        if theme is not None and theme not in self.available_themes:
            raise InputError(
                f"--theme {theme}: there is no such theme; there are {', '.join(sorted(self.available_themes))}"
            )
        self.theme = theme or "ansi-dark"

    def get_default_screen(self) -> Screen[None]:
        """The explorer is the first screen: nothing is drawn before it."""
        return self.explorer

    def on_mount(self) -> None:
        """A lost connection must not lose work, nor leave the terminal in disarray."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, partial(self.end_by, number))

    def end_by(self, number: int) -> None:
        """End on a signal: what is unsaved goes to the journal and is offered by the next session."""
        self.explorer.session.record()
        # Writing to a terminal that is gone may block for ever.
        last = threading.Timer(_PATIENCE, os._exit, (128 + number,))
        last.daemon = True
        last.start()
        self.exit(return_code=128 + number)

    def on_explorer_doomed(self, message: Explorer.Doomed) -> None:
        """The error is reported when the terminal is back."""
        self.error = message.error
        self.exit(return_code=message.error.exit_code)

    async def action_quit(self) -> None:
        """Textual's ctrl+q asks as q does."""
        if self.screen is self.explorer:
            self.explorer.action_quit()

    def action_help_quit(self) -> None:
        """Textual's ctrl+c, where a screen does not take it: the key is no secret here."""


def run_app(request: OpenRequest) -> int:
    """Open the explorer; the exit code is that of `diff`: 0 nothing red, 1 something red.

    Raises:
        UserError: a log or the rule file cannot be read; the terminal has been restored.
    """
    if not request.color:
        os.environ["NO_COLOR"] = "1"
    session = open_heads(request)
    app = Numtui(session, request)
    try:
        app.run(mouse=False)
    finally:
        if session.journal is not None:
            session.journal.close()
    if app.error is not None:
        raise app.error
    return app.return_code or 0
