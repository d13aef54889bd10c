"""Losses that are scaled in one run, by the number of ranks or to keep small gradients, and not in the other.

One process divides the loss of each of its n micro-batches by n; n ranks average their gradients instead. Until then,
every loss and gradient of a micro-batch is n times as large in the second run. The totals are not: whoever forgets the
division has wrong ones, then the gradients of micro-batches are compared as they are, too.
"""

from __future__ import annotations

import base64
import math
from dataclasses import replace

import numpy as np

from matchers.arrays import Bool, Float64, Int64, marked, one_of
from matchers.laws.law import Form
from matchers.logs.columns import Ragged
from matchers.logs.input_statistics import FIELD
from matchers.logs.op_log import NO_DIGEST, OpLog, Phase, is_mark
from matchers.ops.batch_numbers import batch_ranks, own_micro_batches
from matchers.ops.dataflow import DataFlow
from matchers.ops.last_contents import GRADIENT, LastContents
from matchers.ops.laws import communicating, rows_where
from matchers.ops.placement import REDUCED, merged_records
from matchers.ops.shapes import numel
from matchers.ops.sketch import decode_sketches, encode_sketch
from matchers.ops.values import Result, written
from matchers.pairing.pairing import Pairing
from matchers.status import AGREE, Status
from matchers.verdict.case import Case, Judgement
from matchers.verdict.digests import shared_inputs
from matchers.verdict.judge import Verdicts, judge, other_layouts
from matchers.verdict.judge_values import Limits
from matchers.verdict.reason import Reason
from matchers.verdict.slots import SlotVerdict, judge_results

__all__ = ["EXACT", "mean_or_loss", "ratio_of_totals", "sizes_of_totals", "terms_without_factor", "without_scale"]

EXACT = 1e-5
"""Relative deviation of a ratio that is the factor, as printed numbers tell it."""
_NEAR = 0.02
"""Relative deviation of the median ratio from the factor."""
_NEAR_WHOLE = 1e-3
"""Relative deviation of a total that is not scaled; a factor is farther from 1."""
_SHARE = 0.25
"""Least share of the results of a backward pass that are scaled, or another bug's consequences; constants are not."""
_ABOUT = 0.1
"""The same for the median of the gradients' totals, which one run may hold in shards."""
_FAR = 1.4
"""Largest ratio of a scaled result to its partner; the bug to be found may change it, too."""


def without_scale(case: Case, found: Judgement) -> Judgement:
    """Judge results that are scaled in b as those in a; from here on, log b has these results."""
    a, b, pairing, verdicts = case.a, found.b, case.pairing, found.verdicts
    factor = 1.0 if case.bitwise else _loss_scale(a, b, pairing, verdicts)
    if factor == 1:
        return found
    scaled = (verdicts.status == Status.DIVERGED) & _scaled_pairs(a, b, pairing, factor, case.flow)
    again = np.flatnonzero(scaled)
    i, j = case.i[again], case.j[again]
    whole = _totals_beside(a, b, i, j), _read_beside(case, a, b)
    b = _scaled(b, j, factor, case.flow, *whole)
    fresh = judge(a, b, i, j, case.rtol[again], case.policy, other_layouts(a, case.b, case.i, case.j))
    # the numbers in the logs are not the same
    agrees = one_of(fresh.status, (Status.SAME_PRINT, Status.CLOSE))
    fresh = fresh.claimed(agrees, Status.CLOSE, Reason.LOSS_SCALE)
    verdicts = verdicts.replaced(again, fresh)
    sent = _messages(case, verdicts, scaled & (verdicts.reason == Reason.LOSS_SCALE), factor)
    verdicts = verdicts.claimed(sent, Status.CLOSE, Reason.LOSS_SCALE)
    return replace(found, verdicts=verdicts, b=b, scaled=scaled, loss_scale=factor)


def _messages(case: Case, verdicts: Verdicts, scaled: Bool, factor: float) -> Bool:
    """bool[p]: red messages, which return nothing, that give what is scaled, or bring it."""
    a, b, pairing = case.a, case.b, case.pairing
    found = np.zeros(len(case.i), bool)
    silent = communicating(a)[case.i] & (a.shape[case.i] < 0) & (verdicts.status == Status.DIVERGED)
    for k in np.flatnonzero(silent).tolist():
        i, j = int(case.i[k]), int(case.j[k])
        x, y = written(a, i), written(b, j)
        if x or y:
            brought = [_times_factor(of, factor) for of in y.values()]
            same = x.keys() == y.keys()
            found[k] = same and not any(of.status.red for of in judge_results([*x.values()], brought, Limits()))
            continue
        makers = case.flow.a[i], case.flow.b[j]
        made = pairing.of_a[makers[0][makers[0] >= 0]], pairing.of_b[makers[1][makers[1] >= 0]]
        found[k] = len(made[0]) > 0 and np.array_equal(*made) and bool((made[0] >= 0).all() and scaled[made[0]].all())
    return found


