"""Explain one row in words: the text of the inspector and of the reports.

Pure: a comparison and a row in, text out. Nothing is escaped here; the caller that prints makes it safe.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from matchers.comparison import Comparison
from matchers.explain.facts import (
    Fact,
    InputFact,
    facts_of,
    format_eps,
    format_error,
    inputs_of,
)
from matchers.explain.headlines import headline_of
from matchers.explain.notes import notes_of
from matchers.explain.reason_facts import reason_text
from matchers.explain.red_rows import recomputed, row_epsilon
from matchers.explain.subject import Subject
from matchers.ops.dataflow import consumers
from matchers.pairing.pairing import Method
from matchers.rules.resolve import key_reference
from matchers.status import Status
from matchers.verdict.fused import are_parts

__all__ = [
    "Explanation",
    "Fact",
    "InputFact",
    "consumers",
    "explain",
    "format_eps",
    "format_error",
    "headline",
    "recomputed",
    "row_epsilon",
]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything the inspector says about a row.

    Attributes:
        headline: verdict and role in one sentence ("FIRST CAUSE: the output differs by ≥1.2e-03; all inputs agree").
        pairing: the reason why these two were paired, confidence and runner-up; or why the operation is unpaired.
        notes: further findings and the limits of what can be known, a sentence each.
        facts: the table of both sides.
        inputs: inputs with their producers.
        reason: word of the finding that decided the status, and its facts; empty for one log.
    """

    headline: str
    pairing: str
    notes: tuple[str, ...]
    facts: tuple[Fact, ...]
    inputs: tuple[InputFact, ...]
    reason: str = ""


_HOW = {
    Method.OVERRIDE: "paired by a rule",
    Method.TEMPLATE: "paired by a template rule",
    Method.EXACT: "paired by values: output and inputs are unique in both logs",
    Method.ALIGNED: "paired by order, names, flow and values",
    Method.VALUES: "paired by the numbers of their results or inputs, which no others have",
    Method.DATAFLOW: "paired as recomputed copies of partners",
    Method.RELAXED: "paired as the last ones of this name on both sides",
    Method.PARTS: "paired as one operation and its parts: the results side by side have its shape",
}

_HOW_BY_BITS = {
    Method.EXACT: "paired by digests: output and inputs are unique in both logs",
    Method.VALUES: "paired by output digests, unique in both logs, although the inputs differ",
}


def explain(c: Comparison, row: int) -> Explanation:
    """Explain one row of a comparison."""
    inputs = inputs_of(c, row)
    return Explanation(
        headline=headline_of(Subject(c, row, inputs)),
        reason=reason_text(c, row),
        pairing=_pairing(c, row),
        notes=notes_of(Subject(c, row, inputs)),
        facts=tuple(facts_of(c, row)),
        inputs=inputs,
    )


def headline(c: Comparison, row: int) -> str:
    """The first sentence of `explain`, at a tenth of its cost."""
    return headline_of(Subject(c, row, inputs_of(c, row)))


def _pairing(c: Comparison, row: int) -> str:
    pair = int(c.pair[row])
    if pair < 0:
        status = Status(c.status[row])
        if status == Status.PENDING:
            return ""
        if status == Status.RECOMPUTE:
            return "unpaired: the other run has no such copy, or none that was recognised"
        return "unpaired: no free operation of this op, shape and phase nearby"
    method = Method(c.pairing.method[pair])
    text = _HOW_BY_BITS.get(method, _HOW[method]) if _by_bits(c, pair) else _HOW[method]
    if method == Method.DATAFLOW and c.original[row] >= 0:
        text += f", both of {_names_of(c, int(c.original[row]))}"
    if method not in (Method.OVERRIDE, Method.TEMPLATE):
        text += f", confidence {float(c.pairing.confidence[pair]):.2f}"
        runner_up = int(c.pairing.runner_up[pair])
        if runner_up >= 0 and c.pairing.runner_up_score[pair] >= 0.005:
            text += (
                f"; runner-up {key_reference(c.b, runner_up, once=True)} {float(c.pairing.runner_up_score[pair]):.2f}"
            )
        elif method == Method.ALIGNED:
            text += "; no close alternative"
    if c.pairing.grouped[pair] and not c.pairing.assembled[pair]:
        text += f"; {c.a.batches} and {c.b.batches} micro-batches, compared together"
    elif c.pairing.grouped[pair]:
        a, b = c.pairing.members(pair)
        log, side = (c.a, a) if len(a) > 1 else (c.b, b)
        names = " + ".join(log.op_name(record) for record in side)
        how = "as one tensor" if are_parts(c.a, c.b, a, b) else "at the last one"
        text += f"; {names} together form this operation, compared {how}"
    return text


def _names_of(c: Comparison, row: int) -> str:
    """The keys of a pair, once where they are the same."""
    i, j = int(c.row_a[row]), int(c.row_b[row])
    one, other = c.a.keys[i] if i >= 0 else "", c.b.keys[j] if j >= 0 else ""
    return f"{one} in a and {other} in b" if one and other and one != other else one or other


def _by_bits(c: Comparison, pair: int) -> bool:
    """True where the results of a pair's leading records are bitwise equal."""
    x, y = c.a.digests[int(c.pairing.lead_a[pair])], c.b.digests[int(c.pairing.lead_b[pair])]
    return len(x) > 0 and np.array_equal(x, y)
