"""A rule as it is being typed: its text, what is wrong with it, and the rules with it.

The text is read at every key by the grammar of rule files, so that what is accepted here is what a file may hold.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from matchers.comparison import Comparison
from matchers.logs.op_log import OpLog
from matchers.rules.emit import quoted
from matchers.rules.file import RuleFile
from matchers.rules.grammar import fields_of
from matchers.rules.item import ReadItem, broken_item, item_text, read_item, text_of
from matchers.rules.key_index import key_reference
from matchers.rules.model import (
    ApartRule,
    IgnoreRule,
    ModuleRule,
    OpRule,
    PairRule,
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
        kind: the section that it is a rule of.
        first: the text as it was at first.
        base: the rule that is edited, an index into the rules; -1 for a new one.
        behind: a new one comes behind the rule of this index; -1: behind all others of its kind.
        line: where it stands in its file, None for a new one.
        mends: what of the file is not understood, and will be.
        saved: the text that its file has for the rule, empty for none.
        text: the text as it is now.
        read: the rule that the text says, or what is wrong with it.
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
        """What is edited."""
        return f"{self.kind.section}: {'a new rule' if self.line is None and self.base < 0 else 'the rule'}" + (
            "" if self.line is None else f" of line {self.line}"
        )

    @property
    def fields(self) -> str:
        """What may be written, in a sentence."""
        known, needed = fields_of(self.kind)
        told = [name + "*" * (name in needed) for name in known]
        return f"fields of {self.kind.section}: {', '.join(told)}" + ("  (* is needed)" if needed else "")

    @property
    def changed(self) -> bool:
        """Whether anything was typed."""
        return self.text != self.first

    @property
    def problem(self) -> RuleProblem | None:
        """What is wrong with the text, with its place in it."""
        return self.read.problem

    def retype(self, text: str) -> None:
        """Take this text in place of the one before, and read it."""
        self.text = text
        self.read = read_item(self.kind, text)

    def edit(self, rules: RuleSet) -> tuple[Edit, int] | None:
        """The change of the rules, and the index of the rule then; None where the text means nothing, or changes
        nothing.

        Raises:
            EditError: the rule that was edited is not there any more.
        """
        read = self.read.rule
        if read is None or (self.base >= 0 and not self.changed):
            return None
        text = self.text.rstrip()
        rule = replace(read, line=self.line, written=text if text != self.saved else None)
        title = f"{rule.section}: {rule_text(rule)}"
        if self.base >= 0:
            if not (self.base < len(rules) and rules.rules[self.base].section == self.kind.section):
                raise EditError("the rule that was edited is not there any more: esc leaves")
            return Edit(f"change {title}", rules.with_at(self.base, rule)), self.base
        at = self._place(rules)
        problems = tuple(problem for problem in rules.problems if problem != self.mends)
        changed = RuleSet((*rules.rules[:at], rule, *rules.rules[at:]), problems, rules.path)
        at = next(number for number, other in enumerate(changed) if other is rule)
        return Edit(f"{'mend' if self.mends is not None else 'add'} {title}", changed), at

    def _place(self, rules: RuleSet) -> int:
        """The index that a new rule gets; what is mended stays in the order of the file."""
        if self.mends is None:
            return self.behind + 1 if self.behind >= 0 else len(rules)
        alike = [at for at, rule in enumerate(rules) if isinstance(rule, self.kind)]
        above = [at for at in alike if (rules.rules[at].line or 0) < (self.line or 0)]
        return above[-1] + 1 if above else alike[0] if alike else len(rules)


def draft_of(file: RuleFile, rules: RuleSet, at: int) -> Draft:
    """To edit a rule."""
    rule = rules.rules[at]
    there = (old for old in file.rules if type(old) is type(rule) and old.line == rule.line)
    saved = next((text_of(file.document, old) for old in there), "")
    return Draft(type(rule), text_of(file.document, rule), base=at, line=rule.line, saved=saved)


def mending(file: RuleFile, problem: RuleProblem) -> Draft:
    """To edit what is not understood.

    Raises:
        EditError: it is no entry of a section.
    """
    broken = broken_item(file.document, problem)
    if broken is None:
        raise EditError("this is no single rule: mend it in a text editor")
    return Draft(broken.kind, broken.text, line=broken.line, mends=problem)


def suggested_draft(rule: Rule) -> Draft:
    """To edit a rule that is suggested, before it is one."""
    return Draft(type(rule), item_text(rule))


def new_draft(kind: type[Rule], c: Comparison, spot: RecordPair, behind: int = -1) -> Draft:
    """To type a new rule; about the row with these records, as far as they can be guessed."""
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
    else:
        assert kind is ToleranceRule
        return f"match: {_value(a.key or b.key)}\nrtol: {_RTOL}"
    return f"a: {_value(both[0])}\nb: {_value(both[1])}"


def _value(text: str) -> str:
    return quoted(text) if text else ""


class _RecordNames:
    """What a record is called; empty texts for none."""

    def __init__(self, log: OpLog, record: int) -> None:
        there = record >= 0
        self.key = key_reference(log, record) if there else ""
        self.module = str(log.modules[log.module[record]]) if there and log.module[record] >= 0 else ""
        self.op = log.op_name(record) if there else ""
