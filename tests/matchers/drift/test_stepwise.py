"""A few pairs made by hand, and the template that goes on in their steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from matchers.comparison import Comparison, compare
from matchers.drift.progressions import stepwise
from matchers.rules.model import PairRule, RuleSet
from tests.builders import training_step
from tests.matchers.drifted_logs import made_up_log

LAYERS = 4


@pytest.fixture(scope="module")
def c() -> Comparison:
    """The norms of a have lost their layer, and count down from the last one in threes."""
    ops = training_step(LAYERS)
    left = iter(range(3 * LAYERS - 1, 0, -3))

    def short(key: str) -> str:
        return f"attention_norm/op_{next(left)}_mul" if "attention_norm" in key else key

    return compare(made_up_log(replace(o, key=short(o.key)) for o in ops), made_up_log(ops))


def pair(counter: int, layer: int, why: str | None = None) -> PairRule:
    return PairRule(a=(f"attention_norm/op_{counter}_mul",), b=(f"layers.{layer}.attention_norm/op_0_mul",), why=why)


def through(c: Comparison, rules: Sequence[PairRule]) -> tuple[str, str] | None:
    """The template through the first of some pairs and the others."""
    i = next(at for at in range(len(c.a)) if c.a.keys[at] == rules[0].a[0])
    j = next(at for at in range(len(c.b)) if c.b.keys[at] == rules[0].b[0])
    found = stepwise(c, RuleSet(tuple(rules)), i, j)
    return None if found is None else (found.rule.a[0], found.rule.b[0])


TEMPLATE = "attention_norm/op_{3k+2}_mul", "layers.{3-k}.attention_norm/op_0_mul"


@pytest.mark.parametrize(
    "rules",
    [
        [pair(2, 3), pair(5, 2)],
        [pair(5, 2), pair(2, 3)],
        [pair(8, 1), pair(5, 2)],
        [pair(2, 3), pair(11, 0)],
        [pair(2, 3), pair(5, 2), pair(11, 0)],
    ],
)
def test_any_two_pairs_say_the_steps(c: Comparison, rules: list[PairRule]) -> None:
    assert through(c, rules) == TEMPLATE


@pytest.mark.parametrize("rules", [[pair(2, 3)], [pair(2, 3), pair(5, 2), pair(8, 0)], [pair(2, 3), pair(2, 2)]])
def test_one_pair_and_pairs_without_equal_steps_say_nothing(c: Comparison, rules: list[PairRule]) -> None:
    assert through(c, rules) is None


def test_the_template_takes_the_place_of_the_pairs_and_makes_all_of_them(c: Comparison) -> None:
    rules = RuleSet((pair(2, 3, "checkpointed"), pair(8, 1)))
    made = c.with_rules(rules)
    row = next(row for row in range(len(made)) if made.a.keys[int(made.row_a[row])] == "attention_norm/op_8_mul")
    found = stepwise(made, rules, int(made.row_a[row]), int(made.row_b[row]))
    assert found is not None
    assert found.rule.why == "checkpointed"
    after = made.with_rules(found.applied(rules))
    assert after.rules.rules == (found.rule,)
    assert after.usage[0].matched == LAYERS
    assert after.counts == c.counts
