"""The grammar of a rule file: from a YAML tree to rules, with a message for each error.

An error costs only itself: an invalid rule is reported with line and column, the others are read. A text is lost as a
whole only if it is not YAML, or its outermost level does not consist of sections.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from matchers.files.yaml_tree import Lines, Node, TreeError, read_tree
from matchers.logs.op_log import Phase
from matchers.ops.row_index import normal_index
from matchers.rules.model import COMMON, SECTIONS, SHARES, Rule, RuleProblem, RuleSet, Side, Value
from matchers.rules.pattern import Pattern, PatternError
from matchers.typed_number import typed_number

__all__ = ["VERSION", "Document", "Item", "Section", "fields_of", "parse_document"]

VERSION: Final = 1
PHASES: Final = {phase.label: phase for phase in Phase}
"""The phases by their names in rule files."""


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of a section's list; `rule` is None if it is invalid."""

    node: Node
    rule: Rule | None


@dataclass(frozen=True, slots=True)
class Section:
    """One known section that holds a list or nothing; a file may repeat it."""

    kind: type[Rule]
    key: Node
    value: Node
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A rule file as read.

    Attributes:
        text: without a byte order mark.
        root: the outermost mapping; None if the file has no sections (empty, comments only) or is unreadable.
        stop: position of an explicit end of the document, None without one.
        readable: False if no section could be read, so that nothing can be edited in place.
    """

    text: str
    lines: Lines
    root: Node | None
    stop: int | None
    sections: tuple[Section, ...]
    rules: RuleSet
    readable: bool


class _Wrong(Exception):
    """The error in one item, and the position of its character."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


@dataclass(slots=True)
class _Reading:
    """The sections and problems read so far."""

    path: str
    lines: Lines
    problems: list[RuleProblem] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)

    def report(self, message: str, index: int) -> None:
        line = self.lines.number(index) + 1
        self.problems.append(RuleProblem(self.path, line, self.lines.column(index) + 1, message))


def parse_document(text: str, path: str = "") -> Document:
    """Parse the text of a rule file; never raises, errors are in `rules.problems`."""
    text = text.removeprefix("\ufeff")
    reading = _Reading(path, Lines(text))
    root: Node | None = None
    stop: int | None = None
    readable = True
    try:
        tree = read_tree(text)
    except TreeError as error:
        reading.report(str(error), error.index)
        readable = False
    else:
        stop = tree.stop
        if tree.root.kind == "map":
            root = tree.root
            _read_sections(reading, root)
        elif tree.root.kind != "text" or tree.root.start != tree.root.end:
            reading.report(f"expected sections such as 'pairs:', found {_what(tree.root)}", tree.root.start)
            readable = False
    rules = tuple(item.rule for section in reading.sections for item in section.items if item.rule is not None)
    return Document(
        text=text,
        lines=reading.lines,
        root=root,
        stop=stop,
        sections=tuple(reading.sections),
        rules=RuleSet(rules, tuple(reading.problems), path),
        readable=readable,
    )


