"""Pairs that were made past each other: found where a shift makes them equal, and nowhere else."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.comparison import Comparison, compare
from matchers.drift.realign import realignments
from matchers.drift.suggest import suggest
from matchers.drift.suggestion import Suggestion, compatible
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.pairing.pairing import Method
from matchers.rules.file import parse_rules
from matchers.rules.item import new_file
from matchers.rules.model import PairRule, Rule, RuleSet, TemplateRule
from matchers.status import Status
from tests.builders import Op, op
from tests.conftest import REPOSITORY
from tests.matchers.drifted_logs import made_up_log, pairs_of_logs, rule_sets
from tests.needs import examples

FINE = (Status.EQUAL, Status.SAME_PRINT, Status.CLOSE)


def real(name: str) -> OpLog:
    return read_log(REPOSITORY / "tests" / "data" / f"{name}.log.gz")


def rows(layers: int = 4, muls: int = 6, *, change: Callable[[float, int], float] = lambda value, _: value) -> list[Op]:
    """Layers that repeat one op of their own between those of a module; `change` alters the k-th value."""
    rng = random.Random(0)
    ops: list[Op] = []
    for layer in range(layers):
        for k in range(muls):
            for key in (f"layers.{layer}.attention/op_{k}_mul", f"layers.{layer}.attention.wq/op_{k}_mm"):
                value = change(rng.uniform(1, 100), len(ops))
                ops.append(op(key, value, inputs=[value * 1.1]))
    return ops


def noisy(value: float, k: int) -> float:
    return value * (1 + 1e-6 * (k % 3 - 1))


def template(a: str, b: str, line: int = 12) -> TemplateRule:
    return TemplateRule(a=(a,), b=(b,), line=line)


def pair(a: str, b: str, line: int = 7) -> PairRule:
    return PairRule(a=(a,), b=(b,), line=line)


def shifted(by: int, numbers: Sequence[int] = range(4), layer: int = 0) -> list[PairRule]:
    """Pair rules that are off by so many counters."""
    module = f"layers.{layer}.attention"
    return [pair(f"{module}/op_{k}_mul", f"{module}/op_{k + by}_mul", line=k + 1) for k in numbers]


ONE_OFF = template("layers.{i}.attention/op_{n}_mul", "layers.{i}.attention/op_{n+1}_mul")


def compared(*rules: Rule, a: Sequence[Op] | None = None, b: Sequence[Op] | None = None) -> Comparison:
    one, other = (made_up_log(rows() if ops is None else ops) for ops in (a, b))
    return compare(one, other, RuleSet(rules, path="rules.yaml"))


def found(c: Comparison) -> list[Suggestion]:
    """The realignments of a comparison, each of which does what it says, and harms nothing."""
    out = list(realignments(c))
    for s in out:
        assert s.name == "realign"
        assert s.changes
        rules = parse_rules(new_file(s.rules))
        assert rules.problems == ()
        assert rules.rules == s.rules
        after = compare(c.a, c.b, s.applied(c.rules))
        assert (s.before, s.after) == (c.counts, after.counts)
        assert after.red.sum() < c.red.sum()
        for was, now in ((c.at_a, after.at_a), (c.at_b, after.at_b)):
            fine = np.isin(c.status, FINE)[was]
            assert np.isin(after.status, FINE)[now][fine].all()
        mended = c.red[c.at_a] & np.isin(after.status, FINE)[after.at_a]
        assert mended[sorted(s.records)].sum() >= s.settles >= s.rows * 2 / 3
    return out


# Rules that are off


def test_a_template_that_is_off_by_one_is_taken_back() -> None:
    [s] = found(compared(ONE_OFF))
    assert (s.drops, s.rules, s.rows, s.settles) == ((ONE_OFF,), (), 20, 20)
    assert s.explanation == (
        "20 rows of layers.*.attention (4 modules) differ as paired; paired one further up, all 20 are equal as "
        "printed. The rule at rules.yaml:12 makes these pairs; without it the matching finds the right ones."
    )
    assert s.effect == {Status.SAME_PRINT: 24, Status.DIVERGED: -24}


def test_a_template_that_leads_to_the_next_layer() -> None:
    rule = template("layers.{i}.attention/op_{n}_mul", "layers.{i+1}.attention/op_{n}_mul")
    [s] = found(compared(rule))
    assert s.drops == (rule,)
    assert (s.rows, s.settles) == (18, 18)


def test_runs_that_agree_within_the_tolerance_only() -> None:
    [s] = found(compared(ONE_OFF, b=rows(change=noisy)))
    assert (s.drops, s.settles) == ((ONE_OFF,), 20)
    assert "are close." in s.explanation or "close. The rule" in s.explanation


def test_pair_rules_that_stand_in_each_others_way_are_taken_back_together() -> None:
    wrong = shifted(2)
    [s] = found(compared(*wrong))
    assert s.drops == tuple(wrong)
    assert s.settles == 4
    assert "paired two further up, all 4 are" in s.explanation
    assert "The rules at rules.yaml:1, rules.yaml:2 and 2 more make these pairs" in s.explanation


def test_one_wrong_pair_is_enough_when_its_numbers_are_nobody_elses() -> None:
    wrong = pair("layers.0.attention/op_2_mul", "layers.0.attention/op_3_mul")
    [s] = found(compared(wrong))
    assert s.explanation == (
        "1 row of layers.0.attention differs as paired; paired one further up, it is equal as printed. The rule at "
        "rules.yaml:7 makes these pairs; without it the matching finds the right ones."
    )
    elsewhere = pair("layers.0.attention/op_2_mul", "layers.1.attention.wq/op_3_mm")
    [s] = found(compared(elsewhere))
    assert "paired by its numbers, it is equal" in s.explanation


def test_a_template_that_is_right_elsewhere_stays() -> None:
    """Counters of layer 3 are shifted in b; the template holds in the nine others."""
    a, b = rows(10), rows(10)
    moved = [replace(o, key=o.key.replace("op_", "op_1")) if o.key.startswith("layers.3.attention/") else o for o in b]
    moved += [op(f"layers.3.attention/op_{k}_mul", 500.0 + k, inputs=[3.0 + k]) for k in range(6)]
    rule = template("layers.{i}.attention/op_{n}_mul", "layers.{i}.attention/op_{n}_mul")
    [s] = found(compared(rule, a=a, b=moved))
    assert s.drops == ()
    assert len(s.rules) == s.settles == 6
    assert "is right elsewhere: pair rules for these rows override it" in s.explanation


def test_rules_of_two_kinds_are_told_one_by_one_and_mended_together() -> None:
    wrong = pair("layers.0.attention.wq/op_2_mm", "layers.0.attention.wq/op_4_mm")
    c = compared(ONE_OFF, wrong)
    assert [s.drops for s in found(c)] == [(ONE_OFF,), (wrong,)]
    told = suggest(c)
    assert [s.name for s in told] == ["realign", "realign"], "wrong pairs look like drift, and are none"
    rules = c.rules
    for s in compatible(c, told):
        rules = s.applied(rules)
    assert rules.rules == ()


# Pairs that no rule made


def without_rules(c: Comparison) -> Comparison:
    """As if the matching had made the pairs itself."""
    method = np.where(c.pairing.method <= Method.TEMPLATE, np.int8(Method.ALIGNED), c.pairing.method)
    return replace(c, rules=RuleSet(), usage=(), pairing=replace(c.pairing, method=method))


def test_pairs_of_the_matching_are_forced_where_their_numbers_are() -> None:
    [s] = found(without_rules(compared(*shifted(1))))
    assert s.drops == ()
    assert [(rule.a, rule.b) for rule in s.rules if isinstance(rule, PairRule)] == [
        ((f"layers.0.attention/op_{k}_mul",),) * 2 for k in range(4)
    ]
    assert s.explanation == (
        "4 rows of layers.0.attention differ as paired; paired one further up, all 4 are equal as printed."
    )


def test_a_template_is_proposed_where_one_says_it_all() -> None:
    b = [replace(o, key=o.key.replace("/op_", "/op_1")) for o in rows()]
    wrong = [
        pair(f"layers.{i}.attention/op_{k}_mul", f"layers.{i}.attention/op_1{(k + 1) % 6}_mul")
        for i in range(4)
        for k in range(6)
    ]
    [s] = found(without_rules(compared(*wrong, b=b)))
    assert [(rule.a, rule.b) for rule in s.rules if isinstance(rule, TemplateRule)] == [
        (("layers.{i}.attention/op_{n}_mul",), ("layers.{i}.attention/op_{n+10}_mul",))
    ]
    assert (s.rows, s.settles) == (20, 20)


def test_too_few_for_what_no_rule_made() -> None:
    assert found(without_rules(compared(*shifted(1, range(2))))) == []


# What is no shift


def test_what_is_constant_or_repeated_says_nothing() -> None:
    ones = [replace(o, min=1.0, max=1.0, l2=1.0, outputs=[32.0]) for o in rows()]
    assert found(compared(ONE_OFF, a=ones, b=rows())) == []
    same = rows(change=lambda _, k: 3.0 + k % 2)
    assert found(compared(ONE_OFF, a=same, b=rows())) == []
    assert found(compared(ONE_OFF, a=same, b=same)) == []


@pytest.mark.parametrize(("a", "b"), [("ac_none", "ac_none"), ("fsdp2_traced", "fsdp2_traced")])
def test_nothing_is_shifted_in_a_log_and_itself(a: str, b: str) -> None:
    assert realignments(compare(real(a), real(b))) == ()


@pytest.mark.parametrize(("a", "b"), list(permutations(("bug_base", "bug_attn_scale_l2", "bug_neg_attn_l2"), 2)))
def test_real_bugs_are_no_shifts(a: str, b: str) -> None:
    assert realignments(compare(real(a), real(b))) == ()


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("bug_base", "bug_rope_theta_l3"),
        ("ac_none", "dtype_bf16"),
        ("fsdp2_sac", "fsdp2_traced"),
        ("ac_none", "fsdp2"),
        ("bug_base", "ac_full"),
        ("fsdp2", "ac_selective"),
    ],
)
def test_real_logs_are_no_shifts(a: str, b: str) -> None:
    assert realignments(compare(real(a), real(b))) == ()


def test_a_wrong_template_on_real_logs() -> None:
    rule = template("layers.{i}.ffn_norm/op_{n}_mul", "layers.{i}.ffn_norm/op_{n-1}_mul")
    clean = compare(real("ac_none"), real("ac_selective"))
    c = clean.with_rules(RuleSet((rule,), path="rules.yaml"))
    [s] = found(c)
    assert s.drops == (rule,)
    assert s.after == clean.counts


# Whatever the run


@settings(max_examples=examples(25))
@given(
    by=st.sampled_from((-3, -2, -1, 1, 2, 3, 5)),
    layer=st.integers(0, 2),
    first=st.integers(0, 4),
    length=st.integers(1, 9),
    noise=st.booleans(),
)
def test_every_shifted_run_is_found(by: int, layer: int, first: int, length: int, noise: bool) -> None:
    muls = 10
    numbers = [k for k in range(first, min(first + length, muls)) if 0 <= k + by < muls]
    noise = noise and abs(by) <= 3 and len(numbers) >= 3
    wrong = shifted(by, numbers, layer)
    b = rows(3, muls, change=noisy) if noise else rows(3, muls)
    c = compared(*wrong, a=rows(3, muls), b=b)
    mended = c.rules
    for s in found(c):
        mended = s.applied(mended)
    assert mended.rules == ()
    assert not c.with_rules(mended).red.any()


@settings(max_examples=examples(25))
@given(
    first=st.integers(0, 40),
    seed=st.integers(0, 99),
    ruled=st.booleans(),
    kind=st.sampled_from(("all", "scaled", "some", "slightly")),
)
def test_a_difference_that_is_real_is_never_called_a_shift(first: int, seed: int, ruled: bool, kind: str) -> None:
    """Values differ from a point on; the pairs are right, whether the matching made them or the user."""
    rng = random.Random(seed)
    factor = rng.uniform(1.05, 3)

    def bug(value: float, k: int) -> float:
        if k < first or (kind == "some" and k % 3):
            return value
        by = {"scaled": factor, "slightly": 1 + rng.uniform(-1, 1) * 1e-2}.get(kind, rng.uniform(0.2, 5))
        return value * by

    rules = (template("layers.{i}.{rest:path}/op_{n}_{x}", "layers.{i}.{rest}/op_{n}_{x}"),) if ruled else ()
    assert found(compared(*rules, b=rows(change=bug))) == []


@settings(max_examples=examples(15))
@given(st.data())
def test_whatever_the_logs_and_rules_are_realignments_keep_their_word(data: Any) -> None:
    a, b = data.draw(pairs_of_logs())
    for rules in data.draw(rule_sets(a, b)):
        found(compare(a, b, rules))
