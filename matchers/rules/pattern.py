"""Templates and globs, the two pattern languages of the rules.

A **template** names parts of a key: `layers.{i}/op_{n}_add` against `layers.{i}/op_{n-2}_add`.

| placeholder | stands for |
| --- | --- |
| `{i}` `{j}` `{k}` `{l}` `{m}` `{n}`, `{any_name:int}` | a whole number, written without leading zeros |
| `{n+1}` `{n-2}` | the same with an offset: `{n-2}` reads `op_5` as n = 7 and writes n = 7 as `op_5` |
| `{4k}` `{4k+1}` `{5-k}` `{26-5k}` | in steps, k from 0 on: `{4k+1}` reads `op_9` as k = 2, and not `op_8` |
| any other name, `{name:name}` | one segment of a path or a part of one: no `.`, no `/` |
| `{rest:path}` | one or more whole segments: no `/` |
| `{{` `}}` | a brace |

A name that occurs twice must have the same value twice. If a text can be read in several ways, the leftmost placeholder
takes as much as possible.

A **glob** is matched against whole keys: `*` is any run of characters, dots and slashes included; `?` is any one
character.

No pattern can hang the program: where the end of every placeholder is determined, the text is read once from left to
right; all else is decided by dynamic programming over the text, and a glob by searching its plain texts one after the
other. All of it is linear in the length of the text, and only a glob with a `?` has to be compiled, when some text has
its plain texts: a rule file may have tens of thousands of patterns. A template has at most 32 placeholders and matches
no text of more than 65,536 characters.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final

__all__ = ["Captures", "Glob", "Pattern", "PatternError", "canonical"]

Captures = Mapping[str, "int | str"]

_INTEGERS: Final = frozenset("ijklmn")
_KINDS: Final = ("int", "name", "path")
_PLACEHOLDER: Final = re.compile(
    r"\{(?:([0-9]{1,9})\s*-\s*)?([1-9][0-9]{0,8})?([A-Za-z_][A-Za-z0-9_]*)(?::([a-z]+))?\s*(?:([+-])\s*([0-9]{1,9}))?\}"
)
_RUN: Final = {
    kind: re.compile(run) for kind, run in (("int", "[0-9]+"), ("name", "[^./]+"), ("path", r"[^./]+(?:\.[^./]+)*"))
}
"""The longest text that a placeholder can take from a position."""
_BRACE: Final = re.compile("[{}]")
_STOPS: Final = {"int": "", "name": "./", "path": "/"}
_MAX_DIGITS: Final = 18
_MAX_TEXT_LENGTH: Final = 65_536
_MAX_HOLES: Final = 32


_Reader = Callable[[tuple["str | _Hole", ...], str], "tuple[str, ...] | None"]


class PatternError(ValueError):
    """An invalid template. `position` is the 0-based character of the error."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


@dataclass(frozen=True, slots=True)
class _Hole:
    """One placeholder. Its text is `factor` times the value of `name`, plus `offset`."""

    name: str
    kind: str
    offset: int = 0
    factor: int = 1

    @property
    def plain(self) -> bool:
        """True if the text is the value itself."""
        return not self.offset and self.factor == 1

    def value(self, text: str) -> int | None:
        """The value for a text of digits; None if there is none."""
        if len(text) > _MAX_DIGITS or (text[0] == "0" and len(text) > 1):
            return None
        value, rest = divmod(int(text) - self.offset, self.factor)
        return None if rest or (self.factor != 1 and value < 0) else value