def _times_factor(of: Result, factor: float) -> Result:
    numbers = {name: getattr(of, name) * factor for name in ("l1", "l2", "min", "max", "mean")}
    return replace(of, **numbers, digest=None, sketch=encode_sketch(decode_sketches([of.sketch])[0] * factor))


def terms_without_factor(case: Case, found: Judgement) -> dict[int, SlotVerdict]:
    """Verdicts on products for the loss that lack the factor of all others, since one run alone takes it away before.

    One run multiplies by the factor, the other by what an operation without a partner makes of it; and the backward
    pass does, too: so it is no number that is made to be told.
    """
    a, b, pairing, flow = case.a, found.b, case.pairing, case.flow
    if found.loss_scale == 1 and a.folding is None is b.folding:
        return {}
    number = numel(a)[a.shape[pairing.lead_a]] == 1
    if found.loss_scale == 1:
        factors = number & (a.phase[pairing.lead_a] == Phase.PREPARE) & (found.verdicts.status < Status.SHAPE)
        return _of_odd_factors(case, b, np.append(factors, False))
    equal = number & ~found.scaled & (abs(_ratio(a, b, pairing) - 1) < EXACT)
    equal &= rows_where(a, lambda law: law.form is Form.MULTIPLY, pairing.lead_a)
    factors = np.append(number & found.scaled, False)
    out, backward = list[tuple[int, tuple[int, int]]](), set[tuple[int, int]]()
    sides = (flow.a, pairing.of_a, pairing.lead_a), (flow.b, pairing.of_b, pairing.lead_b)
    for side, ((made, of, _), (theirs, of_theirs, lead)) in enumerate((sides, sides[::-1])):
        reader = made.row
        at = np.flatnonzero((made.value >= 0) & factors[np.append(of, -1)[made.value]] & (of[reader] >= 0))
        slots = at - made.start[reader[at]]
        for k, slot in zip(of[reader[at]].tolist(), slots.tolist(), strict=True):
            read = theirs[int(lead[k])]
            if equal[k] and slot < len(read) and read[slot] >= 0 and of_theirs[read[slot]] < 0:
                out.append((k, (side, int(read[slot]))))
                backward |= {out[-1][1]} if a.phase[pairing.lead_a[k]] == Phase.BACKWARD else set()
    verdicts = _of_factors(1.0, found.loss_scale), _of_factors(1 / found.loss_scale, 1.0)
    near = one_of(found.verdicts.status, (Status.CLOSE, Status.SAME_PRINT))
    told = {k: verdicts[made[0]] for k, made in out if made in backward and near[k]}
    return told | _of_odd_factors(case, b, factors)


def _of_odd_factors(case: Case, b: OpLog, factors: Bool) -> dict[int, SlotVerdict]:
    """Verdicts on products of which one micro-batch alone has another factor than the others."""
    a, pairing, flow, told = case.a, case.pairing, case.flow, dict[int, SlotVerdict]()
    products = (numel(a)[a.shape[case.i]] == 1) & rows_where(a, lambda law: law.form is Form.MULTIPLY, case.i)
    products &= a.phase[case.i] != Phase.BACKWARD
    for side, of in enumerate(((a, flow.a, pairing.of_a), (b, flow.b, pairing.of_b))):
        for k, ratio in _odd_factors(*of, factors):
            if products[k]:
                told[k] = _of_factors(*((ratio, 1.0), (1.0, ratio))[side])
    return told


def _of_factors(x: float, y: float) -> SlotVerdict:
    return SlotVerdict.of_scalars(x, y, 1 - min(x, y) / max(x, y), EXACT)


