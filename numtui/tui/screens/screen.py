"""Interface of the main screen for its controllers and panels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from textual.app import App

from numtui.actions import Action
from numtui.session.ranks import RanksCursor
from numtui.session.session import Session
from numtui.tui.key_reader import KeyReader
from numtui.tui.screens.background import Background
from numtui.tui.screens.prompt import Prompt
from numtui.tui.widgets.inspector import Inspector
from numtui.tui.widgets.table import Table
from numtui.views.message_log import Messages

__all__ = ["MainScreen"]


class Replaying(Protocol):
    """Elements and replays of kept operations."""

    def open_elements(self) -> None:
        """Open the elements of the row's tensors."""

    def replay(self) -> None:
        """Run the row's operation again, in the background."""

    def cancel(self) -> bool:
        """End the running replay; False if there is none."""


class MainScreen(Protocol):
    """Main screen: a session, background threads and a prompt.

    Attributes:
        actions: the registry, with the user's own keys.
        messages: history of the messages.
        editor_setting: configured command that opens a line of a file.
        sources: configured folders of source files, besides the current one.
        ranks: the overview from which it was opened; None where there is one pair of logs.
    """

    session: Session
    actions: tuple[Action, ...]
    editor_setting: str | None
    sources: tuple[Path, ...]
    ranks: RanksCursor | None
    reader: KeyReader
    messages: Messages
    table: Table
    inspector: Inspector
    background: Background
    prompt: Prompt

    @property
    def replays(self) -> Replaying:
        """Elements and replays of kept operations."""

    @property
    def offered(self) -> tuple[Action, ...]:
        """The actions that do something with these logs."""

    @property
    def app(self) -> App[Any]:
        """Running application."""

    def draw(self) -> None:
        """Redraw from the session."""

    def resize_inspector(self) -> None:
        """Fit the inspector's height to its focus."""

    def say(self, message: str, *, trouble: bool = False, passing: bool = False) -> None:
        """Show a message until the next key; unless `passing`, keep it in the history."""

    def warn(self, *warnings: str, besides: bool = False) -> None:
        """Show warnings behind the message until the next key; `besides`: those that are shown stay."""

    def run_named(self, name: str) -> None:
        """Run an action of the registry."""

    def leave_for(self, rank: int) -> None:
        """Ask for another rank in place of this one."""

    def ask_command(self, value: str = "") -> None:
        """Ask for a `:` command; `value` is typed already."""