class Pattern:
    """A compiled template; `Pattern.of(text)` caches them.

    Attributes:
        text: as written.
        parts: plain texts and placeholders in turn.
        literals: the plain texts, the longest first.
        kinds: placeholder name -> `int`, `name` or `path`; empty for plain text.
    """

    def __init__(self, text: str) -> None:
        self._set(text, _parts_of(text))
        holes = [part for part in self.parts if isinstance(part, _Hole)]
        if len(holes) > _MAX_HOLES:
            raise PatternError(f"more than {_MAX_HOLES} placeholders")
        for part in holes:
            if self.kinds[part.name] != part.kind:
                raise PatternError(f"{{{part.name}}} is used both as {part.kind} and as {self.kinds[part.name]}")

    def _set(self, text: str, parts: tuple[str | _Hole, ...]) -> None:
        self.text, self.parts = text, parts
        self.kinds: dict[str, str] = {part.name: part.kind for part in parts if isinstance(part, _Hole)}
        self.literals = _by_length(part for part in parts if isinstance(part, str))

    @property
    def form(self) -> tuple[str, ...]:
        """The plain texts and the kinds of the placeholders, which decide how a text is read."""
        # No plain text of a template is empty, so an empty text marks the kind behind it.
        return tuple(word for part in self.parts for word in ((part,) if isinstance(part, str) else ("", part.kind)))

    @classmethod
    def of(cls, text: str) -> Pattern:
        """Return the compiled template of a text; raises `PatternError`."""
        return _compiled(text)

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"

    @cached_property
    def halves(self) -> tuple[Pattern, Pattern]:
        """The template up to and including its last `/`, and the rest.

        No placeholder matches a `/`, so a text matches exactly if its own two halves match these two.
        """
        for at in range(len(self.parts) - 1, -1, -1):
            part = self.parts[at]
            if isinstance(part, str) and "/" in part:
                cut = part.rindex("/") + 1
                head, tail = (*self.parts[:at], part[:cut]), (part[cut:], *self.parts[at + 1 :])
                return _of_parts(self.text, head), _of_parts(self.text, tail)
        return _of_parts(self.text, ()), self

    def match(self, text: str) -> dict[str, int | str] | None:
        """The value of every placeholder if the whole text matches, else None."""
        groups = self.reading(text)
        return None if groups is None else self.captures(groups)

    def reading(self, text: str) -> tuple[str, ...] | None:
        """The text of every placeholder if the whole text has this form, else None; the same for every equal `form`."""
        return None if len(text) > _MAX_TEXT_LENGTH else self._reader(self.parts, text)

    @cached_property
    def _reader(self) -> _Reader:
        if sum(isinstance(part, _Hole) for part in self.parts) == 1:
            return _rest_reading
        return _only_reading if _is_forced(self.parts) else _longest_reading

    def captures(self, groups: tuple[str, ...]) -> dict[str, int | str] | None:
        """The value of every placeholder by its texts; None if a text is no value, or one name has two values."""
        out: dict[str, int | str] = {}
        holes = (part for part in self.parts if isinstance(part, _Hole))
        for hole, text in zip(holes, groups, strict=True):
            value: int | str = text
            if hole.kind == "int":
                read = hole.value(text)
                if read is None:
                    return None
                value = read
            if out.setdefault(hole.name, value) != value:
                return None
        return out

    def expand(self, captures: Captures) -> str:
        """The text for these values; raises `KeyError` if one is missing."""
        return "".join(
            part
            if isinstance(part, str)
            else str(captures[part.name])
            if part.plain
            else str(int(captures[part.name]) * part.factor + part.offset)
            for part in self.parts
        )

    def check_against(self, source: Pattern) -> None:
        """Raise `PatternError` if `source` does not capture everything that this template needs."""
        for part in self.parts:
            if not isinstance(part, _Hole):
                continue
            kind = source.kinds.get(part.name)
            if kind is None:
                known = ", ".join(f"{{{name}}}" for name in source.kinds) or "nothing"
                raise PatternError(f"{{{part.name}}} is not captured on the other side, which captures {known}")
            if not part.plain and kind != "int":
                raise PatternError(f"{{{part.name}}} is not a number; write {{{part.name}:int}} where it is captured")


@lru_cache(maxsize=1 << 16)
def _compiled(text: str) -> Pattern:
    return Pattern(text)


def _of_parts(text: str, parts: Iterable[str | _Hole]) -> Pattern:
    out = object.__new__(Pattern)
    out._set(text, tuple(part for part in parts if part))
    return out


def _by_length(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(dict.fromkeys(texts), key=len, reverse=True))