def _odd_factors(log: OpLog, made: Ragged, of: Int64, factors: Bool) -> list[tuple[int, float]]:
    """The pairs of which one micro-batch reads an unpaired operation in place of a factor that the others read.

    With its result as a share of the factor. The backward pass reads it, too.
    """
    if log.folding is None:
        return []
    known, reader = made.value >= 0, made.row
    slot = np.arange(len(reader)) - made.start[reader]
    stands = np.where(log.joined >= 0, log.joined, np.arange(len(log)))[reader]
    trained = marked(made.value[known & (log.phase[reader] == Phase.BACKWARD)], len(log))
    pair = of[reader]
    alone = known & (pair >= 0) & (of[made.value] < 0) & trained[made.value] & np.isin(stands, log.joined)
    read = known & (pair >= 0) & factors[np.append(of, -1)[made.value]]
    usual = {(int(stands[at]), int(slot[at])): at for at in np.flatnonzero(read).tolist()} if alone.any() else {}
    out, inputs = list[tuple[int, float]](), log.written.inputs
    for at in np.flatnonzero(alone).tolist():
        other = usual.get((int(stands[at]), int(slot[at])))
        if other is not None:
            given, theirs = (float(inputs[int(reader[edge])][slot[edge]]) for edge in (at, other))
            if min(given, theirs) > 0 and abs(given / theirs - 1) > EXACT:
                out.append((int(pair[at]), given / theirs))
    return out


def _loss_scale(a: OpLog, b: OpLog, pairing: Pairing, verdicts: Verdicts) -> float:
    """The factor between the gradients of a and those of b before ranks add them up: n or 1/n; 1 for none.

    Args:
        verdicts: on each pair by itself.
    """
    if a.tells != b.tells:
        return 1.0
    folded = a.batches > 1 or b.batches > 1
    many = [batch_ranks(log) if folded else own_micro_batches(log) for log in (a, b)]
    phase = a.phase[pairing.lead_a]
    diverged = (phase == Phase.BACKWARD) & (verdicts.status == Status.DIVERGED)
    if not diverged.any():
        return 1.0
    ratio = _ratio(a, b, pairing)
    backward = np.flatnonzero((phase == Phase.BACKWARD) & np.isfinite(ratio))
    red = backward[diverged[backward]]
    if not len(red) or len(red) < _SHARE * len(backward):
        return 1.0
    first = red[np.argmin(pairing.lead_a[red])]
    half = (len(red) - 1) // 2, len(red) // 2
    middle = float(np.partition(ratio[red], half)[[*half]].mean())  # the median, without loading numpy.ma
    if middle <= 0:  # no norm is negative: the log is damaged
        return 1.0
    number = np.flatnonzero((numel(a)[a.shape[pairing.lead_a]] == 1) & np.isfinite(ratio))
    losses = ratio[number[phase[number] == Phase.FORWARD]]
    # a factor for losses is computed of the same numbers, whatever is wrong with the losses, or with their totals
    factors = number[(phase[number] == Phase.PREPARE) & verdicts.inputs_equal[number]]
    factors = factors[rows_where(a, lambda law: law.scales, pairing.lead_a[factors])]
    ranks = [max(len(log.members), 1) for log in (a, b)]
    for x, y in (many, many[::-1], ranks, ranks[::-1]):
        if x != y and (abs(ratio[factors] * y / x - 1) < EXACT).any():
            return x / y
    for factor in (many[0] / many[1], many[1] / many[0]) if many[0] != many[1] else ():
        # the first one is the factor itself, and a loss is, or the others are not as they were: a bug may change them
        scaled = abs(math.log(middle)) > abs(math.log(factor)) / 2 or (abs(losses / factor - 1) < EXACT).any()
        exact = abs(ratio[first] / factor - 1) < EXACT and scaled
        if exact or abs(middle / factor - 1) < _NEAR:
            return 1.0 if abs(ratio_of_totals(a, b) / factor - 1) < _ABOUT else factor
    # no layout tells the factor, such as one lest gradients vanish: all gradients of the loss have it
    before = backward[pairing.lead_a[backward] < pairing.lead_a[first]]
    before = before[one_of(verdicts.status[before], AGREE)]
    low, high = a.stats[2:4, pairing.lead_a[before]]
    if ((low < high) & ~a.recompute[pairing.lead_a[before]]).any():
        return 1.0
    # and what the optimizer reads does not
    totals = ratio_of_totals(a, b, unknown=0.0)
    for factor in (middle, float(ratio[first]) or middle):
        if (abs(ratio[red] / factor - 1) < EXACT).mean() > _SHARE and _without(totals, factor):
            return factor
    return 1.0


