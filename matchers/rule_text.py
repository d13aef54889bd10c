"""Rules as YAML text: how a new rule, a new section and a new file are written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from matchers.op_log import Phase
from matchers.rules import (
    SECTIONS,
    ApartRule,
    IgnoreRule,
    ModuleRule,
    OpRule,
    PairRule,
    Rule,
    TemplateRule,
    ToleranceRule,
)

__all__ = ["block_item", "flow_item", "indented", "item_text", "new_file", "quoted"]

# Unquoted only what no YAML reader can take for anything but this text, inside [ ] and { } as well.
_PLAIN: Final = re.compile(
    r"(?!<<)[A-Za-z_<][A-Za-z0-9_<>./()+\-#=]*(?: [A-Za-z0-9_<>./()+=][A-Za-z0-9_<>./()+\-#=]*)*"
)
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0", "\x1b": "\\e"}


def quoted(text: str) -> str:
    """A YAML scalar on one line that reads as exactly this text."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return '"' + "".join(_ESCAPES.get(char) or (char if char.isprintable() else _escape(char)) for char in text) + '"'


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _number(value: float) -> str:
    """Round-trips, and has the dot without which YAML 1.1 takes `1e-05` for text."""
    mantissa, e, exponent = repr(value).partition("e")
    return mantissa + ("" if "." in mantissa else ".0") + e + exponent


def _list(keys: tuple[str, ...]) -> str:
    return quoted(keys[0]) if len(keys) == 1 else f"[{', '.join(map(quoted, keys))}]"


def _phase(phase: Phase | None) -> tuple[str, str | None]:
    return "phase", None if phase is None else phase.label


def _scope(rule: IgnoreRule | ToleranceRule) -> list[tuple[str, str | None]]:
    return [("side", None if rule.side is None else str(rule.side)), _phase(rule.phase)]


def _fields(rule: Rule) -> list[str]:
    fields: list[tuple[str, str | None]]
    if isinstance(rule, IgnoreRule):
        named = [(name, text and quoted(text)) for name, text in (("op", rule.op), ("match", rule.match))]
        fields = [*_scope(rule), *named]
    elif isinstance(rule, ToleranceRule):
        fields = [("match", quoted(rule.match)), *_scope(rule), ("rtol", _number(rule.rtol))]
    elif isinstance(rule, (ApartRule, ModuleRule)):
        fields = [("a", quoted(rule.a)), ("b", quoted(rule.b))]
    elif isinstance(rule, (TemplateRule, OpRule)):
        fields = [("a", _list(rule.a)), ("b", _list(rule.b)), _phase(rule.phase)]
    else:
        fields = [("a", _list(rule.a)), ("b", _list(rule.b))]
    fields += [("why", rule.why and quoted(rule.why)), ("enabled", None if rule.enabled else "false")]
    return [f"{name}: {text}" for name, text in fields if text is not None]


def item_text(rule: Rule) -> str:
    """A rule without dash and indentation: as its user wrote it, else a field on each line."""
    if rule.written is not None:
        from matchers.rule_item import read_item  # reads YAML, which nobody has to who only writes it

        if read_item(type(rule), rule.written).rule == rule:
            return rule.written
    return "\n".join(_fields(rule))


def flow_item(rule: Rule) -> str:
    """`{a: x, b: y}`."""
    return "{" + ", ".join(_fields(rule)) + "}"


def block_item(rule: Rule, indent: str, break_: str, dash: str = "- ") -> str:
    """Lines, each with its break, that begin with `indent`; `dash` is the dash with the blanks behind it."""
    return f"{indent}{dash}{indented(item_text(rule), indent + ' ' * len(dash), break_)}{break_}"


def indented(text: str, margin: str, break_: str) -> str:
    """A text whose lines, but for the first and empty ones, stand behind `margin`."""
    first, *rest = text.split("\n")
    return first + "".join(break_ + (margin + line if line else "") for line in rest)


def new_file(rules: Iterable[Rule], break_: str = "\n") -> str:
    """A whole file with these rules; empty text when there are none."""
    rules = list(rules)
    if not rules:
        return ""
    text = f"version: 1{break_}"
    for kind in (PairRule, *(kind for kind in SECTIONS if kind is not PairRule)):
        items = [block_item(rule, "  ", break_) for rule in rules if isinstance(rule, kind)]
        if items:
            text += f"{break_}{kind.section}:{break_}{''.join(items)}"
    return text
