"""Sums that cancel: the result is rounding of what was added, so no two runs agree on it.

The key bias of attention has a gradient that is zero but for rounding. A sum can only be as exact as its terms: its
error is relative to ‖terms‖, not to ‖sum‖, and where ‖terms‖ exceeds ‖sum‖ by orders of magnitude the result has no
digit that means anything. Nor has what is computed from it, element by element: its share of the optimizer's update.
Such tensors count as if both runs had the same; all others of the same operation are judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import numpy as np

from matchers.arrays import Bool, Float64, Int64, marked, one_of
from matchers.laws.law import Form
from matchers.logs.columns import Ragged
from matchers.logs.op_log import OpLog, Phase, once_per_pair
from matchers.ops.arguments import place_of_output
from matchers.ops.last_contents import LastContents
from matchers.ops.laws import law_of, on_lists, rows_where
from matchers.ops.module_path import canonical
from matchers.ops.shapes import numel
from matchers.ops.sketch import decode_sketches
from matchers.ops.values import Result, further_output, parameter_name, written
from matchers.status import AGREE, Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.fused import BY_PARTS
from matchers.verdict.judged import judge_again
from matchers.verdict.lists import in_one_order
from matchers.verdict.noise_flow import noise_of, patched
from matchers.verdict.reason import Reason
from matchers.verdict.tolerance import ACCUMULATED, MOST_ALLOWED, RESOLUTION, by_dtype, default_tolerance

__all__ = ["condition", "without_noise"]

_BY_CHANCE = 1e-2
"""The least of N numbers is about 1/N of the others; where it is less by this factor, it is of another kind."""


@once_per_pair
def condition(log: OpLog, flow: Ragged) -> Float64:
    """float64[n], ‖terms‖ / ‖sum‖ of each sum whose terms are the result of a record; 1 for other rows, and at least.

    Rounding in the terms is relative to them, so the error of the sum may be larger by this factor.
    """
    out = np.ones(len(log))
    rows = np.flatnonzero(rows_where(log, lambda law: law.form in (Form.SUM, Form.MEAN)) & (log.inputs.count > 0))
    at = log.inputs.start[rows]
    rows, at = rows[flow.value[at] >= 0], at[flow.value[at] >= 0]
    maker, read = flow.value[at], log.inputs.value[at]
    size = numel(log)
    numel_of = size[log.shape[maker]].astype(np.float64)
    terms = _root_mean(log, maker, numel_of)
    # a view has the norm of its base; a slice has another one
    with np.errstate(invalid="ignore"):
        other = np.flatnonzero(~(np.abs(log.outputs.first(maker) - read) <= RESOLUTION * read))
    for k in other.tolist():
        terms[k], numel_of[k] = _further_terms(log, int(maker[k]), float(read[k]))
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(rows_where(log, lambda law: law.form is Form.MEAN, rows), numel_of / size[log.shape[rows]], 1.0)
        found = terms / _root_mean(log, rows, size[log.shape[rows]]) / mean
    # of other values than finite ones no norm is known
    known = np.isfinite(found) & (np.maximum(log.counts[1:3, maker], log.counts[1:3, rows]) <= 0).all(axis=0)
    out[rows] = np.where(known, np.maximum(found, 1.0), 1.0)
    return out


def _root_mean(log: OpLog, rows: Int64, numel: Float64) -> Float64:
    """float64[k], L2 norms of first outputs; without one, as if all elements were of one size."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.fmax(log.stats[1][rows], log.outputs.first(rows) / np.sqrt(numel))


def _further_terms(log: OpLog, row: int, l1: float) -> tuple[float, float]:
    """L2 norm and number of elements of the output after the first that has this L1 norm.

    If none has, the least norm of a part of the first output, whose number of elements is unknown; NaN if unknown.
    """
    for k, value in enumerate(log.outputs[row][1:].tolist(), start=1):
        if abs(value - l1) <= RESOLUTION * l1 and (result := further_output(log, row, k)) is not None:
            return max(result.l2, 0.0), float(math.prod(result.shape or (0,)))
    return _least_of_part(log, row, l1), math.nan


