"""The filter query: which rows of a comparison are wanted, as typed by a person.

A query is words with spaces between them, and a row must satisfy all of them; `-` in front of a word turns it round:

    attention                    the key of either side contains it (ASCII case does not matter)
    status:red,close             red, close, equal, only-a, only-b, other, or any status by name; also `is:`
    role:origin  is:cause        where the row stands in the data flow; the first causes
    phase:backward  op:mm  module:layers.3  dtype:bfloat16  shape:4,64  at:attention.py
    method:values  conf<0.8      how the pair was found, and how sure that is
    error>1e-3  error<1          relative error
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matchers.comparison import Comparison
from matchers.errors import UserError
from matchers.op_log import OpLog, Phase
from matchers.pairing import Method
from matchers.status import Role, Status

__all__ = ["Mask", "NO_QUERY", "Query", "QueryError", "STATUS_WORDS", "keys_containing", "parse_query"]

Mask = NDArray[np.bool_]

STATUS_WORDS: dict[str, tuple[Status, ...]] = {
    "red": tuple(s for s in Status if s.red),
    "equal": (Status.EQUAL, Status.SAME_PRINT),
    "other": (Status.PENDING, Status.SHARDED, Status.UNFINISHED, Status.RECOMPUTE, Status.IGNORED),
    **{s.label: (s,) for s in Status if s is not Status.EQUAL},
}
"""What may stand behind `status:`."""

_COMPARED = re.compile(r"(error|conf|confidence)(>=|<=|>|<)(.+)", re.DOTALL)
_OPERATORS: dict[str, Callable[[Any, float], Any]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


class QueryError(UserError):
    """A word of a filter query that means nothing; its text says what was expected."""


@dataclass(frozen=True, slots=True)
class Term:
    """One word of a query: `field` is empty for plain text."""

    field: str
    value: str
    compare: str = ""
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query. `text` is what was typed; the empty query wants every row."""

    text: str = ""
    terms: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    def mask(self, c: Comparison) -> Mask:
        """bool[r]: the rows that satisfy every word."""
        wanted = np.ones(len(c), bool)
        for term in self.terms:
            found = _evaluate(c, term)
            wanted &= ~found if term.negated else found
        return wanted


NO_QUERY = Query()


def parse_query(text: str) -> Query:
    """The query that `text` stands for.

    Raises:
        QueryError: a field, a status, a number that is not known.
    """
    return Query(text.strip(), tuple(_term(word) for word in text.split()))


def keys_containing(c: Comparison, text: str) -> Mask:
    """bool[r]: the rows with a key on either side that contains `text`."""
    return _either(c, lambda log: log.keys.containing(text))


def _term(word: str) -> Term:
    negated = word.startswith("-") and len(word) > 1
    body = word[1:] if negated else word
    compared = _COMPARED.fullmatch(body)
    if compared:
        name, sign, number = compared.groups()
        try:
            float(number)
        except ValueError:
            raise QueryError(f"{body!r}: expected a number after {sign}, like {name}{sign}1e-3") from None
        return Term("error" if name == "error" else "confidence", number, sign, negated)
    field, colon, value = body.partition(":")
    if not colon:
        return Term("", body, "", negated)
    if field not in _FIELDS:
        raise QueryError(f"{field}: is no field; there are {', '.join(sorted(_FIELDS))}, error> and conf<")
    for name in value.split(","):
        known = _FIELDS[field]
        if known is not None and name not in known:
            raise QueryError(f"{field}:{name} is unknown; expected one of {', '.join(known)}")
    return Term(field, value, "", negated)


_WORDS = (*STATUS_WORDS, "cause")
_FIELDS: dict[str, tuple[str, ...] | None] = {
    "status": _WORDS,
    "is": _WORDS,
    "role": tuple(r.label for r in Role if r is not Role.NONE),
    "phase": tuple(p.label for p in Phase),
    "method": tuple(m.label for m in Method),
    "op": None,
    "module": None,
    "dtype": None,
    "shape": None,
    "at": None,
}
"""The fields, each with the values it takes; None: any text, of which a part is enough."""

_TABLES = {
    "op": ("ops", "op"),
    "module": ("modules", "module"),
    "dtype": ("dtypes", "dtype"),
    "shape": ("shapes", "shape"),
    "at": ("locations", "location"),
}


def _evaluate(c: Comparison, term: Term) -> Mask:
    if term.compare:
        column = c.error if term.field == "error" else _confidence(c)
        with np.errstate(invalid="ignore"):
            return np.asarray(_OPERATORS[term.compare](column, float(term.value)), bool)
    names = term.value.split(",")
    if term.field == "":
        return keys_containing(c, term.value)
    if term.field in ("status", "is"):
        codes = [s for name in names if name != "cause" for s in STATUS_WORDS[name]]
        found = np.isin(c.status, codes)
        return found | c.cause if "cause" in names else found
    if term.field == "role":
        return np.isin(c.role, [Role[name.upper()] for name in names])
    if term.field == "method":
        return np.isin(_method(c), [Method[name.upper()] for name in names])
    if term.field == "phase":
        codes_of = [Phase[name.upper()] for name in names]
        return _either(c, lambda log: np.isin(log.phase, codes_of))
    return _either(c, lambda log: _in_table(log, term.field, term.value))


def _in_table(log: OpLog, field: str, text: str) -> Mask:
    """Rows of a log whose interned text contains `text`: looked up once per distinct text, not once per row."""
    table, column = _TABLES[field]
    needle = text.lower()
    # A last entry for index -1, which means that the log does not say.
    hit = np.array([needle in name.lower() for name in getattr(log, table)] + [False], bool)
    return np.asarray(hit[getattr(log, column)], bool)


def _either(c: Comparison, of_log: Callable[[OpLog], Mask]) -> Mask:
    """Lift a mask over the records of a log to the rows of the comparison: true when either side has it."""
    out = np.zeros(len(c), bool)
    for log, at in ((c.a, c.row_a), (c.b, c.row_b)):
        # The extra entry answers for record -1, a row that this side does not have.
        out |= np.append(of_log(log), False)[at]
    return out


def _method(c: Comparison) -> NDArray[np.int8]:
    return np.append(c.pairing.method, np.int8(Method.NONE))[c.pair]


def _confidence(c: Comparison) -> NDArray[np.float64]:
    return np.append(c.pairing.confidence.astype(np.float64), np.nan)[c.pair]
