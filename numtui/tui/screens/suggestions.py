"""Suggestions panel: kinds of drift, rules that settle them, and the effect of each.

A tree above the details of its current line. A thread previews the line under a resting cursor before it is accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from textual import events, on
from textual.app import ComposeResult
from textual.message import Message
from textual.timer import Timer

from matchers.comparison import Comparison
from matchers.drift.suggestion import Suggestion
from matchers.errors import UserError
from numtui.session.jobs import Job
from numtui.session.session import Session
from numtui.session.suggestion_tree import Node, State
from numtui.text.lines import Line, fit, key_line
from numtui.text.safe import safe_text
from numtui.tui.screens.pager import keys_page
from numtui.tui.screens.trial import Trying
from numtui.tui.widgets.lines import Lines
from numtui.views.suggestions import detail, heading, node_line, quiet_lines

__all__ = ["Suggestions"]

_REST: Final = 0.15
"""Seconds of a resting cursor before its line is previewed."""
_SHARE: Final = 0.45
"""Share of the screen for a long tree."""

_KEYS: Final = (
    ("a", "accept"),
    ("A", "accept all"),
    ("v", "list all"),
    ("x", "reject or remove"),
    ("q", "close"),
    ("e", "edit"),
    ("u", "undo"),
    ("^s", "save"),
    ("→ ←", "open, close a line"),
    ("enter", "go to the row"),
)
"""Keys, the most important first."""


_HELP = {
    "j ↓  k ↑": "next, previous line",
    "→ enter  ←": "open the line: its rules, their operations; close it",
    "a  A": "accept the line; all lines",
    "x": "reject the line, or take an accepted one back",
    "e": "edit its rule",
    "v": "list what changes no verdict too",
    "enter": "on an operation: go to its row",
    "u  ctrl+r": "undo, redo",
    "ctrl+s": "save the rules",
    "q esc s": "close",
}
"""Keys, for `?`."""


class Suggestions(Trying[int | None]):
    """Suggestions panel, dismissed with the row to go to, or None.

    Args:
        start: runs a job of the session in the background.
        save: saves the rules.
    """

    covers = True

    @dataclass
    class Found(Message):
        """The search for drift ended."""

        comparison: Comparison
        found: tuple[Suggestion, ...]

    def __init__(self, session: Session, start: Callable[[Job | None], None], save: Callable[[], None]) -> None:
        super().__init__(session)
        self._start = start
        self._save = save
        self._unfolded: set[Node] = set()
        self._at = 0
        self._top = 0
        self._about: Node | None = None
        """Line of the current or last preview; None for accepting everything."""
        self._sure: Node | None = None
        """Line to accept as soon as its preview ends."""
        self._looking = False
        """True while searching for drift."""
        self._told: tuple[str, str] = ("", "")
        self._rest: Timer | None = None

    def compose(self) -> ComposeResult:
        yield _Body()

    def on_mount(self) -> None:
        """Search for drift, unless it has been done."""
        self._look()

    # -- state

    def _look(self) -> None:
        c = self._session.comparison
        self._looking = self._session.suggested.comparison is not c
        if not self._looking:
            self._resting()
            return
        find = self._session.suggestions_in
        self.run_worker(lambda: self.post_message(self.Found(c, find(c))), thread=True, group="find", exclusive=True)

    @on(Found)
    def _found(self, event: Found) -> None:
        if event.comparison is not self._session.comparison:
            return
        self._looking = False
        suggested = self._session.suggested
        under = self._under()
        subject = self._subject()
        unfolded = [suggested.title(node) for node in self._unfolded]
        titles = [suggested.title(node) for node in (subject, under and Node(under.family)) if node is not None]
        suggested.update(event.comparison, event.found)
        self._unfolded = {node for title in unfolded if (node := suggested.named(*title)) is not None}
        found = [suggested.named(*title) for title in titles]
        listed = self._listed()
        self._at = next((listed.index(node) for node in found if node in listed), 0)
        # its line number may have changed
        self._sure = found[0] if self._sure is not None and found else None
        self.draw()
        self._resting()

    def session_changed(self) -> None:
        """Search for the remaining drift once the accepted rules have been matched."""
        self.give_up()
        if not self._session.suggested.families:
            self._unfolded.clear()
            self._at = 0
        self._look()
        self.redraw()

    def hear(self, message: str, *, trouble: bool) -> None:
        """Show a message of the main screen."""
        self._told = message, "red" if trouble else ""
        self.redraw()

    # -- previews

    def _resting(self) -> None:
        """Preview the line under a resting cursor."""
        if self._rest is not None:
            self._rest.stop()
        self._rest = self.set_timer(_REST, self._try)

    def _subject(self) -> Node | None:
        """Return the line to accept: this one, or the rule (or family) above an operation."""
        node = self._under()
        return node if node is None or node.instance < 0 else node.parent

    @property
    def _trying_all(self) -> bool:
        """True while previewing everything at once."""
        return self.wanted is not None and self._about is None

    @property
    def _asking(self) -> bool:
        """True while accepting everything awaits confirmation."""
        return self.trial is not None and self._about is None

    def _try(self) -> None:
        session, node = self._session, self._subject()
        if node is None or self._looking or self._trying_all or self._asking:
            return
        if session.comparison.rules != session.rules:
            return  # matching; `session_changed` resumes
        if self._about == node and (self.trial is not None or self.wanted is not None):
            return
        if session.suggested.state(node) is not State.OPEN and self._sure != node:
            return
        try:
            edit = session.suggested.accept(node, session.rules)
        except UserError as error:
            self.refused(error)
        else:
            self._about = node
            self.try_change(edit)

    def _try_all(self) -> None:
        base = self._session.comparison
        self._about = None
        self.try_change(partial(self._session.suggested.accept_all, base.rules, base))

    def tried(self) -> None:
        """Accept the line that awaits its preview; everything at once awaits confirmation."""
        if self._about is not None and self._about == self._sure:
            self._commit()
        self.draw()

    def refused(self, error: UserError) -> None:
        """Report a change that cannot be made."""
        self._sure = None
        self._told = str(error), "red"
        self.draw()

    def _commit(self) -> None:
        """Apply a previewed change."""
        trial, session = self.trial, self._session
        self.give_up()
        self._sure = None
        if trial is not None and trial.job.generation == session.generation:
            self._told = f"{trial.edit.title}: {trial.effect.sentence()}   (u undoes it)", "good"
            job = session.change(trial.edit.rules, trial.edit.title)
            job.result = trial.job.result
            self._start(job)

    # -- keys

    def choose(self, item: int) -> bool:
        """Go to a line; the question about everything is thereby answered with no."""
        if self._asking:
            self.give_up()
        self._told, self._sure, self._at = ("", ""), None, item
        self._resting()
        return True

    def pressed(self, event: events.Key) -> None:
        """Move, open, decide, close."""
        key = event.character if event.character in ("A", "G", "R") else event.key
        if self._asking:
            if key in ("enter", "A", "y"):
                self._commit()
                self.draw()
                return
            self.give_up()
            self._told = "nothing was accepted", ""
            if key == "escape":
                self.draw()
                return
        else:
            self._told = "", ""
        self._sure = None
        self._do(key or "")
        self.draw()

    def _do(self, key: str) -> None:
        page = max(self.size.height // 3, 1)
        nodes = self._listed()
        steps = {
            "j": 1, "down": 1, "k": -1, "up": -1, "ctrl+d": page, "ctrl+u": -page, "space": page, "pagedown": page,
            "pageup": -page, "b": -page, "g": -len(nodes), "home": -len(nodes), "G": len(nodes), "end": len(nodes),
        }  # fmt: skip
        if key in ("q", "escape", "s", "ctrl+c"):
            self.dismiss(None)
        elif key in steps:
            self._at += steps[key]
            self._resting()
        elif key in ("u", "ctrl+r"):
            job, message = self._session.undo() if key == "u" else self._session.redo()
            if job is not None:
                self.give_up()
            self._told = message, ""
            self._start(job)
        elif key == "ctrl+s":
            self._save()
        elif key == "v":
            self._list_everything()
        elif key in ("question_mark", "f1"):
            self.app.push_screen(keys_page("Suggestions", _HELP))
        elif (node := self._under()) is not None:
            self._at_node(key, node)
        elif key == "A" and self._session.suggested.quiet():
            self._list_everything()
            self._try_all()
        elif key == "a" and self._session.suggested.quiet():
            self._told = "nothing listed to accept; v lists the rules", ""

    def _at_node(self, key: str, node: Node) -> None:
        session = self._session
        if key == "enter" and node.instance >= 0:
            i, j = session.suggested.records(node)
            c = session.comparison
            self.dismiss(int(c.at_a[i] if i >= 0 else c.at_b[j]))
        elif key in ("enter", "l", "right", "tab"):
            closed = node not in self._unfolded
            self._unfolded.add(node)
            if not closed and key == "enter":
                self._unfolded.discard(node)
        elif key in ("h", "left"):
            self._close(node)
        elif key == "a":
            self._accept(node)
        elif key == "A" and not (self._looking or self._trying_all):
            self._try_all()
        elif key == "e":
            self._edit(self._subject() or node)
        elif key in ("x", "delete"):
            self._reject(self._subject() or node)

    def _list_everything(self) -> None:
        """List also the families that change no verdict, or no longer; the cursor stays on its line."""
        self.give_up()
        suggested, under = self._session.suggested, self._under()
        suggested.everything = not suggested.everything
        nodes = self._listed()
        self._at = nodes.index(under) if under in nodes else 0
        self._resting()

    def _edit(self, node: Node) -> None:
        """Open the rule of a line in the editor, which applies it."""
        from numtui.session.rule_draft import draft_of, suggested_draft
        from numtui.tui.screens.rules import RulesPanel

        session = self._session
        rule, generation = session.suggested.rule(node), session.generation
        if rule is None:
            self._told = "→ opens the line, then e edits one of its rules", ""
            return
        in_force = rule in session.rules.rules
        draft = (
            draft_of(session.file, session.rules, session.rules.rules.index(rule))
            if in_force
            else suggested_draft(rule)
        )

        self.give_up()

        def edited(_: int | None) -> None:
            if session.generation != generation:
                self._told = "edited rule applied   (u undoes it)", "good"
                self.session_changed()
            else:
                self._resting()

        self.app.push_screen(RulesPanel(session, self._start, self._save, draft), edited)

    def _close(self, node: Node) -> None:
        if node in self._unfolded:
            self._unfolded.discard(node)
        elif (parent := node.parent) is not None:
            self._unfolded.discard(parent)
            self._at = self._listed().index(parent)

    def _accept(self, node: Node) -> None:
        self._sure = self._subject() or node
        if self.trial is not None and self._about == self._sure:
            self._commit()
        else:
            self._try()

    def _reject(self, node: Node) -> None:
        session = self._session
        try:
            if session.suggested.state(node) is State.ACCEPTED:
                edit = session.suggested.take_back(node, session.rules)
                self._told = f"{edit.title}   (u undoes it)", ""
                self.give_up()
                self._start(session.change(edit.rules, edit.title))
            else:
                self._told = session.suggested.reject(node), ""
                self.give_up()
                self._resting()
        except UserError as error:
            self.refused(error)

    # -- drawing

    def _listed(self) -> list[Node]:
        return list(self._session.suggested.nodes(self._unfolded))

    def _under(self) -> Node | None:
        nodes = self._listed()
        if not nodes:
            return None
        self._at = min(max(self._at, 0), len(nodes) - 1)
        return nodes[self._at]

    def draw(self) -> None:
        """Draw the tree, the details of the current line, and the keys."""
        session, body = self._session, self.query_one(_Body)
        width, height = body.size
        if not width or height < 4:
            return
        c, suggested, node = session.comparison, session.suggested, self._under()
        nodes = self._listed()
        quiet = suggested.quiet()
        summed_up = quiet_lines(c, quiet, "v", width)
        room = height - 3 - len(summed_up)
        tree = min(len(nodes), max(int(room * _SHARE), 3))
        self._top = min(max(self._top, self._at - tree + 1), self._at, max(len(nodes) - tree, 0))
        unsaved = "   rules not saved" if session.dirty else ""
        title: Line = [(" Suggestions   ", "title"), (self._state(), "dim"), (unsaved, "close")]
        shown = [node_line(c, suggested, n, n in self._unfolded, width) for n in nodes[self._top : self._top + tree]]
        below = len(nodes) - self._top - tree
        more = f"─ {below:,} more ↓ " if below > 0 else ""
        rule: list[Line] = [[("─" * max(width - len(more), 0) + more, "dim")]] if nodes else []
        trial = self.trial if self._about is not None and self._about == self._subject() else None
        told: list[Line] = []
        if node is not None:
            effect, after = (None, None) if trial is None else (trial.effect, trial.job.result)
            told = detail(c, suggested, node, after, effect, width, room - tree - 2)
        lines = [title, *shown, *summed_up, *rule, *told]
        blank: list[Line] = [[] for _ in range(height - 2 - len(lines))]
        body.paint(
            [*lines, *blank, self._message(width), key_line(self._keys(some_quiet=bool(quiet)), width)],
            reverse=1 + self._at - self._top if nodes else -1,
            items=[-1, *range(self._top, self._top + len(shown))],
        )

    def _keys(self, *, some_quiet: bool) -> tuple[tuple[str, str], ...]:
        """Return the keys that do something now; `some_quiet`: some families are not listed."""
        list_all = "list fewer" if self._session.suggested.everything else "list all" if some_quiet else ""
        usable = {"A", "v", "u", "^s", "q"} if self._under() is None else {key for key, _ in _KEYS}
        if not list_all:
            usable -= {"v"} if self._under() is not None else {"A", "v"}
        return tuple((key, list_all if key == "v" else does) for key, does in _KEYS if key in usable)

    def _state(self) -> str:
        """Return the running work, else the number of open decisions."""
        if self._looking:
            return "looking for drift …"
        return "previewing all of them …" if self._trying_all else heading(self._session.suggested)

    def _message(self, width: int) -> Line:
        """Return the last message, or the effect of accepting everything."""
        if self.trial is not None and self._asking:
            asked = f" {self.trial.effect.sentence()}   {safe_text(self.trial.edit.title, 300)}"
            keys: Line = [("  enter apply ", "key@enter"), ("· esc cancel ", "key@esc")]
            return [(fit(asked, width - sum(len(text) for text, _ in keys)), "good"), *keys]
        text, role = self._told
        return [(fit(f" {safe_text(text, 600)}", width), role)]


class _Body(Lines):
    """Lines of the panel."""