@lru_cache(maxsize=1 << 15)
def canonical(texts: tuple[str, ...]) -> tuple[Pattern, ...]:
    """The templates with other names and values for their placeholders: equal `parts` for those that mean the same.

    `layers.{i}/op_{n+2}_mm` with `layers.{i}/op_{n+3}_mm` is `layers.{0}/op_{1}_mm` with `layers.{0}/op_{1+1}_mm`.
    """
    patterns = list(map(Pattern.of, texts))
    holes = [part for pattern in patterns for part in pattern.parts if isinstance(part, _Hole)]
    names: dict[str, str] = {}
    shift: dict[str, int] = {}
    for hole in holes:
        names.setdefault(hole.name, str(len(names)))
        shift.setdefault(hole.name, hole.offset)
    for hole in holes:
        if hole.factor != 1:  # its value cannot be negative
            shift[hole.name] = 0

    def renamed(part: str | _Hole) -> str | _Hole:
        if isinstance(part, str):
            return part
        return _Hole(names[part.name], part.kind, part.offset - shift[part.name], part.factor)

    return tuple(_of_parts(pattern.text, map(renamed, pattern.parts)) for pattern in patterns)


def _parts_of(text: str) -> tuple[str | _Hole, ...]:
    """Plain text and placeholders in turn; plain texts are never adjacent."""
    parts: list[str | _Hole] = []
    plain = ""
    at = 0
    while (brace := _BRACE.search(text, at)) is not None:
        plain, at = plain + text[at : brace.start()], brace.start()
        if text[at : at + 2] in {"{{", "}}"}:
            plain += text[at]
            at += 2
        elif text[at] == "}":
            raise PatternError("a '}' without '{' before it; write '}}' for a brace", at)
        else:
            found = _PLACEHOLDER.match(text, at)
            if found is None:
                raise PatternError("a placeholder is {name}, {name:path}, {name:int}, {n+1}, {4n+1} or {5-n}", at)
            if plain:
                parts.append(plain)
                plain = ""
            parts.append(_hole(found))
            at = found.end()
    if plain := plain + text[at:]:
        parts.append(plain)
    return tuple(parts)


def _hole(found: re.Match[str]) -> _Hole:
    start, factor, name, kind, sign, offset = found.groups()
    counted = bool(start or factor or sign)
    if start and sign:
        raise PatternError(f"{found.group()}: one offset is enough", found.start())
    if kind is None:
        kind = "int" if name in _INTEGERS or counted else "name"
    elif kind not in _KINDS:
        raise PatternError(f"{{{name}:{kind}}}: a placeholder is of kind {', '.join(_KINDS)}", found.start())
    if counted and kind != "int":
        raise PatternError(f"{found.group()}: only a number can have an offset or a factor", found.start())
    if start:
        return _Hole(name, kind, int(start), -int(factor or 1))
    return _Hole(name, kind, int(f"{sign}{offset}") if sign else 0, int(factor or 1))


def _is_forced(parts: tuple[str | _Hole, ...]) -> bool:
    """True if each placeholder must end where its run of characters ends.

    That holds if the following plain text cannot continue the run.
    """
    for part, after in pairwise(parts):
        if isinstance(part, str):
            continue
        if not isinstance(after, str):
            return False
        if after[0] in "0123456789" if part.kind == "int" else after[0] not in _STOPS[part.kind]:
            return False
    return True


def _rest_reading(parts: tuple[str | _Hole, ...], text: str) -> tuple[str, ...] | None:
    """The text of the one placeholder: what the plain texts around it leave; None if the text does not match."""
    before, after = (part if isinstance(part, str) else "" for part in (parts[0], parts[-1]))
    if len(text) < len(before) + len(after) or not (text.startswith(before) and text.endswith(after)):
        return None
    rest = text[len(before) : len(text) - len(after)]
    kind = next(part.kind for part in parts if isinstance(part, _Hole))
    return (rest,) if _RUN[kind].fullmatch(rest) else None


