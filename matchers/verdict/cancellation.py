"""Sums that cancel: the result is rounding of what was added, so no two runs agree on it.

The key bias of attention has a gradient that is zero but for rounding. A sum can only be as exact as its terms: its
error is relative to ‖terms‖, not to ‖sum‖, and where ‖terms‖ exceeds ‖sum‖ by orders of magnitude the result has no
digit that means anything. Nor has what is computed from it, element by element: its share of the optimizer's update.
Such tensors count as if both runs had the same; all others of the same operation are judged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import numpy as np

from matchers.arrays import Bool, Float64, Hash, Int64, distinct, is_among, numbered, one_of
from matchers.laws.law import Form, Law
from matchers.logs.columns import Ragged
from matchers.logs.hashing import float_bits
from matchers.logs.op_log import NO_DIGEST, OpLog, Phase, is_mark, once_per_log, once_per_pair
from matchers.ops.arguments import place_of_output
from matchers.ops.last_contents import LastContents
from matchers.ops.laws import in_place, law_of, on_lists, rows_where
from matchers.ops.module_path import canonical
from matchers.ops.shapes import numel
from matchers.ops.sketch import decode_sketches
from matchers.ops.values import Result, further, further_output, parameter_name, written
from matchers.status import AGREE, Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.fused import BY_PARTS
from matchers.verdict.judged import judge_again
from matchers.verdict.lists import in_one_order
from matchers.verdict.reason import Reason
from matchers.verdict.tolerance import ACCUMULATED, MOST_ALLOWED, RESOLUTION, by_dtype, default_tolerance

__all__ = ["condition", "without_noise"]

_MIXES = (Form.ADD, Form.SUBTRACT, Form.JOIN)
"""Forms of operations whose result holds all their inputs, each by its size."""
_DOMINATES = 0.1
"""Share of a mixed result from which on it is noise."""
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
    """L2 norm and number of elements of the output after the first that has this L1 norm; NaN if none has."""
    for k, value in enumerate(log.outputs[row][1:].tolist(), start=1):
        if abs(value - l1) <= RESOLUTION * l1 and (result := further_output(log, row, k)) is not None:
            return max(result.l2, 0.0), float(math.prod(result.shape or (0,)))
    return math.nan, math.nan


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
        noise.append(_Noise(log, made, begins, updates, _further_sums(log, made, lead[diverged])))
        noise[-1].add((int(lead[k]), slot) for k, slot, _ in beside)
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
        b = _patched(a, b, case.i[pairs], case.j[pairs], *noise)
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
    return replace(judged, verdicts=verdicts, b=b, noise=names, cancellation=cancellation)


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
    tolerance = by_dtype(log.dtypes)[log.dtype]
    return (factor > 1) & (factor * tolerance > MOST_ALLOWED) & (np.nan_to_num(log.outputs.first()) > 0)


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
            for each in means or [at]:
                yield k, each, not means and slot.limit * factor > MOST_ALLOWED


def _condition_of(log: OpLog, flow: Ragged, row: int, slot: int, *, mean: bool = False) -> float:
    """As of `condition`, for a result of a record that is a sum, or a mean, of its first input; 0 if unknown."""
    maker = int(flow[row][0]) if len(flow[row]) else -1
    result = further_output(log, row, slot) if slot > 0 else written(log, row).get(-1 - slot)
    if maker < 0 or result is None or not result.l2 > 0 or log.outputs.first()[maker] != log.inputs.first()[row]:
        return 0.0
    return float(log.stats[1, maker] / result.l2 * (result.numel / numel(log)[log.shape[maker]] if mean else 1.0))


class _Noise:
    """The noise in one log, followed by equal bits from the sums that cancel, and through views of other bits.

    Attributes:
        begins: there is any.
        reads: bool[n], an input of the record is noise.
        share: float64[n], the share of noise in a mixed result that is none itself, as far as norms tell; else 0.
        inputs, outputs: bool, the entries of `log.inputs` and of `log.outputs` that are noise.
        written: bool[v], the rows of `further`, of inputs changed in place, that are noise.
    """

    def __init__(
        self,
        log: OpLog,
        flow: Ragged,
        sums: Bool,
        updates: Sequence[tuple[int, int]],
        further_sums: Iterable[tuple[int, int]],
    ) -> None:
        """Follow the noise.

        Args:
            sums: bool[n], the first outputs of these records are sums that cancel.
            updates: records and their slots that are noise beside what follows from the sums.
            further_sums: records and the numbers of further outputs that are such sums.
        """
        self._log, self._flow, self._values = log, flow, further(log)
        self.inputs, self.outputs = np.zeros(len(log.inputs.value), bool), np.zeros(len(log.outputs.value), bool)
        self.written = np.zeros(len(self._values), bool)
        self.reads, self.share = np.zeros(len(log), bool), np.zeros(len(log))
        self.begins = bool(sums.any())
        changed = ((row, -1 - place) for row, place in updates)
        rows = self.add((*updates, *changed, *further_sums))
        if self.begins:
            self._follow(np.flatnonzero(sums), int(min(rows.min(initial=len(log)), np.argmax(np.append(sums, True)))))

    def add(self, which: Iterable[tuple[int, int]]) -> Int64:
        """Add some results, of records and their slots (see `Values`); return the records."""
        rows, slots = np.array([*which], np.int64).reshape(-1, 2).T
        there = (slots >= 0) & (slots < self._log.outputs.count[rows])
        self.outputs[self._log.outputs.start[rows[there]] + slots[there]] = True
        for row, slot in zip(rows[slots < 0].tolist(), slots[slots < 0].tolist(), strict=True):
            self.written[[v for v in self._values.of(row) if self._values.slot[v] == slot]] = True
        self.reads[rows] = True
        self.begins |= len(rows) > 0
        return rows

    def _follow(self, sums: Int64, first: int) -> None:
        """Follow the noise from its first record on; in lists, each tensor from those at its place."""
        log, inputs, outputs, values = self._log, self._log.inputs, self._log.outputs, self._values
        fresh = self.outputs.copy()
        fresh[outputs.start[sums[outputs.count[sums] > 0]]] = True
        read = _bits_read(log)
        left = read != NO_DIGEST
        left[: inputs.start[min(first + 1, len(log))]] = False  # what was read before has the same bits by chance
        # what is read of the only result of a record, though no record made these bits, is a view of it
        views = left & (self._flow.value >= 0) & ~is_among(read, distinct(_bits_made(log, np.arange(len(fresh)))))
        views &= (outputs.count == 1)[self._flow.value]
        maker = outputs.start[np.where(views, self._flow.value, 0)]
        known = is_among(read, distinct(_bits_made(log, np.flatnonzero(fresh))))
        if not (left & (known | (views & fresh[maker]))).any():
            return
        written = np.flatnonzero(values.slot < 0)
        row = np.append(outputs.row, values.maker[written])
        place = np.append(_places(outputs), -1 - values.slot[written])
        noise = np.concatenate((self.outputs, self.written[written]))
        fresh = np.append(fresh, np.zeros(len(written), bool))
        digests = values.digest[written] if _by_digests(log) else np.full(len(written), NO_DIGEST)
        bits = np.concatenate(
            (read, _bits_made(log, np.arange(len(outputs.value))), _bits(digests, values.l1[written]))
        )
        reader = inputs.row
        # of a list that is changed in place, as many tensors as were changed from the first one on
        changes = row[len(outputs.value) :]
        from_first = place[len(outputs.value) :] == np.arange(len(written)) - np.searchsorted(changes, changes)
        changed = np.bincount(changes[from_first], minlength=len(log))
        tensors = np.where(on_lists(log), np.where(outputs.count > 1, outputs.count, changed), 1).clip(min=1)
        cells = np.cumsum(tensors) - tensors
        reads, makes = (cells[of] + at % tensors[of] for of, at in ((reader, _places(inputs)), (row, place)))
        ids, many = numbered(bits.view(np.int64))
        mixes, result, followed = rows_where(log, _mixes), log.outputs.first(), fresh.copy()
        while True:
            named, hot = np.zeros(many, bool), np.zeros(int(tensors.sum()), bool)
            named[ids[len(read) :][fresh]] = True
            hit = np.flatnonzero((named[ids[: len(read)]] | (views & fresh[maker])) & left)
            if not len(hit):
                break
            left[hit], self.inputs[hit] = False, True
            size = np.bincount(reader[hit], inputs.value[hit], len(log))
            partly = mixes & (np.bincount(reader[hit], minlength=len(log)) < inputs.count)
            partly &= ~(size > _DOMINATES * result)
            hot[reads[hit[~partly[reader[hit]]]]] = True
            noise |= hot[makes]
            fresh = hot[makes] & ~followed
            followed |= fresh
        self.outputs, self.written[written] = np.split(noise, [len(outputs.value)])
        self.reads[reader[self.inputs]] = True
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.bincount(reader[self.inputs], inputs.value[self.inputs], len(log)) / result
        size[row[noise]] = 0.0
        self.share = np.where(mixes & (result > 0), size, 0.0)

    def places(self, name: str, records: Int64) -> tuple[Int64, Int64]:
        """The noise in `inputs` or `outputs` of some records: the number of the record among them, and the place."""
        lists: Ragged = getattr(self._log, name)
        at = np.flatnonzero(getattr(self, name))
        number = np.full(len(self._log), -1)
        number[records] = np.arange(len(records))
        row = lists.owner(at)
        found, place = number[row], at - lists.start[row]
        return found[found >= 0], place[found >= 0]

    def slots(self) -> dict[int, set[int]]:
        """The inputs changed in place that are noise, by record."""
        found: dict[int, set[int]] = {}
        columns = (column[self.written].tolist() for column in (self._values.maker, self._values.slot))
        for row, slot in zip(*columns, strict=True):
            found.setdefault(row, set()).add(-1 - slot)
        return found

    def names(self) -> Iterator[str]:
        """The names of the tensors that are noise, canonical."""
        for row, slots in self.slots().items():
            yield from (canonical(parameter_name(self._log, row, slot)) for slot in slots)
        returned = self._log.outputs.row[self.outputs]  # by an operation in place: what it changed
        for row in distinct(returned[in_place(self._log)[returned]]).tolist():
            yield canonical(parameter_name(self._log, row, 0))


def _places(lists: Ragged) -> Int64:
    """int64: the place of each value in its list."""
    return np.arange(len(lists.value)) - lists.start[lists.row]


def _by_digests(log: OpLog) -> bool:
    """True if what a record reads is known again by its digest, not by its norm alone."""
    return np.array_equal(log.inputs.start, log.input_digests.start) and len(log.digests.value) > 0


@once_per_log
def _bits_read(log: OpLog) -> Hash:
    """The bits of each input."""
    norms = log.inputs.value
    return _bits(log.input_digests.value if _by_digests(log) else np.full(len(norms), NO_DIGEST), norms)


def _bits_made(log: OpLog, at: Int64) -> Hash:
    """The bits of some outputs, of their places among all."""
    digests = np.full(len(at), NO_DIGEST)
    if _by_digests(log):
        row = log.outputs.owner(at)
        digests = log.digests.at(row, at - log.outputs.start[row], NO_DIGEST)
    return _bits(digests, log.outputs.value[at])


def _mixes(law: Law) -> bool:
    return law.form in _MIXES and not law.on_lists


def _bits(digests: Hash, norms: Float64) -> Hash:
    """The bits by which some tensors are known: the digest, else those of the norm; NO_DIGEST for zeros."""
    known = ~is_mark(digests)
    bits = np.where(known, digests, float_bits(norms))
    return np.where((norms == 0) | (np.isnan(norms) & ~known), NO_DIGEST, bits)


def _patched(a: OpLog, b: OpLog, i: Int64, j: Int64, of_a: _Noise, of_b: _Noise) -> OpLog:
    """Log b with what a has wherever one of the two is noise, in the pairs (i[k], j[k])."""
    changed: dict[str, Any] = {name: getattr(b, name).copy() for name in ("stats", "counts", "present")}
    texts: dict[str, dict[int, bytes]] = {}
    for kind, names in (("inputs", ("inputs", "input_digests")), ("outputs", ("outputs", "digests"))):
        both = of_a.places(kind, i), of_b.places(kind, j)
        k, place = (np.concatenate(of) for of in zip(*both, strict=True))
        for name in names:
            mine, theirs = getattr(a, name), getattr(b, name)
            fits = (place < mine.count[i[k]]) & (place < theirs.count[j[k]])
            value = theirs.value.copy()
            value[theirs.start[j[k[fits]]] + place[fits]] = mine.at(i[k[fits]], place[fits], 0)
            changed[name] = theirs.with_values(value)
    first = k[place == 0]
    for name in ("stats", "counts", "present"):
        changed[name][..., j[first]] = getattr(a, name)[..., i[first]]
    for pair, at in zip(k.tolist(), place.tolist(), strict=True):
        field = f"Output {at}" if at else "Sketch"
        if field in a.extra or field in b.extra:
            texts.setdefault(field, {})[int(j[pair])] = a.texts(field).raw(int(i[pair]))
    slots_a, slots_b = of_a.slots(), of_b.slots()
    for x, y in zip(i.tolist(), j.tolist(), strict=True):
        if slots := slots_a.get(x, set()) | slots_b.get(y, set()):
            raw = _slots_of(a.texts("Mutated").raw(x), b.texts("Mutated").raw(y), slots)
            texts.setdefault("Mutated", {})[y] = raw
    return replace(
        b, **changed, extra={**b.extra, **{field: b.texts(field).changed(rows) for field, rows in texts.items()}}
    )


def _slots_of(a: bytes, b: bytes, slots: set[int]) -> bytes:
    """The entries of b about what it changed in place, with those of a for some slots; a's text if all are alike."""
    try:
        one, other = json.loads(a or b"[]"), json.loads(b or b"[]")
    except (ValueError, RecursionError):
        return b
    mine = {entry.get("input"): entry for entry in one if isinstance(entry, dict)}
    theirs = {entry.get("input"): entry for entry in other if isinstance(entry, dict)}
    theirs = {slot: entry for slot, entry in theirs.items() if slot not in slots}
    theirs |= {slot: entry for slot, entry in mine.items() if slot in slots}
    return a if theirs == mine else json.dumps(list(theirs.values())).encode()
