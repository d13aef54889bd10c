"""Find where a divergence starts: the role of every red pair, and the first causes.

* receiver: an input already differs, or comes from a red row, or from an unpaired operation; * origin: every input
agrees, the output differs; * unknown: no upstream row is red, but an input differs (or has no hash) and no captured
operation produced it: look one hop upstream.

Before the first red row an input agrees if it is within the tolerance. After it only an equal one does: there, a small
difference is more likely propagated divergence than noise. If both logs have digests, equal means bitwise equal; an
input whose bits differ although its producers' outputs are equal was changed on the way by something uncaptured (a view
of something else), and the row that reads it is unknown wherever it is.

First causes are the red rows that no other red row explains: origins and unknowns. Unpaired operations are first causes
too, if their own inputs are sound and a red row reads their result in place of another value (an inserted `neg` leaves
every norm unchanged), or if they produce the first NaN or Inf that a red row reads. So is a draw of random numbers
behind such an input, if only one run draws there: dropout that is off in the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from matchers.arrays import Bool, Float64, Int32, Int64
from matchers.causes.handed_on import Causes, acquit_copies
from matchers.causes.unjudged_stretch import Stretches, behind_parts
from matchers.causes.unpaired_branches import Branches, Side
from matchers.logs.columns import Ragged, repeated
from matchers.logs.op_log import NO_DIGEST, STATISTICS, OpLog
from matchers.ops.dataflow import DataFlow
from matchers.ops.nonfinite import broken, where_broken_begins
from matchers.ops.op_names import rows_named
from matchers.ops.random_draws import drawing
from matchers.pairing.pairing import Pairing
from matchers.rows import Origins, Stretch
from matchers.status import Role, Status
from matchers.verdict.judge import Verdicts
from matchers.verdict.relative_error import relative
from matchers.verdict.sketches import estimates

__all__ = ["Origins", "find_origins"]


_COPIES = frozenset({"clone", "copy", "copy_", "_to_copy"})


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The inputs of the red pairs, one entry each: the pair, and the producer on each side.

    `equal`: bitwise equal. `hidden`: different bits, although the outputs of the producers are equal.
    """

    pair: Int64
    maker_a: Int64
    maker_b: Int64
    differs: Bool
    unhashed: Bool
    equal: Bool
    hidden: Bool