def _only_reading(parts: tuple[str | _Hole, ...], text: str) -> tuple[str, ...] | None:
    """The texts of the placeholders, each of which ends where its run ends; None if the text does not match."""
    if parts and isinstance(last := parts[-1], str) and not text.endswith(last):
        return None
    groups: list[str] = []
    at = 0
    for part in parts:
        if isinstance(part, str):
            if not text.startswith(part, at):
                return None
            at += len(part)
        else:
            run = _RUN[part.kind].match(text, at)
            if run is None:
                return None
            groups.append(run[0])
            at = run.end()
    return tuple(groups) if at == len(text) else None


def _longest_reading(parts: tuple[str | _Hole, ...], text: str) -> tuple[str, ...] | None:
    """The texts of the placeholders, leftmost longest; None if the text does not match. Linear in the text.

    Backwards, compute for every part the positions from which the parts to its right can still succeed; then forwards,
    take the farthest of these ends for each placeholder.
    """
    size = len(text)
    ends = bytearray(size + 1)
    ends[size] = 1
    reachable = [ends]
    for part in reversed(parts):
        reachable.append(_starts(part, text, reachable[-1]))
    reachable.reverse()
    if not reachable[0][0]:
        return None
    groups: list[str] = []
    at = 0
    for part, ends in zip(parts, reachable[1:], strict=True):
        if isinstance(part, str):
            at += len(part)
            continue
        run = _RUN[part.kind].match(text, at)
        assert run is not None
        stop = ends.rfind(1, at, run.end() + 1)
        while text[stop - 1] == ".":  # a path cannot end in a dot
            stop = ends.rfind(1, at, stop)
        groups.append(text[at:stop])
        at = stop
    return tuple(groups)


def _starts(part: str | _Hole, text: str, ends: bytearray) -> bytearray:
    """Positions where `part` can start so that it ends on one of `ends`."""
    size = len(text)
    out = bytearray(size + 1)
    if isinstance(part, str):
        at = text.find(part)
        while at >= 0:
            out[at] = ends[at + len(part)]
            at = text.find(part, at + 1)
        return out
    if part.kind == "path":
        # `inside`: at least one character of the current segment has been taken.
        inside = ends[size]
        for at in range(size - 1, -1, -1):
            char = text[at]
            out[at] = inside if char not in "./" else 0
            dotted = char == "." and at + 1 < size and out[at + 1]
            inside = 1 if ends[at] or out[at] or dotted else 0
        return out
    reach = 0
    for at in range(size - 1, -1, -1):
        char = text[at]
        ok = "0" <= char <= "9" if part.kind == "int" else char not in "./"
        reach = 1 if ok and (ends[at + 1] or reach) else 0
        out[at] = reach
    return out


class Glob:
    """A glob. `literals` are its plain texts, the longest first: each is in every text that it matches.

    One without `?` is matched by searching its plain texts from left to right; any other by a regular expression, which
    `fnmatch` writes so that no star is tried twice.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._between = None if "?" in text else text.split("*")
        self._shortest = len(text) - text.count("*")
        self.literals = _by_length(filter(None, text.replace("?", "*").split("*")))

    @property
    def anywhere(self) -> bool:
        """True if it matches every text that has its plain text."""
        return self._between is not None and 1 < len(self._between) < 4 and self._between[0] == self._between[-1] == ""

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        # compiled when a text is a candidate: most globs have none
        return re.compile(fnmatch.translate(self.text.replace("[", "[[]")))

    @classmethod
    def of(cls, text: str) -> Glob:
        """Return the compiled glob of a text; every text is valid."""
        return _compiled_glob(text)

    def __repr__(self) -> str:
        return f"Glob({self.text!r})"

    def match(self, text: str) -> bool:
        """True if the whole text matches."""
        if len(text) < self._shortest:
            return False
        if self._between is None:
            return self._expression.match(text) is not None
        first, *middle = self._between
        if not middle:
            return text == first
        last = middle.pop()
        at, end = len(first), len(text) - len(last)
        if at > end or not (text.startswith(first) and text.endswith(last)):
            return False
        for plain in middle:
            at = text.find(plain, at, end)
            if at < 0:
                return False
            at += len(plain)
        return True


@lru_cache(maxsize=1 << 15)
def _compiled_glob(text: str) -> Glob:
    return Glob(text)
