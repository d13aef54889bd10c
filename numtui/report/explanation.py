"""The whole chain of a row's verdict in sentences: `numtui explain` writes it, `w` in the explorer shows it.

The text of a log in them is raw: what prints them makes it safe.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from matchers.comparison import Comparison
from matchers.explain.arguments import argument_reasons, asked_otherwise
from matchers.explain.facts import InputFact, facts_of, format_error
from matchers.explain.first_difference import determinism_of
from matchers.explain.limits import limit_of
from matchers.explain.notes import notes_of
from matchers.explain.operations import operation_of
from matchers.explain.red_rows import difference
from matchers.explain.regions import regions_of
from matchers.explain.sentences import Explanation
from matchers.explain.subject import Subject, key_of
from matchers.logs.op_log import OpLog
from matchers.logs.raw_record import MEMBERS
from matchers.ops.arguments import arguments_of, shown, tells_arguments
from matchers.regions.find import Kind
from matchers.rules.model import PairRule, RuleSet, ToleranceRule
from matchers.rules.resolve import key_reference
from matchers.single_run import explained
from matchers.status import Role, Status
from matchers.verdict.expectation import Expect, Expectation
from matchers.verdict.reason import Reason
from matchers.verdict.tolerance import MOST_ALLOWED
from numtui.query.flow import Hop, Way, producing, way_back
from numtui.report.kept import replay_result
from numtui.report.model import follows
from numtui.report.parts import MEANING
from numtui.text.counts import plural

__all__ = ["WITH_WAY", "RowExplanation", "Sentence", "explain_row", "named"]

WITH_WAY: Final = "Cause"
"""The step after whose sentences the way back is listed."""
_OF_ONE = ("Operation", "Arguments")
"""Steps whose clauses begin with names."""
_MAX_INPUTS, _MAX_ARGUMENTS, _MAX_MEMBERS, _MAX_NUMBERS = 8, 8, 4, 12
_TELLING = (Kind.COVERED.label, Kind.NOT_UNDERSTOOD.label)
"""Kinds of regions whose reason says more than the red rows around them."""
_BY_SIZE = (Reason.BEYOND_TOLERANCE, Reason.MORE_THAN_ROUNDING, Reason.SYSTEMATIC)
"""Reasons that depend on how large the noise is."""
_RIVAL = 0.05
"""Confidence from which on another partner is tried."""
_MOST_AGAIN = 20_000
"""Rows up to which a comparison is made again for one of them: more keep a person waiting."""


class Sentence(NamedTuple):
    """A sentence; `row` is another row that it names, -1 for none."""

    text: str
    row: int = -1


_Told = Iterator[str | tuple[str, int]]
"""Clauses without full stop or capital, perhaps each with a row that it names."""


class RowExplanation(NamedTuple):
    """The chain of one row's verdict.

    Attributes:
        row: position in the comparison, from 0.
        steps: the steps that have something to say, by their title.
        way: the data path back to a first cause; None where there is none to follow.
    """

    row: int
    steps: Mapping[str, tuple[Sentence, ...]]
    way: Way | None = None

    @property
    def hops(self) -> tuple[Hop, ...]:
        """The rows of the way, this one first; none where no data path is known."""
        return self.way.hops if self.way is not None and self.way.arrives else ()


def explain_row(c: Comparison, row: int) -> RowExplanation:
    """Explain the verdict on a row, of two logs or of one. It may compare again: not for the screen's own thread."""
    told = explained(c, row)
    of, way = Subject(c, row, told.inputs), _way(c, row)
    steps: dict[str, _Told] = {
        "Verdict": _verdict(of, told),
        WITH_WAY: _cause(of, way),
        "Pair": _pair(of, told.pairing),
    }
    steps |= {"Inputs": _inputs(of), "Operation": _operation(of), "Arguments": _arguments(of)}
    steps |= {"Replay": (text for text in replay_result(c, row))}
    steps |= {"What repeats": _siblings(of), "Error and limit": _error(of), "What would change it": _change(of)}
    left = ("Verdict", WITH_WAY, "Inputs", *_OF_ONE) if c.single else tuple(steps)
    made = {title: tuple(_sentence(each, names=title in _OF_ONE) for each in steps[title]) for title in left}
    return RowExplanation(row, {title: sentences for title, sentences in made.items() if sentences}, way)


