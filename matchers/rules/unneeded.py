"""Rules that these two logs do not need: the matching finds by itself what they say.

Only what is certain is called so, because one rule can be what holds another's neighbours, and because a rule makes a
certainty of a guess: taking such a rule out leaves every row of the comparison as it is. Tolerances are not looked at:
they are about verdicts that the next run may need.
"""

from __future__ import annotations

from matchers.arrays import Bool
from matchers.rules.model import ApartRule, PairRule, RuleSet, TemplateRule
from matchers.rules.resolve import Resolved, RuleUsage

__all__ = ["with_hints"]


def with_hints(rules: RuleSet, resolved: Resolved, by_itself: Bool, idle: Bool) -> tuple[RuleUsage, ...]:
    """The usage of the rules, with hints at those that the matching makes needless.

    Args:
        rules: all of them.
        resolved: what they mean for the two logs.
        by_itself: by forced pair of `resolved`, the matching finds it without the rule.
        idle: by pair of `resolved` that is to stay apart, nothing else would pair the two.
    """
    if not (by_itself.any() or idle.any()):
        return resolved.usage
    made = {forced.rule for forced in resolved.forced}
    needed = {forced.rule for forced, alone in zip(resolved.forced, by_itself, strict=True) if not alone}
    # without the template, the rule that repeats one of its pairs would be a rule of its own
    made -= needed | {template for rule, template in resolved.repeated.items() if rule in needed}
    without_effect = {number for number, alone in zip(resolved.parting, idle, strict=True) if alone}
    usage: list[RuleUsage] = []
    for use in resolved.usage:
        what = None
        if use.problem is None and use.hint is None and use.matched and use.rule not in resolved.holding:
            what = _needless(rules, use, made, without_effect)
        if what is not None:
            use = use._replace(hint=f"{rules.where(rules.rules[use.rule])}: is not needed for these two logs: {what}")
        usage.append(use)
    return tuple(usage)


def _needless(rules: RuleSet, use: RuleUsage, made: set[int], idle: set[int]) -> str | None:
    rule = rules.rules[use.rule]
    if isinstance(rule, (PairRule, TemplateRule)) and use.rule in made:
        pairs = "its pair is" if use.matched == 1 else f"all its {use.matched:,} pairs are"
        return f"{pairs} found without it, by values that are equal to the digit"
    if isinstance(rule, ApartRule) and use.rule in idle:
        return "nothing else would pair the two"
    return None