def find_origins(
    a: OpLog,
    b: OpLog,
    pairing: Pairing,
    verdicts: Verdicts,
    parts: Bool,
    flow: DataFlow,
    unpaired: tuple[NDArray[np.int8], NDArray[np.int8]],
) -> Origins:
    """Determine roles and first causes.

    Args:
        parts: bool[p], the two sides hold different parts of their tensors.
        flow: used only if something is red.
        unpaired: int8[n_a], int8[n_b], the red records among the unpaired ones: RECEIVER where other reds explain them,
            ORIGIN otherwise; NONE for all other records.
    """
    role = np.zeros(len(pairing), np.int8)
    cause = np.zeros(len(pairing), bool)
    cause_a, cause_b = np.zeros(len(a), bool), np.zeros(len(b), bool)
    red = verdicts.status >= Status.SHAPE
    if not red.any() and not (unpaired[0].any() or unpaired[1].any()):
        none = np.zeros(len(a), np.int8), np.zeros(len(b), np.int8)
        return Origins(role, cause, *none, cause_a, cause_b)
    flow_a, flow_b = flow.a, flow.b
    red_a = _red_records(red, pairing.of_a) | (unpaired[0] != Role.NONE)
    red_b = _red_records(red, pairing.of_b) | (unpaired[1] != Role.NONE)
    role_a = _unpaired_roles(a, flow_a, red_a, unpaired[0], _passive(verdicts, pairing.of_a))
    role_b = _unpaired_roles(b, flow_b, red_b, unpaired[1], _passive(verdicts, pairing.of_b))
    cause_a, cause_b = role_a == Role.ORIGIN, role_b == Role.ORIGIN
    if not red.any():
        if not (cause_a.any() or cause_b.any()):  # each explains another: take the earliest
            for of_side, roles in ((cause_a, role_a), (cause_b, role_b)):
                of_side[np.flatnonzero(roles)[:1]] = True
        return Origins(role, cause, role_a, role_b, cause_a, cause_b)
    if a.folding is not None or b.folding is not None:
        # norms of micro-batches hide a difference that a mask, say, is larger than
        hides = verdicts.bound & (verdicts.status <= Status.CLOSE)
        red_a, red_b = (
            red_of | (_red_records(hides, of) & _fed_by_red(log, flow_of, red_of, _red_records(hides, of)))
            for log, flow_of, red_of, of in ((a, flow_a, red_a, pairing.of_a), (b, flow_b, red_b, pairing.of_b))
        )
    reads = _inputs(a, b, pairing, verdicts, flow_a, flow_b, np.flatnonzero(red))

    from_red = (_at(red_a, reads.maker_a) | _at(red_b, reads.maker_b)) & ~reads.equal
    explained = _any(reads.pair[from_red], len(pairing))

    # random numbers that one run alone draws
    drawn_a, drawn_b = _draws(a, flow_a, pairing.of_a), _draws(b, flow_b, pairing.of_b)
    draw_a, draw_b = drawn_a[reads.maker_a], drawn_b[reads.maker_b]
    random = ((draw_a >= 0) != (draw_b >= 0)) & ~reads.equal & ~explained[reads.pair]
    cause_a[draw_a[random & (draw_a >= 0)]] = True
    cause_b[draw_b[random & (draw_b >= 0)]] = True
    explained |= _any(reads.pair[random], len(pairing))

    # unpaired producers: suspects if the value differs, or agrees in L1 only
    extra_a = _extra(reads.maker_a, reads.maker_b, pairing.of_a, pairing.of_b)
    extra_b = _extra(reads.maker_b, reads.maker_a, pairing.of_b, pairing.of_a)
    sides = Side("a", a, pairing.of_a.astype(np.int64), flow_a), Side("b", b, pairing.of_b.astype(np.int64), flow_b)
    by_weight = [k for k, slot in verdicts.slots.items() if slot.read]
    reads, reads_parts = _without_parts(reads, parts, by_weight, *sides)
    # other operations made it in each run: what differs is known by its value only
    both = _alone(reads.maker_a, pairing.of_a) & _alone(reads.maker_b, pairing.of_b) & reads.differs
    both &= verdicts.status[reads.pair] != Status.NAN
    suspect = (extra_a | extra_b | both) & ~reads.equal & ~explained[reads.pair] & ~reads_parts
    alike = np.flatnonzero(suspect & ~reads.differs)
    maker_a, maker_b = reads.maker_a[alike], reads.maker_b[alike]
    suspect[alike] = _altered(a, b, maker_a, maker_b, verdicts.tolerance[reads.pair[alike]])
    if a.folding is not None or b.folding is not None:
        # the norms of micro-batches do not show that elements were moved
        suspect[alike] |= (extra_a[alike] & _at(~_copies(a), maker_a)) | (extra_b[alike] & _at(~_copies(b), maker_b))
    suspect &= ~(
        (extra_a | both) & _fed_by_red(a, flow_a, red_a, _passive(verdicts, pairing.of_a))[np.maximum(reads.maker_a, 0)]
    )
    suspect &= ~(
        (extra_b | both) & _fed_by_red(b, flow_b, red_b, _passive(verdicts, pairing.of_b))[np.maximum(reads.maker_b, 0)]
    )
    explained |= _any(reads.pair[suspect], len(pairing))
    # a row that reads hundreds of tensors (an optimizer's) names one suspect, not hundreds
    named = np.flatnonzero(suspect)
    named = named[np.unique(reads.pair[named], return_index=True)[1]]
    branches = Branches(*sides)
    for k in named.tolist():
        ends = [("a", int(reads.maker_a[k]))] * bool(extra_a[k] | both[k])
        ends += [("b", int(reads.maker_b[k]))] * bool(extra_b[k] | both[k])
        name, begin = branches.start(*ends)
        (cause_a if name == "a" else cause_b)[begin] = True
    wanted = (verdicts.status == Status.NAN) & ~explained
    if wanted.any():
        odd_a, odd_b = (np.logical_or(*broken(log)) for log in (a, b))
        for log, flow_of, of, red_of, maker, odd, only_here, cause_of in (
            (a, flow_a, pairing.of_a, red_a, reads.maker_a, odd_a, ~_at(odd_b, reads.maker_b), cause_a),
            (b, flow_b, pairing.of_b, red_b, reads.maker_b, odd_b, ~_at(odd_a, reads.maker_a), cause_b),
        ):
            # computations by different operations (a softmax written out) have no pair that could be red
            alone = odd & (of < 0)
            led = wanted[reads.pair] & only_here & _at(alone, maker)
            begins = where_broken_begins(flow_of, maker[led], alone)
            cause_of[begins[~_fed_by_red(log, flow_of, red_of, _passive(verdicts, of))[begins]]] = True
            explained[reads.pair[led]] = True

    if a.folding is not None or b.folding is not None:
        open_pairs = red & ~explained
        for side, other, lead, other_lead, cause_of in (
            (sides[0], sides[1], pairing.lead_a, pairing.lead_b, cause_a),
            (sides[1], sides[0], pairing.lead_b, pairing.lead_a, cause_b),
        ):
            for record, pairs in _insertions(side, other, hides, other_lead).items():
                carried = _fed_by_red(
                    side.log, side.flow, _red_records(_any(pairs, len(red)), side.of), _red_records(hides, side.of)
                )
                led = open_pairs & carried[lead]
                if led.any():
                    cause_of[record], explained[led] = True, True
    found: dict[int, Stretch] = {}
    if reads_parts.any():
        stretches = Stretches(*sides, pairing, verdicts, parts, red)
        stretches.follow(np.flatnonzero(red & _any(reads.pair[reads_parts], len(pairing)) & ~explained))
        explained[stretches.consequence] = True
        for name, record in stretches.causes:
            {"": cause, "a": cause_a, "b": cause_b}[name][record] = True
        found = stretches.unjudged
    first = _first_red(pairing, red, cause_a, cause_b)
    differs = _any(reads.pair[reads.differs], len(pairing))
    unhashed = _any(reads.pair[reads.unhashed], len(pairing))
    role[red] = Role.ORIGIN
    role[red & unhashed] = Role.UNKNOWN
    role[red & (differs | explained)] = Role.RECEIVER
    hidden = _any(reads.pair[reads.hidden], len(pairing))
    role[red & (first | hidden) & differs & ~explained] = Role.UNKNOWN
    cause |= (role == Role.ORIGIN) | ((role == Role.UNKNOWN) & (first | hidden) & ~explained)
    acquit_copies(a, b, pairing, verdicts, flow, role, Causes(cause, cause_a, cause_b))
    if not (cause.any() or cause_a.any() or cause_b.any()):
        # crossing pairs let red rows explain each other: take the earliest
        cause[np.flatnonzero(red)[np.argmin(pairing.lead_a[red])]] = True
    return Origins(role, cause, role_a, role_b, cause_a, cause_b, found)


