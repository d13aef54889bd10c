"""Explain one row in words: the text of the inspector and of the reports.

Pure: a comparison and a row in, text out. Nothing is escaped here; the caller that prints makes it safe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from matchers.causes.unsummed import unsummed_side
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
)
from matchers.explain.first_difference import determinism_of, first_difference_reasons, size_of, start_of
from matchers.explain.notes import notes_of
from matchers.explain.unjudged import why_not_judged
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.dataflow import consumers
from matchers.ops.json_values import parsed_object
from matchers.ops.last_contents import GRADIENT
from matchers.ops.laws import law_of
from matchers.ops.nonfinite import broken_text
from matchers.ops.placement import AS_PARTS, NOT_SUMMED, describe_placement
from matchers.pairing.pairing import Method
from matchers.rules.resolve import key_reference
from matchers.status import Role, Status
from matchers.verdict.content_verdicts import ContentVerdict
from matchers.verdict.fused import are_parts
from matchers.verdict.list_lengths import length
from matchers.verdict.loss_scale import scaled_pairs
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative_difference
from matchers.verdict.tolerance import EPSILON, growth_factor

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
    """

    headline: str
    pairing: str
    notes: tuple[str, ...]
    facts: tuple[Fact, ...]
    inputs: tuple[InputFact, ...]


_HOW = {
    Method.OVERRIDE: "paired by a rule",
    Method.TEMPLATE: "paired by a template rule",
    Method.EXACT: "paired by values: these numbers, inputs included, are unique in both logs",
    Method.ALIGNED: "paired by order of dispatch, names, data flow and values together",
    Method.VALUES: "paired by their inputs, whose norms are equal",
    Method.DATAFLOW: "paired as recomputed copies of partners",
    Method.RELAXED: "paired as the last ones of this name on both sides",
    Method.PARTS: "paired as one operation and its parts: the results side by side have its shape",
}

_HOW_BY_BITS = {
    Method.EXACT: "paired by digests: these tensors, inputs included, are unique in both logs",
    Method.VALUES: "paired by output digests, unique in both logs, although the inputs differ",
}


def row_epsilon(c: Comparison, row: int) -> float:
    """ε of the coarser dtype of a row's two sides, or of the dtype policy; NaN without either."""
    found = [
        EPSILON[log.dtype_text(record)]
        for log, record in ((c.a, int(c.row_a[row])), (c.b, int(c.row_b[row])))
        if record >= 0 and log.dtype_text(record) in EPSILON
    ]
    if found:
        found += [EPSILON[name] for names in c.policy for name in names]
    return max(found, default=math.nan)


def explain(c: Comparison, row: int) -> Explanation:
    """Explain one row of a comparison."""
    inputs = inputs_of(c, row)
    return Explanation(
        headline=_headline(c, row, inputs),
        pairing=_pairing(c, row),
        notes=notes_of(c, row, inputs),
        facts=tuple(facts_of(c, row)),
        inputs=inputs,
    )


def headline(c: Comparison, row: int) -> str:
    """The first sentence of `explain`, at a tenth of its cost."""
    return _headline(c, row, inputs_of(c, row))


