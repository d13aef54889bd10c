"""Fields of a filter query: their values, and the rows each selects.

`FIELDS` take words after a colon, `NUMBERS` are compared with a number. Text of a log is looked up once per distinct
name, never once per row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int64
from matchers.comparison import Comparison
from matchers.logs.columns import Strings
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.arguments import argument_texts
from matchers.pairing.pairing import Method
from matchers.rules.model import ModuleRule
from matchers.rules.scope import reach
from matchers.single_run import dtype_changes
from matchers.status import Role, Status
from matchers.verdict.reason import Reason
from matchers.verdict.tolerance import EPSILON
from numtui.text.glyphs import WORDS

__all__ = ["FIELDS", "NUMBERS", "STATUS_WORDS", "Field", "Number", "keys_containing", "rows_of_rule"]

_OF_WORD = {word.replace(" ", "-"): tuple(s for s in Status if WORDS[s] == word) for word in WORDS.values() if word}

STATUS_WORDS: dict[str, tuple[Status, ...]] = {
    **_OF_WORD,
    "other": tuple(s for s in Status if WORDS[s] in ("", "not judged", "recompute", "ignored")),
    **{s.label: (s,) for s in Status if s.label not in _OF_WORD},
}
"""Values of `status:`, besides `cause` and `cast`: the words of the screen, and the labels of reports."""


@dataclass(frozen=True, slots=True)
class Field:
    """A query field with one or more comma-separated words, any of which may match.

    Attributes:
        about: description for the help.
        mask: the rows with one of the values, which are already validated.
        values: meaning of each allowed word; empty where any text is allowed.
        number: it takes whole numbers from 1 on.
        whole: a comma is part of the value.
        names: the values in a comparison, for completion.
    """

    about: str
    mask: Callable[[Comparison, Sequence[str]], Bool]
    values: Mapping[str, str] = field(default_factory=dict)
    number: bool = False
    whole: bool = False
    names: Callable[[Comparison], Sequence[str]] = lambda _: ()

    def wrong(self, value: str) -> str:
        """Return the error in one value; empty when it is valid."""
        if not value and not self.values:
            return "a value is missing"
        if self.number and not (value.isascii() and value.isdigit() and int(value) > 0):
            return f"expected a number from 1 on, not {value!r}"
        if self.values and value not in self.values:
            return f"expected one of {', '.join(self.values)}"
        return ""


@dataclass(frozen=True, slots=True)
class Number:
    """A column to compare with a number; NaN where a row has none, so that no comparison is true."""

    about: str
    column: Callable[[Comparison], Float64]


def keys_containing(c: Comparison, text: str) -> Bool:
    """bool[r]: rows with a key on either side that contains `text`."""
    return _either(c, lambda log: log.keys.containing(text))


def _either(c: Comparison, of_log: Callable[[OpLog], Bool]) -> Bool:
    """Lift a mask over the records of a log to the rows of the comparison: true when either side has it."""
    out = np.zeros(len(c), bool)
    for log, at in ((c.a, c.row_a), (c.b, c.row_b)):
        # The extra entry serves record -1: no record on this side.
        out |= np.append(of_log(log), False)[at]
    return out


def _labels(
    members: Sequence[Phase] | Sequence[Method] | Sequence[Role] | Sequence[Reason], **short: str
) -> dict[str, str]:
    return {member.label: member.name for member in members} | short


def _statuses(c: Comparison, words: Sequence[str]) -> Bool:
    found = np.isin(c.status, [s for word in words if word in STATUS_WORDS for s in STATUS_WORDS[word]])
    if "cause" in words:
        found |= c.cause
    if "cast" in words:
        found |= _casts(c)
    return found


def _casts(c: Comparison) -> Bool:
    """Rows that return floats of another dtype than they read, on either side."""
    flow = c.flow
    if flow is None:
        return np.zeros(len(c), bool)
    return _either(c, lambda log: dtype_changes(log, flow.a if log is c.a else flow.b))


def _largest(c: Comparison) -> Float64:
    """Largest magnitude in the output of either side; inf where a log has Inf."""
    out = np.full(len(c), np.nan)
    for log, at in ((c.a, c.row_a), (c.b, c.row_b)):
        largest = np.fmax(np.abs(log.stats[2]), np.abs(log.stats[3]))
        out = np.fmax(out, np.append(largest, np.nan)[at])
    return out


def _followed(c: Comparison, numbers: Sequence[str]) -> Bool:
    """Rows that start a first cause (numbered as in the list of causes), and their red consequences."""
    wanted = [int(number) - 1 for number in numbers]
    if c.flow is None:
        return np.zeros(len(c), bool)  # nothing is paired yet
    found = c.consequences
    mask = np.isin(found.cause_of, wanted)
    mask[[row for k in wanted if k < len(found.causes) for row in found.causes[k].rows]] = True
    return mask


def rows_of_rule(c: Comparison, number: int) -> Bool:
    """bool[r]: rows of the operations that a rule covers (an index into the rules), disabled or not."""
    rule = c.rules.rules[number]
    modules = tuple(other for at, other in c.rules.in_force(ModuleRule) if at < number)
    found = reach(replace(rule, enabled=True), c.a, c.b, modules)
    out = np.zeros(len(c), bool)
    for records, at in ((found.a, c.at_a), (found.b, c.at_b)):
        out[at[np.flatnonzero(records)]] = True
    return out


def _of_rules(c: Comparison, numbers: Sequence[str]) -> Bool:
    """Rows of some rules, numbered as in the list of rules."""
    wanted = [int(number) - 1 for number in numbers]
    masks = [rows_of_rule(c, k) for k in wanted if k < len(c.rules)]
    return np.logical_or.reduce(masks) if masks else np.zeros(len(c), bool)


def _method(c: Comparison) -> NDArray[np.int8]:
    return np.append(c.pairing.method, np.int8(Method.NONE))[c.pair]


def _confidence(c: Comparison) -> Float64:
    return np.append(c.pairing.confidence.astype(np.float64), np.nan)[c.pair]


def _units(c: Comparison) -> Float64:
    """Error in units of the coarser ε of the two sides."""
    eps = np.zeros(len(c))
    for log, at in ((c.a, c.row_a), (c.b, c.row_b)):
        # The last entry serves index -1: not in the log.
        table = np.array([EPSILON.get(name, 0.0) for name in log.dtypes] + [0.0])
        eps = np.maximum(eps, np.append(table[log.dtype], 0.0)[at])
    return np.divide(c.error, eps, out=np.full(len(c), np.nan), where=eps > 0)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of interned text, on either side."""

    table: Callable[[OpLog], Strings]
    index: Callable[[OpLog], Int64]
    shown: Callable[[str], str] = str

    def mask(self, c: Comparison, values: Sequence[str]) -> Bool:
        tests = [_test(self.shown(value)) for value in values]
        return _either(c, lambda log: self._hits(log, tests)[self.index(log)])

    def names(self, c: Comparison) -> list[str]:
        return list(dict.fromkeys(self.shown(name) for log in (c.a, c.b) for name in self.table(log)))

    def _hits(self, log: OpLog, tests: Sequence[Callable[[str], object]]) -> Bool:
        shown = (self.shown(name) for name in self.table(log))
        # The last entry serves index -1: not in the log.
        return np.array([any(test(name) for test in tests) for name in shown] + [False], bool)