def _unpaired_roles(log: OpLog, flow: Ragged, red: Bool, role: NDArray[np.int8], passive: Bool) -> NDArray[np.int8]:
    """The roles of red unpaired records: a first cause is none that reads what a red record made."""
    if not role.any():
        return role
    fed = _fed_by_red(log, flow, red, passive)
    return np.where((role == Role.ORIGIN) & fed, np.int8(Role.RECEIVER), role)


def _without_parts(reads: _Inputs, parts: Bool, by_weight: list[int], a: Side, b: Side) -> tuple[_Inputs, Bool]:
    """The inputs, where those that are parts of tensors do not count as different; and bool, these inputs.

    Args:
        by_weight: pairs that were judged by a whole weight which they read.
    """
    if not parts.any():
        return reads, np.zeros(len(reads.pair), bool)
    found = parts[reads.pair] & ~_any(np.array(by_weight, int), len(parts))[reads.pair]
    for side, maker in ((a, reads.maker_a), (b, reads.maker_b)):
        found |= _at(np.append(parts, False)[side.of] | behind_parts(side, parts), maker)
    return replace(reads, differs=reads.differs & ~found, hidden=reads.hidden & ~found), found


def _first_red(pairing: Pairing, red: Bool, cause_a: Bool, cause_b: Bool) -> Bool:
    """bool[p]: no red pair and no suspect precedes the pair in either dispatch order."""
    first_a = int(pairing.lead_a[red].min())
    if cause_a.any():
        first_a = min(first_a, int(np.flatnonzero(cause_a)[0]))
    first_b = int(np.flatnonzero(cause_b)[0]) if cause_b.any() else len(cause_b)
    return np.asarray((pairing.lead_a <= first_a) & (pairing.lead_b < max(first_b, 1)))