def _least_of_part(log: OpLog, row: int, l1: float) -> float:
    """The least L2 norm of a slice of a first output by its L1 norm, as if it had all of the elements; or NaN."""
    elements = log.counts[0, row]
    return l1 / math.sqrt(elements) if elements > 0 and l1 < log.outputs.first()[row] else math.nan


def without_noise(case: Case, judged: Judgement) -> Judgement:
    """Judge pairs without what is noise; from here on, log b has that of a in place of its own."""
    a, b, pairing, flow, verdicts = case.a, judged.b, case.pairing, case.flow, judged.verdicts
    # of shards, and by an optimizer of another form, what a step leaves is judged by name
    by_name = any((log.updates & (of < 0)).any() for log, of in ((a, pairing.of_a), (b, pairing.of_b)))
    if case.bitwise or not (by_name or one_of(verdicts.status, (Status.DIVERGED, Status.SHARDED)).any()):
        return judged
    diverged = verdicts.status == Status.DIVERGED
    parts = one_of(pairing.method, BY_PARTS) & pairing.grouped
    factors = condition(a, flow.a), condition(b, flow.b)
    # the sums that differ by no more than their terms allow
    factor = np.maximum(factors[0][case.i], factors[1][case.j])
    limit = verdicts.limit * factor
    with np.errstate(invalid="ignore"):
        sums = diverged & (factor > 1) & (verdicts.error <= limit) & ~parts
    contents = LastContents(a, tuple(a.modules)), LastContents(b, tuple(b.modules))
    with_zeros, noise, beside = _with_zeros(*contents), [], [*_beside_first(case, judged)]
    sides = zip(
        (a, b), (flow.a, flow.b), (case.i, case.j), (pairing.of_a, pairing.of_b), factors, contents, strict=True
    )
    for log, made, lead, of, of_log, left in sides:
        begins = _meaningless(log, of_log)
        begins[lead[sums]] = True
        updates: list[tuple[int, int]] = []
        if len(left.rows):
            other, partner = (b, case.j) if log is a else (a, case.i)
            extremes = np.full((2, len(log)), np.nan)
            extremes[:, lead] = other.stats[2:4, partner]
            # what agrees is judged, noise or not
            updates += _updates_of_noise(left, begins, np.append(diverged, True)[of], with_zeros, extremes)
        further, others = [*_further_sums(log, made, lead[diverged])], [(int(lead[k]), slot) for k, slot, _ in beside]
        noise.append(noise_of(log, made, begins, updates, further, others))
    if not any(of.begins for of in noise):
        return judged
    reads = noise[0].reads[case.i] | noise[1].reads[case.j]
    share = ACCUMULATED * np.maximum(noise[0].share[case.i], noise[1].share[case.j])
    with np.errstate(invalid="ignore"):
        mixed = diverged & reads & ~parts & (verdicts.error <= share) & (share <= MOST_ALLOWED)
    sums, limit = sums | mixed, np.where(mixed, share, limit)
    pairs = (verdicts.status > Status.EQUAL) & (verdicts.status != Status.NAN) & reads
    # a part of a tensor on one side, or in another place of a list: nothing replaces it
    elsewhere = pairs & parts
    for k in np.flatnonzero(pairs & on_lists(a)[case.i]).tolist():
        elsewhere[k] = not in_one_order(a, b, int(case.i[k]), int(case.j[k]))
    pairs &= ~elsewhere
    unjudged = elsewhere & diverged
    if pairs.any():
        marks = [mark for of in noise for mark in (of.inputs, of.outputs, of.written)]
        makes_b = (case.i[pairs], case.j[pairs], *marks) if b is case.b else ()
        b = patched(a, b, case.i[pairs], case.j[pairs], *noise)
        again = np.flatnonzero(pairs & ~sums)
        before, made_b = case.earlier.noise or (None, ())
        same = len(makes_b) == len(made_b) > 0 and all(map(np.array_equal, makes_b, made_b))
        given = case.i[again], case.j[again], case.rtol[again]
        kept = judge_again(a, b, *given, case.policy, before=before if same else None)
        case.earlier.noise, fresh = (kept, makes_b), kept.verdicts
        verdicts = verdicts.replaced(again, fresh)
        # what remains is equal because it was made so
        unjudged[again[one_of(fresh.status, (Status.EQUAL, Status.SAME_PRINT))]] = True
    unjudged[[k for k, _, far in beside if far and verdicts.status[k] in AGREE]] = True
    verdicts = verdicts.claimed(unjudged, Status.NOT_JUDGED, Reason.CANCELLATION)
    status = np.where(limit[sums] > MOST_ALLOWED, np.int8(Status.NOT_JUDGED), np.int8(Status.CLOSE))
    verdicts = verdicts.claimed(sums, status, Reason.CANCELLATION, limit=limit[sums])
    told = np.flatnonzero((unjudged | sums) & (factor > 1))
    cancellation = dict(zip(told.tolist(), factor[told].tolist(), strict=True))
    names = frozenset((*noise[0].names(), *noise[1].names()))
    errors = {(k, slot): judged.verdicts.slots[k].error for k, slot, _ in beside}
    return replace(judged, verdicts=verdicts, b=b, noise=names, cancellation=cancellation, beside=errors)