def _headline(c: Comparison, row: int, inputs: tuple[InputFact, ...]) -> str:
    status, role = Status(c.status[row]), Role(c.role[row])
    error, bound = float(c.error[row]), bool(c.bound[row])
    size = format_error(error, bound)
    eps = format_eps(error, row_epsilon(c, row))
    by = f"{size} ({eps})" if eps else size
    what, ground = _what_differs(c, row), ground_of(c, row)
    because = f" ({ground})" if ground else ""
    within = ground or f"within the tolerance of {float(c.tolerance[row]):.1e}"
    if status == Status.DIVERGED and row in c.mismatch_at:
        return f"{_role(c, row)}: {recomputed(c, row)}"
    if status == Status.DIVERGED and c.reason[row] == Reason.NOT_REPEATED:
        return f"{_role(c, row)}: {what} by {by}; {determinism_of(c, row)}"
    if status == Status.DIVERGED:
        if role == Role.ORIGIN:
            if because_of := _of_contents(c, row):
                return f"FIRST CAUSE: {what} by {by}; {because_of}{because}"
            came_in = _came_in(c, row, inputs)
            if came_in is None:
                return f"FIRST CAUSE: {what} by {by}; {_inputs_agree(c, row, inputs)}{because}"
            read, jumps = came_in
            if jumps:
                return f"FIRST CAUSE: the error jumps from {read} to {by} here{because}"
            return f"FIRST CAUSE: {what} by {by}; its inputs already differ by {read}{because}"
        if role == Role.UNKNOWN:
            told = _of_contents(c, row) or _what_is_unknown(c, row, inputs)
            return f"{_role(c, row)}: {what} by {by}; {told}{because}"
        return f"{_role(c, row)}: {what} by {by}; {_received(c, row, inputs)}{because}"
    if status == Status.NAN:
        return f"{_role(c, row)}: {_what_is_broken(c, row)}"
    if status == Status.SHAPE:
        return f"{_role(c, row)}: {_what_shape(c, row)}"
    side, how = unsummed_side(c, row) if c.cause[row] and not c.red[row] else ("", "")
    if side:
        but = {NOT_SUMMED: "no collective adds them up", AS_PARTS: "they are gathered as parts"}[how]
        return f"FIRST CAUSE: each rank of {side} has a term; their sum agrees, but {but}"
    if c.cause[row] and status in (Status.SAME_PRINT, Status.CLOSE) and row not in c.stretches:
        if c.inputs_equal[row] and status == Status.CLOSE:
            return f"FIRST CAUSE: {what} by {by}, {within}; {_inputs_agree(c, row, inputs)}, red rows follow"
        same = "the same printed values" if status == Status.SAME_PRINT else f"differs by {by}, {within}"
        return f"LIKELY CAUSE: {same}; but what is split, cast or copied from its result differs by more"
    found = c.first_difference
    if found is not None and found.row == row and not c.cause[row]:
        return f"FIRST DIFFERENCE: {size_of(c, row)}; {start_of(c, row) or first_difference_reasons(c)[0]}"
    if status == Status.IGNORED and c.cause[row]:
        unpaired = f"only {'a' if c.row_a[row] >= 0 else 'b'} has this operation"
        differs = unpaired if c.pair[row] < 0 else f"{what} by {by}" if error > 0 else "the runs differ"
        return f"FIRST CAUSE, ignored by a rule: {differs}; downstream rows are red"
    if row in c.stretches:
        return f"LIKELY CAUSE: {_stretch(c, row)}"
    if status == Status.SHARDED:
        return _what_parts(c, row)
    if status == Status.CLOSE and c.unread[row]:
        slot = c.slots[row]
        return f"close: {slot.name} differs by {format_error(slot.error, slot.bound)}, but no operation depends on it"
    if status == Status.CLOSE and _is_scaled(c, row):
        return f"close: {c.loss_scale:g} times b's, as every loss and gradient; otherwise by {by}, {within}"
    if status == Status.NO_VALUES:
        return f"no values: {_what_is_missing(c, row)}"
    if status == Status.NOT_JUDGED:
        return f"not judged: {why_not_judged(c, row) or _why_not_judged(c, row, size)}"
    if status in (Status.ONLY_A, Status.ONLY_B):
        side = "a" if status == Status.ONLY_A else "b"
        if c.cause[row]:
            log, record = (c.a, int(c.row_a[row])) if side == "a" else (c.b, int(c.row_b[row]))
            if odd := broken_text(log, record):
                return f"FIRST CAUSE: only {side} has this operation, which returns {odd}"
            if law_of(log, record).random:
                return f"FIRST CAUSE: only {side} draws random numbers here: {_op_at(log, record)}"
            follows = "its consumers diverge" if _reaches_red(c, row) else "red rows follow"
            return f"FIRST CAUSE: only {side} has this operation; {follows}"
        return f"only {side} has this operation"
    return {
        Status.PENDING: "not paired yet",
        Status.EQUAL: "equal: the digests match (bitwise)",
        Status.SAME_PRINT: "same printed values",
        Status.CLOSE: f"close: {what.removeprefix('the output ')} by {by}, {within}",
        Status.UNFINISHED: "unfinished: read before the communication completed, the numbers mean nothing",
        Status.PARTIAL: "partial sum: the runs add in another order, the total agrees",
        Status.RECOMPUTE: f"recomputed copy{_of_original(c, row)}: run again in the backward pass",
        Status.IGNORED: "ignored by a rule",
    }[status]