def _sentence(told: str | tuple[str, int], *, names: bool) -> Sentence:
    """Complete a clause. One that begins with a key, a side, or (`names`) with another name begins as it does."""
    text, row = (told, -1) if isinstance(told, str) else told
    first = text.partition(" ")[0].rstrip(":")
    if not names and len(first) > 1 and first.isalpha():
        text = text[:1].upper() + text[1:]
    return Sentence(text if text.endswith((".", ":")) else f"{text}.", row)


def named(c: Comparison, row: int, *, sized: bool = False) -> str:
    """A row with its key and place: `row 48, layers.2/op_1_neg (bugs.py:28)`; `sized`: with its verdict."""
    log, record = c.shown(row)
    place = f" ({log.location_text(record)})" if log.location_text(record) else ""
    measured = c.error[row] > 0 and not c.single and c.status[row] != Status.UNFINISHED
    size = f" {format_error(float(c.error[row]), bool(c.bound[row]))}" if measured else ""
    verdict = f" [{Status(c.status[row]).label}{size}]" if sized and c.status[row] != Status.PENDING else ""
    return f"row {row + 1:,}, {key_of(c, row)}{place}{verdict}"


# ---------------------------------------------------------------------- verdict and cause


def _verdict(of: Subject, told: Explanation) -> _Told:
    yield told.headline
    if not of.c.single:
        yield f"Status {of.status.label}: {MEANING[of.status]}; reason {of.reason.label}"
    yield from told.notes if of.c.single else notes_of(of, "status")


def _way(c: Comparison, row: int) -> Way | None:
    """The way back of a row that differs; None for a first cause, and where no cause leads to it."""
    if c.cause[row] or c.status[row] == Status.EQUAL or not c.cause.any():
        return None
    way = way_back(c, row)
    return way if way.cause >= 0 else None


def _cause(of: Subject, way: Way | None) -> _Told:
    c, row = of.c, of.row
    if of.is_cause:
        causes = c.consequences.causes
        number = next((k for k, cause in enumerate(causes) if row in cause.rows), -1)
        rank = f" {number + 1:,} of {len(c.consequences.starts):,}" if number >= 0 else ""
        likely = (of.red and of.role != Role.ORIGIN) or row in c.stretches
        yield f"{'Likely' if likely else 'First'} cause{rank}: no other red row explains it"
        if number >= 0:
            yield from filter(None, (follows(c, causes[number]),))
    elif way is not None:
        steps = f"{plural(len(way.hops) - 1, 'step')} back on the data path"
        if not way.arrives:
            yield f"Attributed to {named(c, way.cause)}, by position only: no known data path", way.cause
        elif not c.red[row]:
            yield f"Downstream of {named(c, way.cause)}, {steps}, and not red", way.cause
        elif of.is_further:
            yield "A cause of its own: no input brings another fraction about"
            yield f"What it reads follows from {named(c, way.cause)}, {steps}", way.cause
        else:
            yield f"Consequence of {named(c, way.cause)}, {steps}", way.cause
            if not way.proven:
                yield "Not proven: some rows on this path match or are close"
    elif c.red[row]:
        yield "No first cause is known for this row"
    yield from () if c.single else notes_of(of, "cause")
    if c.flow is None or of.status == Status.EQUAL:
        return
    readers, reds = of.readers.tolist(), of.readers[c.red[of.readers]].tolist()
    if len(readers) < 2:
        yield from ((f"It is read by {named(c, reader, sized=True)}", reader) for reader in readers)
        yield from () if readers else ("No operation is known to read it",)
    elif reds:
        yield f"{len(readers):,} rows read it, {len(reds):,} red: the first is {named(c, reds[0])}", reds[0]
    else:
        yield f"{len(readers):,} rows read it, none red"
    for region in regions_of(c, row):
        module = f", in {region.module}" if region.module else ""
        outcome = f"; {region.reason}" if region.kind in _TELLING else ""
        many = f"{plural(len(region.a), 'operation')} in a, {len(region.b):,} in b{module}"
        yield f"Part of a stretch that the runs compute in other ways: {many}{outcome}"
        around = ((len(rows), sum(c.red[list(rows)])) for rows in (region.inputs, region.outputs))
        yield "Pairs that it reads: {}, {} red; pairs that read it: {}, {} red".format(*sum(around, ()))


# ---------------------------------------------------------------------- the pair and what it was given


