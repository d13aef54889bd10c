"""The law of an operation in words: what it computes, and so how its result may differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from matchers.laws.law import Form, Law
from matchers.logs.op_log import OpLog
from matchers.ops.laws import law_of
from matchers.ops.shapes import reduction_length

__all__ = ["operation_of"]

_SUMS = (Form.SUM, Form.MEAN, Form.NORM, Form.REDUCTION)
_DOES: tuple[tuple[Callable[[Law], bool], str], ...] = (
    (lambda law: law.waits, "waits for a collective"),
    (lambda law: law.reduces, "is a collective that reduces what ranks have"),
    (lambda law: law.communicates, "is a collective that moves data between ranks, and rounds nothing"),
    (lambda law: law.random, "draws random numbers: another state of the generator gives other ones"),
    (
        lambda law: law.enters or law.blind or law.unwritten,
        "reads no element of a tensor: it returns numbers of Python, a constant, or fresh memory",
    ),
    (lambda law: law.casts, "hands on its input as a cast, which rounds once"),
    (lambda law: law.copies, "hands on the elements of its input, and rounds nothing"),
    (lambda law: law.selects, "picks, sets or arranges elements, and rounds nothing"),
    (lambda law: law.moves, "arranges what it reads in memory"),
    (lambda law: law.form is Form.RANK, "puts values in order: near ties, rounding decides"),
    (lambda law: law.form is Form.UPDATE, "is a whole step of an optimizer, element by element"),
    (lambda law: law.factor is not None, "is a matrix product: each element is a sum{}"),
    (lambda law: law.extreme, "picks the largest or smallest of its elements, and rounds nothing"),
    (lambda law: law.form in _SUMS, "is a reduction: a sum{}, in an order that kernels choose"),
    (lambda law: law.pointwise, "is pointwise: each element is computed of those at its place"),
    (lambda _: True, "is taken for one with sums in it, which may be added up in another order"),
)
"""Words for the work of an operation, by the first that holds of its law; `{}`: the number of terms."""
_FURTHER: tuple[tuple[Callable[[Law], bool], str], ...] = (
    (lambda law: law.on_lists, "It takes lists of tensors; the tensor that differs most decides"),
    (lambda law: law.nondeterministic, "On some devices it may return other bits each time"),
    (lambda law: law.may_drop, "It draws random numbers if it is asked to drop out"),
    (lambda law: law.over_batch, "It computes statistics of the batch"),
)


def operation_of(log: OpLog, record: int) -> Iterator[str]:
    """The work of a record's operation, a clause each."""
    law, terms = law_of(log, record), float(reduction_length(log)[record])
    does = next(words for holds, words in _DOES if holds(law))
    yield f"{log.op_name(record)} {does.format(f' of {terms:,.0f} terms' if 1 < terms < math.inf else '')}"
    yield from (words for holds, words in _FURTHER if holds(law))
