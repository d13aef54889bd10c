"""Notes about one row: a sentence each on what is known about it and what cannot be known.

Every kind of note is a function of the row that gives no, one or several sentences; `_NOTES` is their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from matchers.explain.arguments import argument_reasons
from matchers.explain.facts import phase_label
from matchers.explain.first_difference import (
    determinism_of,
    first_difference_note,
    first_difference_reasons,
    kernels_of,
)
from matchers.explain.subject import Subject
from matchers.explain.tensor_rows import routing_sentence, row_sentences
from matchers.logs.op_log import OpLog, Phase
from matchers.logs.tells import coarser
from matchers.ops.autocast import autocast_at
from matchers.ops.laws import law_of
from matchers.ops.python_reads import reads_of
from matchers.ops.run_info import cut_gradients
from matchers.pairing.pairing import Method
from matchers.status import Role, Status
from matchers.verdict.reason import Reason
from matchers.verdict.records import RecomputeMismatch
from matchers.verdict.relative_error import relative_difference
from matchers.verdict.sketches import error_range

__all__ = ["notes_of", "recompute_note"]


def notes_of(of: Subject, *about: str) -> tuple[str, ...]:
    """The notes about a row; `about`: only those on these subjects."""
    return tuple(note for subject, notes in _NOTES if not about or subject in about for note in notes(of))


def _names(of: Subject) -> Iterator[str]:
    """The names that both sides have in common, and those that differ."""
    (i, j), a, b = of.records, of.c.a, of.c.b
    if i < 0 or j < 0:
        return
    same: list[str] = []
    other: list[str] = []
    for what, x, y in (
        ("module", a.module_name(i), b.module_name(j)),
        ("op", a.op_name(i), b.op_name(j)),
        ("counter", str(int(a.counter[i])), str(int(b.counter[j]))),
        ("phase", phase_label(a, i), phase_label(b, j)),
        ("location", a.location_text(i), b.location_text(j)),
    ):
        if x or y:
            (same if x == y else other).append(what)
    told = [f"{word} {', '.join(names)}" for word, names in (("same", same), ("other", other)) if names]
    if told:
        yield "; ".join(told)


def _arguments(of: Subject) -> Iterator[str]:
    """Arguments that differ and make no row red: explained, or without effect on a bit."""
    if of.reason == Reason.ARGUMENTS:
        return
    told = [f"{difference.text}{f': {why}' if why else ''}" for difference, why in argument_reasons(of.c, of.row)]
    if told:
        yield f"other arguments: {'; '.join(told)}"


def _printed(of: Subject) -> Iterator[str]:
    """The limits of agreement in printed values."""
    if of.status == Status.SAME_PRINT:
        tells = coarser(of.c.a.tells, of.c.b.tells)
        yield f"{tells.numbers} miss {tells.misses}"


def _precision(of: Subject) -> Iterator[str]:
    """The precision of the error: a lower bound or an estimate."""
    if of.status not in (Status.DIVERGED, Status.CLOSE):
        return
    error = float(of.c.error[of.row])
    if of.c.bound[of.row]:
        yield "≥: a lower bound from norms; the tensors may differ by more"
    elif error > 0:
        low, high = error_range(error)
        yield (f"≈: the distance of the tensors, estimated from sketches: {low:.1e} to {high:.1e} with 95 % confidence")


def _rows(of: Subject) -> Iterator[str]:
    """The rows that differ, where both logs tell them."""
    yield from routing_sentence(of.c, of.row)
    yield from row_sentences(of.c, of.row)


def _begins_here(of: Subject) -> Iterator[str]:
    found = of.c.first_difference
    if found is not None and found.row == of.row:
        reasons = first_difference_reasons(of.c)
        if of.is_cause or of.status >= Status.SHAPE:
            yield "; ".join((first_difference_note(of.c), *reasons))
        else:  # the headline has the rest
            yield from reasons if found.start else reasons[1:]
    elif of.c.equality.begins_at(of.row) and not (of.c.unread[of.row] or law_of(*of.c.shown(of.row)).enters):
        told = (determinism_of(of.c, of.row), *kernels_of(of.c, of.row))
        yield "; ".join(("the inputs are bitwise equal: the difference begins here", *told))


def _read_by_python(of: Subject) -> Iterator[str]:
    """The places where Python reads a number of the result, and so where it leaves what a log can follow."""
    for side, log, record in zip("ab", (of.c.a, of.c.b), of.records, strict=True):
        reads = reads_of(log, record) if record >= 0 else ()
        places = dict.fromkeys(f"{read.value:g} at {read.place}" for read in reads)
        if places:
            yield f"read by Python in {side}: {', '.join(places)}"


def _tolerance(of: Subject) -> Iterator[str]:
    found = of.c.first_difference
    if of.status == Status.DIVERGED or (of.status == Status.CLOSE and found is not None and found.row == of.row):
        yield f"tolerance {float(of.c.tolerance[of.row]):.1e}"


def _amplification(of: Subject) -> Iterator[str]:
    """The error of a diverged row over the largest error of its inputs."""
    if of.status != Status.DIVERGED or of.c.parts[of.row]:  # norms of parts tell nothing about each other
        return
    c, row = of.c, of.row
    worst = 0.0
    of_a, of_b = (log.inputs[int(at[row])].tolist() for log, at in ((c.a, c.row_a), (c.b, c.row_b)))
    for fact in of.inputs:
        if fact.agrees is False:
            difference = relative_difference(of_a[fact.position], of_b[fact.position])
            if math.isfinite(difference):
                worst = max(worst, difference)
    error = float(c.error[row])
    if worst > 0 and math.isfinite(error):
        yield f"amplification {error / worst:.2g}: output error over input error, by norms"


def _unfinished(of: Subject) -> Iterator[str]:
    if of.status == Status.UNFINISHED:
        yield "judged instead at the wait or the first consumer"


def _cut_gradients(of: Subject) -> Iterator[str]:
    """Settings that cut gradients, where a first cause is in the backward pass."""
    log, record = of.c.shown(of.row)
    if of.is_cause and log.phase[record] == Phase.BACKWARD:
        yield from cut_gradients(of.c.a.header.run, of.c.b.header.run)


def _unpaired_downstream(of: Subject) -> Iterator[str]:
    """The last of the unpaired operations that an unpaired first cause leads to."""
    c = of.c
    if not of.is_cause or of.pair >= 0:
        return
    found = of.readers[c.pair[of.readers] < 0]
    if many := len(found):
        log, last = c.shown(int(found[-1]))
        place = log.location_text(last)
        where = f"{log.keys[last]}" + (f" ({place})" if place else "")
        yield f"{many} unpaired operation{'s' * (many > 1)} of {of.side} downstream, up to {where}"


def _autocast(of: Subject) -> Iterator[str]:
    """Another autocast at a first cause or difference, or at what first reads it where one run alone has it."""
    c = of.c
    if not (of.is_cause or (c.first_difference is not None and c.first_difference.row == of.row)):
        return
    row = of.row if of.pair >= 0 else next((int(row) for row in of.readers if c.pair[row] >= 0), -1)
    i, j = (int(c.row_a[row]), int(c.row_b[row])) if row >= 0 else (-1, -1)
    x, y = (autocast_at(c.a, i), autocast_at(c.b, j)) if i >= 0 and j >= 0 else ("", "")
    if x and y and x != y:
        yield f"autocast is {x} in a, {y} in b"


def _other_rank(of: Subject) -> Iterator[str]:
    log, record = of.c.shown(of.row)
    if of.role == Role.ORIGIN and law_of(log, record).communicates:
        yield "this rank's contribution agrees: another rank's differs, compare their logs too"


def _crossing_pairs(of: Subject) -> Iterator[str]:
    if of.is_cause and of.role == Role.RECEIVER:
        yield "crossing pairs: the red rows explain each other, this is the earliest"


def _doubtful_pair(of: Subject) -> Iterator[str]:
    if of.pair >= 0 and of.c.pairing.method[of.pair] == Method.RELAXED:
        yield "doubtful pair: the last of this op and module on both sides, with other numbers"


def _recomputed(of: Subject) -> Iterator[str]:
    """A recomputed copy that does not repeat its original, and why it is not red."""
    found = of.c.mismatch_at.get(of.row)
    if found is not None:
        yield recompute_note(of.c.a if found.side == "a" else of.c.b, found)


def recompute_note(log: OpLog, found: RecomputeMismatch) -> str:
    """`recompute mismatch: count was written to …; undone by zoo/op_7_div_ (train.py:7)`."""
    told = f"recompute mismatch: {found.mismatch.text}"
    if not found.stays:
        undone = found.mismatch.undone
        place = log.location_text(undone)
        return f"{told}; undone by {log.keys[undone]}" + (f" ({place})" if place else "")
    return f"{told}; in both runs alike" if found.alike else told


_NOTES: tuple[tuple[str, Callable[[Subject], Iterator[str]]], ...] = (
    ("pair", _names),
    ("arguments", _arguments),
    ("error", _printed),
    ("error", _precision),
    ("error", _rows),
    ("beginning", _begins_here),
    ("operation", _read_by_python),
    ("limit", _tolerance),
    ("error", _amplification),
    ("status", _unfinished),
    ("cause", _cut_gradients),
    ("cause", _unpaired_downstream),
    ("cause", _autocast),
    ("cause", _other_rank),
    ("cause", _crossing_pairs),
    ("pair", _doubtful_pair),
    ("status", _recomputed),
)
"""Kinds of notes, each with its subject."""
