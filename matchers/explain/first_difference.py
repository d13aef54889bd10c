"""The first difference of two runs in words: where it is, how large, and how it arises."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from matchers.causes.first_difference import FirstDifference, Kind
from matchers.comparison import Comparison
from matchers.explain.arguments import asked_otherwise
from matchers.explain.facts import format_error, inputs_of
from matchers.explain.subject import key_of
from matchers.ops.arguments import tells_arguments
from matchers.ops.run_info import of_call, same_kernels
from matchers.status import Status
from matchers.verdict.comparability import other_weights
from matchers.verdict.tolerance import RESOLUTION

__all__ = [
    "FROM_PYTHON",
    "already_differ",
    "determinism_of",
    "first_difference_note",
    "first_difference_reasons",
    "kernels_of",
    "size_of",
    "start_of",
]

FROM_PYTHON = "from Python"
"""The origin of a tensor of Python's numbers."""
_ADVICE = {
    "weights": "load the same weights",
    "buffers": "load the same buffers",
    "the batch": "give both runs the same batch",
}
_OTHER = {"weights": "other weights", "buffers": "other buffers", "the batch": "another batch"}


def first_difference_note(c: Comparison) -> str:
    """The title, `First difference: row 33, ≈9.1e-06, within tolerance`; empty where no compared row differs."""
    found = c.first_difference
    return "" if found is None else f"First difference: row {found.row + 1:,}, {size_of(c, found.row)}"


def size_of(c: Comparison, row: int) -> str:
    """The size of a row's difference and what its tolerance says of it: `≈9.1e-06, within tolerance`."""
    status = Status(c.verdict[row])
    if c.pair[row] < 0 and not status.red:
        return f"only in {'a' if c.row_a[row] >= 0 else 'b'}"
    if status == Status.SHAPE:
        return "another shape or dtype"
    error = float(c.error[row])
    size = format_error(error, bool(c.bound[row])) if error > 0 else "other bits"
    if status == Status.NOT_JUDGED:
        return f"{size}, not judged"
    return f"{size}, {'beyond' if status.red else 'within'} tolerance"


def first_difference_reasons(c: Comparison) -> tuple[str, ...]:
    """The origin of the first difference, a sentence each, without capital and full stop but for the advice."""
    found = c.first_difference
    return () if found is None else (*_reasons(c, found), *_why_harmless(c, found))


def _given(c: Comparison, row: int, position: int) -> str:
    fact = inputs_of(c, row)[position]
    if fact.agrees is None:
        return "the logs do not tell what it reads"
    place = np.array([position])
    x, y = (log.inputs.at(at[row : row + 1], place)[0] for log, at in ((c.a, c.row_a), (c.b, c.row_b)))
    if fact.bits is False and abs(x - y) <= RESOLUTION * x:
        return f"input {position} has equal norms and other bits: the same numbers in another order, or other signs"
    return (
        f"input {position} differs, and no captured operation made it: "
        "a buffer, a mask, an argument, or an operation that was not captured"
    )


def _reasons(c: Comparison, found: FirstDifference) -> Iterator[str]:
    if found.kind in (Kind.OPERATION, Kind.DRAW):
        yield _equal_inputs(c, found)
    if found.kind == Kind.DRAW:
        yield "a random draw: another seed, or another state of the generator"
    elif found.kind == Kind.OPERATION:
        yield determinism_of(c, found.row)
        yield from kernels_of(c, found.row)
    elif found.kind == Kind.ENTERS:
        yield FROM_PYTHON
    elif found.kind == Kind.START:
        yield already_differ(c, found)
        if (row := found.operation) >= 0:
            yield f"the first row with equal inputs and another result: row {row + 1:,}, {key_of(c, row)}"
    elif found.kind == Kind.GIVEN:
        yield _given(c, found.row, found.position)
    elif found.kind == Kind.UNPAIRED:
        yield f"{_read(c, found)}{_as_what(c, found)}, at {key_of(c, found.reader)}"
    elif found.kind == Kind.OTHER_INPUT:
        yield _other_input(c, found)
    elif found.kind == Kind.FORM:
        a, b = (
            " + ".join(log.op_name(record) for record in members)
            for log, members in zip((c.a, c.b), c.members(found.row), strict=True)
        )
        yield f"made of other operations: {a} in a, {b} in b; no input known from outside differs"
    elif found.kind == Kind.CONTENT:
        yield "what it leaves in a parameter, a buffer or an optimizer state differs"
    else:
        yield f"input {found.position} comes from operations that were not compared: {_read(c, found)}"


def _why_harmless(c: Comparison, found: FirstDifference) -> Iterator[str]:
    """The reason why a difference before the first cause is none, a sentence; one of the start has its advice."""
    causes = np.flatnonzero(c.cause)
    if found.kind == Kind.START or not len(causes) or causes[0] <= max(found.row, found.reader):
        return
    start = np.zeros(len(c), np.uint64)
    start[found.row] = 1
    first = int(causes[0])
    if not c.reached(start)[first]:
        yield f"no cause: row {first + 1:,}, the first cause, does not follow from it"
    elif 0 < c.error[found.row] < c.error[first] < np.inf:
        times = float(c.error[first] / c.error[found.row])
        yield f"no cause by its size: row {first + 1:,}, the first cause, is off by {times:.2g} times as much"


