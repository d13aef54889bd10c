"""What is known about one row, in words: the text of the inspector and of the reports.

Pure: a comparison and a row in, text out. Nothing is escaped here; whoever prints it makes it safe.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from matchers.comparison import Comparison
from matchers.explain.facts import (
    OTHER_BITS,
    Fact,
    InputFact,
    facts_of,
    format_eps,
    format_error,
    ground_of,
    inputs_of,
    phase_label,
)
from matchers.logs.op_log import Phase
from matchers.ops.collectives import is_collective
from matchers.ops.dataflow import consumers
from matchers.ops.nonfinite import broken_text
from matchers.ops.placement import describe_placement, parse_placement
from matchers.ops.run_info import cut_gradients
from matchers.pairing.pairing import Method
from matchers.rules.resolve import key_reference
from matchers.status import Role, Status
from matchers.verdict.relative_error import relative_difference
from matchers.verdict.sketches import error_range
from matchers.verdict.tolerance import EPSILON

__all__ = [
    "Explanation",
    "Fact",
    "InputFact",
    "consumers",
    "explain",
    "format_eps",
    "format_error",
    "headline",
    "row_epsilon",
]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything the inspector says about a row.

    Attributes:
        headline: verdict and role in one sentence ("FIRST CAUSE: all its inputs agree, the output differs by ≥1.2e-3").
        pairing: why these two were paired, confidence and runner-up; or why it is alone.
        notes: what is known and what cannot be known, a sentence each.
        facts: the table of both sides.
        inputs: inputs with their producers.
    """

    headline: str
    pairing: str
    notes: tuple[str, ...]
    facts: tuple[Fact, ...]
    inputs: tuple[InputFact, ...]


_MOST_ALONE = 256
"""Operations of one run alone that are followed upwards."""

_HOW = {
    Method.OVERRIDE: "paired by a rule",
    Method.TEMPLATE: "paired by a template rule",
    Method.EXACT: "paired by their values: the same numbers, inputs included, occur nowhere else in either log",
    Method.ALIGNED: "paired by order of dispatch, names, data flow and values together",
    Method.VALUES: "paired by what they read, which is the same tensor by its norm",
    Method.DATAFLOW: "paired as recomputed copies of partners",
    Method.RELAXED: "paired because nothing else of its name was left on either side",
}


_HOW_BY_BITS = {
    Method.EXACT: "paired by their bits: the same tensors, inputs included, occur nowhere else in either log",
    Method.VALUES: "paired by their results: the same bits occur nowhere else in either log, though other ones went in",
}


def row_epsilon(c: Comparison, row: int) -> float:
    """ε that a row is judged by: of the coarser dtype of its two sides, or of the dtype policy; NaN without either."""
    found = [
        EPSILON[log.dtype_text(record)]
        for log, record in ((c.a, int(c.row_a[row])), (c.b, int(c.row_b[row])))
        if record >= 0 and log.dtype_text(record) in EPSILON
    ]
    if found:
        found += [EPSILON[name] for names in c.policy for name in names]
    return max(found, default=math.nan)


def explain(c: Comparison, row: int) -> Explanation:
    """Everything that is known about one row of a comparison."""
    inputs = inputs_of(c, row)
    return Explanation(
        headline=_headline(c, row, inputs),
        pairing=_pairing(c, row),
        notes=tuple(_notes(c, row, inputs)),
        facts=tuple(facts_of(c, row)),
        inputs=inputs,
    )


def headline(c: Comparison, row: int) -> str:
    """The sentence that `explain` begins with, for who wants nothing else: a tenth of the work."""
    return _headline(c, row, inputs_of(c, row))