def _pair(of: Subject, pairing: str) -> _Told:
    c = of.c
    for (side, log), records in zip(c.logs, c.members(of.row), strict=True):
        keys = [f"{log.keys[k]}, {_lines(log, k)}" for k in records[:_MAX_MEMBERS]]
        more = f", and {len(records) - _MAX_MEMBERS:,} more" if len(records) > _MAX_MEMBERS else ""
        places = dict.fromkeys(filter(None, map(log.location_text, records[:_MAX_MEMBERS])))
        if keys:
            yield f"{side}: {'; '.join(keys)}{more}" + (f" ({', '.join(places)})" if places else "")
    for fact in facts_of(c, of.row):
        if fact.name == "placement":
            whole = "the whole"
            yield f"a holds {fact.a or whole}, b {fact.b or whole}" if of.pair >= 0 else f"It holds {fact.a or fact.b}"
    yield from filter(None, (pairing,))
    if of.pair < 0 and of.status != Status.RECOMPUTE:
        yield from _candidates(of)
    yield from notes_of(of, "pair")


def _lines(log: OpLog, record: int) -> str:
    """`line 120 of the log`; of merged ranks `lines 0:120 1:118 (rank:line)`."""
    if members := log.texts(MEMBERS).get(record, ""):
        return f"lines {members} (rank:line)"
    return f"line {log.line[record]:,} of the log" if log.line[record] else "made of the records of several ranks"


def _candidates(of: Subject) -> _Told:
    """The operations of the other run that could be the partner, and the nearest of those without one."""
    c, (log, record) = of.c, of.c.shown(of.row)
    sides = {"a": ("b", c.b, c.pairing.of_b, c.at_b), "b": ("a", c.a, c.pairing.of_a, c.at_a)}
    side, other, pair_of, at = sides[of.side]
    same = np.flatnonzero(np.array([*(op == log.op_name(record) for op in other.ops), False])[other.op])
    same = same[other.phase[same] == log.phase[record]]
    sized = [k for k in same.tolist() if other.shape_text(k) == log.shape_text(record)]
    free = [k for k in sized if pair_of[k] < 0]
    kind = f"{log.op_name(record)} in this phase"
    if not sized:
        yield f"{side} has {f'{len(same):,} {kind}, all of other shapes' if len(same) else f'no {kind}'}"
    elif not free:
        yield f"{side} has {len(sized):,} {kind} and shape, all paired with others"
    else:
        near = min(free, key=lambda k: abs(int(at[k]) - of.row))
        told = f"{side} has {len(sized):,} {kind} and shape, {len(free):,} unpaired"
        yield f"{told}: the nearest is {other.keys[near]}, which a pairs rule can pair with it", int(at[near])


def _inputs(of: Subject) -> _Told:
    """The inputs by what made them and whether they agree, those that differ first."""
    if of.pair >= 0 and of.c.pairing.assembled[of.pair]:
        yield "Several operations form this row, and list other inputs in the two runs"
        made = dict.fromkeys((each.sides, each.row) for each in producing(of.c, of.row))
        for sides, row in islice(made, _MAX_INPUTS):
            yield f"Read in {' and '.join(sides)}: {named(of.c, row, sized=True)}", row
        return
    groups: dict[tuple[str, str, int], list[InputFact]] = {}
    for fact in sorted(of.inputs, key=lambda fact: fact.agrees is not False):
        groups.setdefault((_agreement(of, fact), *_source(of, fact)), []).append(fact)
    for (agrees, source, row), facts in islice(groups.items(), _MAX_INPUTS):
        more = f" and {len(facts) - _MAX_MEMBERS:,} more" if len(facts) > _MAX_MEMBERS else ""
        places = ", ".join(str(fact.position) for fact in facts[:_MAX_MEMBERS])
        by = max((fact.difference for fact in facts if fact.difference[:1].isdigit()), key=float, default="")
        size = f" by{' up to' * (len(facts) > 1)} {by}" if agrees.endswith("norms differ") and by else ""
        yield f"Input{'s' * (len(facts) > 1)} {places}{more}: {agrees}{size}{'; ' * bool(agrees)}{source}", row
    if left := [fact for facts in islice(groups.values(), _MAX_INPUTS, None) for fact in facts]:
        differ = sum(fact.agrees is False for fact in left)
        yield plural(len(left), "more input") + (f", {differ:,} of which differ" if differ else "")
    if not of.inputs:
        yield "The logs list no tensor that it reads"