def fields_of(kind: type[Rule]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The allowed fields of a kind of rule, and the required ones."""
    return (*kind.keys, *COMMON), kind.required()


def _read_sections(reading: _Reading, root: Node) -> None:
    kinds = {kind.section: kind for kind in SECTIONS}
    first: dict[str, Node] = {}
    for key, value in root.pairs:
        name = key.text
        if key.kind != "text":
            reading.report(f"expected the name of a section, found {_what(key)}", key.start)
            continue
        if name in first and (name == "version" or name in kinds):
            line = reading.lines.number(first[name].start) + 1
            reading.report(f"'{name}' occurs twice, first in line {line}", key.start)
        if name == "version":
            first.setdefault(name, key)
            if value.kind != "text" or value.text.strip() != str(VERSION):
                found = f"version {value.text}" if value.kind == "text" else _what(value)
                reading.report(f"expected 'version: {VERSION}', found {found}", value.start)
        elif name not in kinds:
            reading.report(f"unknown section '{name}'{_hint(name, ['version', *kinds])}", key.start)
        elif value.odd:
            reading.report(f"{value.odd} is not allowed here", value.start)
        elif value.null:
            first.setdefault(name, key)
            reading.sections.append(Section(kinds[name], key, value, ()))
        elif value.kind != "list":
            reading.report(f"'{name}' must be a list of rules, each starting with '- '", value.start)
        else:
            first.setdefault(name, key)
            items = tuple(Item(node, _read_item(reading, kinds[name], node)) for node in value.items)
            reading.sections.append(Section(kinds[name], key, value, items))


def _read_item(reading: _Reading, kind: type[Rule], node: Node) -> Rule | None:
    try:
        return kind(**_Fields(kind, node).read(), line=reading.lines.number(node.start) + 1)
    except _Wrong as wrong:
        reading.report(str(wrong), wrong.index)
    except ValueError as error:
        reading.report(str(error), node.start)
    return None


class _Fields:
    """The fields of one item, checked against the fields of its section."""

    def __init__(self, kind: type[Rule], node: Node) -> None:
        known, needed = fields_of(kind)
        self.kind = kind
        if node.kind != "map" or node.odd:
            expected = ", ".join(f"'{name}: …'" for name in needed or known)
            raise _Wrong(f"expected a rule with {expected}, found {node.odd or _what(node)}", node.start)
        self.node = node
        self.values: dict[str, Node] = {}
        for key, value in node.pairs:
            name = key.text
            if key.kind != "text" or name not in known:
                found = f"'{name}'" if key.kind == "text" else _what(key)
                raise _Wrong(f"unknown field {found} in {kind.section}{_hint(name, known)}", key.start)
            if name in self.values:
                raise _Wrong(f"'{name}' occurs twice", key.start)
            self.values[name] = value
        for name in needed:
            if name not in self.values:
                raise _Wrong(f"a rule in {kind.section} needs '{name}'", node.start)

    def text(self, name: str) -> str:
        return _plain(name, self.values[name])

    def texts(self, name: str) -> tuple[str, ...]:
        node = self.values[name]
        if node.kind != "list":
            return (_plain(name, node),)
        if not node.items:
            raise _Wrong(f"'{name}' is an empty list", node.start)
        texts = tuple(_plain(name, item) for item in node.items)
        again = next((at for at, text in enumerate(texts) if text in texts[:at]), None)
        if again is not None:
            raise _Wrong(f"'{name}' names '{texts[again]}' twice", node.items[again].start)
        return texts

    def read(self) -> dict[str, Any]:
        """The values of the fields that are there, by name."""
        kinds = {**self.kind.keys, **COMMON}
        return {name: _READERS[kinds[name]](self, name) for name in kinds if name in self.values}

    def template(self, name: str) -> str:
        text = self.text(name)
        self.templates(name)
        return text

    def templates(self, name: str) -> tuple[str, ...]:
        """Templates that can all be expanded from the captures of the first one of `a`."""
        texts = self.texts(name)
        node = self.values[name]
        for text, at in zip(texts, node.items or [node], strict=True):
            try:
                source = Pattern.of(self.texts("a")[0])
                Pattern.of(text).check_against(source)
            except PatternError as error:
                # Exact if the text has no escapes, else approximate.
                raise _Wrong(f"{error} (in '{name}')", at.start + at.quoted + error.position) from error
        return texts

    def index(self, name: str) -> str:
        """An index, as a text or as a list: `[0, 9]`."""
        node = self.values[name]
        text = ", ".join(_plain(name, item) for item in node.items) if node.kind == "list" else _plain(name, node)
        try:
            return normal_index(text)
        except ValueError as error:
            raise _Wrong(f"'{name}' {error}", node.start) from error

    def named(self, name: str, known: Mapping[str, object], otherwise: str = "") -> object:
        """The value that a text names."""
        text = self.text(name)
        if text not in known:
            raise _Wrong(f"'{name}' must be {_either(known)}, not '{text}'{otherwise}", self.values[name].start)
        return known[text]

    def error(self, name: str) -> float:
        text = self.text(name)
        error = typed_number(text)
        if not (math.isfinite(error) and error >= 0):
            raise _Wrong(f"'{name}' must be a relative error such as 1.0e-5, not '{text}'", self.values[name].start)
        return error

    def reason(self, name: str) -> str | None:
        """The text of a field, None for one without a value."""
        return None if self.values[name].null else self.text(name)

    def switch(self, name: str) -> bool:
        text = self.text(name) or "true"
        if text.lower() not in {"true", "false"}:
            raise _Wrong(f"'{name}' must be true or false, not '{text}'", self.values[name].start)
        return text.lower() == "true"


_READERS: Final[Mapping[Value, Callable[[_Fields, str], object]]] = {
    Value.TEXT: _Fields.text,
    Value.TEXTS: _Fields.texts,
    Value.TEMPLATE: _Fields.template,
    Value.TEMPLATES: _Fields.templates,
    Value.GLOB: _Fields.text,
    Value.SIDE: lambda fields, name: fields.named(name, {side.value: side for side in Side}, "; omit it for both"),
    Value.PHASE: lambda fields, name: fields.named(name, PHASES, "; omit it for all"),
    Value.ERROR: _Fields.error,
    Value.SHARE: lambda fields, name: fields.named(name, SHARES),
    Value.INDEX: _Fields.index,
    Value.REASON: _Fields.reason,
    Value.SWITCH: _Fields.switch,
}


def _plain(name: str, node: Node) -> str:
    if node.kind != "text" or node.odd:
        raise _Wrong(f"'{name}' must be text, found {node.odd or _what(node)}", node.start)
    if node.null:
        raise _Wrong(f"'{name}' has no value" + (" (quote it if it is a name)" if node.text else ""), node.start)
    return node.text


def _what(node: Node) -> str:
    if node.kind == "list":
        return "a list"
    if node.kind == "map":
        return "fields"
    if node.kind == "alias":
        return f"the alias *{node.text}, which rule files do not allow: write it out"
    return "nothing" if node.null else f"'{node.text if len(node.text) <= 60 else node.text[:59] + '…'}'"


def _either(words: Iterable[str]) -> str:
    """`x, y or z`."""
    *first, last = words
    return f"{', '.join(first)} or {last}"


def _hint(name: str, options: Collection[str]) -> str:
    from rapidfuzz import fuzz, process  # for a mistake only

    close = process.extractOne(name[:100], list(options), scorer=fuzz.ratio, score_cutoff=60)
    return f" (did you mean '{close[0]}'?)" if close else f"; known are {', '.join(options)}"