_SIGNS = {"*": ".*", "?": ".", "#": "[0-9]+"}


def _test(value: str) -> Callable[[str], object]:
    """Build the test for names that contain `value`, or equal it (`=value`, with wildcards `*`, `?`, `#`).

    A number never matches within another one: `layers.1` is not in `layers.12`.
    """
    if value.startswith("=") and len(value) > 1:
        pattern = "".join(_SIGNS.get(c, re.escape(c)) for c in value[1:])
        return re.compile(pattern, re.IGNORECASE | re.DOTALL).fullmatch
    before = r"(?<!\d)" if value[:1].isdigit() else ""
    after = r"(?!\d)" if value[-1:].isdigit() else ""
    return re.compile(before + re.escape(value) + after, re.IGNORECASE).search


def _text(about: str, column: _Column, *, whole: bool = False) -> Field:
    return Field(about, column.mask, whole=whole, names=column.names)


def _file(location: str) -> str:
    """Return the file of `path/to/model.py:12`."""
    path, colon, line = location.rpartition(":")
    return path if colon and line.isdigit() else location


_STATUS = Field(
    "status, by a word of the screen or the label of reports; `cause` for first causes, `cast` for a change of dtype",
    _statuses,
    {word: word for word in (*STATUS_WORDS, "cause", "cast")},
)

