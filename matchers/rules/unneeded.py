"""Rules that these two logs do not need, because the matching reaches the same result without them.

Only certain cases are reported, because a rule may support its neighbours and turns a guess into a certainty: removing
a reported rule leaves every row of the comparison unchanged. Tolerances are left alone: the next run may need them.
"""

from __future__ import annotations

from matchers.arrays import Bool
from matchers.rules.model import ApartRule, PairRule, RuleSet, TemplateRule
from matchers.rules.resolve import Resolved, RuleUsage

__all__ = ["with_hints"]


def with_hints(rules: RuleSet, resolved: Resolved, by_itself: Bool, idle: Bool) -> tuple[RuleUsage, ...]:
    """The usage of the rules, with hints at those that the matching makes unnecessary.

    Args:
        rules: all rules.
        resolved: their meaning for the two logs.
        by_itself: by forced pair of `resolved`, the matching finds it without the rule.
        idle: by entry of `resolved.apart`, nothing else would pair the two.
    """
    if not (by_itself.any() or idle.any()):
        return resolved.usage
    made = {forced.rule for forced in resolved.forced}
    needed = {forced.rule for forced, alone in zip(resolved.forced, by_itself, strict=True) if not alone}
    # without the template, a rule that repeats one of its pairs would become necessary
    made -= needed | {template for rule, template in resolved.repeated.items() if rule in needed}
    without_effect = {number for number, alone in zip(resolved.apart_rules, idle, strict=True) if alone}
    usage: list[RuleUsage] = []
    for use in resolved.usage:
        what = None
        if use.problem is None and use.hint is None and use.matched and use.rule not in resolved.overriding:
            what = _needless(rules, use, made, without_effect)
        if what is not None:
            use = use._replace(hint=f"{rules.where(rules.rules[use.rule])}: is not needed for these two logs: {what}")
        usage.append(use)
    return tuple(usage)


def _needless(rules: RuleSet, use: RuleUsage, made: set[int], idle: set[int]) -> str | None:
    rule = rules.rules[use.rule]
    if isinstance(rule, (PairRule, TemplateRule)) and use.rule in made:
        pairs = "its pair is" if use.matched == 1 else f"all its {use.matched:,} pairs are"
        return f"{pairs} found without it, by equal printed values"
    if isinstance(rule, ApartRule) and use.rule in idle:
        return "nothing else pairs these two"
    return None
