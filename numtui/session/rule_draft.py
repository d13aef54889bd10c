"""Draft of a rule in the editor: its text, its error, and the resulting rules.

The parser of rule files reads the text at every key, so that the editor accepts exactly what a file may contain.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from matchers.comparison import Comparison
from matchers.logs.op_log import OpLog
from matchers.ops.shapes import dimensions
from matchers.ops.share import Holds
from matchers.ops.tensor_rows import rows_of
from matchers.rules.emit import quoted
from matchers.rules.file import RuleFile
from matchers.rules.grammar import fields_of
from matchers.rules.item import ReadItem, broken_item, item_text, read_item, text_of
from matchers.rules.key_index import key_reference
from matchers.rules.model import (
    ApartRule,
    IgnoreRule,
    LayoutRule,
    ModuleRule,
    OpRule,
    PairRule,
    RowsRule,
    Rule,
    RuleProblem,
    RuleSet,
    TemplateRule,
    ToleranceRule,
)
from numtui.session.rule_edits import Edit, EditError, RecordPair
from numtui.session.rule_list import rule_text

__all__ = ["Draft", "draft_of", "mending", "new_draft", "suggested_draft"]

_RTOL = "1.0e-5"


@dataclass(slots=True)
class Draft:
    """One rule in the editor.

    Attributes:
        kind: the section of the rule.
        first: the initial text.
        base: index of the edited rule; -1 for a new one.
        behind: index of the rule before a new one; -1 puts it behind all others of its kind.
        line: line in its file, None for a new one.
        mends: the broken entry of the file that it fixes.
        saved: the text of the rule in its file, empty for none.
        text: the current text.
        read: the parsed rule, or the error in the text.
    """

    kind: type[Rule]
    first: str
    base: int = -1
    behind: int = -1
    line: int | None = None
    mends: RuleProblem | None = None
    saved: str = ""
    text: str = field(init=False)
    read: ReadItem = field(init=False)

    def __post_init__(self) -> None:
        self.retype(self.first)

    @property
    def title(self) -> str:
        """Return a title for the editor."""
        return f"{self.kind.section}: {'a new rule' if self.line is None and self.base < 0 else 'the rule'}" + (
            "" if self.line is None else f" of line {self.line}"
        )

    @property
    def fields(self) -> str:
        """Return the fields of the section, in a sentence."""
        known, needed = fields_of(self.kind)
        told = [name + "*" * (name in needed) for name in known]
        return f"fields of {self.kind.section}: {', '.join(told)}" + ("  (* required)" if needed else "")

    @property
    def changed(self) -> bool:
        """True when the text differs from the initial one."""
        return self.text != self.first

    @property
    def problem(self) -> RuleProblem | None:
        """Return the error in the text, with its place."""
        return self.read.problem

    def retype(self, text: str) -> None:
        """Replace the text and parse it."""
        self.text = text
        self.read = read_item(self.kind, text)

    def edit(self, rules: RuleSet) -> tuple[Edit, int] | None:
        """Return the rule change and the new index of the rule; None where the text is invalid or changes nothing.

        Raises:
            EditError: the edited rule no longer exists.
        """
        read = self.read.rule
        if read is None or (self.base >= 0 and not self.changed):
            return None
        text = self.text.rstrip()
        rule = replace(read, line=self.line, written=text if text != self.saved else None)
        title = f"{rule.section}: {rule_text(rule)}"
        if self.base >= 0:
            if not (self.base < len(rules) and rules.rules[self.base].section == self.kind.section):
                raise EditError("the edited rule no longer exists: esc closes")
            return Edit(f"change {title}", rules.with_at(self.base, rule)), self.base
        at = self._place(rules)
        problems = tuple(problem for problem in rules.problems if problem != self.mends)
        changed = RuleSet((*rules.rules[:at], rule, *rules.rules[at:]), problems, rules.path)
        at = next(number for number, other in enumerate(changed) if other is rule)
        return Edit(f"{'fix' if self.mends is not None else 'add'} {title}", changed), at

    def _place(self, rules: RuleSet) -> int:
        """Return the index of a new rule; a fixed entry keeps its place in the file."""
        if self.mends is None:
            return self.behind + 1 if self.behind >= 0 else len(rules)
        alike = [at for at, rule in enumerate(rules) if isinstance(rule, self.kind)]
        above = [at for at in alike if (rules.rules[at].line or 0) < (self.line or 0)]
        return above[-1] + 1 if above else alike[0] if alike else len(rules)


def draft_of(file: RuleFile, rules: RuleSet, at: int) -> Draft:
    """Create a draft of an existing rule."""
    rule = rules.rules[at]
    there = (old for old in file.rules if type(old) is type(rule) and old.line == rule.line)
    saved = next((text_of(file.document, old) for old in there), "")
    return Draft(type(rule), text_of(file.document, rule), base=at, line=rule.line, saved=saved)


def mending(file: RuleFile, problem: RuleProblem) -> Draft:
    """Create a draft of a broken entry of the file.

    Raises:
        EditError: it is not an entry of a section.
    """
    broken = broken_item(file.document, problem)
    if broken is None:
        raise EditError("not a single rule: fix it in a text editor")
    return Draft(broken.kind, broken.text, line=broken.line, mends=problem)


def suggested_draft(rule: Rule) -> Draft:
    """Create a draft of a suggested rule."""
    return Draft(type(rule), item_text(rule))


def new_draft(kind: type[Rule], c: Comparison, spot: RecordPair, behind: int = -1) -> Draft:
    """Create a draft of a new rule, filled in for the row of these records as far as possible."""
    return Draft(kind, _first_text(kind, c, spot), behind=behind)


def _first_text(kind: type[Rule], c: Comparison, spot: RecordPair) -> str:
    a, b = (_RecordNames(log, record) for log, record in zip((c.a, c.b), spot, strict=True))
    if kind in (PairRule, ApartRule, TemplateRule):
        plain = a.key, b.key
        both = plain if kind is not TemplateRule else tuple(key.replace("{", "{{").replace("}", "}}") for key in plain)
    elif kind is ModuleRule:
        both = a.module, b.module
    elif kind is OpRule:
        both = a.op, b.op
    elif kind is IgnoreRule:
        return f"match: {_value(a.key or b.key)}"
    elif kind is RowsRule:
        both = a.rows, b.rows
    elif kind is LayoutRule:
        return f"match: {_value(b.key or a.key)}\nholds: {Holds.PARTIAL.label}"
    else:
        assert kind is ToleranceRule
        return f"match: {_value(a.key or b.key)}\nrtol: {_RTOL}"
    return f"a: {_value(both[0])}\nb: {_value(both[1])}"


def _value(text: str) -> str:
    return quoted(text) if text else ""


class _RecordNames:
    """Names of a record; empty for none."""

    def __init__(self, log: OpLog, record: int) -> None:
        there = record >= 0
        self.key = key_reference(log, record) if there else ""
        self.module = str(log.modules[log.module[record]]) if there and log.module[record] >= 0 else ""
        self.op = log.op_name(record) if there else ""
        told = rows_of(log, record).values() if there else ()
        of = next((rows.of for rows in told), dimensions(log.shape_text(record))[:-1])
        self.rows = ", ".join([":"] * (len(of) - 1) + ["0"]) if there else ""
