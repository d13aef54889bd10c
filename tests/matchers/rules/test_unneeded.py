"""Rules that could go are pointed out; those that hold something are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from matchers.comparison import Comparison, compare
from matchers.logs.op_log import Phase
from matchers.rules.model import (
    ApartRule,
    IgnoreRule,
    ModuleRule,
    OpRule,
    PairRule,
    Rule,
    RuleSet,
    TemplateRule,
    ToleranceRule,
)
from matchers.rules.resolve import resolve
from tests.builders import op, training_step
from tests.matchers.drifted_logs import made_up_log
from tests.matchers.rule_logs import log_of

STEP = made_up_log(training_step(2))
SAME = made_up_log(training_step(2))
BMM = "layers.0.attention/op_0_bmm"
NEEDLESS = "r.yaml:1: is not needed for these two logs: {} found without it, by equal printed values"
NORM = "layers.0.attention_norm/op_0_mul"


def of(*rules: Rule) -> Comparison:
    numbered = [replace(rule, line=number) for number, rule in enumerate(rules, start=1)]
    return compare(STEP, SAME, RuleSet(tuple(numbered), path="r.yaml"))


def hints(c: Comparison) -> list[str | None]:
    return [use.hint for use in c.usage]


def problems(c: Comparison) -> list[str | None]:
    return [use.problem for use in c.usage]


def pair(a: str, b: str) -> PairRule:
    return PairRule(a=(a,), b=(b,))


def test_a_pair_that_the_matching_finds_by_itself() -> None:
    c = of(pair(BMM, BMM))
    assert hints(c) == [NEEDLESS.format("its pair is")]
    assert problems(c) == [None]


def test_a_template_whose_pairs_the_matching_finds_by_itself() -> None:
    c = of(TemplateRule(a=("layers.{i}.attention/op_{n}_bmm",), b=("layers.{i}.attention/op_{n}_bmm",)))
    assert hints(c) == [NEEDLESS.format("all its 4 pairs are")]


def test_a_rule_that_makes_a_guess_a_certainty_is_needed() -> None:
    other = made_up_log(training_step(2, seed=5))
    c = compare(STEP, other, RuleSet((pair(BMM, BMM),)))
    assert compare(STEP, other).pairing.of_a[list(STEP.keys).index(BMM)] >= 0
    assert hints(c) == [None]


def test_a_pair_that_says_something_new_is_needed() -> None:
    c = of(pair(BMM, "layers.1.attention/op_0_bmm"))
    assert hints(c) == [None]


def test_a_pair_that_keeps_another_rule_away_is_needed() -> None:
    """Without it the template, or the rule that contradicts it, would have its way."""
    assert hints(of(TemplateRule(a=(BMM,), b=("layers.1.attention/op_0_bmm",)), pair(BMM, BMM))) == [None, None]
    assert hints(of(pair(BMM, BMM), pair(BMM, "layers.1.attention/op_0_bmm"))) == [None, None]
    assert hints(of(pair(BMM, BMM), ApartRule(a=BMM, b=BMM))) == [None, None]


def test_two_that_nothing_would_pair_need_not_be_kept_apart() -> None:
    assert hints(of(ApartRule(a=BMM, b=NORM))) == [
        "r.yaml:1: is not needed for these two logs: nothing else pairs these two"
    ]
    assert hints(of(ApartRule(a=BMM, b=BMM))) == [None]
    template = TemplateRule(a=("layers.0.attention/op_0_{x}",), b=("layers.0.attention_norm/op_0_mul",))
    c = of(template, ApartRule(a=BMM, b=NORM))
    assert hints(c)[1] is None


def test_a_template_that_other_rules_leave_nothing() -> None:
    template = TemplateRule(a=("layers.0.attention/op_0_{x}",), b=("layers.0.attention/op_0_{x}",))
    c = of(template, pair(BMM, "layers.1.attention/op_0_bmm"))
    assert problems(c) == ["r.yaml:1: has no effect: the rule at r.yaml:2 already decides its only pair", None]
    c = of(template, ApartRule(a=BMM, b=BMM))
    assert problems(c)[0] == "r.yaml:1: has no effect: the rule at r.yaml:2 already decides its only pair"
    wide = TemplateRule(a=("layers.{i}.attention/op_0_{x}",), b=("layers.{i}.attention/op_0_{x}",))
    c = of(wide, pair(BMM, NORM), pair("layers.1.attention/op_0_bmm", BMM))
    taken = "the rule at r.yaml:2 and 1 more already decide all of its 2 pairs"
    assert problems(c)[0] == f"r.yaml:1: has no effect: {taken}"


def test_the_same_template_twice() -> None:
    template = TemplateRule(a=("layers.{i}/{x}",), b=("layers.{i}/{x}",))
    assert problems(of(template, template))[1] == "r.yaml:2: repeats the rule at r.yaml:1"
    assert problems(of(template, replace(template, phase=Phase.FORWARD)))[1] == (
        "r.yaml:2: has no effect: the rule at r.yaml:1 already decides all of its 4 pairs"
    )


def test_modules_that_are_renamed_already() -> None:
    a, b = log_of(["M.layers.0/op_0_x"]), log_of(["blocks.0/op_0_x"])
    rules = RuleSet(
        (
            ModuleRule(a="M.layers.{i}", b="blocks.{i}", line=1),
            ModuleRule(a="M.{rest:path}", b="{rest}", line=2),
            ModuleRule(a="blocks.{i}", b="blocks.{i}", line=3),
        ),
        path="r.yaml",
    )
    assert [use.problem for use in resolve(rules, a, b).usage] == [
        None,
        "r.yaml:2: has no effect: the rule at r.yaml:1 renames these modules first",
        "r.yaml:3: has no effect: the new names equal the old ones",
    ]


def test_ops_that_an_earlier_rule_explains() -> None:
    a = made_up_log([op("m/op_0_x"), op("m/op_1_y")])
    b = made_up_log([op("m/op_0_u"), op("m/op_1_v")])
    rules = RuleSet(
        (
            OpRule(a=("x",), b=("u", "v"), line=1),
            OpRule(a=("x",), b=("u", "v"), line=2, phase=Phase.FORWARD),
            OpRule(a=("y",), b=("u", "v"), line=3),
            OpRule(a=("y",), b=("v",), line=4),
        ),
        path="r.yaml",
    )
    assert [use.problem for use in resolve(rules, a, b).usage] == [
        None,
        "r.yaml:2: repeats the rule at r.yaml:1, which takes precedence",
        "r.yaml:3: contradicts the rule at r.yaml:1, which takes precedence",
        None,
    ]


def test_what_is_ignored_already() -> None:
    c = of(IgnoreRule(op="bmm"), IgnoreRule(op="mul"), IgnoreRule(op="b*", side="a"), IgnoreRule(match="*/op_?_[mb]*"))
    assert hints(c)[:3] == [None, None, "r.yaml:3: is not needed: the rule at r.yaml:1 ignores all its matches"]
    c = of(IgnoreRule(op="bmm"), IgnoreRule(op="_softmax"), IgnoreRule(match="layers.?.attention/*"))
    assert hints(c)[2] == "r.yaml:3: is not needed: the rule at r.yaml:1 and 1 more ignore all its matches"


@pytest.mark.parametrize("rule", [ToleranceRule(match="*", rtol=1e-3), IgnoreRule(op="bmm")])
def test_a_rule_about_verdicts_is_not_called_needless_because_nothing_is_red(rule: Rule) -> None:
    """The next run of the same comparison may need it."""
    assert hints(of(rule)) == [None]
    assert problems(of(rule)) == [None]
