"""Filter query: parse a typed query that selects rows of a comparison.

Words are separated by spaces, and a row must satisfy all of them; `-` in front of a word negates it:

    attention                    the key of either side contains it (ASCII case is ignored)
    status:red,not-judged        red, close, equal, only-one-side, not-judged, recompute, ignored; also `is:`
    status:only                  every word that begins so
    status:only-a,sharded        any status by its name in reports; `other`: not judged, recompute, ignored
    role:origin  is:cause        role in the data flow; first causes
    cause:1                      first cause number 1, and its red consequences
    rule:3                       the rows that rule 3 of the list of rules covers
    phase:bwd  op:mm,bmm  module:layers.3  dtype:bfloat16  shape:4,64  file:attention.py  at:attention.py:92
    reason:rounding-explained    the finding that decided the status, as the inspector names it
    method:values  conf<.8       method that found the pair, and its confidence
    error>1e-3  eps<10  row>500  relative error; error in units of ε; row number
    largest>1e4  is:cast         largest magnitude in the output; changes of dtype
    op:=mm  module:=layers.#.wq  the whole name; * matches anything, ? a character, # a number
    "two words"  module:"a b"    text with spaces or special characters
    @name                        the filter saved under this name
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from matchers.arrays import Bool
from matchers.comparison import Comparison
from matchers.errors import UserError
from matchers.typed_number import typed_number
from numtui.query.fields import FIELDS, NUMBERS, keys_containing

__all__ = ["NO_QUERY", "Query", "QueryError", "completions", "exactly", "parse_query"]

_OPERATORS: dict[str, Callable[[Any, float], Any]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}

_WORD = re.compile(r'(?:[^\s"]|"[^"]*(?:"|$))+')
_PARTS = re.compile(r"(?P<minus>-(?=.))?(?:(?P<field>[A-Za-z]+)(?P<sign>:|>=|<=|>|<))?(?P<value>.*)", re.DOTALL)
_VALUE = re.compile(r'(?:[^,"]|"[^"]*")*')


class QueryError(UserError):
    """An invalid word of a filter query; the message gives what was expected.

    `start` and `end` delimit the invalid characters of the query.
    """

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.start, self.end = start, end


@dataclass(frozen=True, slots=True)
class Term:
    """One word of a query: the rows of `of`, or all others."""

    of: Callable[[Comparison], Bool]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query with its typed `text`; the empty query selects every row."""

    text: str = ""
    terms: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    def mask(self, c: Comparison) -> Bool:
        """bool[r]: rows that satisfy every word."""
        wanted = np.ones(len(c), bool)
        for term in self.terms:
            found = term.of(c)
            wanted &= ~found if term.negated else found
        return wanted


NO_QUERY = Query()


def parse_query(text: str, saved: Mapping[str, str] | None = None) -> Query:
    """Parse a query; `saved` are the queries that `@name` refers to.

    Raises:
        QueryError: an unknown field, status, name or number; an unclosed quotation mark.
    """
    return Query(text.strip(), tuple(_terms(text, saved or {}, ())))


def exactly(name: str, value: str) -> str:
    """Return the word for rows whose field `name` equals this value, wildcards `*`, `?`, `#` included."""
    # A quotation mark cannot be quoted: match any one character instead.
    plain = value.replace('"', "?")
    return f'{name}:"={plain}"' if re.search(r'[\s",]', value) else f"{name}:={plain}"


def completions(c: Comparison, saved: Mapping[str, str]) -> tuple[str, ...]:
    """Return all words that complete a query over this comparison."""
    words = []
    for name, field in FIELDS.items():
        words += [f"{name}:{value}" for value in (field.values or field.names(c))]
        words.append(f"{name}:")
    words += [f"{name}>" for name in NUMBERS] + [f"@{name}" for name in saved]
    return tuple(dict.fromkeys(words))


def _terms(text: str, saved: Mapping[str, str], within: tuple[str, ...]) -> Iterator[Term]:
    for found in _WORD.finditer(text):
        yield _term(found.group(), found.start(), saved, within)


def _term(word: str, start: int, saved: Mapping[str, str], within: tuple[str, ...]) -> Term:
    """Parse one word of the query; `start` is its position."""
    end = start + len(word)
    if word.count('"') % 2:
        raise QueryError("unclosed quotation mark", start + word.rindex('"'), end)
    parts = _PARTS.fullmatch(word)
    assert parts is not None
    negated, name, sign, value = bool(parts["minus"]), parts["field"], parts["sign"], parts["value"]
    here = start + parts.start("value")
    if name is None:
        if value.startswith("@") and len(value) > 1:
            return Term(_saved(value[1:], here, end, saved, within), negated)
        needle = value.replace('"', "")
        return Term(lambda c: keys_containing(c, needle), negated)
    at = start + parts.start("field"), start + parts.end("field")
    if sign == ":":
        if name in NUMBERS:
            raise QueryError(f"{name} is compared with a number, like {name}>1e-3", at[0], here)
        if name not in FIELDS:
            close = get_close_matches(name, FIELDS, n=1)
            known = f"{close[0]}:?" if close else f"known are {', '.join(sorted(FIELDS))}"
            raise QueryError(f'{name}: is not a field; {known} (a key with a colon: "{name}:…")', at[0], here)
        return Term(_field(name, value, here), negated)
    if name not in NUMBERS:
        raise QueryError(f"{name} is not a number; known are {', '.join(NUMBERS)}", *at)
    return Term(_number(name, sign, value, here), negated)


def _number(name: str, sign: str, value: str, start: int) -> Callable[[Comparison], Bool]:
    number = typed_number(value)
    if np.isnan(number):
        raise QueryError(
            f"{name + sign + value!r}: expected a number after {sign}, like {name}{sign}1e-3",
            start,
            start + max(len(value), 1),
        )
    compare, column = _OPERATORS[sign], NUMBERS[name].column

    def mask(c: Comparison) -> Bool:
        with np.errstate(invalid="ignore"):
            return np.asarray(compare(column(c), number), bool)

    return mask


def _field(name: str, value: str, start: int) -> Callable[[Comparison], Bool]:
    field = FIELDS[name]
    values = []
    pieces = [(0, value)] if field.whole else _between_commas(value)
    for offset, piece in pieces:
        plain = piece.replace('"', "")
        if plain and (begun := [known for known in field.values if known.startswith(plain)]) and plain not in begun:
            values += begun
            continue
        if wrong := field.wrong(plain):
            told = f"{name}:{plain} is unknown; {wrong}" if field.values and plain else f"{name}: {wrong}"
            raise QueryError(told, start + offset, start + offset + max(len(piece), 1))
        values.append(plain)
    return lambda c: field.mask(c, values)


def _between_commas(value: str) -> list[tuple[int, str]]:
    """Split a value at commas outside quotation marks, each item with its position."""
    out = []
    at = 0
    while True:
        found = _VALUE.match(value, at)
        assert found is not None
        out.append((at, found.group()))
        if found.end() == len(value):
            return out
        at = found.end() + 1


def _saved(
    name: str, start: int, end: int, saved: Mapping[str, str], within: tuple[str, ...]
) -> Callable[[Comparison], Bool]:
    if name not in saved:
        known = f"; known are {', '.join(saved)}" if saved else "; F saves one"
        raise QueryError(f"no saved filter {name!r}{known}", start, end)
    if name in within:
        raise QueryError(f"the saved filter {name!r} refers to itself", start, end)
    try:
        query = Query(saved[name], tuple(_terms(saved[name], saved, (*within, name))))
    except QueryError as error:
        raise QueryError(f"the saved filter {name!r}: {error}", start, end) from error
    return query.mask
