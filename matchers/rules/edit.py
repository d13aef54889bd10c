"""Edit a rule file in place, touching only the characters of the rules that changed.

Comments and blank lines (docs/rules.md says the same to the user):

- An unchanged rule keeps every character. So does everything that is not a rule: comments, unknown sections, broken
  items (unless a rule has their line: then the user has corrected them).
- A rule that is enabled or disabled changes by its `enabled`; a rewritten one (`Rule.written`) is replaced by its new
  text. The comments above it stay, and so does its place.
- A removed rule takes along the comments on and between its own lines, and those directly below it that are indented
  deeper than its dash.
- Comment lines directly above it go too, but stay where they may refer to more than this rule: above the first rule of
  a section, or when another rule that stays follows without a blank line or a comment between.
- A new rule is written like its neighbours, at its place in the order of the rules, by default the end of its section.
  New sections are written at the end of the file.
- A section in brackets, `pairs: [{…}, …]`, that has to change becomes a list of lines first (block_style.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from matchers.rules.block_style import LayoutError, applied, dash_indent, in_lines
from matchers.rules.diff import SectionChange, section_changes
from matchers.rules.emit import flow_item, indented
from matchers.rules.grammar import Document, Item, Section
from matchers.rules.item import LINE_BREAK, Edit, block_item, end_of_item, item_text, new_file, switch
from matchers.rules.model import SECTIONS, Rule

__all__ = ["edited"]


def edited(document: Document, rules: Sequence[Rule]) -> str:
    """Return the document's text with exactly these rules in it, unchanged where it has them already.

    Raises:
        LayoutError: a section that has to change cannot be edited in place.
    """
    if tuple(rules) == document.rules.rules and not any(rule.written for rule in rules):
        return document.text
    found = LINE_BREAK.search(document.text)
    break_ = found.group() if found else "\n"
    if not document.readable:
        return new_file(rules, break_)
    changes: dict[int, SectionChange] = {}
    new_sections: list[tuple[type[Rule], list[Rule]]] = []
    for kind in SECTIONS:
        wanted = [rule for rule in rules if isinstance(rule, kind)]
        sections = {at: section for at, section in enumerate(document.sections) if section.kind is kind}
        had = [item.rule for section in sections.values() for item in section.items if item.rule is not None]
        if wanted == had and not any(rule.written for rule in wanted):
            continue
        if not sections:
            new_sections.append((kind, wanted))
            continue
        of_kind = section_changes(document.lines, list(sections.values()), wanted)
        changes |= {at: change for at, change in zip(sections, of_kind, strict=True) if change}
    document = in_lines(document, changes, break_)
    if document.root is None and not document.text.strip():
        return new_file(rules, break_)
    return _Editor(document, break_).run(changes, new_sections)


class _Editor:
    """Replacements of stretches of the text, collected and then applied at once."""

    def __init__(self, document: Document, break_: str) -> None:
        self.document = document
        self.break_ = break_
        # Every line gets a break, so that lines can be put behind the last one; taken away again at the end.
        self.unfinished = bool(document.text) and not document.text.endswith(("\n", "\r"))
        self.text = document.text + (break_ if self.unfinished else "")
        self.lines = document.lines
        self.edits: list[Edit] = []

    def run(self, changes: Mapping[int, SectionChange], new_sections: Sequence[tuple[type[Rule], list[Rule]]]) -> str:
        """Return the text with changed sections (by position) and new ones."""
        for at, change in changes.items():
            section = self.document.sections[at]
            if section.value.kind == "list":
                self.change(section, change)
            else:
                self.fill(section, [rule for new in change.added.values() for rule, _ in new])
        self.add_sections(new_sections)
        text = applied(self.text, self.edits)
        return text[: -len(self.break_)] if self.unfinished and text.endswith(self.break_) else text

    def is_comment(self, line: int) -> bool:
        return line < len(self.lines) and self.lines.content(line).lstrip().startswith("#")

    def indent(self, line: int) -> int:
        content = self.lines.content(line)
        return len(content) - len(content.lstrip(" "))

    def is_blank(self, line: int) -> bool:
        return line >= len(self.lines) or not self.lines.content(line).strip()

    def spans(self, section: Section) -> list[tuple[int, int, int]]:
        """The lines of each item: of the comments above, of the dash, behind the item."""
        column = self.lines.column(section.value.start)
        spans = []
        line = self.lines.number(section.value.start)
        for item in section.items:
            first = line
            while first < len(self.lines) and not self.lines.content(first).lstrip().startswith("-"):
                first += 1
            if first == len(self.lines) or self.indent(first) != column:
                raise LayoutError(f"'{section.kind.section}' is not laid out as a list of lines")
            after = end_of_item(self.lines, item.node, column)
            above = first
            while above > line and self.is_comment(above - 1):
                above -= 1
            spans.append((above, first, after))
            line = after
        return spans

    def change(self, section: Section, change: SectionChange) -> None:
        """Change a section whose items begin with a dash on a line of their own."""
        column, spans = self.lines.column(section.value.start), self.spans(section)
        raw = {at: self.cut(spans, at, change.removed) for at in sorted(change.removed)}
        for position, rule in change.rewritten.items():
            stop = self.start(spans[position][2])
            edit = self.rewriting(section, section.items[position], rule, stop)
            if position in raw:
                raw[position] = applied(raw[position], [edit], stop - len(raw[position]))
                continue
            self.edits.append(edit)
            if rule.written is not None:
                until = spans[position + 1][1] if position + 1 < len(spans) else len(self.lines)
                self.dedent_below(spans[position][2], until, self.indent(spans[position][1]))
        indent, dash = " " * column, self.dash(section)
        flow = bool(section.items) and all(item.node.flow for item in section.items)
        staying = [at for at in range(len(spans)) if at not in change.removed]
        for behind, new in change.added.items():
            if behind is None:
                line = spans[-1][2]
            elif behind < 0:
                line = spans[staying[0]][0]
            else:
                line = spans[behind][2]
            place = self.start(line)
            if any(rule.written is not None or moved is not None for rule, moved in new):
                self.dedent_below(line, len(self.lines), column)
            written = ""
            for rule, moved in new:
                if moved is not None and moved in raw:
                    written += raw[moved]
                elif flow and rule.written is None:
                    written += f"{indent}{dash}{flow_item(rule)}{self.break_}"
                else:
                    written += block_item(rule, indent, self.break_, dash)
            self.edits.append((place, place, written))

    def rewriting(self, section: Section, item: Item, rule: Rule, behind: int) -> Edit:
        """Return the edit that turns an item, which ends before `behind`, into `rule`."""
        edit = self.switching(section, item, rule)
        if edit is not None:
            return edit
        start = item.node.start
        lead = " " * self.text.endswith("-", 0, start)  # an entry without anything in it ends with its dash
        margin = " " * self.lines.column(start) + lead
        return start, behind, lead + indented(item_text(rule), margin, self.break_) + self.break_

    def switching(self, section: Section, item: Item, rule: Rule) -> Edit | None:
        """Return the edit of `enabled` alone; None where the rule differs in more."""
        if rule.written is not None or item.rule is None or rule != replace(item.rule, enabled=rule.enabled):
            return None
        return switch(self.document, section, item, rule, self.break_)

    def start(self, line: int) -> int:
        at = self.lines.start(line)
        return at if at < len(self.document.text) else len(self.text)

    def dash(self, section: Section) -> str:
        """The dash and the blanks behind it, as in the last item with its first field on the same line."""
        for item in reversed(section.items):
            before = self.lines.content(self.lines.number(item.node.start))[: self.lines.column(item.node.start)]
            found = re.fullmatch(r" *(- +)", before)
            if found:
                return found.group(1)
        return "- "

    def cut(self, spans: list[tuple[int, int, int]], at: int, removed: set[int]) -> str:
        """Remove one item with the comments that are only its own; return the removed text, without blank lines."""
        above, first, after = spans[at]
        last = at
        while last + 1 < len(spans) and spans[last + 1][0] == spans[last + 1][1] == spans[last][2]:
            last += 1
        # A comment over several rules goes when all of them go.
        begin = above if at > 0 and all(other in removed for other in range(at, last + 1)) else first
        taken = self.text[self.start(begin) : self.start(after)]
        if begin == above and self.is_blank(after):
            while begin > 0 and self.is_blank(begin - 1) and (at == 0 or begin > spans[at - 1][2]):
                begin -= 1
        self.edits.append((self.start(begin), self.start(after), ""))
        self.dedent_below(after, spans[at + 1][1] if at + 1 < len(spans) else len(self.lines), self.indent(first))
        return taken

    def dedent_below(self, first: int, until: int, column: int) -> None:
        """Move comments that stay to the dash, so that they do not become text of a block that ends the item before."""
        for line in range(first, until):
            if self.is_comment(line):
                if self.indent(line) > column:
                    start = self.start(line)
                    self.edits.append((start + column, start + self.indent(line), ""))
            elif not self.is_blank(line):
                break

    def fill(self, section: Section, rules: list[Rule]) -> None:
        """Write the first rules of an empty section."""
        root = self.document.root
        assert root is not None
        value = section.value
        outer = self.lines.column(root.start)
        if value.end > value.start:
            start = value.start
            while self.text[start - 1].isspace():
                start -= 1
            self.edits.append((start, value.end, ""))
        line = self.lines.number(value.end) + 1
        while self.is_comment(line) and self.indent(line) > outer:
            line += 1
        place = self.start(line)
        indent = " " * (outer + dash_indent(self.document))
        self.edits.append((place, place, "".join(block_item(rule, indent, self.break_) for rule in rules)))

    def add_sections(self, sections: Sequence[tuple[type[Rule], list[Rule]]]) -> None:
        """Write new sections at the end."""
        new = [(kind, rules) for kind, rules in sections if rules]
        if not new:
            return
        root = self.document.root
        outer = self.lines.column(root.start) if root is not None else 0
        place = len(self.text) if self.document.stop is None else self.document.stop
        text = "" if root is not None else f"version: 1{self.break_}"
        blank = self.text[:place].endswith(self.break_ * 2)
        indent = " " * (outer + dash_indent(self.document))
        for kind, rules in new:
            lead = "" if blank and not text else self.break_
            text += f"{lead}{' ' * outer}{kind.section}:{self.break_}"
            text += "".join(block_item(rule, indent, self.break_) for rule in rules)
        self.edits.append((place, place, text))
