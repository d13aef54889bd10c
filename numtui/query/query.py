"""The filter query: which rows of a comparison are wanted, as typed by a person.

A query is words with spaces between them, and a row must satisfy all of them; `-` in front of a word turns it round:

    attention                    the key of either side contains it (ASCII case does not matter)
    status:red,close             red, close, equal, only-a, only-b, other, or any status by name; also `is:`
    role:origin  is:cause        where the row stands in the data flow; the first causes
    cause:1                      the first of the first causes, and the red rows that follow from it
    rule:3                       the rows that the third rule is about, as the list of rules counts them
    phase:bwd  op:mm,bmm  module:layers.3  dtype:bfloat16  shape:4,64  file:attention.py  at:attention.py:92
    method:values  conf<.8       how the pair was found, and how sure that is
    error>1e-3  eps<10  row>500  relative error; the same in units of ε; the number of the row
    largest>1e4  is:cast         the largest magnitude in the output; where the dtype changes
    op:=mm  module:=layers.#.wq  the whole name; * stands for anything, ? for a character, # for a number
    "two words"  module:"a b"    text with spaces, or with what else means something here
    @name                        the filter that was saved under this name
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from matchers.arrays import Bool
from matchers.comparison import Comparison
from matchers.errors import UserError
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
    """A word of a filter query that means nothing; its text says what was expected.

    `start` and `end` are the characters of the query that it is about.
    """

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.start, self.end = start, end


@dataclass(frozen=True, slots=True)
class Term:
    """One word of a query: rows of `of`, or all others."""

    of: Callable[[Comparison], Bool]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query. `text` is what was typed; the empty query wants every row."""

    text: str = ""
    terms: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    def mask(self, c: Comparison) -> Bool:
        """bool[r]: the rows that satisfy every word."""
        wanted = np.ones(len(c), bool)
        for term in self.terms:
            found = term.of(c)
            wanted &= ~found if term.negated else found
        return wanted


NO_QUERY = Query()


def parse_query(text: str, saved: Mapping[str, str] | None = None) -> Query:
    """The query that `text` stands for; `saved` are queries by the names that `@name` calls them by.

    Raises:
        QueryError: a field, a status, a name, a number that is not known; a quotation mark without its other one.
    """
    return Query(text.strip(), tuple(_terms(text, saved or {}, ())))


def exactly(name: str, value: str) -> str:
    """The word that wants the rows whose `name` (a field) is this; `*`, `?` and `#` stand for something."""
    # A quotation mark cannot be quoted: one character, whatever it is.
    plain = value.replace('"', "?")
    return f'{name}:"={plain}"' if re.search(r'[\s",]', value) else f"{name}:={plain}"


def completions(c: Comparison, saved: Mapping[str, str]) -> tuple[str, ...]:
    """The words that a query over this comparison can be made of."""
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
    """A word of the query; `start` is where it stands."""
    end = start + len(word)
    if word.count('"') % 2:
        raise QueryError("the quotation mark has no other one", start + word.rindex('"'), end)
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
            known = ", ".join(sorted(FIELDS))
            raise QueryError(f'{name}: is no field; there are {known} (a key with a colon: "{name}:…")', at[0], here)
        return Term(_field(name, value, here), negated)
    if name not in NUMBERS:
        raise QueryError(f"{name} is no number; there are {', '.join(NUMBERS)}", *at)
    return Term(_number(name, sign, value, here), negated)


def _number(name: str, sign: str, value: str, start: int) -> Callable[[Comparison], Bool]:
    try:
        number = float(value)
    except ValueError:
        number = np.nan
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
        if wrong := field.wrong(plain):
            told = f"{name}:{plain} is unknown; {wrong}" if field.values and plain else f"{name}: {wrong}"
            raise QueryError(told, start + offset, start + offset + max(len(piece), 1))
        values.append(plain)
    return lambda c: field.mask(c, values)


def _between_commas(value: str) -> list[tuple[int, str]]:
    """The parts of a value, each with where it starts; a comma in quotation marks parts nothing."""
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
        known = f"; there are {', '.join(saved)}" if saved else ": F saves one"
        raise QueryError(f"there is no saved filter {name!r}{known}", start, end)
    if name in within:
        raise QueryError(f"the saved filter {name!r} is made of itself", start, end)
    try:
        query = Query(saved[name], tuple(_terms(saved[name], saved, (*within, name))))
    except QueryError as error:
        raise QueryError(f"the saved filter {name!r}: {error}", start, end) from error
    return query.mask
