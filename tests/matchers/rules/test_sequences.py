"""Rules one after the other: the same as all of them from the start, and without those that are called needless.

`RULE_SEQUENCES=10000 pytest -n0 tests/matchers/rules/test_sequences.py` looks at that many sessions instead of
the few dozen of an ordinary run, and at others each time.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.comparison import compare
from matchers.drift.realign import realignments
from matchers.pairing.pairing import Method
from matchers.rules.model import PairRule, RuleSet, TemplateRule
from matchers.rules.resolve import resolve
from matchers.status import Status
from tests.matchers.drifted_logs import pairs_of_logs, rule_sets
from tests.matchers.invariants import check, same
from tests.needs import examples

_ASKED = os.environ.get("RULE_SEQUENCES")
_EXAMPLES = int(_ASKED or examples(40))
sessions = settings(max_examples=_EXAMPLES, derandomize=_ASKED is None)
single_sets = settings(sessions, max_examples=_EXAMPLES // 2)


@sessions
@given(st.data())
def test_rules_one_after_the_other_are_those_rules_from_the_start(data: st.DataObject) -> None:
    a, b = data.draw(pairs_of_logs())
    c = compare(a, b)
    for rules in data.draw(rule_sets(a, b)):
        c, anew = c.with_rules(rules), compare(a, b, rules)
        same(c, anew)
        assert c.rules == rules
        assert repr(realignments(c)) == repr(realignments(anew))


@settings(max_examples=examples(30))
@given(st.data())
def test_rules_get_what_they_say(data: st.DataObject) -> None:
    """What they force is paired, what they keep apart is not, and all else holds as without rules."""
    a, b = data.draw(pairs_of_logs())
    for rules in data.draw(rule_sets(a, b, most=1)):
        c = compare(a, b, rules)
        check(c)
        resolved = resolve(rules, a, b)
        for forced in resolved.forced:
            pair = c.pairing.of_a[forced.a[0]]
            assert pair >= 0
            assert set(c.pairing.of_a[list(forced.a)]) == set(c.pairing.of_b[list(forced.b)]) == {pair}
            assert c.pairing.method[pair] == (Method.TEMPLATE if forced.template else Method.OVERRIDE)
        for i, j in resolved.apart:
            assert c.pairing.of_a[i] < 0 or c.pairing.of_a[i] != c.pairing.of_b[j]
        for row in np.flatnonzero(c.status == Status.IGNORED).tolist():
            in_a, in_b = c.members(row)
            assert resolved.ignored_a[list(in_a)].any() or resolved.ignored_b[list(in_b)].any()
        assert len(c.usage) == len(rules)


@settings(max_examples=examples(40))
@given(st.data())
def test_a_rule_that_is_disabled_might_as_well_not_be_there(data: st.DataObject) -> None:
    a, b = data.draw(pairs_of_logs())
    for rules in data.draw(rule_sets(a, b, most=2)):
        off = [data.draw(st.booleans()) for _ in rules]
        some = RuleSet(tuple(replace(rule, enabled=not no) for rule, no in zip(rules, off, strict=True)))
        c = compare(a, b, some)
        fewer = compare(a, b, RuleSet(tuple(rule for rule in some if rule.enabled)))
        same(c, fewer, but=("rules", "usage"))
        said = [use._replace(rule=0) for use in c.usage if some.rules[use.rule].enabled]
        assert said == [use._replace(rule=0) for use in fewer.usage]
        assert all(use == (use.rule, 0, None, 0, None) for use in c.usage if not some.rules[use.rule].enabled)


@single_sets
@given(st.data())
def test_a_rule_that_is_called_needless_changes_nothing(data: st.DataObject) -> None:
    """Each by itself: but for how a pair was found, and what is said of the other rules, all is as without the rule."""
    a, b = data.draw(pairs_of_logs(changes=4))
    for rules in data.draw(rule_sets(a, b, most=2)):
        c = compare(a, b, rules)
        for use in c.usage:
            if use.hint is None:
                continue
            assert use.problem is None
            rule = rules.rules[use.rule]
            without = compare(a, b, rules.removing(rule))
            named = isinstance(rule, (PairRule, TemplateRule))
            how = ("method", "confidence", "runner_up", "runner_up_score") if named else ()
            same(c, without, but=("rules", "usage", *how))