def _source(of: Subject, fact: InputFact) -> tuple[str, int]:
    """The maker of an input in each run that lists it, and a row of it; -1 for none."""
    c, made = of.c, {"a": (of.c.at_a, fact.producer_a), "b": (of.c.at_b, fact.producer_b)}
    listed = [side for side, norm in (("a", fact.a), ("b", fact.b)) if norm] or ["a", "b"]
    rows = {side: int(at[k]) if k >= 0 else -1 for side, (at, k) in made.items() if side in listed}
    row = max(rows.values())
    if len(set(rows.values())) == 1:
        return f"from {named(c, row, sized=True)}" if row >= 0 else fact.name or "no captured operation made it", row
    outside = fact.name or "what no captured operation made"
    told = (f"{side} reads {named(c, k, sized=True) if k >= 0 else outside}" for side, k in rows.items())
    return ", ".join(told), row


def _agreement(of: Subject, fact: InputFact) -> str:
    """The evidence of the logs about the two tensors that were read there; empty for one side alone."""
    c = of.c
    if of.pair < 0 or bool(fact.a) != bool(fact.b):
        return "" if of.pair < 0 else f"only {'a' if fact.a else 'b'} lists it"
    if fact.bits:
        return "equal bits"
    bits = "no digest" if fact.bits is None else "other bits"
    makers = [int(at[k]) for at, k in ((c.at_a, fact.producer_a), (c.at_b, fact.producer_b)) if k >= 0]
    if any(_holds_parts(c, row) for row in (of.row, *makers)):
        return f"{bits}, and the sides may hold parts of it"
    if fact.a == fact.b:
        apart = ", other extremes, mean or checksum" * (fact.bits is None and fact.agrees is False)
        return f"{bits}, no norm of it is logged{apart}" if "nan" in fact.a else f"{bits}, equal norms{apart}"
    return f"{bits}, norms differ"


def _holds_parts(c: Comparison, row: int) -> bool:
    """True if the sides hold different parts of a tensor, whose norms tell nothing about each other."""
    return bool(c.status[row] == Status.SHARDED or c.parts[row])


def _operation(of: Subject) -> _Told:
    sides = {side: (*operation_of(log, k),) for (side, log), k in zip(of.c.logs, of.records, strict=False) if k >= 0}
    apart = len(set(sides.values())) > 1
    for side, told in sides.items():
        yield from (f"{side}: {text}" if apart else text for text in told if apart or side == next(iter(sides)))
    yield from () if of.c.single else notes_of(of, "operation")


def _arguments(of: Subject) -> _Told:
    c = of.c
    logs = [(side, log, k) for (side, log), k in zip(c.logs, of.records, strict=False) if k >= 0]
    if silent := [side for side, log, _ in logs if not tells_arguments(log)]:
        yield f"Not in the log of {' and '.join(silent)}"
        return
    found = argument_reasons(c, of.row)
    for other, why in found:
        yield f"{other.text}: {why or 'nothing explains it'}"
    alike = len({log.op_name(k) for _, log, k in logs}) == 1
    if not alike:
        yield "Not compared: the two are other operations"
    for side, log, k in logs[: 1 if alike else 2]:
        given = [f"{name} = {shown(value)}" for name, value in arguments_of(log, k).items()]
        given = [text for text in given if text.partition(" = ")[0] not in {other.name for other, _ in found}]
        more = f", and {len(given) - _MAX_ARGUMENTS:,} more" if len(given) > _MAX_ARGUMENTS else ""
        if given:
            prefix = "Equal" if alike and len(logs) == 2 else f"Of {side}"
            yield f"{prefix}: {', '.join(given[:_MAX_ARGUMENTS])}{more}"
        elif not found:
            yield "None besides tensors"


# ---------------------------------------------------------------------- siblings, error, what would change it


def _siblings(of: Subject) -> _Told:
    """The pairs of its kind with equal inputs, and whether their results are equal; how the first difference arises."""
    k = of.c.equality.place(of.row)
    if told := notes_of(of, "beginning"):
        asked = asked_otherwise(of.c, of.row)  # which the arguments say
        yield from (clause for note in told for clause in note.split("; ") if clause != asked)
    elif k >= 0:
        alike = of.c.equality.determinism.kind[k] >= 0
        yield (
            determinism_of(of.c, of.row) if alike else "No sibling tells: it has other operations, dtypes or arguments"
        )


