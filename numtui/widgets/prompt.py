"""A line to type into, in place of the status line: search, filters, commands. Mounted when it is first needed,
because Textual's input costs tens of milliseconds to import.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.widgets import Input, Label

__all__ = ["Prompt"]


class Prompt(Horizontal):
    """One question; says what was typed, and how it ended."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False, id="prompt_cancel"),
        Binding("ctrl+c", "cancel", show=False, id="prompt_interrupt"),
    ]

    @dataclass
    class Changed(Message):
        """Something was typed."""

        kind: str
        text: str
        prompt: Prompt

    @dataclass
    class Answered(Message):
        """Enter was pressed."""

        kind: str
        text: str

    @dataclass
    class Cancelled(Message):
        """Escape was pressed."""

        kind: str

    def __init__(self, kind: str, sign: str, value: str = "", suggestions: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.kind = kind
        self._sign = sign
        self._value = value
        self._suggestions = suggestions

    def compose(self) -> ComposeResult:
        yield Label(f" {self._sign}", markup=False)
        suggester = SuggestFromList(self._suggestions, case_sensitive=True) if self._suggestions else None
        line = Input(self._value, suggester=suggester, select_on_focus=False)
        # A blinking cursor would keep writing to the terminal.
        line.cursor_blink = False
        yield line
        yield Label("", markup=False, classes="told")

    def tell(self, text: str) -> None:
        """Something short at the end of the line."""
        self.query_one(".told", Label).update(text)

    def on_mount(self) -> None:
        """Take the keys."""
        self.query_one(Input).focus()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Changed(self.kind, event.value, self))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Answered(self.kind, event.value))

    def action_cancel(self) -> None:
        """Give up."""
        self.post_message(self.Cancelled(self.kind))