def _headline(c: Comparison, row: int, inputs: tuple[InputFact, ...]) -> str:
    status, role = Status(c.status[row]), Role(c.role[row])
    error, bound = float(c.error[row]), bool(c.bound[row])
    size = format_error(error, bound)
    eps = format_eps(error, row_epsilon(c, row))
    by = f"{size} ({eps})" if eps else size
    what, ground = _what_differs(c, row), ground_of(c, row)
    because = f" - {ground}" if ground else ""
    within = ground or f"within the tolerance of {float(c.tolerance[row]):.1e}"
    if status == Status.DIVERGED:
        if role == Role.ORIGIN:
            return f"FIRST CAUSE: {_inputs_agree(c, row, inputs)}, {what} by {by}{because}"
        if role == Role.UNKNOWN:
            return f"{_role(c, row)}: {what} by {by}, and {_what_is_unknown(inputs)}{because}"
        return f"{_role(c, row)}: {what} by {by}, {_received(c, inputs)}{because}"
    if status == Status.NAN:
        return f"{_role(c, row)}: {_what_is_broken(c, row)}"
    if status == Status.SHAPE:
        return f"{_role(c, row)}: {_what_shape(c, row)}"
    if status == Status.IGNORED and c.cause[row]:
        lone = f"only {'a' if c.row_a[row] >= 0 else 'b'} has this operation"
        differs = lone if c.pair[row] < 0 else f"{what} by {by}" if error > 0 else "it is not the same in both runs"
        return f"FIRST CAUSE, though a rule ignores it: {differs}, and what follows from it is red"
    if status == Status.SHARDED:
        return _what_parts(c, row)
    if status in (Status.ONLY_A, Status.ONLY_B):
        side = "a" if status == Status.ONLY_A else "b"
        if c.cause[row]:
            log, record = (c.a, int(c.row_a[row])) if side == "a" else (c.b, int(c.row_b[row]))
            if odd := broken_text(log, record):
                return f"FIRST CAUSE: only {side} has this operation, which returns {odd}"
            return f"FIRST CAUSE: only {side} has this operation, and what reads its result diverges"
        return f"only {side} has this operation"
    return {
        Status.PENDING: "not paired yet",
        Status.EQUAL: "equal: the digests agree, the bits are the same",
        Status.SAME_PRINT: "same in print: every printed number is equal",
        Status.CLOSE: f"close: {what.removeprefix('the output ')} by {by}, {within}",
        Status.UNFINISHED: "unfinished: the numbers were taken before the communication was done; they mean nothing",
        Status.PARTIAL: "partial: a part of a sum that the other run adds up in another order; the total agrees",
        Status.RECOMPUTE: f"recomputed copy{_of_original(c, row)}: the backward pass ran it again",
        Status.IGNORED: "ignored by a rule",
    }[status]


def _role(c: Comparison, row: int) -> str:
    role = Role(c.role[row])
    if c.cause[row] and role != Role.ORIGIN:
        return "FIRST CAUSE, as far as was captured"
    return role.word.upper()


def _what_differs(c: Comparison, row: int) -> str:
    """`the output differs`, `the weight layers.2.wq.weight differs after the step`, …"""
    slot = c.slots.get(row)
    if slot is None:
        return "the output differs"
    log, record = (c.a, int(c.row_a[row])) if c.row_a[row] >= 0 else (c.b, int(c.row_b[row]))
    when = "after the step" if log.phase[record] == Phase.OPTIMIZER else "afterwards"
    if slot.read:
        return f"{slot.name}, which ranks put together, is another weight"
    if slot.only:
        return f"only {slot.only} changed {slot.name}, which differs {when}"
    return f"{slot.name} differs" + ("" if slot.name.startswith("output ") else f" {when}")


def _inputs_agree(c: Comparison, row: int, inputs: tuple[InputFact, ...]) -> str:
    if not inputs:
        return "it has no inputs"
    if c.inputs_equal[row]:
        return "its input is equal to the bit" if len(inputs) == 1 else "all its inputs are equal to the bit"
    return "its input agrees" if len(inputs) == 1 else "all its inputs agree"


def _what_parts(c: Comparison, row: int) -> str:
    told = "sharded: the two sides hold different parts of one tensor"
    if row in c.slots:
        told += f" ({c.slots[row].name})"
    i, j = int(c.row_a[row]), int(c.row_b[row])
    placed = [describe_placement(parse_placement(log.texts("Placement").get(r, ""))) for log, r in ((c.a, i), (c.b, j))]
    if any(placed):
        a, b = (text or "all of it" for text in placed)
        told += f": a holds {a}, b {b}"
    return told + "; not judged row by row"


def _what_shape(c: Comparison, row: int) -> str:
    i, j = int(c.row_a[row]), int(c.row_b[row])
    differing = [
        f"{what} differs: {x} against {y}"
        for what, x, y in (
            ("shape", c.a.shape_text(i), c.b.shape_text(j)),
            ("dtype", c.a.dtype_text(i), c.b.dtype_text(j)),
        )
        if x != y
    ]
    if not differing and row in c.slots:
        return f"shape or dtype of {c.slots[row].name} differs"
    return ", ".join(differing)


