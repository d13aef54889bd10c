"""Judge pairs by their arguments: operations that were asked something else, on the same inputs.

Another eps may move a result by less than its tolerance, and it is another computation all the same. So a difference
counts at any size, unless another form of the same step explains it: a dimension counted from the other end, a size
that follows from the shapes of the tensors, a limit of the dtype, a factor of the layout, a number that Python computed
from a tensor and that differs by rounding, or inputs that differ by what makes up for it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from matchers.arrays import Bool, Float64, Int64, marked, numbered_together, one_of
from matchers.logs.hashing import shared_ids
from matchers.logs.op_log import STATISTICS, OpLog, Phase
from matchers.ops.arguments import (
    ROUNDING,
    ArgumentDifference,
    argument_differences,
    tells_arguments,
    tensors_read,
    text_ids,
)
from matchers.ops.json_values import number
from matchers.ops.laws import functional, law_of, rows_where
from matchers.ops.module_path import canonical
from matchers.ops.optimizer_settings import optimizer_differences
from matchers.ops.python_reads import NumberRead, read_before
from matchers.ops.shapes import but_for_ones, dimensions
from matchers.pairing.pairing import Method
from matchers.status import Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.digests import other_bits, shared_inputs
from matchers.verdict.reason import Reason
from matchers.verdict.relative_error import relative
from matchers.verdict.slots import SlotVerdict
from matchers.verdict.tolerance import EPSILON, UNSURE, default_tolerance

__all__ = [
    "asked_elsewhere",
    "explained_by",
    "judge_arguments",
    "judge_settings",
    "other_arguments",
    "perhaps_read",
    "unexplained",
]

SAME_DIMENSION = "the same dimension"
"""The explanation of dimensions that are counted from the other end, or listed in another order."""
SAME_NUMBER = "the same number, rounded"
"""The explanation of a number that Python computed in another order."""
_JUDGED = (Status.SAME_PRINT, Status.CLOSE, Status.NO_VALUES, Status.SHAPE, Status.DIVERGED, Status.NAN)
_RANGE = [STATISTICS.index("Min"), STATISTICS.index("Max")]
_OF_PYTHON = 9
"""Significant digits from which on a number is one that Python computed."""
_OF_FLOAT32 = 7
"""The same of one that entered a tensor, which has no more."""


_LIMITS = {
    name: ((EPSILON[name] - 2) * 2.0**power, (2 - EPSILON[name]) * 2.0**power, EPSILON[name])
    for name, power in (("float64", 1023), ("float32", 127), ("bfloat16", 127), ("float16", 15))
}
"""The lowest and the largest finite number, and ε, by dtype."""


def other_arguments(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    """bool[p]: the pairs (i[k], j[k]) are one operation, and the texts of their arguments differ."""
    if not (tells_arguments(a) and tells_arguments(b)):
        return np.zeros(len(i), bool)
    op_a, op_b, _ = shared_ids(*([*map(functional, log.ops)] for log in (a, b)))
    ids_a, ids_b = text_ids(a, b, "Arguments")
    return np.asarray((op_a[a.op[i]] == op_b[b.op[j]]) & (ids_a[i] != ids_b[j]))


def judge_arguments(case: Case, found: Judgement) -> Judgement:
    """Claim operations that were asked something else on inputs that agree; bitwise equal results stay equal."""
    a, b, i, j, verdicts = case.a, case.b, case.i, case.j, found.verdicts
    status = verdicts.status
    # no number of a shard is that of the whole, and what was asked of both is the same
    of_shards = one_of(verdicts.reason, (Reason.SHARD_OF_WHOLE, Reason.TERM_OF_SUM))
    judged = one_of(status, _JUDGED) | of_shards | (verdicts.reason == Reason.ROUNDING_UNLIMITED)
    # a close pair is within a tolerance of the user
    asked = other_arguments(a, b, i, j) & judged & (np.isnan(case.rtol) | (status != Status.CLOSE))
    # in a pair that is in doubt, other arguments speak against the pair
    k = np.flatnonzero(asked & ~case.pairing.assembled & (case.pairing.confidence >= UNSURE))
    partners = of_shards[k] & _read_partners(case, i[k], j[k])
    k = k[_inputs_agree(case, i[k], j[k], verdicts.tolerance[k]) | verdicts.inputs_equal[k] | partners]
    by_user = case.pairing.method[k] == Method.OVERRIDE
    k = k[by_user | ~asked_elsewhere(a, b, i[k], j[k])]
    red = np.flatnonzero(status >= Status.SHAPE)
    first = int(i[red].min()) if len(red) else len(a)
    told = unexplained(a, b, i[k], j[k], found.loss_scale)
    # a cast between dtypes that are expected to differ
    left = [[each for each in of if each.name != "dtype" or (each.a, each.b) not in case.policy] for of in told]
    # what Python computed from a tensor follows from a difference of that
    entering = rows_where(a, lambda law: law.enters, i[k])
    real = [
        any((row <= first and not shard) or not (enters or _computed(each)) for each in told)
        for row, told, enters, shard in zip(i[k], left, entering, of_shards[k], strict=True)
    ]
    which = k[np.array(real, bool)]
    to = np.where(status[which] >= Status.SHAPE, status[which], np.int8(Status.DIVERGED))
    return _without_forms(case, found.claimed(which, to, Reason.ARGUMENTS))


def _without_forms(case: Case, found: Judgement) -> Judgement:
    """Excuse numbers from Python that the form of the step explains, or rounding: no operation made them.

    They may be of a rank, or computed from what Python has read, which other kernels round otherwise.
    """
    a, b, verdicts = case.a, case.b, found.verdicts
    red = (verdicts.status == Status.DIVERGED) & rows_where(a, lambda law: law.enters, case.i)
    k = np.flatnonzero(red & (verdicts.reason != Reason.ARGUMENTS))
    if case.bitwise or not len(k):
        return found
    i, j = case.i[k], case.j[k]
    limit = np.array([default_tolerance(name) for name in (*a.dtypes, "")])[a.dtype[i]]
    near = (verdicts.reason[k] == Reason.MORE_THAN_ROUNDING) & (verdicts.error[k] <= limit)
    rows = zip(i.tolist(), j.tolist(), unexplained(a, b, i, j, found.loss_scale), strict=True)
    explained = np.array([not left and len(argument_differences(a, b, x, y)) > 0 for x, y, left in rows])
    found = found.claimed(k[near], Status.CLOSE, Reason.WITHIN_TOLERANCE)
    return found.claimed(k[explained & ~near], Status.SHARDED, Reason.OTHER_ARRANGEMENT, error=np.nan, bound=False)


def unexplained(a: OpLog, b: OpLog, i: Int64, j: Int64, loss_scale: float) -> list[list[ArgumentDifference]]:
    """For each pair (i[k], j[k]) the arguments that differ and that no other form of the step explains."""
    if not len(i):
        return []
    calls = text_ids(a, b, "Overload", "Arguments", "Inputs")
    known: dict[tuple[int, ...], list[ArgumentDifference]] = {}
    out = []
    for x, y in zip(i.tolist(), j.tolist(), strict=True):
        key = int(calls[0][x]), int(calls[1][y]), int(a.shape[x]), int(b.shape[y])
        if key not in known:
            told = argument_differences(a, b, x, y)
            known[key] = [each for each in told if not explained_by(a, b, x, y, each, loss_scale)]
        out.append(known[key])
    return out


def _inputs_agree(case: Case, i: Int64, j: Int64, tolerance: Float64) -> Bool:
    """bool[p]: both sides list the same number of inputs, whose norms agree one by one, and signs as far as known.

    What neither run has read is fresh memory, unless ranks were merged.
    """
    a, b = case.a, case.b
    alike = a.inputs.count[i] == b.inputs.count[j]
    k, _, at_a, at_b = shared_inputs(a, b, i, j)
    x, y = a.inputs.value[at_a], b.inputs.value[at_b]
    with np.errstate(invalid="ignore"):
        differs = ~(relative(x, y) <= np.fmax(tolerance, default_tolerance("float32"))[k])
    if not (a.members or b.members):
        differs &= ~(np.isnan(x) & np.isnan(y))
    alike[k[differs | _of_other_sign(case, at_a, at_b)]] = False
    return alike


def _of_other_sign(case: Case, at_a: Int64, at_b: Int64) -> Bool:
    """bool: inputs, at their places among all of a and of b, that are whole results whose ranges tell other signs."""
    whole, ranges = np.ones(len(at_a), bool), []
    for log, flow, at in ((case.a, case.flow.a, at_a), (case.b, case.flow.b, at_b)):
        maker = flow.value[at]
        whole &= (maker >= 0) & (log.outputs.first(maker) == log.inputs.value[at])
        ranges.append(log.stats[_RANGE][:, maker])
    with np.errstate(invalid="ignore"):
        apart = np.abs(ranges[0] - ranges[1]) > np.abs(ranges[0]).max(axis=0)
    return np.asarray(whole & apart.any(axis=0))


def _read_partners(case: Case, i: Int64, j: Int64) -> Bool:
    """bool[p]: the pairs read results that are partners, or what no operation made: they are of one tensor."""
    k, _, at_a, at_b = shared_inputs(case.a, case.b, i, j)
    given = (case.flow.a.value[at_a] < 0) & (case.flow.b.value[at_b] < 0)
    return marked(k[given | (case.made_by(at_a, at_b) >= 0)], len(i))


def asked_elsewhere(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    """bool[p]: in their line of the module both runs ask the same, as often: these two are partners of others."""
    if not len(i):
        return np.zeros(0, bool)
    ids_a, ids_b = text_ids(a, b, "Arguments")
    lines = shared_ids(a.locations, b.locations)
    numbers: dict[str, int] = {}
    places = []
    for log, line in ((a, lines[0]), (b, lines[1])):
        module = np.array([numbers.setdefault(canonical(name), len(numbers)) for name in log.modules] + [-1])
        places.append(np.stack((module[log.module], line[log.location], log.phase)))
    of_a, of_b = np.split(numbered_together(*np.concatenate(places, axis=1)), [len(a)])
    asked = []
    for of, ids, ops, op in ((of_a, ids_a, a.ops, a.op), (of_b, ids_b, b.ops, b.op)):
        rows = np.flatnonzero(np.isin(of, of_a[i]))
        found: dict[int, Counter[tuple[str, int]]] = defaultdict(Counter)
        for row in rows.tolist():
            found[int(of[row])][ops[int(op[row])], int(ids[row])] += 1
        asked.append(found)
    return np.array([of_a[x] == of_b[y] and asked[0][of_a[x]] == asked[1][of_a[x]] for x, y in zip(i, j, strict=True)])


def judge_settings(case: Case, found: Judgement) -> Judgement:
    """Claim the record of a that first updates a parameter that the optimizers were set otherwise for.

    Unless an operation of the optimizers is red already, or what the runs leave is bitwise equal.
    """
    a, pairing, verdicts = case.a, case.pairing, found.verdicts
    settings = optimizer_differences(a.header.run, case.b.header.run)
    if not settings or _ends_equal(a, case.b):
        return found
    in_step = a.phase == Phase.OPTIMIZER
    told = [(a if side == "a" else case.b).phase[row] for side, row in found.red_records]
    writers, concerned = case.contents[0].writers, {name for each in settings for name in each.parameters}
    names = concerned & writers.keys() or writers.keys()
    updating = marked([row for name in names for row in writers[name]], len(a))
    rows = np.flatnonzero(in_step & updating) if (in_step & updating).any() else np.flatnonzero(in_step)
    if not len(rows) or Phase.OPTIMIZER in told or (verdicts.status[in_step[pairing.lead_a]] >= Status.SHAPE).any():
        return found
    row, pair = int(rows[0]), int(pairing.of_a[rows[0]])
    verdict = SlotVerdict("the optimizer's settings", Status.DIVERGED, Reason.ARGUMENTS, math.nan)
    verdicts = verdicts.entered({pair: verdict} if pair >= 0 else {})
    return replace(found, verdicts=verdicts, of_records={**found.of_records, ("a", row): verdict})


def _ends_equal(a: OpLog, b: OpLog) -> bool:
    """True if all that the runs leave in parameters and buffers has equal digests."""
    ends = [log.header.run.get("end_state") for log in (a, b)]
    return ends[0] == ends[1] and isinstance(ends[0], dict) and len(ends[0]) > 0


def explained_by(a: OpLog, b: OpLog, i: int, j: int, difference: ArgumentDifference, loss_scale: float) -> str:
    """The other form of the step that explains another argument, as a clause; empty for none."""
    enters = law_of(a, i).enters
    if enters and not other_bits(a, b, np.array([i]), np.array([j]))[0]:
        return "a chunk of what the other run has"
    dtypes = a.dtype_text(i), b.dtype_text(j)
    if (difference.a, difference.b) == dtypes and all(map(_reads, (a, b), (i, j), dtypes)):
        return "the dtypes of what is read"
    if law_of(a, i).casts and difference.name != "dtype":
        return "where a copy lies"
    if _flags(difference.a) and _flags(difference.b):
        return "results that one run does not need"
    pairs = list(_numbers(difference.a, difference.b))
    # a mask is filled with the lowest number of what a run computes in, whatever dtype it has
    if pairs and all(
        _are_limits(v, w, dtypes[:1], dtypes[1:]) or _are_limits(v, w, a.dtypes, b.dtypes, 2) for v, w in pairs
    ):
        return "the number of each dtype"
    layouts = any(a.header.run.get(name) != b.header.run.get(name) for name in ("world_size", "mesh"))
    layouts |= bool(a.members or b.members)
    if other := _other_shapes(_shapes(a, i), _shapes(b, j), difference, pairs, layouts):
        return other
    if not pairs:
        return ""
    if enters and layouts and all(type(n) is int and 0 <= n < _ranks(a, b) for pair in pairs for n in pair):
        return "the number of a rank"
    factors = {a.batches / b.batches, loss_scale, *(float(n) for n in range(2, _ranks(a, b) + 1) if layouts)}
    if all(_is_factor(v, w, factors) for v, w in pairs):
        return "a factor of the layout"
    if all(math.isclose(v, w, rel_tol=ROUNDING) for v, w in pairs):
        return SAME_NUMBER
    # rounded to float32; or computed from a tensor
    computed = _computed(difference, _OF_FLOAT32 if enters else _OF_PYTHON)
    limit = default_tolerance(a.dtype_text(i) if enters else "float32") if computed else ROUNDING
    close = all(math.isclose(v, w, rel_tol=limit) or _in_float32(v, w) or _in_float32(w, v) for v, w in pairs)
    return "rounding" if close else ""


def _are_limits(v: float, w: float, of_a: Iterable[str], of_b: Iterable[str], kinds: int = 3) -> bool:
    """True if both are the same of the first kinds of `_LIMITS`, one of a dtype of a and one of a dtype of b."""
    names = product(_LIMITS.keys() & of_a, _LIMITS.keys() & of_b)
    return any((v, w) in zip(_LIMITS[x][:kinds], _LIMITS[y][:kinds], strict=True) for x, y in names)


def _in_float32(v: float, w: float) -> bool:
    """True if v is w in float32, which a kernel makes of a number that it is given."""
    return abs(w) < float(np.finfo(np.float32).max) and v == float(np.float32(w))


_Shapes = Sequence[tuple[int, ...]]


def _other_shapes(
    of_a: _Shapes, of_b: _Shapes, difference: ArgumentDifference, pairs: Sequence[tuple[float, float]], layouts: bool
) -> str:
    """The clause about dimensions and sizes that follow from the shapes of the tensors; empty for others."""
    more = _of_more_dimensions(difference) and all(
        but_for_ones(x) == but_for_ones(y) for x, y in zip(of_a, of_b, strict=False)
    )
    if more or difference.name == "keepdim":
        return "dimensions of size 1"
    dimension = difference.name.startswith("dim")
    if dimension and of_a[1:] != of_b[1:]:
        return "dimensions of another layout"
    if not pairs:
        return ""
    if dimension:
        # an index, or what is reduced away, has fewer dimensions than the tensor whose are counted
        dims = max(map(len, (*of_a, *of_b)))
        if dims and (all((v - w) % dims == 0 for v, w in pairs) or _same_places(difference, dims)):
            return SAME_DIMENSION
    if not all(type(v) is int and type(w) is int for v, w in pairs):
        return ""
    if of_a != of_b and all(_is_size(v, of_a) and _is_size(w, of_b) for v, w in pairs):
        return "sizes of the tensors"
    if layouts and all(_is_place(v, w, of_a[0], of_b[0]) for v, w in pairs):
        return "places in a part"
    divides = layouts and all(v > 0 and w > 0 and max(v, w) % min(v, w) == 0 for v, w in pairs)
    return "sizes of shards" if divides else ""


def _same_places(difference: ArgumentDifference, dims: int) -> bool:
    """True for lists of the same dimensions in another order, over which something is taken."""
    x, y = difference.a, difference.b
    if difference.name != "dim" or not (isinstance(x, list) and isinstance(y, list)):
        return False
    whole = all(type(value) is int for value in (*x, *y))
    return whole and {value % dims for value in x} == {value % dims for value in y}


def _of_more_dimensions(difference: ArgumentDifference) -> bool:
    """True for a number for each dimension, of which one side has some more, as a convolution over another one has."""
    if not all(isinstance(value, list) for value in (difference.a, difference.b)):
        return False
    fewer, more = sorted((difference.a, difference.b), key=len)
    left = iter(more)
    return len(fewer) < len(more) and all(each in left for each in fewer)


def perhaps_read(a: OpLog, b: OpLog, i: int, j: int, difference: ArgumentDifference) -> NumberRead | None:
    """The read of a that an argument may come from: both runs have read their value at one place before; else None."""
    found = None
    for v, w in _numbers(difference.a, difference.b):
        found, other = read_before(a, i, v), read_before(b, j, w)
        if found is None or other is None or found.place != other.place:
            return None
    return found


def _numbers(x: Any, y: Any) -> Iterator[tuple[float, float]]:
    """The pairs of numbers of two values that are not equal; none if something else differs."""
    found = []
    one, other = (value if isinstance(value, list) else [value] for value in (x, y))
    if len(one) != len(other):
        return
    for v, w in zip(one, other, strict=True):
        if isinstance(v, dict) and isinstance(w, dict) and v.get("times") == w.get("times"):
            v, w = v.get("of"), w.get("of")
        if not (math.isfinite(number(v)) and math.isfinite(number(w))):
            return
        if v != w:
            found.append((v, w))
    yield from found


def _reads(log: OpLog, row: int, dtype: str) -> bool:
    return any(name == dtype for name, _ in tensors_read(log, row))


def _flags(value: Any) -> bool:
    """True for a list of flags: which results an operation is to return."""
    return isinstance(value, list) and len(value) > 0 and all(type(each) is bool for each in value)


def _is_size(n: float, shapes: Sequence[tuple[int, ...]]) -> bool:
    return any(n in shape or n == math.prod(shape) for shape in shapes)


def _is_place(v: float, w: float, one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """True if these are places in a dimension of which one result has a part, or both another one."""
    sizes = [(x, y) for x, y in zip(one, other, strict=False) if x != y]
    return any(0 <= v < x and 0 <= w < y for x, y in sizes)


def _is_factor(v: float, w: float, factors: set[float]) -> bool:
    if not v or not w:
        return False
    close = default_tolerance("float32")
    return any(f != 1 and (abs(v / w / f - 1) < close or abs(w / v / f - 1) < close) for f in factors)


def _ranks(a: OpLog, b: OpLog) -> int:
    return max(len(a.members), len(b.members), 1)


def _computed(difference: ArgumentDifference, digits: int = _OF_PYTHON) -> bool:
    """True if both values are numbers with so many digits that Python computed them."""
    pairs = list(_numbers(difference.a, difference.b))
    return len(pairs) > 0 and all(_digits(v) >= digits and _digits(w) >= digits for v, w in pairs)


def _digits(value: object) -> int:
    return len(repr(value).partition("e")[0].replace(".", "").strip("-0")) if isinstance(value, float) else 0


def _shapes(log: OpLog, row: int) -> tuple[tuple[int, ...], ...]:
    """The shapes of a record's first output and of its inputs; what the log leaves out is that of the one before.

    Of several micro-batches they are those of the one whose arguments the record tells.
    """
    shapes = [log.written.shape_text(row), *(shape for _, shape in tensors_read(log, row))]
    return tuple(map(dimensions, shapes))
