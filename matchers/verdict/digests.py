"""Compare pairs by their digests: equal digests mean equal bits, different ones mean a difference."""

from __future__ import annotations

import numpy as np

from matchers.arrays import Bool, Hash, Int64, columns, marked
from matchers.logs.columns import Ragged, repeated
from matchers.logs.hashing import fingerprint
from matchers.logs.op_log import NO_DIGEST, UNKNOWN, OpLog, once_per_log
from matchers.ops.laws import collective, in_place, result_limit
from matchers.ops.values import records_changes

__all__ = [
    "DigestComparison",
    "altered_by_one_run",
    "compare_digests",
    "inputs_equal",
    "other_bits",
    "returns_nothing",
    "shared_inputs",
]


@columns
class DigestComparison:
    """Result of the digest comparison, per pair of records.

    Attributes:
        equal: all results are equal, including inputs changed in place.
        outputs_equal: all outputs are equal, or there are none.
        changed: one of the two changed an input in place.
        differ: some output differs.
        inputs_equal: all inputs are equal. A tensor whose content is irrelevant has no digest on either side and counts
            as equal.
        slots: int64, the pairs whose further outputs or changed inputs are not all equal.
    """

    equal: Bool
    outputs_equal: Bool
    changed: Bool
    differ: Bool
    inputs_equal: Bool
    slots: Int64


def compare_digests(a: OpLog, b: OpLog, i: Int64, j: Int64) -> DigestComparison:
    """Compare the digests of the pairs (i[k], j[k])."""
    if not (len(a.digests.value) or len(a.input_digests.value)) or not (
        len(b.digests.value) or len(b.input_digests.value)
    ):
        no = np.zeros(len(i), bool)
        return DigestComparison(no, no, no, no, no, np.zeros(0, np.int64))
    of_a, of_b = _of_results(a), _of_results(b)
    n_a, n_b = of_a.count[i], of_b.count[j]
    known = ~_any_unknown(of_a)[i] & ~_any_unknown(of_b)[j]
    both = (n_a > 0) & (n_a == n_b)
    same = _fingerprints(a)[i] == _fingerprints(b)[j]
    nothing = (a.outputs.count[i] == 0) & (b.outputs.count[j] == 0)
    changed, altered = _mutations(a, b, i, j)
    equal_inputs = inputs_equal(a, b, i, j)
    only_read = nothing & ~changed & equal_inputs & returns_nothing(a, i) & returns_nothing(b, j)
    equal = ((both & same & known) | (nothing & changed) | only_read) & ~altered
    differ = both & ~same & (known | other_bits(a, b, i, j))
    return DigestComparison(
        equal=equal,
        outputs_equal=(both & same & known) | nothing,
        changed=changed,
        differ=differ,
        inputs_equal=equal_inputs,
        slots=np.flatnonzero(altered | (~same & (n_a > 1) & (n_b > 1))),
    )