def _with_zeros(a: LastContents, b: LastContents) -> frozenset[str]:
    """Parameters of one dimension, such as biases, with a state of squares that agrees, and is zero in some elements.

    A sum that cancels is zero by chance in some elements of each run, and rounding in the others: no square tells.
    """
    found: list[dict[str, Result]] = []
    for contents in (a, b):
        log, states = contents.log, dict[str, Result]()
        zeros = log.updates & ((log.stats[2] == 0) | on_lists(log))
        for row in contents.rows[zeros[contents.rows]].tolist():
            names = contents.names(row)
            for slot, state in contents.changes(row).items():
                if slot < len(names) and state.min == 0 < state.max and len(state.shape or ()) == 1:
                    states[names[slot]] = state
        found.append(states)
    agree = []
    for name in found[0].keys() & found[1].keys():
        states_of = [of[name] for of in found]
        one, other = decode_sketches([state.sketch for state in states_of])
        same_bits = states_of[0].digest == states_of[1].digest is not None
        close = np.linalg.norm(one - other) <= ACCUMULATED * default_tolerance("float32") * np.linalg.norm(one)
        if close and not same_bits:
            agree.append(_owner(name))
    return frozenset(filter(None, agree))


def _updates_of_noise(
    contents: LastContents, sums: Bool, concerned: Bool, known: AbstractSet[str], other: Float64
) -> Iterator[tuple[int, int]]:
    """Yield records (of those concerned) and slots of what follows from noise, though not by equal bits.

    Parameters that an optimizer updates by rounding over rounding: a part of their gradient is a sum that cancels, such
    as the keys' part of one bias for queries, keys and values. The mean squares of the gradient tell: the least is
    above zero, and less by far than of so many numbers by chance.

    And what is named after the bias whose gradient is one of these sums: ranks that reduce gradients in flat buffers
    read the sum, and the updates read what comes out of the buffer.

    Args:
        sums: bool[n], the sums.
        known: parameters whose gradients are noise in part.
        other: float64[2, n], the extremes of the partners' results, whose log may have no names; NaN if unknown.
    """
    log = contents.log
    told = _far_apart(*log.stats[2:4, contents.rows]) | _far_apart(*other[:, contents.rows])
    states = contents.rows[told | on_lists(log)[contents.rows]].tolist()
    parameters = known | {
        _owner(contents.names(row)[slot])
        for row in states
        for slot, state in contents.changes(row).items()
        if slot < len(contents.names(row))
        and (_far_apart(state.min, state.max, state.numel) or _far_apart(other[0, row], other[1, row], state.numel))
    }
    biases = {f"{canonical(log.module_name(row))}.bias" for row in np.flatnonzero(sums).tolist()}
    rows = contents.rows[concerned[contents.rows]]
    for row in rows.tolist() if parameters or biases else ():
        names = contents.names(row)
        updated = parameters & set(map(_owner, names)) if log.phase[row] == Phase.OPTIMIZER else frozenset()
        for slot, name in enumerate(names):
            if name in updated or not biases.isdisjoint((name, _owner(name))):
                yield row, slot