def _red_records(red: Bool, of: Int32 | Int64) -> Bool:
    return np.asarray((of >= 0) & red[np.maximum(of, 0)])


def _at(flags: Bool, record: Int64) -> Bool:
    return np.asarray((record >= 0) & flags[np.maximum(record, 0)]) if len(flags) else record >= 0


def _any(index: Int64, size: int) -> Bool:
    out = np.zeros(size, bool)
    out[index] = True
    return out


def _inputs(
    a: OpLog, b: OpLog, pairing: Pairing, verdicts: Verdicts, flow_a: Ragged, flow_b: Ragged, pairs: Int64
) -> _Inputs:
    """The inputs of some pairs.

    Position by position for pairs of single rows; each on its own for groups, whose sides list different inputs.
    """
    grouped = pairing.assembled[pairs]
    single = _single_inputs(a, b, pairing, verdicts, flow_a, flow_b, pairs[~grouped], int(pairing.lead_a[pairs].min()))
    parts = [single]
    for of, flow, side in ((pairing.of_a, flow_a, "a"), (pairing.of_b, flow_b, "b")):
        pair_of = of[flow.row].astype(np.int64)
        inside = _at(_any(pairs[grouped], len(pairing)), pair_of)
        pair, maker = pair_of[inside], flow.value[inside]
        maker = np.where((maker >= 0) & (of[np.maximum(maker, 0)] == pair), -1, maker)  # internal to the group
        none, no = np.full(len(pair), -1, np.int64), np.zeros(len(pair), bool)
        maker_a, maker_b = (maker, none) if side == "a" else (none, maker)
        parts.append(_Inputs(pair, maker_a, maker_b, no, no, no, no))
    return _Inputs(*(np.concatenate([getattr(p, name) for p in parts]) for name in _Inputs.__slots__))


