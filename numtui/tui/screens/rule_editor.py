"""A page on which a rule can be typed: read at every key, tried in a thread while one thinks, accepted or left."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, TypeVar

from textual import events
from textual.geometry import Offset
from textual.timer import Timer

from matchers.rules.model import SECTIONS
from numtui.session.jobs import Job
from numtui.session.rule_completion import complete
from numtui.session.rule_draft import Draft, new_draft
from numtui.session.rule_edits import Edit, EditError
from numtui.session.session import Session
from numtui.tui.screens.trial import Trying
from numtui.tui.widgets.rule_text import RuleText
from numtui.views.rules import help_lines

__all__ = ["DRAFT_KEYS", "Typing"]

T = TypeVar("T")

_REST: Final = 0.15
"""Seconds without a key after which it is tried what the typed rule would do."""

DRAFT_KEYS: Final = (
    ("^s", "take it over"),
    ("tab", "complete"),
    ("esc", "leave"),
    ("^z", "undo typing"),
    ("F1", "help"),
)
"""The keys while a rule is typed, those first that are told where there is little room."""


class Typing(Trying[T]):
    """See the module's docstring.

    Args:
        draft: a rule that is to be typed at once; the page is for that, and closes with it.
    """

    def __init__(self, session: Session, draft: Draft | None) -> None:
        super().__init__(session)
        self._draft = draft
        self._only_draft = draft is not None
        self._told: tuple[str, str] = ("", "")
        """What was said last, and the role it plays."""
        self._rest: Timer | None = None

    @property
    def text(self) -> RuleText:
        """The text that is typed."""
        return self.query_one(RuleText)

    @abstractmethod
    def change(self, edit: Edit, at: int, job: Job | None = None) -> None:
        """Put a change in force that is about the rule of an index; `job` is one that has found out what it does."""

    def give_up(self) -> None:
        """Nobody wants to know any more what would be."""
        super().give_up()
        if self._rest is not None:
            self._rest.stop()

    def _try_soon(self) -> None:
        """Try what is typed, when no key comes for a moment."""
        self.give_up()
        self._rest = self.set_timer(_REST, self.settle)

    def settle(self) -> None:
        """No key came for a moment: try what is typed."""
        try:
            found = self._draft.edit(self._session.rules) if self._draft is not None else None
        except EditError as error:
            self._told = str(error), "red"
            self.draw()
            return
        if found is not None:
            self.try_change(*found)

    def _open(self, draft: Draft) -> None:
        self._draft = draft
        self._told = "", ""
        self.text.open(draft.text)
        self._check(draft)

    def _read(self, draft: Draft) -> None:
        """Read the text after a key, if that has changed it."""
        if self.text.text != draft.text:
            draft.retype(self.text.text)
            self._check(draft)

    def _check(self, draft: Draft) -> None:
        """Mark what is wrong, and try the rule soon."""
        wrong = draft.problem
        self.text.wrong = (wrong.line - 1, wrong.column - 1) if wrong is not None else None
        self._try_soon()

    def _close(self) -> None:
        self._draft = None
        self.text.visible = False
        self.app.cursor_position = Offset()
        self.give_up()
        if self._only_draft:
            self.dismiss(None)

    def _typed(self, draft: Draft, event: events.Key) -> None:
        self._told = "", ""
        if event.key == "ctrl+s":
            self._accept(draft)
        elif event.key == "escape" or (event.key == "ctrl+c" and not self.text.selected_text):
            self._leave(draft)
        elif event.key == "f1":
            self._help()
        elif event.key == "tab":
            more, told = complete(draft.kind, self.text.before, self._session.comparison)
            self._told = told, "key"
            if more:
                self.text.type(more)
                self._read(draft)
        else:
            self.text.press(event.key, event.character)
            self._read(draft)

    def on_paste(self, event: events.Paste) -> None:
        """Into the rule that is typed; commands are not pasted."""
        event.stop()
        if self._draft is not None and self.app.screen is self:
            self.text.type(event.text)
            self._read(self._draft)
            self.draw()

    def _accept(self, draft: Draft) -> None:
        if draft.problem is not None:
            self._told = "not taken over: there is still something wrong with it", "red"
            return
        try:
            found = draft.edit(self._session.rules)
        except EditError as error:
            self._told = str(error), "red"
            return
        tried = self.trial.job if self.trial is not None else None
        self._close()
        if found is None:
            self._told = "nothing was changed", ""
        else:
            self.change(*found, tried)

    def _leave(self, draft: Draft) -> None:
        if not draft.changed:
            self._close()
            return
        from numtui.tui.screens.dialog import Dialog

        def answered(answer: str | None) -> None:
            if answer == "take":
                self._accept(draft)
            elif answer == "drop":
                self._close()
                self._told = "what was typed is dropped", ""
            self.draw()

        choices = [("d", "drop what was typed", "drop"), ("c", "go on typing (esc)", "")]
        if draft.problem is None:
            choices.insert(0, ("t", "take it over", "take"))
        self.app.push_screen(Dialog("The rule was changed", "Nothing of it is in force yet.", choices), answered)

    def _ask_section(self) -> None:
        """Type a new rule of a section that is asked for."""
        from numtui.tui.screens.dialog import Choice, Dialog

        choices: list[Choice] = []
        for name in (kind.section for kind in SECTIONS):
            taken = [key for key, _, _ in choices]
            choices.append((next(letter for letter in name if letter not in taken), name, name))

        def answered(section: str | None) -> None:
            kind = next((kind for kind in SECTIONS if kind.section == section), None)
            if kind is not None:
                self._open(new_draft(kind, self._session.comparison, self._session.listing.spot))
                self.draw()

        dialog = Dialog("A new rule", "Of which section?", [*choices, ("esc", "none", "")])
        self.app.push_screen(dialog, answered)

    def _help(self) -> None:
        from numtui.tui.screens.pager import Pager

        self.app.push_screen(Pager("Rules", help_lines(), "?"))
