"""Headlines of red rows: what differs, by how much, and what of it came in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from matchers.comparison import Comparison
from matchers.explain.arguments import asked_otherwise
from matchers.explain.facts import OTHER_BITS, InputFact, format_eps, format_error, ground_of
from matchers.explain.first_difference import FROM_PYTHON, determinism_of, start_of
from matchers.explain.subject import Subject
from matchers.logs.op_log import Phase
from matchers.logs.tells import IMPORTED
from matchers.ops.batch_numbers import batch_ranks
from matchers.ops.dataflow import upstream
from matchers.ops.input_statistics import tell_statistics
from matchers.ops.last_contents import GRADIENT
from matchers.ops.laws import law_of
from matchers.ops.nonfinite import broken_text
from matchers.status import Role, Status
from matchers.verdict.content_verdicts import ContentVerdict
from matchers.verdict.list_lengths import length
from matchers.verdict.loss_scale import mean_or_loss
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative_difference
from matchers.verdict.tolerance import EPSILON, growth_factor

__all__ = ["difference", "inputs_agree", "lengths", "recomputed", "red_headline", "row_epsilon", "size_of_error"]


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


def size_of_error(of: Subject) -> str:
    """`≈1.2e-03 (147 ε)`."""
    error = float(of.c.error[of.row])
    size, eps = format_error(error, bool(of.c.bound[of.row])), format_eps(error, row_epsilon(of.c, of.row))
    return f"{size} ({eps})" if eps else size


def difference(of: Subject) -> str:
    """`the output differs by ≈1.2e-03 (147 ε)`."""
    return f"{_what_differs(of.c, of.row)} by {size_of_error(of)}"


def red_headline(of: Subject) -> str:
    """The headline of a red row: what it was asked otherwise, or else what differs."""
    further = of.is_further
    if of.is_cause and of.pair >= 0 and (ranks := mean_or_loss(of.c.a, of.c.b, of.c.pairing, of.pair)):
        one, other = "ab" if batch_ranks(of.c.a) == 1 else "ba"
        return f"UNDECIDED: {one} divides the loss by {ranks}; {other} lacks that, or a mean over its {ranks} ranks"
    asked = asked_otherwise(of.c, of.row) if of.is_cause or further or of.reason == Reason.ARGUMENTS else ""
    if not asked and of.is_cause and of.role == Role.UNKNOWN and (start := start_of(of.c, of.row)):
        return f"FIRST CAUSE: {start}"
    if of.reason == Reason.OTHER_START and (weights := of.c.start.parameters) is not None:
        return f"FIRST CAUSE: {weights.text}"
    role = "LIKELY CAUSE" if of.is_cause and of.role != Role.ORIGIN else of.role.word.upper()
    role = "FURTHER CAUSE" if further else role
    return f"{role}: {asked}{_what_follows(of)}" if asked else f"{role}: {_BY_STATUS[of.status](of)}"


def _diverged(of: Subject) -> str:
    c, row, inputs = of.c, of.row, of.inputs
    if row in c.mismatch_at:
        return recomputed(c, row)
    if of.reason == Reason.COARSER_DTYPE:
        log, record = c.shown(row)
        only, other = "ba" if log is c.b else "ab"
        coarse = log.dtype_text(record)
        other_has = "reads it as it is" if coarse in (c.a if log is c.b else c.b).dtypes else "has nothing so coarse"
        return f"only {only} rounds to {coarse} here; {other} {other_has}"
    if of.reason == Reason.OTHER_DATA:
        return _other_data(of)
    if of.reason == Reason.OTHER_ORDER:
        return f"elements in another order, equal norms, other bits; {inputs_agree(of)}"
    if of.reason == Reason.NOT_REPEATED:
        return f"{difference(of)}; {determinism_of(c, row)}"
    ground = ground_of(c, row)
    because = f" ({ground})" if ground else ""
    if of.role == Role.UNKNOWN:
        told = _of_contents(c, row) or _what_is_unknown(c, inputs)
    elif of.role != Role.ORIGIN:
        told = _received(c, row, inputs)
    elif not (told := _of_contents(c, row)):
        came_in = _came_in(c, row, inputs)
        if came_in is None:
            told = inputs_agree(of)
        elif came_in[1]:
            return f"the error jumps from {came_in[0]} to {size_of_error(of)} here{because}"
        else:
            told = f"its inputs already differ by {came_in[0]}"
    return f"{difference(of)}; {told}{because}"


def _other_data(of: Subject) -> str:
    given = next((one for one in of.inputs if one.a != one.b and _whole(one.a, one.b)), None)
    if given is None:
        return f"{difference(of)}; {inputs_agree(of)}"
    a, b = (f"{float(norm):,.0f}" for norm in (given.a, given.b))
    return f"{given.title}, whole numbers that the step was given, differs: L1 norm {a} in a, {b} in b"


def _whole(*norms: str) -> bool:
    return all(norm and float(norm).is_integer() for norm in norms)


def _what_follows(of: Subject) -> str:
    """The effect of other arguments, as the end of a sentence."""
    if of.role == Role.RECEIVER:
        return f"; {_received(of.c, of.row, of.inputs)}"
    if not of.inputs and law_of(*of.c.shown(of.row)).enters:
        return f"; {FROM_PYTHON}"
    differs = f"; {difference(of)}" if not math.isnan(of.c.error[of.row]) else ""
    because_of = _of_contents(of.c, of.row) if differs else ""
    return f"{differs}; {because_of or inputs_agree(of)}"


def recomputed(c: Comparison, row: int) -> str:
    """The mismatch of a recomputed copy and its original, with its size and reason."""
    found = c.mismatch_at[row]
    log = c.a if found.side == "a" else c.b
    size = format_error(found.mismatch.error, True)
    return f"the recomputed copy differs from {log.keys[found.mismatch.original]} by {size}; {found.mismatch.text}"


def _what_differs(c: Comparison, row: int) -> str:
    """`the output differs`, `the weight layers.2.wq.weight differs after the step`, …"""
    slot = c.slots.get(row)
    if slot is None:
        return "the output differs"
    log, record = c.shown(row)
    when = "after the step" if log.phase[record] == Phase.OPTIMIZER else "afterwards"
    if slot.scalars is not None:
        return "the scalar argument, {:.4g} in a and {:.4g} in b, differs".format(*slot.scalars)
    if slot.gathered:
        return f"the whole tensor, in {slot.name}, differs"
    if slot.reason == Reason.OTHER_START:
        return f"{slot.name} differs before the step"
    if slot.read:
        return f"{slot.name}, a weight gathered from ranks, differs"
    if slot.only:
        if slot.reason == Reason.CHANGED_ONCE_MORE:
            return f"only {slot.only} changes {slot.name} here"
        return f"only {slot.only} changed {slot.name}; it differs {when}"
    if slot.name.endswith(GRADIENT):
        return f"the gradient {slot.name} differs"
    if slot.more:
        of_parameter = any(content.parameter for content in _contents(c, row))
        kind = "optimizer state" if not of_parameter else "parameter" if when == "after the step" else "tensor"
        return f"{slot.name} and {slot.more:,} more {kind}{'' if slot.more == 1 else 's'} differ {when}"
    return f"{slot.name} differs" + ("" if slot.name.startswith("output ") else f" {when}")


def _contents(c: Comparison, row: int) -> tuple[ContentVerdict, ...]:
    """The last contents that a row is red for."""
    return c.last_contents.of_row(int(c.row_a[row]), int(c.row_b[row]))


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
        does = "writes to it" if c.reason[row] == Reason.CHANGED_BY_ONE_RUN else "names it"
        return f"no captured operation of {'b' if first.a >= 0 else 'a'} {does}"
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
    folded = c.a.batches > 1 or c.b.batches > 1
    return bool(c.parts[row]) or (folded and slot is not None and slot.scalars is not None)


_JUMP = 4.0
"""Factor beyond the growth of an error in one operation from which on an error jumps."""


def inputs_agree(of: Subject) -> str:
    """`all inputs are bitwise equal`, `no inputs`, …"""
    c, row, inputs = of.c, of.row, of.inputs
    if not inputs:
        return FROM_PYTHON if law_of(*c.shown(row)).enters else "no inputs"
    if _unjudged_inputs(c, row):
        return "the inputs are not judged"
    if c.pairing.assembled[c.pair[row]]:  # the two sides list other inputs
        return "no input comes from a diverged operation"
    more = int(c.b.inputs.count[c.row_b[row]]) - int(c.a.inputs.count[c.row_a[row]]) if c.pair[row] >= 0 else 0
    beside = f"; {'b' if more > 0 else 'a'} has {abs(more):,} more" if more else ""
    n = len(inputs) - abs(more)
    which = ("the common input" if more else "the input") if n == 1 else "all common inputs" if more else "all inputs"
    if c.inputs_equal[row] and not any(fact.bits is False for fact in inputs):  # noise is judged as if it were equal
        return f"{which} {'is' if n == 1 else 'are'} bitwise equal"
    blind = next((log.tells.inputs for log in (c.a, c.b) if log.header.format in IMPORTED and log.tells.inputs), "")
    more_told = f"{blind} norm{'s' * (n != 1)}" + ", extremes and mean" * tell_statistics(c.a, c.b)
    how = f" in {more_told}{_unlike_before(of)}" if blind else ""
    return f"{which} {'agrees' if n == 1 else 'agree'}{how}{beside}"


def _unlike_before(of: Subject) -> str:
    """`, but b alone runs neg before (model.py:154)`: the last operation without a partner of those that lead to a row.

    Norms of other tools' logs miss signs and order, so that a difference may begin there, or in what one does not log.
    """
    c, row = of.c, of.row
    leads = upstream(c.edges, [row], c.pair >= 0)
    lone = np.flatnonzero(leads & (c.pair < 0))
    if not len(lone):
        unknown = all(fact.producer_a < 0 and fact.producer_b < 0 for fact in of.inputs)
        return f", but what made {'it' if len(of.inputs) == 1 else 'them'} is not logged" * unknown
    log, record = c.shown(int(lone[-1]))
    at = log.location_text(record).replace("\\", "/").rpartition("/")[2]
    return f", but {'b' if log is c.b else 'a'} alone runs {log.op_name(record)} before{f' ({at})' if at else ''}"


def _what_shape(of: Subject) -> str:
    c, row, (i, j) = of.c, of.row, of.records
    differing = [
        f"{what} differs: {x} in a, {y} in b"
        for what, x, y in (
            ("shape", c.a.shape_text(i), c.b.shape_text(j)),
            ("dtype", c.a.dtype_text(i), c.b.dtype_text(j)),
        )
        if x != y
    ]
    if c.reason[row] == Reason.OTHER_LIST_LENGTH and not differing:
        return f"another number of tensors: {lengths(c, row)}"
    if row in c.slots and not differing:
        return f"shape or dtype of {c.slots[row].name} differs"
    return ", ".join(differing)


def lengths(c: Comparison, row: int) -> str:
    """`4 tensors in a, 3 in b`."""
    a, b = length(c.a, int(c.row_a[row])), length(c.b, int(c.row_b[row]))
    return f"{a:,} tensors in a, {b:,} in b"


def _read_instead(c: Comparison, fact: InputFact) -> str:
    """`: a reads X, b reads Y`, for two weights, or an input whose producers are known and no partners; else empty."""
    if fact.weights:
        return f": a reads {fact.weights[0]}, b reads {fact.weights[1]}"
    i, j = fact.producer_a, fact.producer_b
    return f": a reads {c.a.keys[i]}, b reads {c.b.keys[j]}" if min(i, j) >= 0 and c.at_a[i] != c.at_b[j] else ""


def _what_is_unknown(c: Comparison, inputs: tuple[InputFact, ...]) -> str:
    differing = [fact for fact in inputs if fact.agrees is False]
    if not (c.a.tells.ordered and c.b.tells.ordered):
        return "the order is that of names: another tensor that differs may be the first"
    if not differing:
        return "not all inputs are known: suspect the operation just upstream"
    for fact in differing:
        if read := _read_instead(c, fact):
            return f"{fact.title} already differs{read}"
    # what a captured operation made differs by less than would be red
    unmade = [fact for fact in differing if max(fact.producer_a, fact.producer_b) < 0]
    differing = unmade or differing
    many = len(differing)
    given = [fact for fact in unmade if fact.name]
    if len(given) == many and not any(fact.is_gradient for fact in given):
        return f"{given[0].name} {f'and {many - 1:,} more differ' if many > 1 else 'differs'} before the step"
    positions = ", ".join(str(fact.position) for fact in differing[:4])
    already = f"input {positions} already differs" if many == 1 else f"inputs {positions} already differ"
    if c.start.buffers is not None and unmade:
        return f"{already}, no captured operation made it, and {c.start.buffers.text}"
    return f"{already}: suspect an uncaptured operation just upstream"


def _received(c: Comparison, row: int, inputs: tuple[InputFact, ...]) -> str:
    if not c.parts[row]:
        blamed = c.red | c.cause
        for fact in inputs:
            made = ((c.a, fact.producer_a, c.at_a), (c.b, fact.producer_b, c.at_b))
            for key in (log.keys[record] for log, record, at in made if record >= 0 and blamed[at[record]]):
                if fact.agrees:
                    return f"{fact.title} comes from a diverged op, although its norm matches: {key}"
                return f"{fact.title} already differs{_read_instead(c, fact) or f', from {key}'}"
        for fact in inputs:
            if fact.agrees is False:
                how = " bitwise" if fact.difference == OTHER_BITS else f" by {fact.difference}"
                return f"{fact.title} already differs{_read_instead(c, fact) or how}"
    return "downstream of an earlier divergence"


def _what_is_broken(of: Subject) -> str:
    """`3 NaN of 64 numbers, only in b`, `NaN in both runs`, …"""
    c, row = of.c, of.row
    if row in c.slots:
        both = ", in both runs, equal bits" if c.slots[row].reason == Reason.NAN_IN_BOTH else ""
        return f"NaN{'' if both else ' or Inf'} in {c.slots[row].name}{both}"
    records = (("a", c.a, int(c.row_a[row])), ("b", c.b, int(c.row_b[row])))
    told = {side: text for side, log, record in records if (text := broken_text(log, record))}
    if not told:
        return "NaN or Inf in an input"
    if len(told) == 1:
        ((side, text),) = told.items()
        return f"{text}, only in {side}"
    if told["a"] == told["b"]:
        return f"{told['a']} in both runs" + (", equal bits" if c.reason[row] == Reason.NAN_IN_BOTH else "")
    return f"{told['a']} in a, {told['b']} in b"


_BY_STATUS: Mapping[Status, Callable[[Subject], str]] = {
    Status.DIVERGED: _diverged,
    Status.NAN: _what_is_broken,
    Status.SHAPE: _what_shape,
}
"""The difference of a red row, and its reason, by status."""