def _error(of: Subject) -> _Told:
    c, error = of.c, float(of.c.error[of.row])
    if of.status == Status.UNFINISHED:  # its numbers mean nothing
        return
    if of.reason == Reason.LOSS_SCALE:
        yield f"Losses and gradients of a are {c.loss_scale:g} times those of b; the error is what is left without that"
    if of.status == Status.EQUAL:
        yield "Error 0: the digests of all that it returns and changes are equal"
    elif of.reason == Reason.CANCELLATION and of.status == Status.NOT_JUDGED:
        yield "No error is held against a limit: what cancels is rounding in both runs"
    elif error > 0:
        yield difference(of)
    elif of.pair >= 0 and math.isnan(error):
        yield "No error: no numbers of the two can be compared"
    elif of.pair >= 0 and of.reason != Reason.LOSS_SCALE:
        yield "Error 0" + ": all numbers that both logs print are equal" * (of.reason != Reason.SAME_ELEMENTS)
    for name, a, b, by in _numbers(of):
        yield f"{name}: {a} in a, {b} in b, {by} apart"
    yield from notes_of(of, "error") if error > 0 or of.status == Status.SAME_PRINT else ()
    yield from limit_of(of)


def _numbers(of: Subject) -> list[tuple[str, str, str, str]]:
    """The numbers of the first output that differ, where they are what is judged: name, a, b, relative difference."""
    if of.pair < 0 or of.row in of.c.slots or _holds_parts(of.c, of.row):
        return []
    found = [fact for fact in facts_of(of.c, of.row)[:_MAX_NUMBERS] if fact.agrees is False]
    return [(fact.name, fact.a, fact.b, fact.difference) for fact in found if fact.difference[:1].isdigit()]


def _change(of: Subject) -> _Told:
    """Changes that give another verdict: compared again where that is the only way to know."""
    c, row = of.c, of.row
    if of.status == Status.IGNORED:
        yield f"Without rule {int(c.excluded_by[row]) + 1} ({c.rules.path}), it is {Status(c.verdict[row]).label}"
        return
    if c.within_rules_only[row]:
        yield "Without the tolerance of a rule, it is red"
    for change, other in _otherwise(of):
        there = int(other.at_a[of.records[0]])
        if other.status[there] != c.status[row]:
            close = other.status[there] == Status.CLOSE and change.startswith("--")
            limit = f", within {other.tolerance[there]:.1e}" if close else ""
            yield f"With {change}, it is {Status(other.status[there]).label}{limit}"
    if of.reason in _BY_SIZE and of.pair >= 0 and c.expectation.noise is None and not asked_otherwise(c, row):
        yield "A third run (--noise C) shows what repeating a run changes here"
    known = {
        "whether inputs are bitwise equal": all(len(log.input_digests.value) for log in (c.a, c.b)),
        "which arguments it was given": tells_arguments(c.a) and tells_arguments(c.b),
    }
    lacks = [what for what, told in known.items() if not told]
    if lacks and of.pair >= 0 and of.status != Status.EQUAL:
        yield f"Logs of numtui capture say {' and '.join(lacks)}"
    if of.is_cause:
        yield "To accept it with what follows: --allow FILE (docs/ci.md)"


def _otherwise(of: Subject) -> Iterator[tuple[str, Comparison]]:
    """Comparisons of the same logs under one more rule, or another expectation."""
    c, error = of.c, float(of.c.error[of.row])
    if of.pair < 0 or len(c) > _MOST_AGAIN:
        return
    rival = int(c.pairing.runner_up[of.pair])
    if c.red[of.row] and rival >= 0 and c.pairing.runner_up_score[of.pair] >= _RIVAL:
        pair = PairRule(a=(key_reference(c.a, of.records[0]),), b=(key_reference(c.b, rival),))
        yield f"a pairs rule for the runner-up, {pair.b[0]}", c.with_rules(c.rules.adding(pair))
    enough = float(f"{1.1 * max([error, *(float(by) for *_, by in _numbers(of))]):.1e}") if error > 0 else 0.0
    if c.red[of.row] and 0 < enough <= MOST_ALLOWED:
        rule = ToleranceRule(match=key_reference(c.b, of.records[1]), side="b", rtol=enough)
        yield f"a tolerance rule of {enough:g}", c.with_rules(RuleSet((rule, *c.rules.rules)))
    presets = [Expect.LOW_PRECISION if c.policy else Expect.REDUCTION_ORDER] if c.red[of.row] else []
    presets += [Expect.BITWISE] if of.status in (Status.CLOSE, Status.NOT_JUDGED) else []
    for preset in presets if c.expectation.is_open else ():
        yield f"--expect {preset.value}", c.with_expectation(Expectation(preset))
