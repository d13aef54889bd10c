"""Format rules as YAML text."""

from __future__ import annotations

import re
from typing import Final

from matchers.invisible import is_visible
from matchers.logs.op_log import Phase
from matchers.rules.model import (
    ApartRule,
    IgnoreRule,
    LayoutRule,
    ModuleRule,
    OpRule,
    Rule,
    TemplateRule,
    ToleranceRule,
)

__all__ = ["flow_item", "indented", "quoted", "rule_fields"]

# Unquoted only if every YAML reader reads exactly this text, even inside [ ] and { }.
_PLAIN: Final = re.compile(
    r"(?!<<)[A-Za-z_<][A-Za-z0-9_<>./()+\-#=]*(?: [A-Za-z0-9_<>./()+=][A-Za-z0-9_<>./()+\-#=]*)*"
)
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0", "\x1b": "\\e"}


def quoted(text: str) -> str:
    """A one-line YAML scalar that reads as exactly this text."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    if is_visible(text) and not ('"' in text or "\\" in text):
        return f'"{text}"'
    return '"' + "".join(_ESCAPES.get(char) or (char if is_visible(char) else _escape(char)) for char in text) + '"'


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _number(value: float) -> str:
    """A number that round-trips, with the dot without which YAML 1.1 reads `1e-05` as text."""
    mantissa, e, exponent = repr(value).partition("e")
    return mantissa + ("" if "." in mantissa else ".0") + e + exponent


def _list(keys: tuple[str, ...]) -> str:
    return quoted(keys[0]) if len(keys) == 1 else f"[{', '.join(map(quoted, keys))}]"


def _phase(phase: Phase | None) -> tuple[str, str | None]:
    return "phase", None if phase is None else phase.label


def _scope(rule: IgnoreRule | ToleranceRule | LayoutRule) -> list[tuple[str, str | None]]:
    return [("side", None if rule.side is None else str(rule.side)), _phase(rule.phase)]


def rule_fields(rule: Rule) -> list[str]:
    """The fields of a rule as `name: value`, without empty ones."""
    fields: list[tuple[str, str | None]]
    if isinstance(rule, IgnoreRule):
        named = [(name, text and quoted(text)) for name, text in (("op", rule.op), ("match", rule.match))]
        fields = [*_scope(rule), *named]
    elif isinstance(rule, ToleranceRule):
        fields = [("match", quoted(rule.match)), *_scope(rule), ("rtol", _number(rule.rtol))]
    elif isinstance(rule, LayoutRule):
        fields = [("match", quoted(rule.match)), *_scope(rule), ("holds", rule.holds.label)]
    elif isinstance(rule, (ApartRule, ModuleRule)):
        fields = [("a", quoted(rule.a)), ("b", quoted(rule.b))]
    elif isinstance(rule, (TemplateRule, OpRule)):
        fields = [("a", _list(rule.a)), ("b", _list(rule.b)), _phase(rule.phase)]
    else:
        fields = [("a", _list(rule.a)), ("b", _list(rule.b))]
    fields += [("why", rule.why and quoted(rule.why)), ("enabled", None if rule.enabled else "false")]
    return [f"{name}: {text}" for name, text in fields if text is not None]


def flow_item(rule: Rule) -> str:
    """`{a: x, b: y}`."""
    return "{" + ", ".join(rule_fields(rule)) + "}"


def indented(text: str, margin: str, break_: str) -> str:
    """A text with `margin` before all lines but the first and empty ones."""
    first, *rest = text.split("\n")
    return first + "".join(break_ + (margin + line if line else "") for line in rest)