def _reaches_red(c: Comparison, row: int) -> bool:
    """True if an operation reads the result of an unpaired one, over unpaired ones, and is red."""
    if c.flow is None:
        return False
    flow, at, record = (c.flow.a, c.at_a, c.row_a[row]) if c.row_a[row] >= 0 else (c.flow.b, c.at_b, c.row_b[row])
    left, seen = {int(record)}, set[int]()
    while left:
        rows = at[flow.row[np.isin(flow.value, list(left))]]
        if c.red[rows].any():
            return True
        seen |= left
        alone = rows[c.pair[rows] < 0]
        left = set((c.row_a if at is c.at_a else c.row_b)[alone].tolist()) - seen
    return False


def _why_not_judged(c: Comparison, row: int, size: str) -> str:
    a, b = length(c.a, int(c.row_a[row])), length(c.b, int(c.row_b[row]))
    if a != b and not size:
        return f"{a:,} tensors in a, {b:,} in b: unpaired operations may handle the rest"
    return f"differs by {size}; the row cannot be judged by itself" if size else "the row cannot be judged by itself"


def _what_is_missing(c: Comparison, row: int) -> str:
    a, b = (len(log.outputs[i]) > 0 or log.present[i] > 0 for log, i in ((c.a, c.row_a[row]), (c.b, c.row_b[row])))
    if a != b:
        return f"only {'a' if a else 'b'} prints a result"
    return "the logs print other numbers of the result" if a else "neither log prints a result"


def _is_scaled(c: Comparison, row: int) -> bool:
    """True for losses and gradients that are a multiple of the other run's."""
    return c.loss_scale != 1 and bool(scaled_pairs(c.a, c.b, c.pairing, c.loss_scale)[c.pair[row]])


def recomputed(c: Comparison, row: int) -> str:
    """The mismatch of a recomputed copy and its original, with its size and reason."""
    found = c.mismatch_at[row]
    log = c.a if found.side == "a" else c.b
    size = format_error(found.mismatch.error, True)
    return f"the recomputed copy differs from {log.keys[found.mismatch.original]} by {size}; {found.mismatch.text}"


def _op_at(log: OpLog, record: int) -> str:
    """`bernoulli_ at model.py:12`."""
    place = log.location_text(record)
    return log.op_name(record) + (f" at {place}" if place else "")


def _role(c: Comparison, row: int) -> str:
    role = Role(c.role[row])
    if c.cause[row] and role != Role.ORIGIN:
        return "LIKELY CAUSE"
    return role.word.upper()


def _what_differs(c: Comparison, row: int) -> str:
    """`the output differs`, `the weight layers.2.wq.weight differs after the step`, …"""
    slot = c.slots.get(row)
    if slot is None:
        return "the output differs"
    log, record = (c.a, int(c.row_a[row])) if c.row_a[row] >= 0 else (c.b, int(c.row_b[row]))
    when = "after the step" if log.phase[record] == Phase.OPTIMIZER else "afterwards"
    if slot.scalars is not None:
        return "the scalar argument, {:.4g} in a and {:.4g} in b, differs".format(*slot.scalars)
    if slot.gathered:
        return f"the whole tensor, in {slot.name}, differs"
    if slot.read:
        return f"{slot.name}, a weight gathered from ranks, differs"
    if slot.only:
        if slot.reason == Reason.CHANGED_ONCE_MORE:
            return f"only {slot.only} changes {slot.name} here"
        return f"only {slot.only} changed {slot.name}; it differs {when}"
    if slot.more:
        of_parameter = any(content.parameter for content in _contents(c, row))
        kind = "optimizer state" if not of_parameter else "parameter" if when == "after the step" else "tensor"
        return f"{slot.name} and {slot.more:,} more {kind}{'' if slot.more == 1 else 's'} differ {when}"
    return f"{slot.name} differs" + ("" if slot.name.startswith("output ") else f" {when}")


def _contents(c: Comparison, row: int) -> tuple[ContentVerdict, ...]:
    """The last contents that a row is red for."""
    i, j = int(c.row_a[row]), int(c.row_b[row])
    return c.last_contents.at.get(("a", i)) or c.last_contents.at.get(("b", j)) or ()