def _what_is_unknown(inputs: tuple[InputFact, ...]) -> str:
    differing = [fact for fact in inputs if fact.agrees is False]
    if not differing:
        return "not all inputs are known: suspect the operation one hop before"
    positions = ", ".join(str(fact.position) for fact in differing[:4])
    noun = "input" if len(differing) == 1 else "inputs"
    verb = "differs" if len(differing) == 1 else "differ"
    return (
        f"{noun} {positions} {verb} already though no captured operation is to blame: "
        "suspect what was not captured one hop before"
    )


def _received(c: Comparison, inputs: tuple[InputFact, ...]) -> str:
    for fact in inputs:
        for log, record, at in ((c.a, fact.producer_a, c.at_a), (c.b, fact.producer_b, c.at_b)):
            if record >= 0 and (c.red[at[record]] or c.cause[at[record]]):
                made = f"made by {log.keys[record]}"
                if fact.agrees:
                    return f"and input {fact.position}, {made}, is not what its norm says"
                return f"as does input {fact.position}, {made}"
    differing = [fact for fact in inputs if fact.agrees is False]
    if differing:
        first = differing[0]
        if first.difference == OTHER_BITS:
            return f"and the bits of input {first.position} differ already"
        return f"and input {first.position} differs by {first.difference} already"
    return "a consequence of what came before"


def _what_is_broken(c: Comparison, row: int) -> str:
    """`3 NaN of 64 numbers, only in b`, `NaN in both runs`, …"""
    if row in c.slots:
        return f"NaN or Inf in {c.slots[row].name}"
    records = (("a", c.a, int(c.row_a[row])), ("b", c.b, int(c.row_b[row])))
    told = {side: text for side, log, record in records if (text := broken_text(log, record))}
    if not told:
        return "NaN or Inf in an input"
    if len(told) == 1:
        ((side, text),) = told.items()
        return f"{text}, only in {side}"
    if told["a"] == told["b"]:
        return f"{told['a']} in both runs"
    return f"{told['a']} in a, {told['b']} in b"


def _of_original(c: Comparison, row: int) -> str:
    original = int(c.original[row])
    if original < 0:
        return ""
    log, rows = (c.a, c.row_a) if c.row_a[row] >= 0 else (c.b, c.row_b)
    return f" of {log.keys[int(rows[original])]}"


def _pairing(c: Comparison, row: int) -> str:
    pair = int(c.pair[row])
    if pair < 0:
        status = Status(c.status[row])
        if status == Status.PENDING:
            return ""
        if status == Status.RECOMPUTE:
            return "no partner: the other run did not run this copy, or ran it under a form that was not recognised"
        return "no partner: nothing of its kind (op, shape, phase) in the neighbourhood fits better elsewhere"
    method = Method(c.pairing.method[pair])
    text = _HOW_BY_BITS.get(method, _HOW[method]) if _by_bits(c, pair) else _HOW[method]
    if method == Method.DATAFLOW and c.original[row] >= 0:
        text += f", both of {_names_of(c, int(c.original[row]))}"
    if method not in (Method.OVERRIDE, Method.TEMPLATE):
        text += f", confidence {float(c.pairing.confidence[pair]):.2f}"
        rival = int(c.pairing.runner_up[pair])
        if rival >= 0 and c.pairing.runner_up_score[pair] >= 0.005:
            text += f"; runner-up {key_reference(c.b, rival, once=True)} {float(c.pairing.runner_up_score[pair]):.2f}"
        elif method == Method.ALIGNED:
            text += "; no rival worth naming"
    if c.pairing.grouped[pair]:
        a, b = c.pairing.members(pair)
        log, side = (c.a, a) if len(a) > 1 else (c.b, b)
        names = " + ".join(log.op_name(record) for record in side)
        text += f"; {names} together are this one operation, compared at the last"
    return text


def _names_of(c: Comparison, row: int) -> str:
    """The keys of a pair, once where they are the same."""
    i, j = int(c.row_a[row]), int(c.row_b[row])
    one, other = c.a.keys[i] if i >= 0 else "", c.b.keys[j] if j >= 0 else ""
    return f"{one} in a and {other} in b" if one and other and one != other else one or other


def _by_bits(c: Comparison, pair: int) -> bool:
    """Whether the results of a pair's leading records have the same bits."""
    x, y = c.a.digests[int(c.pairing.lead_a[pair])], c.b.digests[int(c.pairing.lead_b[pair])]
    return len(x) > 0 and np.array_equal(x, y)


