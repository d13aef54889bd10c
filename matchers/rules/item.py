"""The text of one rule: cut from its file, parsed by itself, enabled and disabled.

Such a text has no dash and no indentation, so that it fits anywhere. The user's formatting, comments and quotes are
preserved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from matchers.files.yaml_tree import Lines, Node
from matchers.rules.emit import indented, rule_fields
from matchers.rules.grammar import Document, Item, Section, parse_document
from matchers.rules.model import (
    SECTIONS,
    PairRule,
    Rule,
    RuleProblem,
)

__all__ = [
    "LINE_BREAK",
    "Broken",
    "Edit",
    "ReadItem",
    "block_item",
    "broken_item",
    "cut_item",
    "dedented",
    "end_of_item",
    "item_text",
    "new_file",
    "read_item",
    "switch",
    "switched",
    "text_of",
]

LINE_BREAK: Final = re.compile(r"\r\n|\n|\r")
"""Ends of lines in files that people edit; YAML knows three more (`yaml_tree`)."""
_DASH: Final = "- "
_MARGIN: Final = " " * len(_DASH)

Edit = tuple[int, int, str]
"""(start, end, text): replace the characters from `start` to `end` by the text."""


@dataclass(frozen=True, slots=True)
class ReadItem:
    """The result of parsing one rule.

    Attributes:
        rule: None if the text is invalid.
        problem: the error, with line and column in this text; None if it is valid.
    """

    rule: Rule | None
    problem: RuleProblem | None = None


def read_item(kind: type[Rule], text: str) -> ReadItem:
    """Parse the text of one rule of a section; never raises."""
    document = parse_document(_wrapped(kind, text))
    items = [item for section in document.sections for item in section.items]
    if document.rules.problems or len(items) != 1:
        return ReadItem(None, _within(document.rules.problems[0], text))
    return ReadItem(items[0].rule)


def _head(kind: type[Rule]) -> str:
    return f"{kind.section}:\n{_DASH}"


def _wrapped(kind: type[Rule], text: str) -> str:
    """A rule file with just this rule."""
    return _head(kind) + text.replace("\n", f"\n{_MARGIN}")


def _within(problem: RuleProblem, text: str) -> RuleProblem:
    """Translate a problem of the wrapping file to its place in the text; errors past the end are placed at the end."""
    lines = text.split("\n")
    line, column = problem.line - 1, problem.column - len(_MARGIN)
    if line > len(lines):
        line, column = len(lines), len(lines[-1]) + 1
    return RuleProblem("", max(line, 1), max(column, 1), problem.message)


def end_of_item(lines: Lines, node: Node, column: int) -> int:
    """The line after an item whose dash is in `column`, and after its more deeply indented comments."""
    after = lines.number(max(node.start, node.end)) + 1
    while after < len(lines) and _indent(content := lines.content(after)) > column and _is_comment(content):
        after += 1
    return after


def _indent(content: str) -> int:
    return len(content) - len(content.lstrip(" "))


def _is_comment(content: str) -> bool:
    return content.lstrip().startswith("#")


def cut_item(document: Document, section: Section, item: Item) -> str | None:
    """The text of an item; None in a layout where it would mean something else by itself."""
    end = _end(document, section, item)
    text = dedented(document.text[item.node.start : end], document.lines.column(item.node.start))
    return text if read_item(section.kind, text).rule == item.rule else None


def text_of(document: Document, rule: Rule) -> str:
    """The text of a rule as in its file, or as it will be saved."""
    if rule.written is None:
        for section in document.sections:
            for item in section.items:
                as_it_was = item.rule is not None and item.rule.line == rule.line and _same(item.rule, rule)
                if as_it_was and (text := cut_item(document, section, item)) is not None:
                    return (text if item.rule == rule else switched(text, rule)) or item_text(rule)
    return item_text(rule)


def _same(rule: Rule, other: Rule) -> bool:
    """True if two rules are equal except for `enabled`."""
    return type(rule) is type(other) and replace(rule, enabled=other.enabled) == other


@dataclass(frozen=True, slots=True)
class Broken:
    """An invalid entry of a section: its kind, text, and line in the file."""

    kind: type[Rule]
    text: str
    line: int


def broken_item(document: Document, problem: RuleProblem) -> Broken | None:
    """The entry that a problem is about; None for other problems."""
    lines = document.lines
    for section in document.sections:
        for item in section.items:
            first = lines.number(item.node.start) + 1
            if item.rule is None and first <= problem.line <= lines.number(max(item.node.start, item.node.end)) + 1:
                text = document.text[item.node.start : _end(document, section, item)]
                return Broken(section.kind, dedented(text, lines.column(item.node.start)), first)
    return None


def _end(document: Document, section: Section, item: Item) -> int:
    if section.value.flow:
        return item.node.end
    lines = document.lines
    return lines.start(end_of_item(lines, item.node, lines.column(section.value.start)))


def dedented(text: str, column: int) -> str:
    """A text that begins in `column`, with its further lines moved left by as much."""
    first, *rest = LINE_BREAK.split(text.rstrip())
    return "\n".join([first, *(line[min(column, _indent(line)) :] for line in rest)])


def switched(text: str, rule: Rule) -> str | None:
    """The text of a rule with `enabled` set as in `rule`, otherwise unchanged; None if that cannot be written."""
    document = parse_document(_wrapped(type(rule), text))
    (section,) = document.sections or (None,)
    if section is None or len(section.items) != 1:
        return None
    edit = switch(document, section, section.items[0], rule)
    if edit is None:
        return None
    start, end, replacement = edit
    changed = document.text[:start] + replacement + document.text[end:]
    return changed[len(_head(type(rule))) :].replace(f"\n{_MARGIN}", "\n")


def switch(document: Document, section: Section, item: Item, rule: Rule, break_: str = "\n") -> Edit | None:
    """The edit that sets `enabled` of an item as in `rule`; None if its layout does not allow it."""
    if not item.node.pairs:
        return None
    text, stop = document.text, _end(document, section, item)
    column = document.lines.column(item.node.start)
    for start, end, replacement in _switching(document, item.node, rule.enabled, break_ + " " * column):
        changed = text[item.node.start : start] + replacement + text[end:stop]
        if read_item(section.kind, dedented(changed, column)).rule == rule:
            return start, end, replacement
    return None


def _switching(document: Document, node: Node, enabled: bool, next_line: str) -> Iterator[Edit]:
    """Candidate edits, best first; not all are valid in every layout."""
    lines = document.lines

    def content_end(line: int) -> int:
        return lines.start(line) + len(lines.content(line))

    at = next((at for at, (key, _) in enumerate(node.pairs) if key.text == "enabled"), None)
    if at is None:
        last = node.pairs[-1][1].end
        end = last if node.flow else content_end(lines.number(last))
        yield end, end, ", enabled: false" if node.flow else f"{next_line}enabled: false"
        return
    key, value = node.pairs[at]
    if enabled and at > 0:
        line = lines.number(key.start)
        if node.flow:
            yield node.pairs[at - 1][1].end, value.end, ""
        elif not document.text[value.end : content_end(line)].strip():
            yield content_end(line - 1), content_end(line), ""
    elif enabled and len(node.pairs) > 1:
        yield key.start, node.pairs[1][0].start, ""
    yield value.start, value.end, "true" if enabled else "false"


def item_text(rule: Rule) -> str:
    """The text of a rule without dash and indentation: the user's own, else one field per line."""
    if rule.written is not None and read_item(type(rule), rule.written).rule == rule:
        return rule.written
    return "\n".join(rule_fields(rule))


def block_item(rule: Rule, indent: str, break_: str, dash: str = "- ") -> str:
    """A list entry as lines with their breaks, indented by `indent`; `dash` includes the blanks after it."""
    return f"{indent}{dash}{indented(item_text(rule), indent + ' ' * len(dash), break_)}{break_}"


def new_file(rules: Iterable[Rule], break_: str = "\n") -> str:
    """A complete file with these rules; empty if there are none."""
    rules = list(rules)
    if not rules:
        return ""
    text = f"version: 1{break_}"
    for kind in (PairRule, *(kind for kind in SECTIONS if kind is not PairRule)):
        items = [block_item(rule, "  ", break_) for rule in rules if isinstance(rule, kind)]
        if items:
            text += f"{break_}{kind.section}:{break_}{''.join(items)}"
    return text
