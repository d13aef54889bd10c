"""The grammar of a rule file: from a YAML tree to rules, with a message for each error.

An error costs only itself: an invalid rule is reported with line and column, the others are read. A text is lost as a
whole only if it is not YAML, or its outermost level does not consist of sections.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, TypedDict

from matchers.files.yaml_tree import Lines, Node, TreeError, read_tree
from matchers.logs.op_log import Phase
from matchers.ops.share import Holds
from matchers.rules.model import (
    SECTIONS,
    SHARES,
    ApartRule,
    IgnoreRule,
    LayoutRule,
    ModuleRule,
    OpRule,
    PairRule,
    Rule,
    RuleProblem,
    RuleSet,
    Side,
    TemplateRule,
    ToleranceRule,
)
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
    return _FIELDS[kind.section]


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
        return _READERS[kind](_Fields(kind.section, node), reading.lines.number(node.start) + 1)
    except _Wrong as wrong:
        reading.report(str(wrong), wrong.index)
    except ValueError as error:
        reading.report(str(error), node.start)
    return None


class _Fields:
    """The fields of one item, checked against the fields of its section."""

    def __init__(self, section: str, node: Node) -> None:
        known, needed = _FIELDS[section]
        if node.kind != "map" or node.odd:
            expected = ", ".join(f"'{name}: …'" for name in needed or known)
            raise _Wrong(f"expected a rule with {expected}, found {node.odd or _what(node)}", node.start)
        self.node = node
        self.values: dict[str, Node] = {}
        for key, value in node.pairs:
            name = key.text
            if key.kind != "text" or name not in known:
                found = f"'{name}'" if key.kind == "text" else _what(key)
                raise _Wrong(f"unknown field {found} in {section}{_hint(name, known)}", key.start)
            if name in self.values:
                raise _Wrong(f"'{name}' occurs twice", key.start)
            self.values[name] = value
        for name in needed:
            if name not in self.values:
                raise _Wrong(f"a rule in {section} needs '{name}'", node.start)

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

    def maybe(self, name: str) -> str | None:
        """The text of a field, None if absent; a field without a value counts as absent only for `why`."""
        if name not in self.values or (name == "why" and self.values[name].null):
            return None
        return self.text(name)

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

    def side(self) -> Side | None:
        text = self.maybe("side")
        if text is not None and text not in {"a", "b"}:
            raise _Wrong(f"'side' must be a or b, not '{text}'; omit it for both", self.values["side"].start)
        return None if text is None else Side(text)

    def phase(self) -> Phase | None:
        text = self.maybe("phase")
        if text is not None and text not in PHASES:
            raise _Wrong(
                f"'phase' must be {_either(PHASES)}, not '{text}'; omit it for all", self.values["phase"].start
            )
        return None if text is None else PHASES[text]

    def common(self, line: int) -> _Common:
        """The fields that rules of all sections have."""
        text = self.maybe("enabled") or "true"
        if text.lower() not in {"true", "false"}:
            raise _Wrong(f"'enabled' must be true or false, not '{text}'", self.values["enabled"].start)
        return {"why": self.maybe("why"), "enabled": text.lower() == "true", "line": line}


class _Common(TypedDict):
    why: str | None
    enabled: bool
    line: int


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


def _rtol(fields: _Fields) -> float:
    text = fields.text("rtol")
    rtol = typed_number(text)
    if not (math.isfinite(rtol) and rtol >= 0):
        at = fields.values["rtol"].start
        raise _Wrong(f"'rtol' must be a relative error such as 1.0e-5, not '{text}'", at)
    return rtol


def _holds(fields: _Fields) -> Holds:
    text = fields.text("holds")
    if text not in SHARES:
        raise _Wrong(f"'holds' must be {_either(SHARES)}, not '{text}'", fields.values["holds"].start)
    return SHARES[text]


_COMMON: Final = ("why", "enabled")

_FIELDS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "pairs": (("a", "b", *_COMMON), ("a", "b")),
    "apart": (("a", "b", *_COMMON), ("a", "b")),
    "templates": (("a", "b", "phase", *_COMMON), ("a", "b")),
    "modules": (("a", "b", *_COMMON), ("a", "b")),
    "ops": (("a", "b", "phase", *_COMMON), ("a", "b")),
    "ignore": (("side", "phase", "op", "match", *_COMMON), ()),
    "tolerance": (("match", "side", "phase", "rtol", *_COMMON), ("match", "rtol")),
    "layout": (("match", "side", "phase", "holds", *_COMMON), ("match", "holds")),
}
"""Section -> its allowed fields, and the required ones."""

_READERS: Final[dict[type[Rule], Callable[[_Fields, int], Rule]]] = {
    PairRule: lambda f, line: PairRule(a=f.texts("a"), b=f.texts("b"), **f.common(line)),
    ApartRule: lambda f, line: ApartRule(a=f.text("a"), b=f.text("b"), **f.common(line)),
    TemplateRule: lambda f, line: TemplateRule(
        a=f.templates("a"), b=f.templates("b"), phase=f.phase(), **f.common(line)
    ),
    ModuleRule: lambda f, line: ModuleRule(a=f.template("a"), b=f.template("b"), **f.common(line)),
    OpRule: lambda f, line: OpRule(a=f.texts("a"), b=f.texts("b"), phase=f.phase(), **f.common(line)),
    IgnoreRule: lambda f, line: IgnoreRule(
        side=f.side(), phase=f.phase(), op=f.maybe("op"), match=f.maybe("match"), **f.common(line)
    ),
    ToleranceRule: lambda f, line: ToleranceRule(
        match=f.text("match"), rtol=_rtol(f), side=f.side(), phase=f.phase(), **f.common(line)
    ),
    LayoutRule: lambda f, line: LayoutRule(
        match=f.text("match"), holds=_holds(f), side=f.side(), phase=f.phase(), **f.common(line)
    ),
}
