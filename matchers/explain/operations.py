"""The law of an operation in words: what it computes, and so how its result may differ."""

from __future__ import annotations

import math
from collections.abc import Iterator

from matchers.laws.law import Form, Law
from matchers.laws.register import known
from matchers.logs.op_log import OpLog
from matchers.ops.laws import law_of
from matchers.ops.shapes import reduction_length

__all__ = ["operation_of"]

_FORMS = {
    Form.JOIN: "puts tensors beside each other",
    Form.LOOKUP: "picks elements or rows by position",
    Form.MASK: "sets some elements",
    Form.RANK: "puts values in order: near ties, rounding decides",
    Form.UPDATE: "is a whole step of an optimizer, element by element",
}


def operation_of(log: OpLog, record: int) -> Iterator[str]:
    """What a record's operation does, a clause each."""
    name, law = log.op_name(record), law_of(log, record)
    yield f"{name} {_does(law, reduction_length(log)[record], registered=name in known())}"
    if law.on_lists:
        yield "It takes lists of tensors; the tensor that differs most decides"
    if law.nondeterministic:
        yield "On some devices it may return other bits each time"
    if law.may_drop:
        yield "It draws random numbers if it is asked to drop out"
    if law.over_batch:
        yield "It computes statistics of the batch"


def _does(law: Law, terms: float, *, registered: bool) -> str:
    many = f"{terms:,.0f} terms" if 1 < terms < math.inf else ""
    if law.communicates:
        does = "adds up what ranks have" if law.reduces else "moves data between ranks, and rounds nothing"
        return "waits for a collective" if law.waits else f"is a collective ({law.kind}): it {does}"
    if law.random:
        return "draws random numbers: another state of the generator gives other ones"
    if law.enters or law.blind or law.unwritten:
        return "reads no element of a tensor: it returns numbers of Python, a constant, or fresh memory"
    if law.copies:
        what = "a view" if law.aliases else "a cast, which rounds once" if law.casts else "a copy"
        return f"hands on its input as {what}" + ("" if law.casts else ", and rounds nothing")
    if law.form in _FORMS:
        return _FORMS[law.form] + ", and rounds nothing" * law.selects
    if law.factor is not None:
        return "is a matrix product: each element is a sum" + f" of {many}" * bool(many)
    if law.form in (Form.SUM, Form.MEAN, Form.NORM, Form.REDUCTION):
        return f"is a reduction: it adds up {many or 'along dimensions'}, in an order that kernels choose"
    if law.selects:
        return "picks elements of its inputs, and rounds nothing"
    if law.pointwise:
        return "is pointwise: each element is computed of those at its place"
    return f"is {'no pointwise operation' if registered else 'not known to torch'}: sums in it may have another order"
