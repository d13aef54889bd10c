"""The judges of a comparison in their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from matchers.arrays import Bool, Float64, Int64
from matchers.logs.op_log import OpLog
from matchers.status import Status
from matchers.verdict.arguments import judge_arguments, judge_settings
from matchers.verdict.cancellation import without_noise
from matchers.verdict.case import Case, Earlier, Judgement, Last
from matchers.verdict.determinism import judge_repetition
from matchers.verdict.digests import other_bits
from matchers.verdict.error_propagation import explain_by_arithmetic
from matchers.verdict.fused import judge_fused
from matchers.verdict.judge import judge, other_layouts
from matchers.verdict.judged import judge_again
from matchers.verdict.last_contents import without_other_tensors
from matchers.verdict.list_lengths import with_lengths
from matchers.verdict.loss_scale import without_scale
from matchers.verdict.micro_batch_terms import without_terms
from matchers.verdict.other_forms import without_other_forms
from matchers.verdict.partial_sums import judge_chunks, judge_sums, sums_claimed
from matchers.verdict.parts import judge_parts
from matchers.verdict.reason import UNSIZED, Reason
from matchers.verdict.records import judge_records
from matchers.verdict.start import judge_start
from matchers.verdict.tolerance import DtypePolicy
from matchers.verdict.user_hash import user_differences
from matchers.verdict.without_consequence import without_consequence
from matchers.verdict.without_effect import without_unread

__all__ = ["JUDGES", "Judge", "judge_all", "within_rules_only"]


class Judge(NamedTuple):
    """One judge: it claims pairs by giving them a status and its reason, and replaces only reasons in `refines`."""

    judge: Callable[[Case, Judgement], Judgement]
    refines: frozenset[Reason]


def by_bits(case: Case, found: Judgement) -> Judgement:
    """Claim differences where bitwise equality is expected: any at all by digests or hashes, else any printed."""
    if not case.bitwise:
        return found
    verdicts, strict = found.verdicts, np.isnan(case.rtol)
    other = other_bits(case.a, case.b, case.i, case.j) | user_differences(case.a, case.b, case.i, case.j)[1]
    other[[k for k, slot in verdicts.slots.items() if slot.reason in UNSIZED]] = True
    red = (verdicts.status == Status.CLOSE) & ((verdicts.error > 0) | (case.a.tells.exact and case.b.tells.exact))
    red |= (verdicts.status == Status.NOT_JUDGED) & other
    verdicts = verdicts.claimed(red & strict, Status.DIVERGED, Reason.NOT_BITWISE)
    limit, tolerance = (np.where(strict, 0.0, values) for values in (verdicts.limit, verdicts.tolerance))
    return replace(found, verdicts=replace(verdicts, limit=limit, tolerance=tolerance))


_CLOSE = frozenset(
    {
        Reason.SAME_NUMBERS,
        Reason.SAME_ELEMENTS,
        Reason.OTHER_BITS_SAME_NORMS,
        Reason.INFINITE_NORM,
        Reason.WITHIN_TOLERANCE,
    }
)
_FAR = frozenset({Reason.BEYOND_TOLERANCE, Reason.OTHER_WHOLE_NUMBERS, Reason.OTHER_ORDER, Reason.CHANGED_BY_ONE_RUN})
_OTHER_KIND = frozenset({Reason.OTHER_SHAPE, Reason.OTHER_DTYPE})
_UNKNOWN = frozenset({Reason.NO_NUMBERS, Reason.UNSIZED, Reason.REARRANGED, Reason.TIED, Reason.UNFINISHED})
_NAN = frozenset({Reason.NON_FINITE, Reason.NAN_IN_BOTH})
_BY_NUMBERS = _CLOSE | _FAR | _OTHER_KIND | _UNKNOWN | _NAN | {Reason.EQUAL_BITS, Reason.SHARD_OF_WHOLE}
_EXPLAINED = frozenset({Reason.LOSS_SCALE, Reason.CANCELLATION})
_UNEXPLAINED = _FAR | {Reason.NOT_BITWISE, Reason.NOT_REPEATED, Reason.MORE_THAN_ROUNDING, Reason.SYSTEMATIC}
_GIVEN = frozenset({Reason.OTHER_SCALAR, Reason.OTHER_WEIGHT})
_OUTCOMES = frozenset({Reason.UNREAD_OUTPUT, Reason.ROUNDING_EXPLAINED, Reason.OTHER_LIST_LENGTH})
_UNCOMPARED = frozenset(
    {
        Reason.NO_NUMBERS,
        Reason.ROUNDING_UNLIMITED,
        Reason.CHOSEN_OTHERWISE,
        Reason.SHARD_OF_WHOLE,
        Reason.TERM_OF_SUM,
    }
)
_RED = _UNEXPLAINED | _OTHER_KIND | _GIVEN | _NAN

JUDGES: tuple[Judge, ...] = (
    Judge(without_scale, _FAR),
    Judge(judge_fused, _BY_NUMBERS | {Reason.LOSS_SCALE}),  # of the leads of groups, which say nothing
    Judge(without_noise, (_BY_NUMBERS | {Reason.LOSS_SCALE}) - {Reason.EQUAL_BITS} - _NAN),
    Judge(judge_parts, (_BY_NUMBERS | _EXPLAINED) - _UNKNOWN - {Reason.EQUAL_BITS}),
    Judge(by_bits, _CLOSE | _UNKNOWN),
    Judge(judge_repetition, _CLOSE | {Reason.CANCELLATION, Reason.UNSIZED, Reason.LOSS_SCALE}),
    Judge(explain_by_arithmetic, _CLOSE | _FAR | _EXPLAINED | {Reason.OTHER_SHAPE}),
    Judge(without_unread, _RED),
    Judge(with_lengths, _BY_NUMBERS | _EXPLAINED | _UNEXPLAINED | _OUTCOMES),  # numbers of other lists say nothing
    Judge(without_terms, _UNEXPLAINED | _OTHER_KIND | {Reason.OTHER_LIST_LENGTH}),
    Judge(judge_sums, _RED),
    Judge(without_other_tensors, _RED | {Reason.OTHER_LIST_LENGTH}),
    Judge(judge_chunks, _UNEXPLAINED | _GIVEN),
    Judge(without_other_forms, _RED | {Reason.OTHER_LIST_LENGTH}),
    Judge(judge_arguments, _RED | _CLOSE | _EXPLAINED | _OUTCOMES | _UNCOMPARED),
    Judge(judge_records, frozenset(Reason) - _RED),
    Judge(judge_settings, frozenset(Reason) - _RED),
    Judge(judge_start, frozenset(Reason) - _RED),
    Judge(without_consequence, _RED | {Reason.ARGUMENTS}),
)
"""All judges after the first, which compares the numbers of each pair (`judge`)."""


def judge_all(case: Case) -> Judgement:
    """Judge every pair."""
    earlier = case.earlier
    if (last := earlier.last) is not None and last.case.same_but_excluded(case):
        # of what rules ignore only sums ask
        one, other = (sums_claimed(of, last.before_sums, last.found.loss_scale) for of in (last.case, case))
        if all(map(np.array_equal, one, other)):
            return last.found
    layouts = other_layouts(case.a, case.b, case.i, case.j)
    judged = judge_again(case.a, case.b, case.i, case.j, case.rtol, case.policy, layouts, earlier.by_itself)
    found = Judgement.of(case, judged.verdicts)
    before_sums = judged.verdicts.status
    for each in JUDGES:
        before_sums = found.verdicts.status if each.judge is judge_sums else before_sums
        found = each.judge(case, found)
    earlier.by_itself = judged
    earlier.last = Last(replace(case, earlier=Earlier()), before_sums, replace(found, b=case.b))
    return found


def within_rules_only(a: OpLog, b: OpLog, i: Int64, j: Int64, rtol: Float64, policy: DtypePolicy) -> Bool:
    """bool[p]: close pairs that would be red without the tolerance of a user's rule."""
    found = np.zeros(len(i), bool)
    k = np.flatnonzero(~np.isnan(rtol))
    if len(k):
        found[k] = judge(a, b, i[k], j[k], None, policy).status >= Status.SHAPE
    return found