def _owner(name: str) -> str:
    """The parameter of a gradient or a state."""
    return name.rpartition(".")[0]


@np.errstate(invalid="ignore")
def _far_apart(least: Any, largest: Any, numel: Any = 1.0) -> Any:
    """True if the root of the least of some squares is rounding of that of the largest, and not by chance.

    What they are squares of comes with the error of the backward pass, not only of one sum.
    """
    ratio = np.sqrt(np.maximum(least, 0.0) / largest)
    return (ratio > 0) & (ratio < ACCUMULATED * default_tolerance("float32")) & (ratio * numel < _BY_CHANCE)


def _meaningless(log: OpLog, factor: Float64) -> Bool:
    """bool[n], sums without a digit that means anything; what a coarse dtype rounds is none."""
    sums = np.flatnonzero(factor > 1)
    tolerance = by_dtype(log.dtypes)[log.dtype[sums]]
    which = (factor[sums] * tolerance > MOST_ALLOWED) & (np.nan_to_num(log.outputs.first(sums)) > 0)
    return marked(sums[which], len(log))


def _further_sums(log: OpLog, flow: Ragged, rows: Int64) -> Iterator[tuple[int, int]]:
    """Yield the same among further outputs of some records: the record, and the number of the output."""
    for row in rows[rows_where(log, lambda law: bool(law.totals), rows)].tolist():
        for output in _totals(log, row):
            total = further_output(log, row, output)
            if total and _condition_of(log, flow, row, output) * default_tolerance(total.dtype) > MOST_ALLOWED:
                yield row, output


def _totals(log: OpLog, row: int) -> Iterator[int]:
    """Yield the outputs of a record that `Law.totals` numbers, but for the first output."""
    places = (place_of_output(log, row, number) for number in law_of(log, row).totals)
    return (output for output in places if output > 0)


def _beside_first(case: Case, judged: Judgement) -> Iterator[tuple[int, int, bool]]:
    """Yield pairs that diverge, as their terms allow, by a sum of their first input beside their first result.

    Yields:
        the pair, the slot of that sum (see `Values`), and whether so much is allowed that it is not judged. A mean
        needs no verdict beside the result, as of a norm, that it is subtracted in; nor does a running mean.
    """
    sums = rows_where(case.a, lambda law: bool(law.totals) or law.mean is not None, case.i)
    for k, slot in judged.verdicts.slots.items():
        if slot.status != Status.DIVERGED or not sums[k]:
            continue
        i, law = int(case.i[k]), law_of(case.a, int(case.i[k]))
        means = [] if law.mean is None else [law.mean]
        means += [] if law.running_mean is None else [-1 - law.running_mean]
        named = {f"output {at}" if at > 0 else parameter_name(case.a, i, -1 - at): at for at in means}
        named |= {f"output {at}": at for at in _totals(case.a, i)}
        if (at := named.get(slot.name)) is None:
            continue
        sides = ((case.a, case.flow.a, i), (judged.b, case.flow.b, int(case.j[k])))
        factor = max(_condition_of(*side, at, mean=at in means) for side in sides)
        if slot.error <= slot.limit * factor:
            # a total without a digit that means anything is left out, as a mean is
            far = not means and slot.limit * factor > MOST_ALLOWED >= factor * default_tolerance("float32")
            for each in means or [at]:
                yield k, each, far


def _condition_of(log: OpLog, flow: Ragged, row: int, slot: int, *, mean: bool = False) -> float:
    """As of `condition`, for a result of a record that is a sum, or a mean, of its first input; 0 if unknown."""
    maker = int(flow[row][0]) if len(flow[row]) else -1
    result = further_output(log, row, slot) if slot > 0 else written(log, row).get(-1 - slot)
    if maker < 0 or result is None or not result.l2 > 0:
        return 0.0
    l1, whole = log.inputs.first()[row], numel(log)[log.shape[maker]]
    terms = log.stats[1, maker] if l1 == log.outputs.first()[maker] else _least_of_part(log, maker, l1)
    return float(np.nan_to_num(terms / result.l2 * (result.numel / whole if mean else 1.0)))
