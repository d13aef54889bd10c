"""Import torchtitan's override files as pair rules.

Such a file has one pair per line, `key of a, key of b`; the first comma separates, and lines that start with `#` are
comments. `read_overrides` tolerates a byte order mark, Windows line breaks, and quotes and space around the keys. Pairs
keep their order and comments their places, because a comment is often the only reason given for a pair.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from matchers.invisible import is_visible
from matchers.rules.item import LINE_BREAK, block_item
from matchers.rules.model import PairRule, RuleProblem

__all__ = ["Overrides", "read_overrides"]

_QUOTED: Final = re.compile(r'"((?:[^"]|"")*)"\s*')
_REMARK: Final = re.compile(r"(?:^|(?<=\s))#(.*)")
"""A comment after a key. Without a space before it, the `#` is part of the key (`key#2`)."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """The content of an override file.

    Attributes:
        pairs: in file order; `line` is the line of each, `why` the comment on it.
        problems: lines that are not a pair, each with advice.
        yaml: the text of a rule file with the pairs and the comments.
    """

    pairs: tuple[PairRule, ...]
    problems: tuple[RuleProblem, ...]
    yaml: str


class _NoPairError(ValueError):
    """A line that is not a pair; the message gives advice."""


def read_overrides(data: bytes, path: str) -> Overrides:
    """Read the content of an override file; never raises, errors are in `problems`."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        message = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        return Overrides((), (RuleProblem(path, line, 0, message),), "")
    pairs: list[PairRule] = []
    problems: list[RuleProblem] = []
    lines: list[str] = []
    partner_a: dict[str, PairRule] = {}
    partner_b: dict[str, PairRule] = {}
    for number, content in enumerate(map(str.strip, LINE_BREAK.split(text)), 1):
        if not content:
            if lines and lines[-1]:
                lines.append("")
        elif content.startswith("#"):
            lines.append(f"  {_comment(content)}")
        else:
            try:
                rule = _pair(content, number)
                before = partner_a.setdefault(rule.a[0], rule)
                if before is rule:
                    before = partner_b.setdefault(rule.b[0], rule)
                if before is not rule:
                    raise _NoPairError(_twice(rule, before))
            except _NoPairError as error:
                problems.append(RuleProblem(path, number, 0, str(error)))
            else:
                pairs.append(rule)
                lines.append(block_item(rule, "  ", "\n").rstrip("\n"))
    while lines and not lines[-1]:
        lines.pop()
    body = "".join(f"{line}\n" for line in lines)
    return Overrides(tuple(pairs), tuple(problems), f"version: 1\n\npairs:{'' if pairs else ' []'}\n{body}")


def _pair(content: str, number: int) -> PairRule:
    a, rest = _first(content)
    b, why = _last(rest)
    for side, key in (("a", a), ("b", b)):
        if not key:
            raise _NoPairError(f"the key of {side} is missing; write 'key of a, key of b'")
    return PairRule(a=(a,), b=(b,), why=why, line=number)


def _quoted(text: str) -> tuple[str | None, str]:
    """The key in quotes at the start, None without quotes, and the text after it."""
    quoted = _QUOTED.match(text)
    if quoted is None and text.startswith('"'):
        raise _NoPairError("the quote is not closed; close it, or leave the quotes out")
    return (None, text) if quoted is None else (quoted.group(1).replace('""', '"').strip(), text[quoted.end() :])


def _first(content: str) -> tuple[str, str]:
    """The key before the first unquoted comma, and the text after the comma."""
    quoted, rest = _quoted(content)
    if quoted is not None and rest.startswith(","):
        return quoted, rest[1:].strip()
    key, comma, rest = content.partition(",")
    if not comma:
        raise _NoPairError("the comma is missing; write 'key of a, key of b', and '#' before a comment")
    if quoted is not None:
        raise _NoPairError("text between the closing quote and the comma; remove it, or omit the quotes")
    return key.strip(), rest.strip()


def _last(text: str) -> tuple[str, str | None]:
    """The key in the rest of a line, and the comment after it."""
    key, rest = _quoted(text)
    if key is None:
        remark = _REMARK.search(text)
        return (text, None) if remark is None else (text[: remark.start()].rstrip(), remark.group(1))
    if rest and not rest.startswith("#"):
        raise _NoPairError("text after the closing quote; remove it, or put '#' before a comment")
    return key, rest.removeprefix("#")


def _twice(rule: PairRule, before: PairRule) -> str:
    side, key = ("a", rule.a[0]) if rule.a == before.a else ("b", rule.b[0])
    if (rule.a, rule.b) == (before.a, before.b):
        return f"repeats line {before.line}; remove one of the two"
    return f"'{key}' of {side} already has another partner in line {before.line}; remove one of the two"


def _comment(content: str) -> str:
    """A comment that YAML can store: control characters, which YAML forbids even in comments, become spaces."""
    return "".join(char if is_visible(char) else " " for char in content).rstrip()
