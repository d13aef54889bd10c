"""Format rules as YAML text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from matchers.invisible import is_visible
from matchers.rules.model import COMMON, Rule, Value

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


_WRITERS: Final[Mapping[Value, Callable[[Any], str]]] = {
    Value.TEXT: quoted,
    Value.TEXTS: _list,
    Value.TEMPLATE: quoted,
    Value.TEMPLATES: _list,
    Value.GLOB: quoted,
    Value.SIDE: str,
    Value.PHASE: attrgetter("label"),
    Value.ERROR: _number,
    Value.SHARE: attrgetter("label"),
    Value.INDEX: quoted,
    Value.REASON: quoted,
    Value.SWITCH: lambda on: str(on).lower(),
}


def rule_fields(rule: Rule) -> list[str]:
    """The fields of a rule as `name: value`, without those that say nothing."""
    given = ((name, value, getattr(rule, name)) for name, value in (*rule.keys.items(), *COMMON.items()))
    return [f"{name}: {_WRITERS[value](said)}" for name, value, said in given if said is not None and said is not True]


def flow_item(rule: Rule) -> str:
    """`{a: x, b: y}`."""
    return "{" + ", ".join(rule_fields(rule)) + "}"


def indented(text: str, margin: str, break_: str) -> str:
    """A text with `margin` before all lines but the first and empty ones."""
    first, *rest = text.split("\n")
    return first + "".join(break_ + (margin + line if line else "") for line in rest)
