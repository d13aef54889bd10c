"""Headlines: verdict and role of a row in one sentence.

Each reason has its sentence in `BY_REASON`; a cause that is not red, and a red row, have others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from matchers.causes.contradicted import contradiction
from matchers.causes.given_buffers import given_in
from matchers.causes.unsummed import unsummed_side
from matchers.comparison import Comparison
from matchers.explain.arguments import argument_reasons, asked_at_its_line
from matchers.explain.facts import format_error, ground_of, inputs_of
from matchers.explain.first_difference import first_difference_reasons, size_of, start_of
from matchers.explain.red_rows import difference, inputs_agree, lengths, red_headline, size_of_error
from matchers.explain.subject import Subject, key_of
from matchers.logs.op_log import OpLog, Phase
from matchers.ops.arguments import argument_differences
from matchers.ops.json_values import parsed_object
from matchers.ops.last_contents import LastContents, trained_by_one
from matchers.ops.laws import law_of
from matchers.ops.nonfinite import broken_text
from matchers.ops.placement import AS_PARTS, NOT_SUMMED, describe_placement
from matchers.status import Status
from matchers.verdict.reason import Reason

__all__ = ["BY_REASON", "headline_of"]


def headline_of(of: Subject) -> str:
    """The headline of a row."""
    if text := _contradicted(of):
        return text
    if of.status.red:
        return red_headline(of)
    for told in _NOT_RED:
        if text := told(of):
            return text
    by_reason = BY_REASON[of.reason]
    return by_reason if isinstance(by_reason, str) else by_reason(of)


def _within(of: Subject) -> str:
    return ground_of(of.c, of.row) or f"within the tolerance of {float(of.c.tolerance[of.row]):.1e}"


# ---------------------------------------------------------------------- causes and differences that are not red


def _contradicted(of: Subject) -> str:
    if not of.is_cause or unsummed_side(of.c, of.row)[0]:  # that sum agrees, which says more
        return ""
    side, told = contradiction(of.c, of.row)
    return f"FIRST CAUSE: ranks of {side} contradict each other: {told}" if side else ""


def _unsummed(of: Subject) -> str:
    side, how = unsummed_side(of.c, of.row) if of.is_cause else ("", "")
    if not side:
        return ""
    but = {NOT_SUMMED: "no collective adds them up", AS_PARTS: "they are gathered as parts"}[how]
    agrees = "" if of.status == Status.NO_VALUES else "; their sum agrees"
    return f"FIRST CAUSE: each rank of {side} has a term{agrees}, but {but}"


def _agreeing_cause(of: Subject) -> str:
    if not of.is_cause or of.status not in (Status.SAME_PRINT, Status.CLOSE) or of.row in of.c.stretches:
        return ""
    if of.c.inputs_equal[of.row] and of.status == Status.CLOSE:
        agree = inputs_agree(of)
        return f"FIRST CAUSE: {difference(of)}, {_within(of)}; {agree}, red rows follow"
    same = (
        "the same printed values"
        if of.status == Status.SAME_PRINT
        else f"differs by {size_of_error(of)}, {_within(of)}"
    )
    return f"LIKELY CAUSE: {same}; but what is split, cast or copied from its result differs by more"


def _factor_cause(of: Subject) -> str:
    """Numbers that micro-batches have terms of: that they are multiplied otherwise, the gradients behind them show."""
    if not of.is_cause or of.pair < 0 or of.reason != Reason.MICRO_BATCH_TERM:
        return ""
    asked = ", ".join(difference.text for difference, _ in argument_reasons(of.c, of.row))
    return f"FIRST CAUSE: {asked or 'another factor'}; gradients behind it differ by that factor"


def _start(of: Subject) -> str:
    start = start_of(of.c, of.row) if of.is_cause and of.row not in of.c.stretches else ""
    return f"FIRST CAUSE: {start}" if start else ""


def _first_difference(of: Subject) -> str:
    found = of.c.first_difference
    if found is None or found.row != of.row or of.is_cause:
        return ""
    start = start_of(of.c, of.row) or first_difference_reasons(of.c)[0]
    return f"FIRST DIFFERENCE: {size_of(of.c, of.row)}; {start}"


def _ignored_cause(of: Subject) -> str:
    if of.status != Status.IGNORED or not of.is_cause:
        return ""
    if of.pair < 0:
        differs = f"only {of.side} has this operation"
    else:
        differs = f"{difference(of)}" if of.c.error[of.row] > 0 else "the runs differ"
    return f"FIRST CAUSE, ignored by a rule: {differs}; downstream rows are red"


def _unjudged_cause(of: Subject) -> str:
    """The unjudged operations that end in a red row, of which this is the first, or reads something else."""
    stretch = of.c.stretches.get(of.row)
    if stretch is None:
        return ""
    end = of.c.a.keys[int(of.c.row_a[stretch.end])]
    if stretch.reads >= 0:
        return f"LIKELY CAUSE: input {stretch.reads}, which no operation made, differs; {end} diverges"
    which = "the only" if stretch.count == 1 else f"the first of {stretch.count:,}"
    return f"LIKELY CAUSE: {which} unjudged operation{'s' * (stretch.count > 1)} before {end}, which diverges"


_NOT_RED: tuple[Callable[[Subject], str], ...] = (
    _unsummed,
    _start,
    _agreeing_cause,
    _factor_cause,
    _first_difference,
    _ignored_cause,
    _unjudged_cause,
)


# ---------------------------------------------------------------------- all other rows, by their reason


def _close(of: Subject) -> str:
    return f"close: {difference(of).removeprefix('the output ')}, {_within(of)}"


def _scaled(of: Subject) -> str:
    scale = f"{of.c.loss_scale:g} times b's, as every loss and gradient"
    return f"close: {scale}; otherwise by {size_of_error(of)}, {_within(of)}"


def _unread(of: Subject) -> str:
    slot = of.c.slots[of.row]
    return f"close: {slot.name} differs by {format_error(slot.error, slot.bound)}, but no operation depends on it"


def _no_numbers(of: Subject) -> str:
    return f"no values: {_what_is_missing(of.c, of.row)}"


def _other_length(of: Subject) -> str:
    if of.status == Status.SHARDED:
        return _parts(of)
    return f"not judged: {lengths(of.c, of.row)}: unpaired operations may handle the rest"


def _cancels(of: Subject) -> str:
    if of.status == Status.CLOSE:
        return _close(of)
    factor = of.c.cancellation.get(of.pair, 1.0)
    if factor > 1:
        return f"not judged: cancellation: the terms are {factor:.0e} times their sum, which is rounding"
    return "not judged: computed from a sum that cancels, which is rounding"


def _sum_of_terms(of: Subject) -> str:
    if of.status == Status.NOT_JUDGED:
        return "not judged: partial sum: the runs add in another order, the total is not judged"
    return "partial sum: the runs add in another order, the total agrees"


def _unlimited(of: Subject) -> str:
    return f"not judged: differs by {size_of_error(of)}; {ground_of(of.c, of.row)}"


_PARTS = {
    Reason.SHARD_OF_WHOLE: "the sides hold different shards of one tensor",
    Reason.TERM_OF_SUM: "a side holds a term of a sum over ranks",
    Reason.OTHER_ARRANGEMENT: "the order of this data depends on the number of ranks",
    Reason.OTHER_LIST_LENGTH: "the sides hold other parts of a list of tensors",
}


def _parts(of: Subject) -> str:
    c, row = of.c, of.row
    told = f"sharded: {_PARTS[of.reason]}"
    if row in c.slots:
        told += f" ({c.slots[row].name})"
    placed = [
        describe_placement(parsed_object(log.texts("Placement").get(record, "")))
        for log, record in zip((c.a, c.b), of.records, strict=True)
    ]
    if any(placed):
        a, b = (text or "the whole" for text in placed)
        told += f": a holds {a}, b {b}"
    return told + "; not judged"


def _unpaired(of: Subject) -> str:
    side = of.side
    if not of.is_cause:
        return f"only {side} has this operation"
    log, record = of.c.shown(of.row)
    if (like := of.c.likes.get(of.row)) is not None:
        other = int(of.c.row_b[like])
        told = ", ".join(each.text for each in argument_differences(of.c.a, of.c.b, record, other))
        return f"LIKELY CAUSE: {told}; {of.c.b.keys[other]} is the same operation in another form"
    if given := given_in(of.c, of.row):
        return f"FIRST CAUSE: {given.text}"
    if odd := broken_text(log, record):
        return f"FIRST CAUSE: only {side} has this operation, which returns {odd}"
    if law_of(log, record).random and log.phase[record] != Phase.PREPARE:
        return f"FIRST CAUSE: only {side} draws random numbers here: {_op_at(log, record)}"
    readers = of.readers
    red = readers[of.c.red[readers]].tolist()
    # an operation of this run alone may read it: what was cloned, and reduced
    if gradient := next((name for row in (*red, *readers.tolist()) if (name := _gradient_made(of, row))), ""):
        return f"FIRST CAUSE: only {side} has this operation, which makes {gradient}"
    if log.phase[record] == Phase.GRADIENTS and (trained := _trained_alone(of.c, side)):
        more = f" and {len(trained) - 1} more" if trained[1:] else ""
        return f"FIRST CAUSE: only {side} has a gradient of {trained[0]}{more}"
    asked = f" at its line {asked};" if (asked := asked_at_its_line(of.c, of.row)) else ""
    then = "its consumers diverge" if red else "red rows follow"
    if _keeps_norm(log, record):
        return f"LIKELY CAUSE: only {side} has this operation; norms miss signs and order, and {then}"
    return f"FIRST CAUSE: only {side} has this operation;{asked} {then}"


def _trained_alone(c: Comparison, side: str) -> list[str]:
    a, b = (LastContents(log, tuple(log.modules)) for log in (c.a, c.b))
    return trained_by_one(a, b) if side == "a" else trained_by_one(b, a)


def _keeps_norm(log: OpLog, record: int) -> bool:
    """True if the result has the norm of the first input, and no other number tells the two apart."""
    told = log.present[record] & ~np.uint8(1) or len(log.digests[record]) or not len(log.outputs[record])
    return not told and bool(np.array_equal(log.outputs[record][:1], log.inputs[record][:1]))


def _gradient_made(of: Subject, reader: int) -> str:
    """`the gradient of 0.weight`, if that is what a row reads of this one."""
    record = of.records[of.side == "b"]
    for fact in inputs_of(of.c, reader):
        if (fact.producer_a, fact.producer_b)[of.side == "b"] == record and fact.is_gradient:
            return fact.title
    return ""


def _recomputed_copy(of: Subject) -> str:
    original = int(of.c.original[of.row])
    which = f" of {key_of(of.c, original, of.side)}" if original >= 0 else ""
    return f"recomputed copy{which}: run again in the backward pass"


def _chosen(of: Subject) -> str:
    if of.is_cause:
        return _unpaired(of)
    return "not judged: of other rows, by a choice that rounding decides, such as of experts"


BY_REASON: Mapping[Reason, str | Callable[[Subject], str]] = {
    Reason.PENDING: "not paired yet",
    Reason.EQUAL_BITS: "equal: the digests match (bitwise)",
    Reason.SAME_NUMBERS: "same printed values",
    Reason.WITHIN_TOLERANCE: _close,
    Reason.OTHER_BITS_SAME_NORMS: _close,
    Reason.INFINITE_NORM: "close: only one log counts infinite values, so no norm can be compared",
    Reason.SAME_ELEMENTS: _close,
    Reason.ROUNDING_EXPLAINED: _close,
    Reason.LOSS_SCALE: _scaled,
    Reason.UNREAD_OUTPUT: _unread,
    Reason.CANCELLATION: _cancels,
    Reason.SHARD_OF_WHOLE: _parts,
    Reason.TERM_OF_SUM: _parts,
    Reason.OTHER_ARRANGEMENT: _parts,
    Reason.UNFINISHED: "unfinished: read before the communication completed, the numbers mean nothing",
    Reason.REORDERED_SUM: _sum_of_terms,
    Reason.NO_NUMBERS: _no_numbers,
    Reason.UNSIZED: "not judged: other bits; no number in both logs says by how much",
    Reason.REARRANGED: "not judged: other bits, the same numbers; the elements may lie in another order",
    Reason.OTHER_FORM: "not judged: another form; all that reads it agrees",
    Reason.OTHER_LIST_LENGTH: _other_length,
    Reason.OTHER_TENSORS: "not judged: lists of other tensors; what they hold last is compared by name",
    Reason.OTHER_CHUNK: "not judged: computed from tensors of other sizes: a whole and a chunk of it",
    Reason.MICRO_BATCH_TERM: "not judged: a term of each micro-batch; what they add up to is judged",
    Reason.BATCH_STATISTICS: "not judged: statistics, extremes and random numbers depend on how the batch is divided",
    Reason.UNKNOWN_LAYOUT: "not judged: the layout is not understood, in which healthy runs differ, too",
    Reason.ROUNDING_UNLIMITED: _unlimited,
    Reason.TIED: "not judged: equal values in another order; both are right",
    Reason.CHOSEN_OTHERWISE: _chosen,
    Reason.ONLY_ONE_RUN: _unpaired,
    Reason.RECOMPUTED: _recomputed_copy,
    Reason.RULE: "ignored by a rule",
}
"""The headline of a row that is not red, by its reason."""


def _what_is_missing(c: Comparison, row: int) -> str:
    if any(record in log.rows_kept for log, record in ((c.a, int(c.row_a[row])), (c.b, int(c.row_b[row])))):
        return "it depends on rows that only one run has, and its own are not captured (--rows) or not found"
    a, b = (len(log.outputs[i]) > 0 or log.present[i] > 0 for log, i in ((c.a, c.row_a[row]), (c.b, c.row_b[row])))
    if a != b:
        return f"only {'a' if a else 'b'} prints a result"
    return "the logs print other numbers of the result" if a else "neither log prints a result"


def _op_at(log: OpLog, record: int) -> str:
    """`bernoulli_ at model.py:12`."""
    place = log.location_text(record)
    return log.op_name(record) + (f" at {place}" if place else "")