_PHASES = _labels(list(Phase), fwd="FORWARD", bwd="BACKWARD", opt="OPTIMIZER", prep="PREPARE", grad="GRADIENTS")
_METHODS = _labels(list(Method))
_REASONS = _labels(list(Reason))
_ROLES = _labels([r for r in Role if r is not Role.NONE])

FIELDS: dict[str, Field] = {
    "status": _STATUS,
    "is": _STATUS,
    "role": Field(
        "role of a red row in the data flow",
        lambda c, words: np.isin(c.role, [Role[_ROLES[word]] for word in words]),
        _ROLES,
    ),
    "cause": Field("the first cause of this number, and its red consequences", _followed, number=True),
    "rule": Field(
        "the rule of this number in the list of rules (r)",
        _of_rules,
        number=True,
        names=lambda c: [str(number) for number in range(1, len(c.rules) + 1)],
    ),
    "phase": Field(
        "phase of the step",
        lambda c, words: _either(c, lambda log: np.isin(log.phase, [Phase[_PHASES[word]] for word in words])),
        _PHASES,
    ),
    "op": _text("operation", _Column(lambda log: log.ops, lambda log: log.op)),
    "module": _text("module", _Column(lambda log: log.modules, lambda log: log.module)),
    "file": _text("source file", _Column(lambda log: log.locations, lambda log: log.location, _file)),
    "at": _text("source file and line", _Column(lambda log: log.locations, lambda log: log.location)),
    "dtype": _text("dtype of the output", _Column(lambda log: log.dtypes, lambda log: log.dtype)),
    "shape": _text(
        "shape of the output, like `4,64`",
        _Column(lambda log: log.shapes, lambda log: log.shape, lambda text: text.replace(" ", "")),
        whole=True,
    ),
    "reason": Field(
        "finding that decided the status",
        lambda c, words: np.isin(c.reason, [Reason[_REASONS[word]] for word in words]),
        _REASONS,
    ),
    "arg": _text(
        "argument of the operation, like `eps` or `eps=1e-05`",
        _Column(lambda log: argument_texts(log)[0], lambda log: argument_texts(log)[1]),
        whole=True,
    ),
    "differs": Field(
        "what the sides were asked otherwise: `args`",
        lambda c, _words: c.asked_otherwise,
        {"args": "args"},
    ),
    "method": Field(
        "method that found the pair",
        lambda c, words: np.isin(_method(c), [Method[_METHODS[w]] for w in words]),
        _METHODS,
    ),
}

_CONFIDENCE = Number("confidence of the pair, 0 to 1", _confidence)

NUMBERS: dict[str, Number] = {
    "error": Number("relative error", lambda c: c.error),
    "largest": Number("largest magnitude in the output", _largest),
    "eps": Number("error in units of the dtype's ε", _units),
    "conf": _CONFIDENCE,
    "confidence": _CONFIDENCE,
    "row": Number("number of the row", lambda c: np.arange(1, len(c) + 1, dtype=np.float64)),
}
