"""The rules in force: what each says, where it stands, what it matched."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.app import ComposeResult

from matchers.op_log import Phase
from matchers.rules import ApartRule, IgnoreRule, ModuleRule, OpRule, PairRule, Rule, TemplateRule
from numtui.edits import Edit
from numtui.inspection import wrap
from numtui.screens.modal import Modal
from numtui.session import Session
from numtui.terminal import safe_text
from numtui.text import Line, fit
from numtui.widgets.lines import Lines

__all__ = ["RuleList", "rule_text"]


def rule_text(rule: Rule) -> str:
    """A rule on one line."""
    if isinstance(rule, PairRule):
        return f"{_join(rule.a)} ↔ {_join(rule.b)}"
    if isinstance(rule, (TemplateRule, OpRule)):
        return f"{_join(rule.a)} ↔ {_join(rule.b)}{_scope(None, rule.phase)}"
    if isinstance(rule, ApartRule):
        return f"{rule.a} ✗ {rule.b}"
    if isinstance(rule, ModuleRule):
        return f"{rule.a} → {rule.b}"
    if isinstance(rule, IgnoreRule):
        what = " ".join(part for part in (f"op {rule.op}" if rule.op else "", rule.match or "") if part)
        return what + _scope(rule.side, rule.phase)
    return f"{rule.match}{_scope(rule.side, rule.phase)} up to {rule.rtol:g}"


def _scope(side: str | None, phase: Phase | None) -> str:
    return (f" of {side}" if side else "") + (f" in {phase.label}" if phase is not None else "")


def _join(keys: tuple[str, ...]) -> str:
    return " + ".join(keys)


@dataclass(frozen=True)
class _Entry:
    rule: Rule | None
    line: Line


class RuleList(Modal[Edit | None]):
    """Dismissed with a proposed change (a rule dropped), or with nothing."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._entries: list[_Entry] = []
        self._at = 0
        self._top = 0

    def compose(self) -> ComposeResult:
        yield _Body()

    def draw(self) -> None:
        """What fits."""
        self._entries = _entries(self._session, self.size.width)
        room = max(self.size.height - 3, 1)
        self._at = min(max(self._at, 0), max(len(self._entries) - 1, 0))
        self._top = min(max(self._top, self._at - room + 1), self._at)
        shown = [entry.line for entry in self._entries[self._top : self._top + room]]
        path = safe_text(str(self._session.file.path), 200)
        unsaved = "   not saved" if self._session.dirty else ""
        title: Line = [(f" Rules   {path}", "title"), (unsaved, "close"), ("   x drops one · q or esc closes", "dim")]
        if not self._entries:
            shown = [[("   no rules yet: m pairs two rows, x cuts a pair, i ignores", "dim")]]
        blank: list[Line] = [[] for _ in range(room - len(shown))]
        self.query_one(_Body).paint(
            [title, [], *shown, *blank], reverse=self._at - self._top + 2 if self._entries else -1
        )

    def pressed(self, event: events.Key) -> None:
        """Move, drop a rule, close."""
        page = max(self.size.height - 5, 1)
        steps = {
            "j": 1, "down": 1, "k": -1, "up": -1, "ctrl+d": page // 2, "ctrl+u": -page // 2, "space": page,
            "pagedown": page, "pageup": -page, "b": -page, "g": -len(self._entries), "G": len(self._entries),
        }  # fmt: skip
        if event.key in ("q", "escape", "r", "ctrl+c"):
            self.dismiss(None)
        elif event.key in steps:
            self._at += steps[event.key]
            self.draw()
        elif event.key in ("x", "d", "delete") and self._entries:
            rule = self._entries[self._at].rule
            if rule is not None:
                title = f"drop the rule {rule.section}: {rule_text(rule)}"
                self.dismiss(Edit(title, self._session.rules.removing(rule)))


class _Body(Lines):
    """The list."""


def _entries(session: Session, width: int) -> list[_Entry]:
    """The lines of the list; a long rule takes several, each of which stands for it."""
    usage = {u.rule: u for u in session.comparison.usage} if session.comparison.rules == session.rules else {}
    indent = 27
    entries = []
    for i, rule in enumerate(session.rules.rules):
        used = usage.get(i)
        where = f"line {rule.line}" if rule.line else "new"
        count = "" if used is None else f"{used.matched:,}×"
        head = f" {fit(rule.section, 10)}{fit(where, 9)}{count.rjust(5)}  "
        texts = [(text, "") for text in wrap(rule_text(rule), width - indent - 1)]
        if rule.why:
            texts += [(text, "dim") for text in wrap(rule.why, width - indent - 1)]
        if used is not None and used.problem:
            texts += [(text, "close") for text in wrap(used.problem, width - indent - 1)]
        if used is not None and used.hint:
            texts += [(text, "dim") for text in wrap(used.hint, width - indent - 1)]
        for n, (text, role) in enumerate(texts):
            entries.append(_Entry(rule, [(head if n == 0 else " " * indent, ""), (text, role)]))
    for problem in session.rules.problems:
        entries.extend(_Entry(None, [(f" {text}", "red")]) for text in wrap(f"broken: {problem}", width - 2, "  "))
    return entries
