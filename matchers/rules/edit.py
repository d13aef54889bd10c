"""Editing a rule file in place: only the characters of the rules that changed are touched.

What happens to comments and blank lines (docs/rules.md says the same to the user):

- A rule that is kept keeps every character. So does all that is not a rule: comments, unknown sections, broken items
  (unless a rule has their line: then they have been mended).
- A rule that is switched on or off changes by its `enabled`; one that was written anew (`Rule.written`) is replaced by
  what was written. The comments above it stay, and so does its place.
- A rule that goes takes the comments on and between its own lines along, and those directly below it that are
  indented deeper than its dash.
- Comment lines directly above it go too, unless they may speak for more than this rule: above the first rule of a
  section, or when another rule that stays follows without a blank line or a comment between.
- A new rule is written like its neighbours, at its place in the order of the rules, which for a new one is the end of
  its section. New sections are written at the end. `section: []` becomes a list of lines; other lists in brackets
  stay in brackets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from matchers.rules.diff import SectionChange, section_changes
from matchers.rules.emit import flow_item, indented
from matchers.rules.grammar import Document, Item, Section
from matchers.rules.item import Edit, block_item, end_of_item, item_text, new_file, read_item, switch
from matchers.rules.model import SECTIONS, Rule

__all__ = ["LayoutError", "edited"]

_LINE_BREAK: Final = re.compile(r"\r\n|\n|\r")
_GAP: Final = re.compile(r"(?:\s|(?<=\s)#[^\r\n]*)*")
_REST_OF_LINE: Final = re.compile(r"[ \t]*(?:(?<=[ \t])#[^\r\n]*)?(?:\r\n|\n|\r)")


class LayoutError(ValueError):
    """Valid YAML in a layout (a dash behind `? key` and `:`) that cannot be edited by cutting and inserting lines."""


def edited(document: Document, rules: Sequence[Rule]) -> str:
    """The document's text with exactly these rules in it; the text itself when they are those it has.

    Raises `LayoutError` when a section that has to change cannot be edited in place.
    """
    if tuple(rules) == document.rules.rules and not any(rule.written for rule in rules):
        return document.text
    found = _LINE_BREAK.search(document.text)
    break_ = found.group() if found else "\n"
    if not document.readable or (document.root is None and not document.text.strip()):
        return new_file(rules, break_)
    return _Editor(document, break_).run(rules)


class _Editor:
    """Collects replacements of stretches of the text and applies them at once."""

    def __init__(self, document: Document, break_: str) -> None:
        self.document = document
        self.break_ = break_
        # Every line gets a break, so that lines can be put behind the last one; taken away again at the end.
        self.unfinished = bool(document.text) and not document.text.endswith(("\n", "\r"))
        self.text = document.text + (break_ if self.unfinished else "")
        self.lines = document.lines
        self.edits: list[Edit] = []
        self.new_sections: list[tuple[type[Rule], list[Rule]]] = []

    def run(self, rules: Sequence[Rule]) -> str:
        for kind in SECTIONS:
            wanted = [rule for rule in rules if isinstance(rule, kind)]
            sections = [section for section in self.document.sections if section.kind is kind]
            had = [item.rule for section in sections for item in section.items if item.rule is not None]
            if wanted == had and not any(rule.written for rule in wanted):
                continue
            if not sections:
                self.new_sections.append((kind, wanted))
                continue
            for section, change in zip(sections, section_changes(self.lines, sections, wanted), strict=True):
                if change:
                    self.change(section, change)
        self.add_sections()
        text = self.apply()
        return text[: -len(self.break_)] if self.unfinished and text.endswith(self.break_) else text

    def apply(self) -> str:
        """The text with all edits; what is inside of a stretch that goes is not edited any more."""
        pieces: list[str] = []
        done = 0
        # Of two that begin at the same place what is inserted comes first, then the longer one.
        for start, end, replacement in sorted(self.edits, key=lambda edit: (edit[0], edit[1] > edit[0], -edit[1])):
            if start >= done:
                pieces += [self.text[done:start], replacement]
                done = end
        return "".join(pieces) + self.text[done:]

    def change(self, section: Section, change: SectionChange) -> None:
        value = section.value
        if value.kind == "list" and not value.flow:
            self.change_block(section, change)
            return
        added = [rule for new in change.added.values() for rule, _ in new]
        in_brackets = self.document.root is not None and self.document.root.flow
        if not in_brackets and not section.items and "\n" not in self.text[value.start : value.end]:
            self.fill(section, added)
        elif value.kind == "list":
            self.change_flow(section, change)
        else:
            colon = "" if self.text[section.key.end :].lstrip().startswith(":") else ":"
            self.edits.append((value.end, value.end, f"{colon} [{', '.join(map(flow_item, added))}]"))

    # Lists of lines

    def is_comment(self, line: int) -> bool:
        return line < len(self.lines) and self.lines.content(line).lstrip().startswith("#")

    def indent(self, line: int) -> int:
        content = self.lines.content(line)
        return len(content) - len(content.lstrip(" "))

    def is_blank(self, line: int) -> bool:
        return line >= len(self.lines) or not self.lines.content(line).strip()

    def change_block(self, section: Section, change: SectionChange) -> None:
        """A list whose items begin with a dash on a line of their own."""
        column = self.lines.column(section.value.start)
        spans: list[tuple[int, int, int]] = []  # lines: of the comments above, of the dash, behind the item
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
        raw = {at: self.cut(spans, at, change.removed) for at in sorted(change.removed)}
        for position, rule in change.rewritten.items():
            stop = self.start(spans[position][2])
            edit = self.rewriting(section, section.items[position], rule, stop)
            if position in raw:
                raw[position] = _applied(raw[position], edit, stop - len(raw[position]))
                continue
            self.edits.append(edit)
            if rule.written is not None:
                until = spans[position + 1][1] if position + 1 < len(spans) else len(self.lines)
                self.dedent_below(spans[position], until)
        indent, dash = " " * column, self.dash(section)
        flow = bool(section.items) and all(item.node.flow for item in section.items)
        staying = [at for at in range(len(spans)) if at not in change.removed]
        for behind, new in change.added.items():
            if behind is None:
                place = self.start(spans[-1][2])
            elif behind < 0:
                place = self.start(spans[staying[0]][0])
            else:
                place = self.start(spans[behind][2])
            written = ""
            for rule, moved in new:
                if moved is not None and moved in raw:
                    written += raw[moved]
                elif flow:
                    written += f"{indent}{dash}{flow_item(rule)}{self.break_}"
                else:
                    written += block_item(rule, indent, self.break_, dash)
            self.edits.append((place, place, written))

    def rewriting(self, section: Section, item: Item, rule: Rule, behind: int) -> Edit:
        """What makes an item, which ends before `behind`, say what `rule` says."""
        edit = self.switching(section, item, rule)
        if edit is not None:
            return edit
        start = item.node.start
        lead = " " * self.text.endswith("-", 0, start)  # an entry without anything in it ends with its dash
        margin = " " * self.lines.column(start) + lead
        return start, behind, lead + indented(item_text(rule), margin, self.break_) + self.break_

    def rewritten_in_brackets(self, section: Section, item: Item, rule: Rule) -> str:
        """The same for an item of a list in brackets: what it is then."""
        edit = self.switching(section, item, rule)
        if edit is not None:
            return _applied(self.text[item.node.start : item.node.end], edit, item.node.start)
        text = item_text(rule)
        return indented(text, "", self.break_) if read_item(section.kind, text).brackets else flow_item(rule)

    def switching(self, section: Section, item: Item, rule: Rule) -> Edit | None:
        """Where the rule is the old one but for being enabled."""
        if rule.written is not None or item.rule is None or rule != replace(item.rule, enabled=rule.enabled):
            return None
        return switch(self.document, section, item, rule, self.break_)

    def start(self, line: int) -> int:
        at = self.lines.start(line)
        return at if at < len(self.document.text) else len(self.text)

    def dash(self, section: Section) -> str:
        """The dash and the blanks behind it, as the last item that has its first field on the same line writes them."""
        for item in reversed(section.items):
            before = self.lines.content(self.lines.number(item.node.start))[: self.lines.column(item.node.start)]
            found = re.fullmatch(r" *(- +)", before)
            if found:
                return found.group(1)
        return "- "

    def cut(self, spans: list[tuple[int, int, int]], at: int, removed: set[int]) -> str:
        """Removes one item with the comments that are only its own; returns the text that went, without blank lines."""
        above, first, after = spans[at]
        last = at
        while last + 1 < len(spans) and spans[last + 1][0] == spans[last + 1][1] == spans[last][2]:
            last += 1
        # Also a comment over several rules goes, when all of them go.
        begin = above if at > 0 and all(other in removed for other in range(at, last + 1)) else first
        taken = self.text[self.start(begin) : self.start(after)]
        if begin == above and self.is_blank(after):
            while begin > 0 and self.is_blank(begin - 1) and (at == 0 or begin > spans[at - 1][2]):
                begin -= 1
        self.edits.append((self.start(begin), self.start(after), ""))
        self.dedent_below(spans[at], spans[at + 1][1] if at + 1 < len(spans) else len(self.lines))
        return taken

    def dedent_below(self, span: tuple[int, int, int], until: int) -> None:
        """Comments that stay must not sink into a block of text that ends the item before."""
        column = self.indent(span[1])
        for line in range(span[2], until):
            if self.is_comment(line):
                if self.indent(line) > column:
                    start = self.start(line)
                    self.edits.append((start + column, start + self.indent(line), ""))
            elif not self.is_blank(line):
                break

    def fill(self, section: Section, rules: list[Rule]) -> None:
        """The first rules of a section that holds nothing, or `[]`."""
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
        indent = " " * (outer + self.step())
        self.edits.append((place, place, "".join(block_item(rule, indent, self.break_) for rule in rules)))

    def step(self) -> int:
        """By how much the dashes of this file are indented."""
        root = self.document.root
        assert root is not None
        for section in self.document.sections:
            if section.value.kind == "list" and not section.value.flow:
                return self.lines.column(section.value.start) - self.lines.column(root.start)
        return 2

    # Lists in brackets

    def change_flow(self, section: Section, change: SectionChange) -> None:
        """`[{…}, {…}]`, on one line or several: taken apart into pieces that are put together again."""
        value = section.value
        pieces: list[_Piece] = []
        at = value.start + 1
        for number, item in enumerate(section.items):
            gap = _GAP.match(self.text, item.node.end)
            assert gap is not None
            comma = self.text[gap.end()] == ","
            behind = gap.end() + 1 if comma else item.node.end
            rest = _REST_OF_LINE.match(self.text, behind)
            end = rest.end() if rest is not None and rest.end() < value.end else behind
            pieces.append(
                _Piece(
                    before=self.text[at : item.node.start],
                    item=self.text[item.node.start : item.node.end]
                    if number not in change.rewritten
                    else self.rewritten_in_brackets(section, item, change.rewritten[number]),
                    gap=self.text[item.node.end : gap.end()] if comma else "",
                    after=self.text[behind:end],
                )
            )
            at = end
        tail = self.text[at : value.end - 1]
        trailing = bool(section.items) and self.text[_after(self.text, section.items[-1].node.end)] == ","
        several_lines = bool(pieces) and "\n" in pieces[0].before
        margin = pieces[0].before.rpartition("\n")[2] if several_lines else ""

        out: list[_Piece] = []
        kept_comment = ""

        def put(piece: _Piece) -> None:
            nonlocal kept_comment
            piece.before = kept_comment + piece.before
            kept_comment = ""
            out.append(piece)

        def put_new(new: list[tuple[Rule, int | None]]) -> None:
            for rule, moved in new:
                item = flow_item(rule) if moved is None else pieces[moved].item
                if not several_lines:
                    put(_Piece(" ", item, "", ""))
                elif not out or out[-1].after.endswith(("\n", "\r")):
                    lead = "" if out or kept_comment else self.break_
                    put(_Piece(lead + margin, item, "", self.break_))
                else:
                    put(_Piece(self.break_ + margin, item, "", ""))

        for at, piece in enumerate(pieces):
            if at in change.removed:
                if "#" in piece.before:
                    kept_comment += piece.before[: piece.before.rfind("\n") + 1]
                elif not out and several_lines and not kept_comment:
                    kept_comment = piece.before[: piece.before.rfind("\n") + 1]
                continue
            if not any(other not in change.removed for other in range(at)):
                put_new(change.added.get(-1, []))
            put(_Piece(piece.before, piece.item, piece.gap, piece.after))
            put_new(change.added.get(at, []))
        put_new(change.added.get(None, []))
        if out and not several_lines:
            out[0].before = pieces[0].before if pieces else ""
        text = "".join(
            f"{piece.before}{piece.item}{piece.gap}{',' if trailing or at + 1 < len(out) else ''}{piece.after}"
            for at, piece in enumerate(out)
        )
        self.edits.append((value.start + 1, value.end - 1, text + kept_comment + tail))

    # Sections

    def add_sections(self) -> None:
        new = [(kind, rules) for kind, rules in self.new_sections if rules]
        if not new:
            return
        root = self.document.root
        if root is not None and root.flow:
            place = root.pairs[-1][1].end if root.pairs else root.start + 1
            lists = [f"{kind.section}: [{', '.join(map(flow_item, rules))}]" for kind, rules in new]
            self.edits.append((place, place, (", " if root.pairs else "") + ", ".join(lists)))
            return
        outer = self.lines.column(root.start) if root is not None else 0
        place = len(self.text) if self.document.stop is None else self.document.stop
        text = "" if root is not None else f"version: 1{self.break_}"
        blank = self.text[:place].endswith(self.break_ * 2)
        for kind, rules in new:
            lead = "" if blank and not text else self.break_
            text += f"{lead}{' ' * outer}{kind.section}:{self.break_}"
            text += "".join(block_item(rule, " " * (outer + self.step_or_default()), self.break_) for rule in rules)
        self.edits.append((place, place, text))

    def step_or_default(self) -> int:
        return self.step() if self.document.root is not None else 2


@dataclass(slots=True)
class _Piece:
    """One item in brackets: what stands before it, itself, what stands between it and its comma, and behind that."""

    before: str
    item: str
    gap: str
    after: str


def _applied(text: str, edit: Edit, offset: int) -> str:
    """A text, which begins at `offset`, with an edit."""
    start, end, replacement = edit
    return text[: start - offset] + replacement + text[end - offset :]


def _after(text: str, index: int) -> int:
    found = _GAP.match(text, index)
    assert found is not None
    return found.end()