def other_bits(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    """Mask of the pairs (i[k], j[k]) whose first outputs have other digests."""
    first_a, first_b = a.digests.first(i, NO_DIGEST), b.digests.first(j, NO_DIGEST)
    return np.asarray(~np.isin(first_a, UNKNOWN) & ~np.isin(first_b, UNKNOWN) & (first_a != first_b))


def returns_nothing(log: OpLog, rows: Int64) -> Bool:
    """Mask of the rows whose record has digests of its inputs, and no result.

    If the log says nothing of what it wrote, it wrote nothing. A record with a shape has a result that is not printed.
    """
    if not len(log.outputs.value):
        return np.zeros(len(rows), bool)  # results were left out throughout
    nothing = (log.outputs.count[rows] == 0) & (log.shape[rows] < 0) & (log.input_digests.count[rows] > 0)
    unsaid = nothing & in_place(log)[rows]
    if unsaid.any() and not records_changes(log):
        nothing &= ~unsaid
    return np.asarray(nothing)


@once_per_log
def _of_results(log: OpLog) -> Ragged:
    """The digests of the outputs that are results."""
    limit = np.minimum(log.digests.count, result_limit(log))
    if np.array_equal(limit, log.digests.count):
        return log.digests
    start, place = repeated(log.digests.start[:-1], limit)
    return Ragged(np.concatenate(([0], np.cumsum(limit))), log.digests.value[start + place])


@once_per_log
def _fingerprints(log: OpLog) -> Hash:
    """uint64[n]: hashes of these, in their order."""
    of_results = _of_results(log)
    return log.fingerprints("digests") if of_results is log.digests else fingerprint(of_results)


def _any_unknown(lists: Ragged) -> Bool:
    return np.bincount(lists.row[np.isin(lists.value, UNKNOWN)], minlength=len(lists)) > 0


def _mutations(a: OpLog, b: OpLog, i: Int64, j: Int64) -> tuple[Bool, Bool]:
    """Masks of the pairs with an input changed in place, and of those whose log entries for it differ."""
    texts_a, texts_b = a.texts("Mutated"), b.texts("Mutated")
    changed = marked(texts_a.rows, len(a))[i] | marked(texts_b.rows, len(b))[j]
    altered = np.zeros(len(i), bool)
    for k in np.flatnonzero(changed).tolist():
        altered[k] = texts_a.raw(int(i[k])) != texts_b.raw(int(j[k]))
    return changed, altered


def inputs_equal(a: OpLog, b: OpLog, i: Int64, j: Int64) -> Bool:
    """Mask of the pairs (i[k], j[k]) whose inputs are all equal by their digests."""
    n_a, n_b = a.input_digests.count[i], b.input_digests.count[j]
    same = (n_a == n_b) & (a.fingerprints("input_digests")[i] == b.fingerprints("input_digests")[j])
    # no inputs: no difference
    none = (a.inputs.count[i] == 0) & (b.inputs.count[j] == 0)
    return np.asarray(same & ((n_a > 0) | none))


def shared_inputs(a: OpLog, b: OpLog, i: Int64, j: Int64) -> tuple[Int64, Int64, Int64, Int64]:
    """The inputs of the pairs (i[k], j[k]) that read as many on both sides.

    Returns:
        k, the place among the inputs of the pair, and those among all inputs of a and of b.
    """
    count = np.where(a.inputs.count[i] == b.inputs.count[j], a.inputs.count[i], 0)
    k, place = repeated(np.arange(len(i)), count)
    return k, place, a.inputs.start[i[k]] + place, b.inputs.start[j[k]] + place


def altered_by_one_run(a: OpLog, b: OpLog, i: Int64, j: Int64, inputs_equal: Bool) -> Bool:
    """Optimizer operations whose inputs differ only by the outputs of optimizer operations that the other run lacks.

    Such a difference is a real change, not propagated rounding: one run altered a parameter, by weight decay for
    example, by an amount that is small beside the parameter at any learning rate.
    """
    found = np.zeros(len(i), bool)
    alone_a, alone_b = _unmatched_updates(a, i), _unmatched_updates(b, j)
    if not (alone_a.any() or alone_b.any()):
        return found
    later = np.flatnonzero(a.updates[i] & b.updates[j] & ~inputs_equal)
    counts = [lists.count[of[later]] for log, of in ((a, i), (b, j)) for lists in (log.input_digests, log.producers)]
    later = later[np.min(counts, axis=0) == np.max(counts, axis=0)]
    k, place = repeated(later, a.input_digests.count[i[later]])
    differ = a.input_digests.at(i[k], place, 0) != b.input_digests.at(j[k], place, 0)
    made_a, made_b = a.producers.at(i[k], place, -1), b.producers.at(j[k], place, -1)
    # both do where they were not matched, as what scales the gradients of parameters that one rank alone has
    excused = ((made_a >= 0) & alone_a[made_a]) != ((made_b >= 0) & alone_b[made_b])
    found[k[differ]] = True
    found[k[differ & ~excused]] = False
    return found


def _unmatched_updates(log: OpLog, matched: Int64) -> Bool:
    alone = log.updates & ~collective(log)  # communication alone alters no values
    alone[matched] = False
    return alone
