"""Sums that cancel: the result is rounding of what was added, so no two runs agree on it.

The key bias of attention has a gradient that is zero but for rounding. A sum can only be as exact as its terms: its
error is relative to ‖terms‖, not to ‖sum‖, and where ‖terms‖ exceeds ‖sum‖ by orders of magnitude the result has no
digit that means anything. Nor has what is computed from it, element by element: its share of the optimizer's update.
Such tensors count as if both runs had the same; all others of the same operation are judged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import numpy as np

from matchers.arrays import Bool, Float64, Hash, Int64, columns
from matchers.laws.law import Form, Law
from matchers.logs.columns import Ragged
from matchers.logs.hashing import float_bits
from matchers.logs.op_log import MARKS, NO_DIGEST, OpLog, Phase
from matchers.ops.arguments import place_of_output
from matchers.ops.dataflow import DataFlow
from matchers.ops.last_contents import LastContents
from matchers.ops.laws import law_of, on_lists, positions, rows_where
from matchers.ops.module_path import canonical
from matchers.ops.shapes import numel
from matchers.ops.sketch import decode_sketches
from matchers.ops.values import Result, further_output, parameter_name, written
from matchers.pairing.pairing import Pairing
from matchers.status import Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.fused import BY_PARTS
from matchers.verdict.judge import Verdicts, judge
from matchers.verdict.lists import in_one_order
from matchers.verdict.reason import Reason
from matchers.verdict.tolerance import ACCUMULATED, MOST_ALLOWED, RESOLUTION, default_tolerance

__all__ = ["condition", "without_noise"]

_MIXES = (Form.ADD, Form.SUBTRACT, Form.JOIN)
"""Forms of operations whose result holds all their inputs, each by its size."""
_DOMINATES = 0.1
"""Share of a mixed result from which on it is noise."""
_BY_CHANCE = 1e-2
"""The least of N numbers is about 1/N of the others; where it is less by this factor, it is of another kind."""
_STEPS = 64
"""Maximum length of a chain of operations on one tensor."""


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
        mean = np.where(rows_where(log, lambda law: law.form is Form.MEAN)[rows], numel_of / size[log.shape[rows]], 1.0)
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


@columns
class _Silenced:
    """Log b for judging, with the noise of a in place of its own.

    Attributes:
        b: the log.
        pairs: bool[p], something of the pair is noise.
        mixed: bool[p], noise is a part of a tensor on one side, or in another place of a list: nothing replaces it.
        sums: bool[p], the pair is such a sum, and differs.
        factor: float64[p], ‖terms‖ / ‖sum‖, at least 1.
        limit: float64[p], the tolerance that its terms allow.
        names: of parameters and states of an optimizer that are noise.
    """

    b: OpLog
    pairs: Bool
    mixed: Bool
    sums: Bool
    factor: Float64
    limit: Float64
    names: frozenset[str]


def without_noise(case: Case, judged: Judgement) -> Judgement:
    """Judge pairs without what is noise; from here on, log b has that of a in place of its own."""
    verdicts = judged.verdicts
    found = None if case.bitwise else _silenced(case.a, judged.b, case.pairing, verdicts, case.flow)
    if found is None:
        return judged
    again = np.flatnonzero(found.pairs & ~found.sums)
    fresh = judge(case.a, found.b, case.i[again], case.j[again], case.rtol[again], case.policy)
    verdicts = verdicts.replaced(again, fresh)
    # what remains is equal because it was made so
    unjudged = found.mixed & (verdicts.status == Status.DIVERGED)
    unjudged[again[np.isin(fresh.status, (Status.EQUAL, Status.SAME_PRINT))]] = True
    verdicts = verdicts.claimed(unjudged, Status.NOT_JUDGED, Reason.CANCELLATION)
    limit = found.limit[found.sums]
    status = np.where(limit > MOST_ALLOWED, np.int8(Status.NOT_JUDGED), np.int8(Status.CLOSE))
    verdicts = verdicts.claimed(found.sums, status, Reason.CANCELLATION, limit=limit)
    sums = np.flatnonzero((unjudged | found.sums) & (found.factor > 1))
    factors = dict(zip(sums.tolist(), found.factor[sums].tolist(), strict=True))
    return replace(judged, verdicts=verdicts, b=found.b, noise=found.names, cancellation=factors)


def _silenced(a: OpLog, b: OpLog, pairing: Pairing, verdicts: Verdicts, flow: DataFlow) -> _Silenced | None:
    """Find what is noise in the pairs; None if nothing that differs is.

    Args:
        verdicts: on each pair by itself.
    """
    # of shards, what an optimizer leaves is judged by name
    if not np.isin(verdicts.status, (Status.DIVERGED, Status.SHARDED)).any():
        return None
    diverged = verdicts.status == Status.DIVERGED
    i, j = pairing.lead_a.astype(np.int64), pairing.lead_b.astype(np.int64)
    parts = np.isin(pairing.method, BY_PARTS) & pairing.grouped
    factor_a, factor_b = condition(a, flow.a), condition(b, flow.b)
    noise_a, noise_b = _meaningless(a, factor_a), _meaningless(b, factor_b)
    factor = np.maximum(factor_a[i], factor_b[j])
    limit = verdicts.limit * factor
    with np.errstate(invalid="ignore"):
        excused = diverged & (factor > 1) & (verdicts.error <= limit) & ~parts
    noise_a[i[excused]], noise_b[j[excused]] = True, True
    concerned = np.append(diverged, True)  # what agrees is judged, noise or not
    contents = [LastContents(log, tuple(log.modules)) for log in (a, b)]
    with_zeros = _with_zeros(*contents)
    updates_a = _updates_of_noise(contents[0], noise_a, concerned[pairing.of_a], with_zeros)
    updates_b = _updates_of_noise(contents[1], noise_b, concerned[pairing.of_b], with_zeros)
    further_a, further_b = _further_sums(a, flow.a, i[diverged]), _further_sums(b, flow.b, j[diverged])
    if not (noise_a.any() or noise_b.any() or updates_a or updates_b or further_a or further_b):
        return None
    of_a, of_b = _Noise(a, noise_a, updates_a, further_a), _Noise(b, noise_b, updates_b, further_b)
    reads = np.zeros(len(pairing) + 1, bool)
    reads[pairing.of_a[of_a.reads]], reads[pairing.of_b[of_b.reads]] = True, True
    pairs = (verdicts.status > Status.EQUAL) & (verdicts.status != Status.NAN) & reads[:-1]
    for k in np.flatnonzero(diverged & reads[:-1] & ~parts & rows_where(a, _mixes)[i]).tolist():
        allowed = ACCUMULATED * max(of_a.share(int(i[k])), of_b.share(int(j[k])))
        if verdicts.error[k] <= allowed <= MOST_ALLOWED:
            excused[k], limit[k] = True, allowed
    mixed = pairs & parts
    for k in np.flatnonzero(pairs & on_lists(a)[i]).tolist():
        mixed[k] = not in_one_order(a, b, int(i[k]), int(j[k]))
    pairs &= ~mixed
    patched = _patched(a, b, i[pairs], j[pairs], of_a, of_b)
    return _Silenced(patched, pairs, mixed, excused, factor, limit, frozenset((*of_a.names(), *of_b.names())))


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
    contents: LastContents, sums: Bool, concerned: Bool, known: AbstractSet[str]
) -> dict[int, set[int]]:
    """By record (of those concerned), the slots of what follows from noise, though not by equal bits.

    Args:
        known: parameters whose gradients are noise in part.
    """
    updates = _updates_by_noise(contents, concerned, known)
    for row, slots in _named_after(contents, sums, concerned).items():
        updates.setdefault(row, set()).update(slots)
    return updates


def _updates_by_noise(contents: LastContents, concerned: Bool, known: AbstractSet[str]) -> dict[int, set[int]]:
    """By record (of those concerned), the slots of parameters that an optimizer updates by rounding over rounding.

    A part of their gradient is a sum that cancels, such as the keys' part of one bias for queries, keys and values. The
    mean squares of the gradient tell: the least is above zero, and less by far than of so many numbers by chance.
    """
    log = contents.log
    rows = contents.rows[(log.phase[contents.rows] == Phase.OPTIMIZER) & concerned[contents.rows]]
    states = contents.rows[_far_apart(*log.stats[2:4, contents.rows]) | on_lists(log)[contents.rows]].tolist()
    names = {
        _owner(contents.names(row)[slot])
        for row in states
        for slot, state in contents.changes(row).items()
        if slot < len(contents.names(row)) and _far_apart(state.min, state.max, state.numel)
    }
    names |= known
    found: dict[int, set[int]] = {}
    for row in rows.tolist() if names else ():
        read = contents.names(row)
        bases = {_owner(name) for name in read}
        slots = {slot for slot, name in enumerate(read) if name in names and name in bases}
        if slots:
            found[row] = slots
    return found


def _named_after(contents: LastContents, sums: Bool, concerned: Bool) -> dict[int, set[int]]:
    """By record (of those concerned), the slots of what is named after the bias whose gradient is one of these sums.

    Ranks that reduce gradients in flat buffers read the sum, and the updates read what comes out of the buffer.
    """
    biases = {f"{canonical(contents.log.module_name(row))}.bias" for row in np.flatnonzero(sums).tolist()}
    if not biases:
        return {}
    rows = contents.rows[concerned[contents.rows]].tolist()
    found = {
        row: {slot for slot, name in enumerate(contents.names(row)) if not biases.isdisjoint((name, _owner(name)))}
        for row in rows
    }
    return {row: slots for row, slots in found.items() if slots}


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
    tolerance = np.array([*map(default_tolerance, log.dtypes), default_tolerance("float32")])[log.dtype]
    return (factor > 1) & (factor * tolerance > MOST_ALLOWED) & (np.nan_to_num(log.outputs.first()) > 0)


def _further_sums(log: OpLog, flow: Ragged, rows: Int64) -> dict[int, int]:
    """The same among further outputs of some records: their numbers, by record."""
    found = {}
    number = positions(log, lambda law: law.bias_gradient)
    for row in rows[number[rows] >= 0].tolist():
        output, maker = place_of_output(log, row, int(number[row])), int(flow[row][0]) if len(flow[row]) else -1
        total = further_output(log, row, output) if output > 0 else None
        if total is None or maker < 0 or log.outputs.first()[maker] != log.inputs.first()[row] or not total.l2 > 0:
            continue
        if log.stats[1, maker] / total.l2 * default_tolerance(total.dtype) > MOST_ALLOWED:
            found[row] = output
    return found


def _mixes(law: Law) -> bool:
    return law.form in _MIXES and not law.on_lists


class _Noise:
    """The noise in one log, followed by equal bits from the sums that cancel.

    Attributes:
        reads: bool[n], an input of the record is noise.
        inputs: by record, the places of such inputs.
        results: by record, the numbers of its outputs and the slots changed in place that are noise.
    """

    def __init__(self, log: OpLog, begins: Bool, updates: Mapping[int, set[int]], further: Mapping[int, int]) -> None:
        """Follow the noise.

        Args:
            begins: bool[n], the first outputs of these records are sums that cancel.
            updates: by record, slots that are noise beside what follows from the sums.
            further: by record, the number of a further output that is such a sum.
        """
        self._log = log
        self._digests = np.array_equal(log.inputs.start, log.input_digests.start) and len(log.digests.value) > 0
        self.reads = np.zeros(len(log), bool)
        self.inputs: dict[int, set[int]] = {}
        self.results: dict[int, tuple[set[int], set[int]]] = {
            row: (slots & set(range(int(log.outputs.count[row]))), slots) for row, slots in updates.items()
        }
        self.results |= {row: ({output}, set()) for row, output in further.items()}
        self.reads[[*updates, *further]] = True
        unknown = np.full(len(log.inputs.value), NO_DIGEST)
        read = self._bits(log.input_digests.value if self._digests else unknown, log.inputs.value)
        owner = log.inputs.row
        place = np.arange(len(owner)) - log.inputs.start[owner]
        first = np.flatnonzero(begins)
        keys = [key for row, (made, _) in self.results.items() for key in self._keys(row, made)]
        noise = np.append(self._made(first), np.array(keys, np.uint64))
        first = np.append(first, list(self.results)).astype(np.int64)
        seen = owner <= first.min(initial=len(log))  # what was read before has the same bits by chance
        for _ in range(_STEPS):
            hit = np.flatnonzero(np.isin(read, noise[noise != NO_DIGEST]) & ~seen)
            if not len(hit):
                break
            seen[hit] = True
            self.reads[owner[hit]] = True
            rows: dict[int, set[int]] = {}
            for row, at in zip(owner[hit].tolist(), place[hit].tolist(), strict=True):
                rows.setdefault(row, set()).add(at)
                self.inputs.setdefault(row, set()).add(at)
            noise = np.array([key for row, places in rows.items() for key in self._follow(row, places)], np.uint64)

    def share(self, row: int) -> float:
        """The share of noise in a mixed result that is none itself, as far as norms tell; 0 for other results."""
        norms, places = self._log.inputs[row], self.inputs.get(row, set())
        result = float(self._log.outputs.first(np.array([row]))[0])
        return sum(float(norms[at]) for at in places) / result if row not in self.results and result > 0 else 0.0

    def names(self) -> Iterator[str]:
        """The names of the tensors that are noise, canonical."""
        for row, (made, slots) in self.results.items():
            if 0 in made and law_of(self._log, row).in_place:  # it returns what it changed in place
                slots = slots | {0}
            yield from (canonical(parameter_name(self._log, row, slot)) for slot in slots)

    def _bits(self, digests: Hash, norms: Float64) -> Hash:
        """The bits by which some tensors are known: the digest, else those of the norm; NO_DIGEST for zeros."""
        known = ~np.isin(digests, MARKS) & self._digests
        bits = np.where(known, digests, float_bits(norms))
        return np.where((norms == 0) | (np.isnan(norms) & ~known), NO_DIGEST, bits)

    def _made(self, rows: Int64) -> Hash:
        """The bits by which the first outputs of some records are known."""
        return self._bits(self._log.digests.first(rows, NO_DIGEST), self._log.outputs.first(rows))

    def _keys(self, row: int, made: Iterable[int]) -> list[int]:
        """The bits by which some outputs of a record are known."""
        norms, digests = self._log.outputs[row], self._log.digests[row]
        which = np.array([k for k in made if k < len(norms)], np.int64)
        known = digests[which] if len(digests) == len(norms) else np.full(len(which), NO_DIGEST)
        return [int(key) for key in self._bits(known, norms[which])]

    def _follow(self, row: int, places: set[int]) -> list[int]:
        """Enter the results that are noise because these inputs are; return the bits they are known by."""
        log = self._log
        law = law_of(log, row)
        changed = written(log, row)
        outputs = len(log.outputs[row])
        if _mixes(law) and len(places) < len(log.inputs[row]):
            read = sum(float(log.inputs[row][at]) for at in places)
            if not outputs or not read > _DOMINATES * float(log.outputs[row][0]):
                return []
        tensors = _tensors(outputs, changed) if law.on_lists else 1
        which = {at % tensors for at in places}
        made = {k for k in range(outputs) if k % tensors in which}
        slots = {slot for slot in changed if slot % tensors in which}
        before = self.results.setdefault(row, (set(), set()))
        before[0].update(made)
        before[1].update(slots)
        keys = self._keys(row, made)
        for slot in slots:
            result = changed[slot]
            digest = NO_DIGEST if result.digest is None else result.digest
            keys.append(int(self._bits(np.array([digest], np.uint64), np.array([result.l1]))[0]))
        return keys


def _tensors(outputs: int, changed: Mapping[int, Any]) -> int:
    """Number of tensors in each list of an operation on lists."""
    if outputs > 1:
        return outputs
    n = 0
    while n in changed:
        n += 1
    return max(n, 1)


def _patched(a: OpLog, b: OpLog, i: Int64, j: Int64, of_a: _Noise, of_b: _Noise) -> OpLog:
    """Log b with what a has wherever one of the two is noise, in the pairs (i[k], j[k])."""
    stats, counts, present = b.stats.copy(), b.counts.copy(), b.present.copy()
    lists = {name: Ragged(getattr(b, name).start, getattr(b, name).value.copy()) for name in _LISTS}
    texts: dict[str, dict[int, bytes]] = {}
    nothing: tuple[set[int], set[int]] = (set(), set())
    for x, y in zip(i.tolist(), j.tolist(), strict=True):
        for place in of_a.inputs.get(x, set()) | of_b.inputs.get(y, set()):
            for name in ("inputs", "input_digests"):
                _copy_entry(getattr(a, name), x, lists[name], y, place)
        made_a, slots_a = of_a.results.get(x, nothing)
        made_b, slots_b = of_b.results.get(y, nothing)
        for k in made_a | made_b:
            for name in ("outputs", "digests"):
                _copy_entry(getattr(a, name), x, lists[name], y, k)
            if k == 0:
                stats[:, y], counts[:, y], present[y] = a.stats[:, x], a.counts[:, x], a.present[x]
            field = f"Output {k}" if k else "Sketch"
            texts.setdefault(field, {})[y] = a.texts(field).raw(x)
        if slots_a | slots_b:
            raw = _slots_of(a.texts("Mutated").raw(x), b.texts("Mutated").raw(y), slots_a | slots_b)
            texts.setdefault("Mutated", {})[y] = raw
    extra = {**b.extra, **{field: b.texts(field).changed(rows) for field, rows in texts.items()}}
    return replace(
        b,
        stats=stats,
        counts=counts,
        present=present,
        extra=extra,
        outputs=lists["outputs"],
        digests=lists["digests"],
        inputs=lists["inputs"],
        input_digests=lists["input_digests"],
    )


_LISTS = ("outputs", "digests", "inputs", "input_digests")


def _copy_entry(of: Ragged, row: int, into: Ragged, other: int, place: int) -> None:
    if place < of.start[row + 1] - of.start[row] and place < into.start[other + 1] - into.start[other]:
        into.value[into.start[other] + place] = of.value[of.start[row] + place]


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