def _notes(c: Comparison, row: int, inputs: tuple[InputFact, ...]) -> list[str]:
    notes: list[str] = []
    status = Status(c.status[row])
    i, j = int(c.row_a[row]), int(c.row_b[row])
    if i >= 0 and j >= 0:
        same: list[str] = []
        other: list[str] = []
        for what, x, y in (
            ("module", c.a.module_name(i), c.b.module_name(j)),
            ("op", c.a.op_name(i), c.b.op_name(j)),
            ("counter", str(int(c.a.counter[i])), str(int(c.b.counter[j]))),
            ("phase", phase_label(c.a, i), phase_label(c.b, j)),
            ("location", c.a.location_text(i), c.b.location_text(j)),
        ):
            if x or y:
                (same if x == y else other).append(what)
        if same:
            notes.append(f"same {', '.join(same)}" + (f"; other {', '.join(other)}" if other else ""))
        elif other:
            notes.append(f"other {', '.join(other)}")
    if status == Status.SAME_PRINT:
        if i >= 0 and not len(c.a.outputs[i]) and not c.a.present[i]:
            notes.append("the log says only what went in: what the operation did is not known")
        else:
            notes.append("norms of seven digits cannot see the order of elements, signs in L1, or a change below 5e-7")
    if status in (Status.DIVERGED, Status.CLOSE) and c.bound[row]:
        notes.append("≥: a lower bound from the norms; the tensors themselves may differ by more")
    elif status in (Status.DIVERGED, Status.CLOSE) and c.error[row] > 0:
        low, high = error_range(float(c.error[row]))
        notes.append(
            "≈: the distance of the tensors themselves, estimated from their sketches to about a fifth: between "
            f"{low:.1e} and {high:.1e} in 19 cases of 20"
        )
    if status == Status.CLOSE and c.inputs_equal[row]:
        notes.append(
            "the same bits went in: the difference begins here (another kernel, another order of summation, or a "
            "number that is no tensor)"
        )
    if status == Status.DIVERGED:
        notes.append(f"the tolerance is {float(c.tolerance[row]):.1e}")
        grown = _growth(c, row, inputs)
        if grown:
            notes.append(grown)
    if status == Status.UNFINISHED:
        notes.append("judged instead where the value is waited for or read")
    log, record = (c.a, i) if i >= 0 else (c.b, j)
    if c.cause[row] and log.phase[record] == Phase.BACKWARD:
        notes += cut_gradients(c.a.header.run, c.b.header.run)
    if c.cause[row] and c.pair[row] < 0:
        notes += _alone_before(c, row)
    if c.role[row] == Role.ORIGIN and is_collective(log.op_name(record)):
        notes.append("what this rank gave to it agrees: another rank gave something else, compare their logs too")
    if c.cause[row] and c.role[row] == Role.RECEIVER:
        notes.append("the red rows explain each other, because pairs cross: this is only the earliest of them")
    if int(c.pair[row]) >= 0 and c.pairing.method[int(c.pair[row])] == Method.RELAXED:
        notes.append("a doubtful pair: the same op in the same module, left over on both sides, with other numbers")
    return notes


def _alone_before(c: Comparison, row: int) -> Iterator[str]:
    """Where the operations begin that only one run has and that lead to this one."""
    if c.flow is None:
        return
    side, log, flow, of = (
        ("a", c.a, c.flow.a, c.pairing.of_a) if c.row_a[row] >= 0 else ("b", c.b, c.flow.b, c.pairing.of_b)
    )
    record = max(int(c.row_a[row]), int(c.row_b[row]))
    found, left = {record}, [record]
    while left and len(found) <= _MOST_ALONE:
        makers = {maker for maker in flow[left.pop()].tolist() if maker >= 0 and of[maker] < 0 and maker not in found}
        found |= makers
        left += makers
    if many := len(found) - 1:
        first = min(found)
        place = log.location_text(first)
        noun = "operation" if many == 1 else "operations"
        where = f"{log.keys[first]}" + (f" ({place})" if place else "")
        yield f"{many}{'' if not left else ' or more'} {noun} before it only {side} has, too, from {where} on"


def _growth(c: Comparison, row: int, inputs: tuple[InputFact, ...]) -> str:
    """What the operation added to the error that came in."""
    worst = 0.0
    of_a, of_b = (log.inputs[int(at[row])].tolist() for log, at in ((c.a, c.row_a), (c.b, c.row_b)))
    for fact in inputs:
        if fact.agrees is False:
            difference = relative_difference(of_a[fact.position], of_b[fact.position])
            if math.isfinite(difference):
                worst = max(worst, difference)
    error = float(c.error[row])
    if worst <= 0 or not math.isfinite(error):
        return ""
    return f"error out over error in: {error / worst:.2g} (by the norms)"