def _single_inputs(
    a: OpLog, b: OpLog, pairing: Pairing, verdicts: Verdicts, flow_a: Ragged, flow_b: Ragged, pairs: Int64, first: int
) -> _Inputs:
    """Inputs position by position, as far as both sides have them; `first` is the first red row of a."""
    i, j = pairing.lead_a[pairs].astype(np.int64), pairing.lead_b[pairs].astype(np.int64)
    count_a, count_b = a.inputs.count[i], b.inputs.count[j]
    count = np.minimum(count_a, count_b)
    owner, place = repeated(np.arange(len(pairs)), count)
    at_a, at_b = a.inputs.start[i[owner]] + place, b.inputs.start[j[owner]] + place
    value_a, value_b = a.inputs.value[at_a], b.inputs.value[at_b]
    difference = relative(value_a, value_b)
    with np.errstate(invalid="ignore"):
        later = pairing.lead_a[pairs[owner]] > first
        differs = difference > np.where(later, 0.0, verdicts.tolerance[pairs[owner]])
    differs |= np.isnan(value_a) != np.isnan(value_b)
    unhashed = np.isnan(value_a) & np.isnan(value_b)
    made_a, made_b = flow_a.value[at_a], flow_b.value[at_b]
    known, equal = _by_digest(a, b, i[owner], j[owner], place)
    of_maker = np.where(made_a >= 0, pairing.of_a[np.maximum(made_a, 0)], -1) if len(a) else made_a
    shared = (of_maker >= 0) & (made_b >= 0)
    shared[shared] = pairing.of_b[made_b[shared]] == of_maker[shared]
    hidden = known & ~equal & shared
    hidden[hidden] = verdicts.status[of_maker[hidden]] == Status.EQUAL
    # the error of a tensor without a recorded producer is unknown: its norm may well be the same
    given = (made_a < 0) & (made_b < 0)
    differs = np.where(known, ~equal & (differs | later | hidden | given), differs & ~equal)
    unhashed &= ~known & ~equal
    # inputs that only one side has; one from an operation of that side alone may be the whole difference
    most, fewer = np.maximum(count_a, count_b), np.minimum(count_a, count_b)
    uneven = np.flatnonzero(most > fewer)
    extra, beyond = repeated(uneven, (most - fewer)[uneven])
    beyond += fewer[extra]
    longer_a = (count_a > count_b)[extra]
    none = np.full(len(extra), -1, np.int64)
    only_a, only_b = none.copy(), none
    only_a[longer_a] = flow_a.value[a.inputs.start[i[extra[longer_a]]] + beyond[longer_a]]
    only_b[~longer_a] = flow_b.value[b.inputs.start[j[extra[~longer_a]]] + beyond[~longer_a]]
    alone = _alone(only_a, pairing.of_a) | _alone(only_b, pairing.of_b)
    no = np.zeros(len(extra), bool)
    return _Inputs(
        np.concatenate((pairs[owner], pairs[extra])),
        np.concatenate((made_a, only_a)),
        np.concatenate((made_b, only_b)),
        np.concatenate((differs, alone)),
        np.concatenate((unhashed, no)),
        np.concatenate((equal, no)),
        np.concatenate((hidden, no)),
    )


def _by_digest(a: OpLog, b: OpLog, i: Int64, j: Int64, place: Int64) -> tuple[Bool, Bool]:
    """(the digests of both are known, they are equal) for the inputs at some places.

    An input without digest in both logs was not read, and counts as equal.
    """
    digests, listed = [], np.ones(len(place), bool)
    for log, row in ((a, i), (b, j)):
        inside = place < log.input_digests.count[row]
        listed &= inside
        value = np.full(len(place), NO_DIGEST)
        value[inside] = log.input_digests.value[log.input_digests.start[row[inside]] + place[inside]]
        digests.append(value)
    known = listed & (digests[0] != NO_DIGEST) & (digests[1] != NO_DIGEST)
    return known, listed & (digests[0] == digests[1])


def _extra(maker: Int64, other: Int64, of: Int32, of_other: Int32) -> Bool:
    """bool: the input's producer is unpaired, while that of the other side is paired or unknown."""
    alone = _alone(maker, of)
    placed = (other < 0) | (of_other[np.maximum(other, 0)] >= 0) if len(of_other) else np.ones(len(maker), bool)
    return np.asarray(alone & placed)


def _alone(maker: Int64, of: Int32) -> Bool:
    """bool: the input's producer is unpaired."""
    return np.asarray((maker >= 0) & (of[np.maximum(maker, 0)] < 0)) if len(of) else np.zeros(len(maker), bool)