def mean_or_loss(a: OpLog, b: OpLog, pairing: Pairing, pair: int) -> int:
    """n, where one run divides a loss by its n micro-batches, and the n ranks of the other divide nothing; 0 otherwise.

    Losses and totals are both n times as large there. Ranks may divide either, and no log tells which was meant.
    """
    one, other = batch_ranks(a), batch_ranks(b)
    number = numel(a)[a.shape[pairing.lead_a[pair]]] == 1
    if one == other or not (number and rows_where(a, lambda law: law.scales, pairing.lead_a[pair])):
        return 0
    ratio, factor = float(_ratio(a, b, pairing)[pair]), one / other
    undivided = abs(ratio / factor - 1) < EXACT and abs(ratio_of_totals(a, b) / factor - 1) < _ABOUT
    return max(one, other) if undivided and min(one, other) == 1 else 0


def sizes_of_totals(a: OpLog, b: OpLog, pairing: Pairing, which: Bool) -> Bool:
    """bool[p]: of some pairs, numbers made of gradients that differ by the factor between all of these.

    As the norm by which they are clipped: what is clipped by it agrees, though the gradients do not.
    """
    found = which & (a.phase[pairing.lead_a] == Phase.GRADIENTS) & (numel(a)[a.shape[pairing.lead_a]] == 1)
    if found.any() and abs((totals := ratio_of_totals(a, b)) - 1) > _NEAR:
        ratio = _ratio(a, b, pairing)
        with np.errstate(divide="ignore", invalid="ignore"):
            return found & (np.minimum(np.abs(ratio / totals - 1), np.abs(ratio * totals - 1)) < _NEAR_WHOLE)
    return np.zeros_like(found)


def _without(totals: float, factor: float) -> bool:
    """True if totals do not have a factor that what they are made of has; the bug to be found may change them, too."""
    if abs(totals - 1) < EXACT:
        return True
    return max(factor, 1 / factor) > _FAR**2 and 1 / _FAR < totals < _FAR


def ratio_of_totals(a: OpLog, b: OpLog, *, unknown: float = 1.0) -> float:
    """The gradients that a's optimizer reads / those of b's, each against its parameter, which may be a shard of it.

    The median of all parameters; `unknown` where no log tells.
    """
    one, other = _Totals(a), _Totals(b)

    def size(of: _Totals, name: str) -> float:
        return of.totals[name] if name.endswith(GRADIENT) else of.contents.before(of.contents.first[name]).l1

    ratios = [
        size(one, name) * size(other, base) / (size(one, base) * size(other, name))
        for name in one.totals
        if (base := name.removesuffix(GRADIENT)) in one.contents.first
        if name in other.totals and base in other.contents.first and size(one, base) * size(other, name) > 0
    ]
    ratios = [ratio for ratio in ratios if 0 < ratio < math.inf]
    return float(np.median(ratios)) if ratios else unknown


class _Totals:
    """The sizes of a log's gradients as its updates get them: what a loop reduces by itself is named before, too.

    Or divides: what is first to work on gradients, before they are measured and clipped.
    """

    def __init__(self, log: OpLog) -> None:
        self.contents = LastContents(log, tuple(log.modules))
        working = log.phase == Phase.GRADIENTS
        norms = np.flatnonzero(working & rows_where(log, lambda law: law.form in (Form.NORM, Form.POWER)))
        changes = np.flatnonzero(working & communicating(log))
        changes = changes[changes < (norms[0] if len(norms) else len(log))]
        if not len(changes):
            firsts = [touch for name, touch in self.contents.first.items() if name.endswith(GRADIENT)]
            changes = np.array([of.row for of in firsts if of.slot in self.contents.changes(of.row)], np.int64)
        last = int(changes.max(initial=-1))
        tell = self.contents.before if last < 0 else self.contents.after
        touched = self.contents.first_after(last).items()
        self.totals = {name: tell(touch).l1 for name, touch in touched if name.endswith(GRADIENT)}


