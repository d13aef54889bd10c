"""torchtitan's override files, as rules of ours.

Such a file has one pair on a line, `key of a, key of b`; the first comma separates, and lines that begin with `#` are
comments. `read_overrides` takes a file as people have it: with a byte order mark, line ends of Windows, quotes and
space around the keys. The pairs keep their order, and the comments and blank lines their places between them, because
a comment is often the only reason that a pair was written down.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from matchers.rules.item import block_item
from matchers.rules.model import PairRule, RuleProblem

__all__ = ["Overrides", "read_overrides"]

_LINE_BREAK: Final = re.compile(r"\r\n|\n|\r")
_QUOTED: Final = re.compile(r'"((?:[^"]|"")*)"\s*')
_REMARK: Final = re.compile(r"(?:^|(?<=\s))#(.*)")
"""A comment behind a key. Without a space before it, the `#` is part of the key (`key#2`)."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a file says.

    Attributes:
        pairs: in the order of the file; `line` is where each stands in it, `why` the comment on its line.
        problems: the lines that are no pair, each with what to do about it.
        yaml: the text of a rule file with the pairs and the comments.
    """

    pairs: tuple[PairRule, ...]
    problems: tuple[RuleProblem, ...]
    yaml: str


class _NoPairError(ValueError):
    """A line that is no pair; the text says what to do."""


def read_overrides(data: bytes, path: str) -> Overrides:
    """Reads the content of an override file; never raises, what is wrong is in `problems`."""
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
    for number, content in enumerate(map(str.strip, _LINE_BREAK.split(text)), 1):
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
            raise _NoPairError(f"there is no key of {side}; write 'key of a, key of b'")
    return PairRule(a=(a,), b=(b,), why=why, line=number)


def _first(content: str) -> tuple[str, str]:
    """The key before the first comma that is not in quotes, and what follows the comma."""
    quoted = _QUOTED.match(content)
    if quoted is not None:
        rest = content[quoted.end() :]
        if rest.startswith(","):
            return _unquoted(quoted), rest[1:].strip()
    elif content.startswith('"'):
        raise _NoPairError("the quote is not closed; close it, or leave the quotes out")
    key, comma, rest = content.partition(",")
    if not comma:
        raise _NoPairError("there is no comma; write 'key of a, key of b', and '#' before a comment")
    if quoted is not None:
        raise _NoPairError("there is text between the closing quote and the comma; remove it, or leave the quotes out")
    return key.strip(), rest.strip()


def _last(rest: str) -> tuple[str, str | None]:
    """The key that is the rest of a line, and the comment behind it."""
    quoted = _QUOTED.match(rest)
    if quoted is None:
        if rest.startswith('"'):
            raise _NoPairError("the quote is not closed; close it, or leave the quotes out")
        remark = _REMARK.search(rest)
        return (rest, None) if remark is None else (rest[: remark.start()].rstrip(), remark.group(1))
    behind = rest[quoted.end() :]
    if behind and not behind.startswith("#"):
        raise _NoPairError("there is text behind the closing quote; remove it, or put '#' before a comment")
    return _unquoted(quoted), behind.removeprefix("#")


def _unquoted(quoted: re.Match[str]) -> str:
    return quoted.group(1).replace('""', '"').strip()


def _twice(rule: PairRule, before: PairRule) -> str:
    side, key = ("a", rule.a[0]) if rule.a == before.a else ("b", rule.b[0])
    if (rule.a, rule.b) == (before.a, before.b):
        return f"says the same as line {before.line}; remove one of the two"
    return f"'{key}' of {side} has another partner in line {before.line} already; remove one of the two"


def _comment(content: str) -> str:
    """A comment that YAML can hold: it has no room for control characters, not even in a comment."""
    return "".join(char if char.isprintable() else " " for char in content).rstrip()