def _of_contents(c: Comparison, row: int) -> str:
    """The reason why a row is the cause of what it leaves; empty for a row that is judged by its partner."""
    contents = _contents(c, row)
    if not contents:
        return ""
    first = contents[0]
    if c.reason[row] == Reason.CHANGED_ONCE_MORE:
        return "all else that writes to it has a partner"
    if c.reason[row] == Reason.BEYOND_WHOLE:
        return "a shard exceeds its whole"
    if first.a < 0 or first.b < 0:
        return f"{'b' if first.a >= 0 else 'a'} leaves it as it was before the step"
    if all(content.alone for content in contents):
        log, record = (c.a, first.a) if first.a >= 0 else (c.b, first.b)
        optimizer = log.phase[record] == Phase.OPTIMIZER
        return "gradients and states before are bitwise equal" if optimizer else "all inputs are bitwise equal"
    return f"written last by {c.a.op_name(first.a)} in a, {c.b.op_name(first.b)} in b"


def _came_in(c: Comparison, row: int, inputs: tuple[InputFact, ...]) -> tuple[str, bool] | None:
    """The largest error of a row's inputs as text, and whether the row's own error is a jump against it.

    None where all inputs are equal, in bits or in print, hold other parts of their tensors, or where the two sides list
    other inputs. A jump is several times what operations of the kind make of their inputs' errors.
    """
    if _unjudged_inputs(c, row) or (c.pair[row] >= 0 and c.pairing.assembled[c.pair[row]]):
        return None
    values_a, values_b = (log.inputs[int(at[row])].tolist() for log, at in ((c.a, c.row_a), (c.b, c.row_b)))
    found = [(0.0, True)]
    differing = [fact for fact in inputs if fact.agrees is False]
    for fact in differing:
        at = fact.position
        norms = relative_difference(values_a[at], values_b[at]) if at < min(len(values_a), len(values_b)) else 0.0
        made = [at[r] for r, at in ((fact.producer_a, c.at_a), (fact.producer_b, c.at_b)) if r >= 0]
        measured = [float(c.error[row]) for row in made if not c.bound[row] and math.isfinite(c.error[row])]
        bounds = [norms, *(float(c.error[row]) for row in made)]
        found.append((max(measured), False) if measured else (max(filter(math.isfinite, bounds), default=0.0), True))
    if not differing:
        return None
    worst, bound = max(found)
    own = float(c.error[row])
    limit = _JUMP * growth_factor(law_of(c.a, int(c.row_a[row]))) * worst
    return (format_error(worst, bound) if worst > 0 else "other bits"), own > limit


def _unjudged_inputs(c: Comparison, row: int) -> bool:
    """True if the inputs are parts, or terms of micro-batches of which only the scalar arguments are compared."""
    slot = c.slots.get(row)
    folded = c.a.folding is not None or c.b.folding is not None
    return bool(c.parts[row]) or (folded and slot is not None and slot.scalars is not None)


_JUMP = 4.0
"""Factor beyond the growth of an error in one operation from which on an error jumps."""


def _inputs_agree(c: Comparison, row: int, inputs: tuple[InputFact, ...]) -> str:
    if not inputs:
        return "no inputs"
    if _unjudged_inputs(c, row):
        return "the inputs are not judged"
    if c.pairing.assembled[c.pair[row]]:  # the two sides list other inputs
        return "no input comes from a diverged operation"
    more = int(c.b.inputs.count[c.row_b[row]]) - int(c.a.inputs.count[c.row_a[row]]) if c.pair[row] >= 0 else 0
    beside = f"; {'b' if more > 0 else 'a'} has {abs(more):,} more" if more else ""
    n = len(inputs) - abs(more)
    which = ("the common input" if more else "the input") if n == 1 else "all common inputs" if more else "all inputs"
    if c.inputs_equal[row]:
        return f"{which} {'is' if n == 1 else 'are'} bitwise equal"
    return f"{which} {'agrees' if n == 1 else 'agree'}{beside}"