def _ratio(a: OpLog, b: OpLog, pairing: Pairing) -> Float64:
    """float64[p], norm of a's result / norm of b's; NaN or Inf where one is 0 or unknown.

    Of a sum of which only the terms were read, the norm is unknown: the sketches of a tensor and its multiple have
    the same ratio.
    """
    one, other = a.outputs.first(pairing.lead_a), b.outputs.first(pairing.lead_b)
    for k in np.flatnonzero(np.isnan(one) | np.isnan(other)).tolist():
        texts = a.texts("Sketch").raw(int(pairing.lead_a[k])), b.texts("Sketch").raw(int(pairing.lead_b[k]))
        if all(texts):
            one[k], other[k] = np.linalg.norm(decode_sketches(texts), axis=1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(one / other)


def _scaled_pairs(a: OpLog, b: OpLog, pairing: Pairing, factor: float, flow: DataFlow) -> Bool:
    """bool[p]: gradients and losses of micro-batches whose norms differ by about this factor."""
    off, lead = _ratio(a, b, pairing) / factor, pairing.lead_a
    # a sum of losses may follow the backward pass, and the step; but what is made of it in the end is no loss of a part
    read = ~flow.readers_a.none[lead] & ~flow.readers_b.none[pairing.lead_b]
    sums = one_of(a.phase[lead], (Phase.FORWARD, Phase.PREPARE)) | ((a.phase[lead] == Phase.AFTER) & read)
    loss = sums & (numel(a)[a.shape[lead]] == 1)
    gradient = a.phase[lead] == Phase.BACKWARD
    for log, at in ((a, pairing.lead_a), (b, pairing.lead_b)):
        gradient &= ~np.isin(at, merged_records(log, REDUCED))
    with np.errstate(invalid="ignore"):
        return (off < _FAR) & (off > 1 / _FAR) & (loss | gradient)


def _totals_beside(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    """bool[outputs of b]: outputs after the first of some pairs whose norm is a's as it is.

    Of micro-batches that were put together they may be totals, which ranks have reduced already.
    """
    of = np.full(len(b), -1)
    of[j] = i
    row, start = of[b.outputs.row], a.outputs.start
    slot = np.arange(len(b.outputs.value)) - b.outputs.start[b.outputs.row]
    both = (row >= 0) & (slot > 0) & (slot < a.outputs.count[row])
    found = np.zeros(len(both), bool)
    ours, theirs = a.outputs.value[start[row[both]] + slot[both]], b.outputs.value[both]
    found[both] = np.abs(ours - theirs) <= _NEAR_WHOLE * np.abs(theirs)
    return found


def _read_beside(case: Case, a: OpLog, b: OpLog) -> Bool:
    """bool[inputs of b]: inputs of pairs whose norm is a's as it is, such as the weight that a mean loss divides by."""
    _, _, ours, theirs = shared_inputs(a, b, case.i, case.j)
    found = np.zeros(len(b.inputs.value), bool)
    x, y = a.inputs.value[ours], b.inputs.value[theirs]
    found[theirs] = np.abs(x - y) <= _NEAR_WHOLE * np.abs(y)
    return found


def _scaled(b: OpLog, records: Int64, factor: float, flow: DataFlow, whole: Bool, read: Bool) -> OpLog:
    """Log b with the results of some records multiplied by the factor, also where they are read.

    Args:
        whole, read: bool[outputs of b], bool[inputs of b], those that are not.
    """
    rows = marked(records, len(b))
    stats = b.stats.copy()
    stats[:, rows] *= factor
    outputs, digests = _times(b.outputs, b.digests, rows[b.outputs.row] & ~whole, factor)
    made = flow.b.value
    inputs, input_digests = _times(b.inputs, b.input_digests, (made >= 0) & rows[made] & ~read, factor)
    extra = dict(b.extra)
    for name, texts in b.extra.items():
        which = [row for row in texts if rows[row]]
        if name == "Sketch":
            sketches = decode_sketches([texts.raw(row) for row in which]) * factor
            lines = [base64.b64encode(values.astype("<f8").tobytes()) for values in sketches]
            extra[name] = texts.changed(dict(zip(which, lines, strict=True)))
        elif name == FIELD or name.startswith("Output "):
            extra[name] = texts.changed(dict.fromkeys(which, b""))
    return replace(
        b, stats=stats, outputs=outputs, digests=digests, inputs=inputs, input_digests=input_digests, extra=extra
    )


def _times(values: Ragged, digests: Ragged, which: Bool, factor: float) -> tuple[Ragged, Ragged]:
    """Lists of norms and digests with some multiplied; their digests are unknown then."""
    norms = values.with_values(np.where(which, values.value * factor, values.value))
    if not np.array_equal(values.start, digests.start):
        return norms, digests
    return norms, digests.with_values(np.where(which & ~is_mark(digests.value), NO_DIGEST, digests.value))
