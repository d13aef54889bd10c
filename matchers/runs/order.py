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
    """Findings without those that follow from others, by one rule after the other."""
    kept = list(findings)
    for rule in _RULES:
        kept = [one for one in kept if not rule(one, kept)]
    return kept


def _after_other_calls(one: Finding, others: Sequence[Finding]) -> bool:
    """Nothing after a collective without all its members is what it should be."""
    in_step = one.stage != Stage.BEFORE and one.check != Check.SAME_COLLECTIVES
    return in_step and _has(others, Check.SAME_COLLECTIVES)


def _after_wrong_passes(one: Finding, others: Sequence[Finding]) -> bool:
    """Updates follow from the passes; that a gradient is not reduced follows from no other operation of one rank."""
    if one.stage != Stage.UPDATE or one.check == Check.TRAINED:
        return False
    return any(set(of.ranks) & set(one.group or one.ranks) for of in others if of.stage == Stage.PASSES)


def _after_wrong_values(one: Finding, others: Sequence[Finding]) -> bool:
    """Reductions of gradients, and of their norm, bring a wrong value to all ranks."""
    return one.stage == Stage.UPDATE and _has(others, *_OF_VALUES)


def _of_other_program(one: Finding, others: Sequence[Finding]) -> bool:
    """Other operations on one rank have a reason, if another check has found it before them."""
    no_reason = (Check.SAME_PROGRAM, Check.ODD_ONE_OUT, Check.DATA)
    reasons = (of for of in others if of.check not in no_reason and of.stage != Stage.UPDATE)
    if one.check != Check.SAME_PROGRAM:
        return False
    return any(set(one.ranks) <= set(of.ranks) and not _behind(of, one) for of in reasons)


def _behind(one: Finding, other: Finding) -> bool:
    """True if all that a finding shows of the other's rank comes after what that one shows."""
    first = next((at.row for at in other.places if at.rank in other.ranks), _NO_PLACE)
    rows = [at.row for at in one.places if at.rank in other.ranks]
    return bool(rows) and one.stage != Stage.BEFORE and min(rows) > first


def _of_nan(one: Finding, others: Sequence[Finding]) -> bool:
    """NaN is another result than that of the other rank; and the way of a gradient is found by its values."""
    broken = {of.subject for of in others if of.check == Check.FINITE}
    result = one.check == Check.REPLICATED_STAYS and one.subject in broken
    return result or (one.check == Check.ODD_ONE_OUT and bool(broken))


def _of_wrong_input(one: Finding, others: Sequence[Finding]) -> bool:
    """A recomputed copy reads what a collective has brought from there, or its original did."""
    reasons = (of for of in others if of.check in (Check.COLLECTIVES_COMPUTE, Check.RECOMPUTE) and not _of_input(of))
    return _of_input(one) and any(reasons)


def _of_other_operations(one: Finding, others: Sequence[Finding]) -> bool:
    """Gradients go another way where other operations run."""
    ranks = {rank for of in others if of.check == Check.SAME_PROGRAM for rank in of.ranks}
    return one.check == Check.ODD_ONE_OUT and set(one.ranks) <= ranks


_RULES = (
    _after_other_calls,
    _after_wrong_passes,
    _after_wrong_values,
    _of_other_program,
    _of_nan,
    _of_wrong_input,
    _of_other_operations,
)
"""True for a finding that follows from others, which are those that the rules before have left."""


def _has(findings: Iterable[Finding], *checks: Check) -> bool:
    return any(one.check in checks for one in findings)


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