def already_differ(c: Comparison, found: FirstDifference) -> str:
    """The finding that two runs begin the step with other weights or another batch, with advice."""
    error = float(c.error[found.row])
    size = format_error(error, bool(c.bound[found.row])) if error > 0 else "other bits"
    where = f"the first row ({size})"
    if found.row > 0:
        read = " and ".join(_OTHER[name] for name in found.start)
        where = f"the first row that reads {read} (row {found.row + 1:,}, {size})"
    dtypes = c.a.dtype_text(int(c.row_a[found.row])), c.b.dtype_text(int(c.row_b[found.row]))
    if dtypes[0] != dtypes[1]:
        return f"The runs already differ at {where}: {dtypes[0]} in a, {dtypes[1]} in b."
    advice = [_ADVICE[name] for name in found.start]
    if advice and found.start[0] != "the batch" and not (of_call(c.a.header.run) or of_call(c.b.header.run)):
        advice[0] = f"capture an earlier step, or {advice[0]}"
    then = " ".join(f"{text.capitalize()}." for text in advice)
    return f"The runs already differ at {where}: {_before(c, found.start)}. {then}"


def start_of(c: Comparison, row: int) -> str:
    """`1 of 16 parameters differs before the step: …`, where that makes a row differ; else empty."""
    start = c.reads_start(row)
    told = _before(c, start)
    by_norms = "weights" in start and c.start.weights is None and told.startswith(_by_norms(c) or "-")
    return f"the runs differ before this step: capture step 1; {told}" if by_norms else told


def _by_norms(c: Comparison) -> str | None:
    return other_weights(c.a, c.b, c.pairing, c.flow)


def _before(c: Comparison, start: tuple[str, ...]) -> str:
    """The difference before the step of what a row reads (`start`): how many, which first, how much."""
    known = {"weights": c.start.parameters, "buffers": c.start.buffers, "the batch": c.start.tokens}
    told = []
    for name in start:
        if (of := known[name]) is not None:
            told.append(of.text)
        elif name == "weights" and (by_norms := _by_norms(c)):
            told.append(by_norms)
        else:
            told.append(f"{name} {'differs' if name == 'the batch' else 'differ'} before the step")
    return " and ".join(told)


def determinism_of(c: Comparison, row: int) -> str:
    """The behaviour of other operations of a row's kind on equal inputs; the row's own inputs are equal.

    Or what it was asked otherwise.
    """
    if asked := asked_otherwise(c, row):
        return asked
    others, differ = c.equality.others(row)
    i = int(c.row_a[row])
    name = c.a.op_name(i)
    earlier = "other" if c.equality.by_digest else "earlier"
    inputs = "equal inputs" if c.equality.by_digest else "equal printed inputs"
    if not others:
        return f"no {earlier} {name} has {inputs}"
    if differ:
        verb = "differs" if differ == 1 else "differ"
        told = f"{differ:,} of {others:,} {earlier} {name} with {inputs} {verb} too"
        if c.equality.by_digest and same_kernels(c.a.header.run, c.b.header.run) and _asked_alike(c):
            of_rows = bool(c.a.rows_compared)  # calls of other sizes
            return f"{'depends on the batch' if of_rows else 'nondeterministic here'}: {told}"
        return told + ("" if Status(c.verdict[row]).red else ": another kernel or reduction order")
    agree = "agrees" if others == 1 else "agree"
    told = f"{others:,} of {others:,} {earlier} {name} with {inputs} {agree}"
    return f"repeats elsewhere: {told} to the bit" if c.equality.by_digest else f"{told} in every printed digit"


def kernels_of(c: Comparison, row: int) -> Iterator[str]:
    """The clause that other bits of equal inputs are, or are not, those of another kernel, and what tells."""
    runs = c.a.header.run, c.b.header.run
    same, (others, differ) = same_kernels(*runs), c.equality.others(row)
    if not c.equality.by_digest or same is None or asked_otherwise(c, row):
        return
    if runs[0].get("world_size") != runs[1].get("world_size"):
        return  # another layout, of which the report speaks
    if not same:
        yield "it may be the kernel: versions, devices or flags differ; capture both runs with the same ones"
    elif others and not differ:
        yield "no rounding: one build of torch on one machine makes the same bits of the same bits"
    elif _asked_alike(c) and not c.a.rows_compared:
        yield "one build of torch on one machine: capture a again, and what differs then is nondeterministic"


def _asked_alike(c: Comparison) -> bool:
    """True if both logs have arguments, so that operations without other ones were asked the same."""
    return tells_arguments(c.a) and tells_arguments(c.b)


def _equal_inputs(c: Comparison, found: FirstDifference) -> str:
    record = int(c.row_a[found.row])
    many = max(len(c.a.inputs[record]), len(c.a.input_digests[record]))
    if not many:
        return "it reads nothing"
    if not found.by_digest:
        return f"every printed number of its input{'s' * (many > 1)} is equal"
    return "the input is bitwise equal" if many == 1 else "all inputs are bitwise equal"


def _other_input(c: Comparison, found: FirstDifference) -> str:
    a, b = found.makers
    if found.position < 0:
        return "the two runs read other inputs here"
    if a >= 0 and b >= 0 and c.at_a[a] == c.at_b[b]:
        return f"input {found.position} differs although {c.a.keys[a]} agrees: another part or view of its result"
    return f"input {found.position} is another tensor: {_read(c, found)}"


def _as_what(c: Comparison, found: FirstDifference) -> str:
    """` for the gradient of 0.weight`, where the reader's log names what it reads."""
    read = (fact for fact in inputs_of(c, found.reader) if (fact.producer_a, fact.producer_b) == found.makers)
    return next((f" for {fact.title}" for fact in read if fact.name), "")


def _read(c: Comparison, found: FirstDifference) -> str:
    """`a reads x/op_0_mul, b reads x/op_1_add`."""
    told = [
        f"{side} reads {log.keys[record] if record >= 0 else 'what no captured operation made'}"
        for side, log, record in zip("ab", (c.a, c.b), found.makers, strict=True)
    ]
    return ", ".join(told)