def _stretch(c: Comparison, row: int) -> str:
    """The unjudged operations that end in a red row, of which this is the first, or reads something else."""
    stretch = c.stretches[row]
    end = c.a.keys[int(c.row_a[stretch.end])]
    if stretch.reads >= 0:
        return f"input {stretch.reads}, which no operation made, differs; {end} diverges"
    which = "the only" if stretch.count == 1 else f"the first of {stretch.count:,}"
    return f"{which} unjudged operation{'s' * (stretch.count > 1)} before {end}, which diverges"


def _what_parts(c: Comparison, row: int) -> str:
    told = "sharded: the sides hold different shards of one tensor"
    if row in c.slots:
        told += f" ({c.slots[row].name})"
    i, j = int(c.row_a[row]), int(c.row_b[row])
    placed = [describe_placement(parsed_object(log.texts("Placement").get(r, ""))) for log, r in ((c.a, i), (c.b, j))]
    if any(placed):
        a, b = (text or "the whole" for text in placed)
        told += f": a holds {a}, b {b}"
    return told + "; not judged"


def _what_shape(c: Comparison, row: int) -> str:
    i, j = int(c.row_a[row]), int(c.row_b[row])
    differing = [
        f"{what} differs: {x} in a, {y} in b"
        for what, x, y in (
            ("shape", c.a.shape_text(i), c.b.shape_text(j)),
            ("dtype", c.a.dtype_text(i), c.b.dtype_text(j)),
        )
        if x != y
    ]
    if not differing and row in c.slots:
        return f"shape or dtype of {c.slots[row].name} differs"
    if not differing:
        return f"another number of tensors: {length(c.a, i):,} in a, {length(c.b, j):,} in b"
    return ", ".join(differing)


def _read_instead(c: Comparison, fact: InputFact) -> str:
    """`a reads X, b reads Y`, for an input whose producers are known and no partners; else empty."""
    i, j = fact.producer_a, fact.producer_b
    if i < 0 or j < 0 or c.at_a[i] == c.at_b[j]:
        return ""
    return f"a reads {c.a.keys[i]}, b reads {c.b.keys[j]}"


def _what_is_unknown(c: Comparison, row: int, inputs: tuple[InputFact, ...]) -> str:
    differing = [fact for fact in inputs if fact.agrees is False]
    for fact in differing:
        if read := _read_instead(c, fact):
            return f"input {fact.position} already differs: {read}"
    if not differing:
        return "not all inputs are known: suspect the operation just upstream"
    given = [fact.name for fact in differing if max(fact.producer_a, fact.producer_b) < 0]
    if all(given) and len(given) == len(differing) and not any(name.endswith(GRADIENT) for name in given):
        more = f" and {len(given) - 1:,} more differ" if len(given) > 1 else " differs"
        return f"{start_of(c, row) or f'{given[0]}{more} before the step'}"
    positions = ", ".join(str(fact.position) for fact in differing[:4])
    noun = "input" if len(differing) == 1 else "inputs"
    verb = "differs" if len(differing) == 1 else "differ"
    return f"{noun} {positions} already {verb}: {start_of(c, row) or 'suspect an uncaptured operation just upstream'}"


def _received(c: Comparison, row: int, inputs: tuple[InputFact, ...]) -> str:
    if c.parts[row]:
        return "downstream of an earlier divergence"
    for fact in inputs:
        for log, record, at in ((c.a, fact.producer_a, c.at_a), (c.b, fact.producer_b, c.at_b)):
            if record >= 0 and (c.red[at[record]] or c.cause[at[record]]):
                if fact.agrees:
                    return (
                        f"input {fact.position} comes from a diverged op, although its norm matches: {log.keys[record]}"
                    )
                if read := _read_instead(c, fact):
                    return f"input {fact.position} already differs: {read}"
                return f"input {fact.position} already differs, from {log.keys[record]}"
    differing = [fact for fact in inputs if fact.agrees is False]
    if differing:
        first = differing[0]
        if read := _read_instead(c, first):
            return f"input {first.position} already differs: {read}"
        if first.difference == OTHER_BITS:
            return f"input {first.position} already differs bitwise"
        return f"input {first.position} already differs by {first.difference}"
    return "downstream of an earlier divergence"


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
        many = [str(log.folding.batches if log.folding is not None else 1) for log in (c.a, c.b)]
        text += f"; {' and '.join(many)} micro-batches, compared together"
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
