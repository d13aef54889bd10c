"""Rules panel: each rule and its matches, edited, switched, moved and dropped in place.

A change of the list applies at once and can be undone; its effect is shown once the rules have been matched. A typed
rule is parsed at every key and previewed in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from textual import events, on
from textual.app import ComposeResult
from textual.message import Message

from matchers.comparison import Comparison
from matchers.errors import UserError
from matchers.rules.model import Rule, RuleProblem
from numtui.session.jobs import Job
from numtui.session.rule_draft import Draft, draft_of, mending, new_draft
from numtui.session.rule_edits import Edit, Effect
from numtui.session.rule_list import RuleList, Stand, dropped, matches, moved, rule_behind, toggled
from numtui.session.session import Session
from numtui.text.lines import Line, fit, key_line, width_of, wrap
from numtui.text.safe import safe_text
from numtui.tui.screens.rule_editor import DRAFT_KEYS, Typing
from numtui.tui.screens.trial import Trial
from numtui.tui.widgets.lines import Lines
from numtui.tui.widgets.rule_text import RuleText
from numtui.views.rules import HEADING, detail, stand_line, summary

__all__ = ["RulesPanel"]

_SHARE: Final = 0.6
"""Share of the screen for a long list."""
_MAX_LINES: Final = 3
"""Maximum lines of a message."""
_CONTEXT: Final = 3
"""Minimum rules visible during editing."""

_KEYS: Final = (
    ("e", "edit"),
    ("space", "on/off"),
    ("x", "drop"),
    ("u", "undo"),
    ("^s", "save"),
    ("enter", "rows"),
    ("?", "help"),
    ("q", "close"),
    ("J K", "move"),
    ("o A", "new"),
    ("t", "all layers"),
)
_TRIAL_KEYS: Final = (("enter", "apply"), ("t", "apply"), ("esc", "cancel"))
"""Keys, the most important first."""


class RulesPanel(Typing[int | None]):
    """Rules panel, dismissed with the number of a rule whose rows to list, or None.

    Args:
        start: runs a job of the session in the background.
        save: saves the rules.
        say: shows a message and keeps it in the history.
        at: initial cursor, unless a rule decides the row under the main list's cursor.
        draft: a rule to edit at once; the panel closes with it.
    """

    covers = True

    @dataclass
    class Behind(Message):
        """The rule that decides the main list's current row was found."""

        at: int

    def __init__(
        self,
        session: Session,
        start: Callable[[Job | None], None],
        save: Callable[[], None],
        draft: Draft | None = None,
        *,
        say: Callable[[str], None] | None = None,
        at: int = 0,
    ) -> None:
        super().__init__(session, draft)
        self._start = start
        self._save = save
        self._say = say
        self._listed = RuleList(session.rules, session.comparison, session.file)
        self._at = at
        self._touched = False
        """True after a key press, which pins the cursor."""
        self._top = 0
        self._sure = False
        """True when the proposal applies as soon as its preview ends."""
        self._before: tuple[str, Comparison] | None = None
        """Last change and the comparison before it, until its effect has been shown."""

    def compose(self) -> ComposeResult:
        yield _Body()
        yield RuleText()

    def on_mount(self) -> None:
        """Find the rule that decides the current row."""
        self._refresh()
        if self._draft is not None:
            self._open(self._draft)
        elif self._listed.matched:
            c, row = self._session.comparison, self._session.listing.cursor
            self.run_worker(lambda: self.post_message(self.Behind(rule_behind(c, row))), thread=True)

    @on(Behind)
    def _behind(self, event: Behind) -> None:
        if event.at >= 0 and not self._touched:
            self._at = event.at
            self._refresh()
            self._told = "this rule decides the row", ""
            self.draw()

    # -- state

    @property
    def at(self) -> int:
        """Index of the rule under the cursor."""
        return self._at

    def session_changed(self) -> None:
        """Update the counts, and show the effect of the last change, after matching."""
        self._refresh()
        session = self._session
        if self._before is not None and session.comparison.rules == session.rules:
            (title, before), self._before = self._before, None
            if before.a is session.comparison.a and before.b is session.comparison.b:
                did = f"{Effect.between(before, session.comparison).sentence()}   {title}"
                told, role = self._told
                if self._say is not None:
                    self._say(did)
                # What was said while the rules were matched, as "saved to …", stays beside it.
                self._told = (did, "good") if told in ("", title) else (f"{did}   {told}", role or "good")
        if self._draft is not None:
            self._try_soon()
        self.redraw()

    def hear(self, message: str, *, trouble: bool) -> None:
        """Show a message of the main screen."""
        if message:
            self._told = message, "red" if trouble else ""
        self._refresh()
        self.redraw()

    def _refresh(self) -> None:
        session = self._session
        self._listed = RuleList(session.rules, session.comparison, session.file)
        self._at = min(max(self._at, 0), max(len(self._listed) - 1, 0))

    def _under(self) -> Stand | None:
        return self._listed[self._at] if len(self._listed) else None

    # -- changes

    def change(self, edit: Edit, at: int, job: Job | None = None) -> None:
        """Apply a change; `job` is its preview, if one has run."""
        session = self._session
        before = self._before[1] if self._before is not None else session.comparison
        self._before = edit.title, before
        self._told = edit.title, ""
        made = session.change(edit.rules, edit.title)
        if job is not None:
            made.result = job.result
        self._at = at
        self._refresh()
        self._start(made)

    def _travel(self, travel: Callable[[], tuple[Job | None, str]]) -> None:
        """Undo or redo."""
        before = self._session.comparison
        job, message = travel()
        self._told = message, ""
        self._before = (message, before) if job is not None else None
        self._refresh()
        self._start(job)

    # -- previews

    def tried(self) -> None:
        """Show the previewed effect."""
        if self._sure:
            self._commit()
        self.draw()

    def refused(self, error: UserError) -> None:
        """Show why a change cannot be previewed."""
        self._told = str(error), "red"
        self.draw()

    def give_up(self) -> None:
        """Cancel the preview."""
        super().give_up()
        self._sure = False

    # -- keys

    def choose(self, item: int) -> bool:
        """Go to a rule, unless one is being edited; a proposed change is dropped."""
        if self._draft is not None:
            return False
        self._touched = True
        self.give_up()
        self._told, self._at = ("", ""), item
        self._refresh()  # the list may be shorter than when it was drawn
        return True

    def pressed(self, event: events.Key) -> None:
        """Handle a key of the list or the rule editor."""
        self._touched = True
        if self._draft is not None:
            self._typed(self._draft, event)
        elif (self.trial is None and self.wanted is None) or not self._answered(event.key):
            self.give_up()
            self._told = "", ""
            self._list_key(event)
        self.draw()

    def _answered(self, key: str) -> bool:
        """Handle a key while a change is proposed; True when it was an answer."""
        if key == "escape":
            self.give_up()
            self._told = "nothing was changed", ""
        elif key in ("enter", "t"):
            self._sure = True
            self._commit()
        else:
            return False
        return True

    def _commit(self) -> None:
        """Apply the proposal once its preview has ended."""
        trial = self.trial
        if trial is not None:
            self.give_up()
            if trial.job.generation == self._session.generation:
                self.change(trial.edit, trial.at, trial.job)

    def _list_key(self, event: events.Key) -> None:
        session, stand = self._session, self._under()
        key = event.character if event.character in (*"GJKNA",) else event.key
        page = max(self.size.height // 3, 1)
        n = len(self._listed)
        steps = {
            "j": 1, "down": 1, "k": -1, "up": -1, "ctrl+d": page, "ctrl+u": -page, "ctrl+f": page, "pagedown": page,
            "pageup": -page, "b": -page, "g": -n, "home": -n, "G": n, "end": n,
        }  # fmt: skip
        if key in ("q", "escape", "r", "ctrl+c"):
            self.dismiss(None)
        elif key in steps:
            self._at = min(max(self._at + steps[key], 0), max(n - 1, 0))
        elif key in ("question_mark", "f1"):
            self._help()
        elif key in ("n", "N"):
            self._next_troubled(1 if key == "n" else -1)
        elif key == "u":
            self._travel(session.undo)
        elif key == "ctrl+r":
            self._travel(session.redo)
        elif key == "ctrl+s":
            self._save()
            self._refresh()
        elif key == "A":
            self._ask_section()
        elif stand is None:
            self._told = ("A types a new rule", "") if key in ("e", "o") else ("", "")
        elif stand.problem is not None:
            self._broken_key(key or "", stand.problem)
        elif stand.rule is not None:
            self._rule_key(key or "", stand.number, stand.rule)

    def _broken_key(self, key: str, problem: RuleProblem) -> None:
        if key == "e":
            self._attempt(lambda: self._open(mending(self._session.file, problem)))
        elif key in ("x", "space", "d", "J", "K", "t", "enter", "o"):
            self._told = "not understood, kept in the file as is: e edits it", ""

    def _rule_key(self, key: str, number: int, rule: Rule) -> None:
        session, at = self._session, number - 1
        if key == "enter":
            self.dismiss(number)
        elif key == "e":
            self._open(draft_of(session.file, session.rules, at))
        elif key == "o":
            self._open(new_draft(type(rule), session.comparison, session.listing.spot, behind=at))
        elif key in ("space", "d"):
            self.change(toggled(session.rules, at), at)
        elif key in ("x", "delete"):
            self.change(dropped(session.rules, at), at)
        elif key in ("J", "K"):
            by = 1 if key == "J" else -1
            self._attempt(lambda: self.change(moved(session.rules, at, by), at + by))
        elif key == "t":
            self._attempt(lambda: self._generalise(at))

    def _attempt(self, do: Callable[[], None]) -> None:
        try:
            do()
        except UserError as error:
            self._told = str(error), "red"

    def _generalise(self, at: int) -> None:
        """Propose the template that generalises a pair to all layers.

        Raises:
            EditError: no template exists, or the rules are still being matched.
        """
        edit = self._session.generalised(at)
        new = [rule for rule in edit.rules if not any(rule is old for old in self._session.rules)]
        self._told = "previewing the change …", ""
        self.try_change(edit, next(k for k, rule in enumerate(edit.rules) if rule is new[0]))

    def _next_troubled(self, by: int) -> None:
        places = self._listed.troubled
        if not places:
            self._told = "no rule needs a look", ""
            return
        ahead = [at for at in places if (at - self._at) * by > 0]
        self._at = (min if by > 0 else max)(ahead or places)
        self._told = ("" if ahead else f"around the {'end' if by > 0 else 'start'}"), ""

    # -- drawing

    def draw(self) -> None:
        """Draw the list; below it the details of the current rule, or the rule editor."""
        body = self.query_one(_Body)
        width, height = body.size
        if not width or height < 4:
            return
        n, message = len(self._listed), self._message(width)
        room = height - 3 - len(message)
        below = self._below(width, room)
        share = min(max(int(room * _SHARE), _CONTEXT), max(room - len(below) - 1, _CONTEXT), max(n, 1))
        self._top = min(max(self._top, self._at - share + 1), self._at, max(n - share, 0))
        listed = [stand_line(self._listed[at], width) for at in range(self._top, min(self._top + share, n))]
        if not n:
            listed = [[("   no rules yet: A types one; in the main list m pairs rows, x cuts, i ignores", "dim")]]
        lines = [self._title(width), HEADING, *listed, self._rule(width, n - self._top - share), *below]
        upper = height - 1 - len(message)
        if self._draft is not None:
            self.text.show(len(lines) - len(below), len(below) - 1)
        blank: list[Line] = [[] for _ in range(upper - len(lines))]
        keys = DRAFT_KEYS if self._draft is not None else _TRIAL_KEYS if self.trial is not None else _KEYS
        body.paint(
            [*lines[:upper], *blank, *message, key_line(keys, width)],
            reverse=2 + self._at - self._top if n and (self._draft is None or self._draft.base >= 0) else -1,
            items=[-1, -1, *range(self._top, min(self._top + share, n))],
        )

    def _title(self, width: int) -> Line:
        session = self._session
        path = safe_text(str(session.file.path), 200)
        path = fit(path, min(width // 3, width_of(path)), keep_end=True)
        red = sum(n for status, n in session.comparison.counts.items() if status.red)
        state = f"   ✗ {red:,} red" if self._listed.matched else "   matching …"
        return [
            (" Rules   ", "title"),
            (f"{path}   {summary(self._listed)}", ""),
            (state, "red" if red and self._listed.matched else "dim"),
            ("   not saved" if session.dirty else "", "close"),
        ]

    def _rule(self, width: int, more: int) -> Line:
        title = f" {self._draft.title} " if self._draft is not None else ""
        tail = f" {more:,} more ↓ " if more > 0 else ""
        return [("──", "dim"), (title, "title"), ("─" * max(width - 2 - len(title) - len(tail), 0) + tail, "dim")]

    def _below(self, width: int, room: int) -> list[Line]:
        if self._draft is not None:
            lines: list[Line] = [[] for _ in range(self.text.rows(max(room - _CONTEXT - 2, 1)))]
            return [*lines, [(fit(f" {self._draft.fields}", width), "dim")]]
        stand = self._under()
        return detail(stand, width)[: max(room - _CONTEXT - 1, 1)] if stand is not None else []

    def _message(self, width: int) -> list[Line]:
        """Return the error or preview of the typed rule, else the last message."""
        text, role = self._told
        if not text and self._draft is not None and (wrong := self._draft.problem) is not None:
            text, role = f"{wrong.line}:{wrong.column}: {wrong.message}", "red"
        elif self.trial is not None and (self._draft is None or not text):
            text, role = self._would(self.trial), "good"
        elif not text and (self.wanted is not None or self._draft is not None):
            text, role = "…" if self.wanted is not None else "the rule is valid", "dim"
        return [[(f" {part}", role)] for part in wrap(text, width - 2)[:_MAX_LINES]]

    def _would(self, trial: Trial) -> str:
        after = trial.job.result
        rule = trial.edit.rules.rules[trial.at]
        told = trial.effect.sentence()
        if after is not None and rule.enabled:
            use = after.usage[trial.at]
            told += f" · {matches(rule, use)}"
            if doubt := use.problem or use.hint:
                told += f" · {doubt.partition(': ')[2]}"
        return told if self._draft is not None else f"{told}   {trial.edit.title}"


class _Body(Lines):
    """Lines of the panel."""
