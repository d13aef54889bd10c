"""The main screen as its controllers and panels see it."""

from __future__ import annotations

from typing import Any, Protocol

from textual.app import App

from numtui.actions import Action
from numtui.session.session import Session
from numtui.tui.key_reader import KeyReader
from numtui.tui.screens.background import Background
from numtui.tui.screens.prompt import Prompt
from numtui.tui.widgets.inspector import Inspector
from numtui.tui.widgets.table import Table
from numtui.views.message_log import Messages

__all__ = ["MainScreen"]


class MainScreen(Protocol):
    """A session on a screen, with threads for its work and a line to type into.

    Attributes:
        actions: the registry, with the user's own keys.
        messages: the sentences that were said.
        editor_setting: the command that the settings say shows a line of a file.
    """

    session: Session
    actions: tuple[Action, ...]
    editor_setting: str | None
    reader: KeyReader
    messages: Messages
    table: Table
    inspector: Inspector
    background: Background
    prompt: Prompt

    @property
    def app(self) -> App[Any]:
        """The program."""

    def draw(self) -> None:
        """Bring the screen up to the session."""

    def resize_inspector(self) -> None:
        """Give the inspector the height that suits its focus."""

    def say(self, message: str, *, trouble: bool = False, passing: bool = False) -> None:
        """Show a sentence until the next key; unless it is a passing one, it can be read again."""

    def warn(self, *warnings: str) -> None:
        """Show what must not be overlooked behind the message, until the next key."""

    def run_named(self, name: str) -> None:
        """Do what an action of the registry says."""

    def ask_command(self, value: str = "") -> None:
        """Take a `:` command; `value` is typed already."""
