"""Base class of pages with a rule editor: parsed at every key, previewed in a thread, applied or discarded."""

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
"""Seconds without a key before the typed rule is previewed."""

DRAFT_KEYS: Final = (
    ("^s", "apply"),
    ("tab", "complete"),
    ("esc", "leave"),
    ("^z", "undo typing"),
    ("F1", "help"),
)
"""Keys of the rule editor, the most important first."""


class Typing(Trying[T]):
    """Page with a rule editor.

    Args:
        draft: a rule to edit at once; the page closes with it.
    """

    def __init__(self, session: Session, draft: Draft | None) -> None:
        super().__init__(session)
        self._draft = draft
        self._only_draft = draft is not None
        self._told: tuple[str, str] = ("", "")
        """Last message and its role."""
        self._rest: Timer | None = None

    @property
    def text(self) -> RuleText:
        """Rule editor."""
        return self.query_one(RuleText)

    @abstractmethod
    def change(self, edit: Edit, at: int, job: Job | None = None) -> None:
        """Apply a change of the rule at an index; `job` is its preview, if one has run."""

    def give_up(self) -> None:
        """Cancel the preview."""
        super().give_up()
        if self._rest is not None:
            self._rest.stop()

    def _try_soon(self) -> None:
        """Preview the typed rule after a pause."""
        self.give_up()
        self._rest = self.set_timer(_REST, self.settle)

    def settle(self) -> None:
        """Preview the typed rule."""
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
        """Parse the text if a key has changed it."""
        if self.text.text != draft.text:
            draft.retype(self.text.text)
            self._check(draft)

    def _check(self, draft: Draft) -> None:
        """Mark the error, or preview the rule soon."""
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
        """Paste into the typed rule; commands are not pasted."""
        event.stop()
        if self._draft is not None and self.app.screen is self:
            self.text.type(event.text)
            self._read(self._draft)
            self.draw()

    def _accept(self, draft: Draft) -> None:
        if draft.problem is not None:
            self._told = "not applied: fix the error first", "red"
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
                self._told = "edit discarded", ""
            self.draw()

        choices = [("d", "discard the edit", "drop"), ("c", "keep editing (esc)", "")]
        if draft.problem is None:
            choices.insert(0, ("t", "apply", "take"))
        self.app.push_screen(Dialog("Unsaved edit", "It is not applied yet.", choices), answered)

    def _ask_section(self) -> None:
        """Ask for a section, then edit a new rule in it."""
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

        dialog = Dialog("New rule", "In which section?", [*choices, ("esc", "none", "")])
        self.app.push_screen(dialog, answered)

    def _help(self) -> None:
        from numtui.tui.screens.pager import Pager

        self.app.push_screen(Pager("Rules", help_lines(), "?"))
