"""The order of findings: the first cause first, without what merely follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from matchers.ops.recomputation import Reason
from matchers.runs.finding import Check, Finding, Stage

__all__ = ["in_order"]

_OF_PARAMETERS = (Check.REPLICAS, Check.TRAINED, Check.ODD_ONE_OUT)
_OF_VALUES = (Check.FINITE, Check.COLLECTIVES_COMPUTE, Check.RECOMPUTE, Check.REPLICATED_STAYS)
_NO_PLACE = 1 << 40


def in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Join findings about one thing, drop those that follow from others, and sort the rest."""
    found = _joined(_one_for_each_parameter(findings))
    return tuple(sorted(_causes(found), key=_key))


def _key(one: Finding) -> tuple[int, int, int]:
    """Sort key: the part of the step, a collective that not all members call before all else, the row, the check."""
    row = one.places[0].row if one.places else _NO_PLACE
    first = one.stage == Stage.BEFORE or one.check == Check.SAME_COLLECTIVES
    return one.stage, -1 if first else row, one.check


def _causes(findings: Sequence[Finding]) -> list[Finding]:
    """Findings without those that follow from an earlier one."""
    if any(one.check == Check.SAME_COLLECTIVES for one in findings):
        # nothing after a collective without all its members is what it should be
        return [one for one in findings if one.stage == Stage.BEFORE or one.check == Check.SAME_COLLECTIVES]
    wrong = {rank for one in findings if one.stage == Stage.PASSES for rank in one.ranks}
    kept = [
        one
        for one in findings
        # that a gradient is not reduced follows from no other operation of one rank
        if one.stage != Stage.UPDATE or one.check == Check.TRAINED or not wrong & set(one.group or one.ranks)
    ]
    if any(one.check in _OF_VALUES for one in kept):
        # reductions of gradients, and of their norm, bring a wrong value to all ranks
        kept = [one for one in kept if one.stage != Stage.UPDATE]
    # what runs other operations on one rank has a reason, if another check has found it
    others = (Check.SAME_PROGRAM, Check.ODD_ONE_OUT, Check.DATA)
    reasons = [set(one.ranks) for one in kept if one.check not in others and one.stage != Stage.UPDATE]
    kept = [one for one in kept if one.check != Check.SAME_PROGRAM or not any(set(one.ranks) <= r for r in reasons)]
    if broken := {one.subject for one in kept if one.check == Check.FINITE}:
        # the way of a gradient is found by its values
        kept = [one for one in kept if one.check != Check.ODD_ONE_OUT]
        # NaN is another result than that of the other rank
        kept = [one for one in kept if one.check != Check.REPLICATED_STAYS or one.subject not in broken]
    if any(one.check in (Check.COLLECTIVES_COMPUTE, Check.RECOMPUTE) and not _of_input(one) for one in kept):
        # a copy reads what a collective has brought from there, or its original did
        kept = [one for one in kept if not _of_input(one)]
    other_program = {rank for one in kept if one.check == Check.SAME_PROGRAM for rank in one.ranks}
    return [one for one in kept if one.check != Check.ODD_ONE_OUT or not set(one.ranks) <= other_program]


def _of_input(one: Finding) -> bool:
    """True for a recomputed copy that differs because an input does."""
    return one.check == Check.RECOMPUTE and one.text.endswith(Reason.INPUT.value)


def _one_for_each_parameter(findings: Iterable[Finding]) -> list[Finding]:
    """Findings without those on a parameter of which an earlier check says the reason."""
    said: dict[str, Check] = {}
    kept = []
    for one in findings:
        if one.check in _OF_PARAMETERS:
            subjects = [name for name in (one.subject, *one.more) if said.get(name, one.check) == one.check]
            if not subjects:
                continue
            said.update(dict.fromkeys(subjects, one.check))
            one = replace(one, subject=subjects[0], more=tuple(subjects[1:]))
        kept.append(one)
    return kept


def _joined(findings: Iterable[Finding]) -> list[Finding]:
    """Findings of one check with one text, on several ranks or about several subjects, as one."""
    found: dict[tuple[Check, str, str], Finding] = {}
    for one in findings:
        key = (one.check, one.text, one.dimension)
        known = found.get(key)
        if known is None:
            found[key] = one
            continue
        subjects = dict.fromkeys((*known.more, one.subject, *one.more))
        subjects.pop(known.subject, None)
        found[key] = replace(
            known,
            more=tuple(subjects),
            ranks=tuple(sorted({*known.ranks, *one.ranks})),
            group=tuple(sorted({*known.group, *one.group})),
            notes=tuple(dict.fromkeys((*known.notes, *one.notes))),
        )
    return list(found.values())