def _draws(log: OpLog, flow: Ragged, of: Int32) -> Int64:
    """int64[n + 1]: the draw of random numbers behind each unpaired record, itself or over unpaired ones; -1 for none.

    The last entry stands for "no record".
    """
    own = drawing(log) & (of < 0)
    if not own.any():
        return np.full(len(log) + 1, -1)
    draw = np.where(own, np.arange(len(log)), -1).tolist()
    further = (flow.value >= 0) & (of[flow.row] < 0)
    # in dispatch order, so that one pass follows chains of any length
    for row, made in zip(flow.row[further].tolist(), flow.value[further].tolist(), strict=True):
        if draw[row] < 0:
            draw[row] = draw[made]
    return np.array([*draw, -1], np.int64)


def _altered(a: OpLog, b: OpLog, maker_a: Int64, maker_b: Int64, tolerance: Float64) -> Bool:
    """bool: the outputs of the two producers differ by their further statistics or sketches, although L1 may agree."""
    out = np.zeros(len(maker_a), bool)
    known = np.flatnonzero((maker_a >= 0) & (maker_b >= 0))
    i, j, tolerance = maker_a[known], maker_b[known], tolerance[known]
    altered = np.zeros(len(known), bool)
    both = a.present[i] & b.present[j]
    for k, name in enumerate(STATISTICS):
        if name == "Mean":
            continue  # near zero it is meaningless without its scale
        with np.errstate(invalid="ignore"):
            altered |= ((both >> k) & 1 == 1) & (relative(a.stats[k][i], b.stats[k][j]) > tolerance)
    _, error = estimates(a, b, i, j, np.ones(len(known), bool))
    with np.errstate(invalid="ignore"):
        out[known] = altered | (error > tolerance)
    return out


def _insertions(side: Side, other: Side, hides: Bool, other_lead: Int32) -> dict[int, Int64]:
    """Unpaired operations between two that are partners in both logs, and the pairs that read their results.

    Args:
        hides: bool[p], only these pairs are looked at.
        other_lead: int32[p], the records of the other log.
    """
    stands = True if side.log.folding is None else side.log.folding.into < 0
    alone = np.flatnonzero((side.of < 0) & ~_copies(side.log) & stands)
    edges = np.flatnonzero(np.isin(side.flow.value, alone) & _at(hides, side.of[side.flow.row]))
    found: dict[int, Int64] = {}
    for record in np.unique(side.flow.value[edges]).tolist():
        makers = side.flow[record]
        before = side.of[makers[makers >= 0]]
        readers = side.of[side.flow.row[edges[side.flow.value[edges] == record]]]
        pairs = []
        for pair in readers.tolist():
            theirs = other.flow[int(other_lead[pair])]
            if np.isin(other.of[theirs[theirs >= 0]], before[before >= 0]).any():
                pairs.append(pair)
        if pairs:
            found[record] = np.array(pairs, np.int64)
    return found


def _copies(log: OpLog) -> Bool:
    """bool[n]: the operation leaves its input as it is."""
    return rows_named(log, _COPIES)


def _passive(verdicts: Verdicts, of: Int32) -> Bool:
    """bool[n]: the record's result was not judged: it is unpaired, or was logged before completion."""
    unjudged = np.append((verdicts.status > Status.CLOSE) & (verdicts.status < Status.SHAPE), True)
    return np.asarray(unjudged[of])


def _fed_by_red(log: OpLog, flow: Ragged, red: Bool, passive: Bool) -> Bool:
    """bool[n]: an input was produced by a red record, directly or over passive records."""
    known = flow.value >= 0
    reader, maker = flow.row[known], flow.value[known]
    carries = red.tolist()
    further = passive[reader]
    # in dispatch order, so that one pass follows chains of any length
    for row, made in zip(reader[further].tolist(), maker[further].tolist(), strict=True):
        if carries[made]:
            carries[row] = True
    fed = np.zeros(len(log), bool)
    fed[reader[np.array(carries, bool)[maker]]] = True
    return fed
