"""Rules become rows, and what is wrong with a rule is said."""

from __future__ import annotations

import fnmatch
import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.logs.op_log import OpLog
from matchers.rules import key_index
from matchers.rules.file import parse_rules
from matchers.rules.model import (
    ApartRule,
    IgnoreRule,
    ModuleRule,
    OpRule,
    PairRule,
    Rule,
    RuleSet,
    Side,
    TemplateRule,
    ToleranceRule,
)
from matchers.rules.pattern import Pattern
from matchers.rules.resolve import Resolved, RuleUsage, key_reference, resolve, warm
from tests.matchers.rule_logs import log_of
from tests.needs import examples

A = log_of(
    ["m.0/op_0_add", "m.0/op_1_mul", "m.1/op_0_add", "m.1/op_1_mul", "<none>/op_0_add", "twice/op_0_x", "twice/op_0_x"]
)
B = log_of(
    ["m.0/op_1_add", "m.0/op_2_mul", "m.1/op_1_add", "n/op_0_wait", "n/op_1_wait", "twice/op_0_x", "twice/op_0_x"]
)


def pair(a: str, b: str, line: int | None = None) -> PairRule:
    return PairRule(a=(a,), b=(b,), line=line)


def of(*rules: Rule, a: OpLog = A, b: OpLog = B) -> Resolved:
    return resolve(RuleSet(rules, path="r.yaml"), a, b)


def pairs(resolved: Resolved) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(forced.a, forced.b) for forced in resolved.forced]


def problems(resolved: Resolved) -> list[str | None]:
    return [usage.problem for usage in resolved.usage]


def hints(resolved: Resolved) -> list[str | None]:
    return [usage.hint for usage in resolved.usage]


def test_no_rules_mean_nothing() -> None:
    out = of()
    for nothing in (out.forced, out.apart, out.op_groups, out.usage):
        assert not nothing
    assert out.modules_a == tuple(A.modules)
    assert not out.ignored_a.any()
    assert not out.ignored_b.any()
    assert np.isnan(out.rtol(np.arange(7), np.arange(7))).all()


def test_a_pair_and_a_group() -> None:
    out = of(pair("m.0/op_0_add", "m.0/op_1_add"), PairRule(a=("m.0/op_1_mul",), b=("n/op_0_wait", "n/op_1_wait")))
    assert pairs(out) == [((0,), (0,)), ((1,), (3, 4))]
    assert [f.rule for f in out.forced] == [0, 1]
    assert not any(f.template for f in out.forced)
    assert [u.matched for u in out.usage] == [1, 1]
    assert problems(out) == [None, None]


def test_a_missing_operation_is_named() -> None:
    out = of(pair("m.0/op_9_add", "m.0/op_1_add", 12), pair("m.0/op_0_add", "zzz"), pair("n/op_0_wait", "m.0/op_2_mul"))
    assert problems(out) == [
        "r.yaml:12: a has no operation 'm.0/op_9_add'",
        "the new rule in pairs: b has no operation 'zzz'",
        "the new rule in pairs: a has no operation 'n/op_0_wait' (b has it: are the sides swapped?)",
    ]
    assert not out.forced


def test_repeated_keys() -> None:
    out = of(pair("twice/op_0_x#2", "twice/op_0_x#1"))
    assert pairs(out) == [((6,), (5,))]
    assert problems(out) == [None]
    out = of(pair("twice/op_0_x", "m.0/op_1_add"))
    assert pairs(out) == [((5,), (0,))]
    assert "'twice/op_0_x' is ambiguous: a has 2 operations" in (problems(out)[0] or "")
    assert "no operation 'twice/op_0_x#3'" in (problems(of(pair("twice/op_0_x#3", "m.0/op_1_add")))[0] or "")


def test_every_row_can_be_named() -> None:
    keys = ["x", "x", "x#2", "y#1", "y", "", "", "/", "a/", "#1", "x#02", "z/b", "z/b", "z/c"]
    log = log_of(keys)
    names = [key_reference(log, row) for row in range(len(keys))]
    assert names[:5] == ["x#1", "x#002", "x#2", "y#1", "y"]
    assert names[-1] == "z/c"
    for row, name in enumerate(names):
        if name:
            out = of(pair(name, "t"), a=log, b=log_of(["t"]))
            assert pairs(out) == [((row,), (0,))]
            assert problems(out) == [None]


@given(st.lists(st.text("ab/#12", max_size=4), min_size=1, max_size=8))
def test_references_name_exactly_their_row(keys: list[str]) -> None:
    log = log_of(keys)
    once = [key_reference(log, row, once=True) for row in range(len(keys))]
    assert log.keys.search is None, "no index is made for one name"
    for row in range(len(keys)):
        name = key_reference(log, row)
        assert name == once[row]
        if name:
            assert pairs(of(pair(name, "t"), a=log, b=log_of(["t"]))) == [((row,), (0,))]


def test_contradictions_and_repetitions() -> None:
    out = of(
        pair("m.0/op_0_add", "m.0/op_1_add", 3),
        pair("m.0/op_0_add", "m.1/op_1_add", 5),
        pair("m.0/op_0_add", "m.0/op_1_add", 7),
        ApartRule(a="m.0/op_0_add", b="m.0/op_1_add", line=9),
        ApartRule(a="m.0/op_0_add", b="m.0/op_2_mul", line=11),
        ApartRule(a="m.0/op_0_add", b="m.0/op_2_mul", line=13),
    )
    assert pairs(out) == [((0,), (0,))]
    assert out.apart == ((0, 1),)
    assert problems(out) == [
        None,
        "r.yaml:5: contradicts the rule at r.yaml:3, which takes precedence",
        "r.yaml:7: repeats the rule at r.yaml:3, which takes precedence",
        "r.yaml:9: contradicts the rule at r.yaml:3, which takes precedence",
        None,
        "r.yaml:13: repeats the rule at r.yaml:11",
    ]


def test_a_group_cannot_hold_one_operation_twice() -> None:
    out = of(PairRule(a=("twice/op_0_x", "twice/op_0_x#1"), b=("m.0/op_1_add",)))
    assert not out.forced
    assert "twice" in (problems(out)[0] or "")


ADDS = TemplateRule(a=("m.{i}/op_{n}_add",), b=("m.{i}/op_{n+1}_add",), line=20)


def test_a_template() -> None:
    out = of(ADDS)
    assert pairs(out) == [((0,), (0,)), ((2,), (2,))]
    assert all(f.template and f.rule == 0 for f in out.forced)
    assert out.usage[0] == RuleUsage(0, 2, None)


def test_a_template_finds_partners_for_some() -> None:
    out = of(TemplateRule(a=("m.{i}/op_{n}_mul",), b=("m.{i}/op_{n+1}_mul",)))
    assert pairs(out) == [((1,), (1,))]
    assert (out.usage[0].matched, out.usage[0].missed, out.usage[0].problem) == (1, 1, None)


def test_a_template_that_finds_nothing() -> None:
    out = of(TemplateRule(a=("q.{i}/{x}",), b=("{x}",)), TemplateRule(a=("m.{i}/{x}",), b=("q.{i}/{x}",)))
    assert problems(out) == [
        "the new rule in templates: a has no operation 'q.{i}/{x}'",
        "the new rule in templates: b has no operation 'q.0/op_0_add' for 'm.0/op_0_add' of a, nor for any other",
    ]


def test_a_template_pairs_repeated_keys_in_order() -> None:
    assert pairs(of(TemplateRule(a=("twice/{x}",), b=("twice/{x}",)))) == [((5,), (5,)), ((6,), (6,))]


def test_a_template_that_leads_to_one_operation_from_two_is_ambiguous() -> None:
    out = of(TemplateRule(a=("m.{i}/op_0_add",), b=("n/op_0_wait",)))
    assert pairs(out) == [((0,), (3,))]
    assert "ambiguous: 'm.1/op_0_add' of a and another both map to 'n/op_0_wait' of b" in (problems(out)[0] or "")


def test_a_template_of_groups() -> None:
    out = of(TemplateRule(a=("<none>/op_{n}_add",), b=("n/op_{n}_wait", "n/op_{n+1}_wait")))
    assert pairs(out) == [((4,), (3, 4))]


def test_special_rules_go_before_templates() -> None:
    """A pair rule takes its rows away from the template, an apart rule forbids one pair of it; both without a word."""
    out = of(ADDS, pair("m.0/op_0_add", "n/op_0_wait"))
    assert sorted(pairs(out)) == [((0,), (3,)), ((2,), (2,))]
    out = of(ADDS, ApartRule(a="m.0/op_0_add", b="m.0/op_1_add"))
    assert pairs(out) == [((2,), (2,))]
    assert problems(out) == [None, None]


def test_a_pair_rule_that_a_template_makes_needless() -> None:
    out = of(ADDS, pair("m.0/op_0_add", "m.0/op_1_add", 30))
    assert sorted(pairs(out)) == [((0,), (0,)), ((2,), (2,))]
    assert problems(out) == [None, None]
    assert hints(out) == [None, "r.yaml:30: is not needed: the rule at r.yaml:20 makes this pair too"]
    assert out.usage[0].matched == 2


def test_templates_do_not_take_from_each_other() -> None:
    other = TemplateRule(a=("m.1/op_0_{x}",), b=("n/op_0_wait",), line=21)
    out = of(ADDS, other)
    assert pairs(out) == [((0,), (0,)), ((2,), (2,))]
    assert problems(out) == [None, "r.yaml:21: has no effect: the rule at r.yaml:20 already decides its only pair"]


def test_modules_are_renamed_in_turn() -> None:
    a = log_of(["M.layers.0/op_0_x", "M.layers.1/op_0_x", "M/op_0_x"])
    b = log_of(["blocks.0/op_0_x", "blocks.1/op_0_x"])
    out = of(
        ModuleRule(a="M.{rest:path}", b="{rest}"),
        ModuleRule(a="layers.{i}", b="blocks.{i}"),
        ModuleRule(a="M", b="root"),
        ModuleRule(a="Q", b="R"),
        a=a,
        b=b,
    )
    assert out.modules_a == ("blocks.0", "blocks.1", "root")
    assert [u.matched for u in out.usage] == [2, 2, 1, 0]
    assert problems(out) == [
        None,
        None,
        "the new rule in modules: b has no module with the new names, such as 'root'",
        "the new rule in modules: a has no module 'Q'",
    ]


def test_other_rules_may_use_the_new_names_of_modules() -> None:
    a = log_of(["M.layers.0/op_0_x", "layers.0/op_1_x", "M.layers.1/op_0_x"])
    b = log_of(["layers.0/op_0_x", "layers.1/op_0_x"])
    rename = ModuleRule(a="M.{rest:path}", b="{rest}")
    out = of(rename, pair("layers.0/op_0_x", "layers.0/op_0_x"), a=a, b=b)
    assert pairs(out) == [((0,), (0,))]
    out = of(rename, pair("M.layers.0/op_0_x", "layers.0/op_0_x"), a=a, b=b)
    assert pairs(out) == [((0,), (0,))]
    out = of(rename, TemplateRule(a=("layers.{i}/op_{n}_x",), b=("layers.{i}/op_{n}_x",)), a=a, b=b)
    assert pairs(out) == [((0,), (0,)), ((2,), (1,))]
    assert out.usage[1].missed == 1
    out = of(rename, IgnoreRule(match="layers.*"), a=a, b=b)
    assert out.ignored_a.tolist() == [True, True, True]


def test_op_groups() -> None:
    out = of(OpRule(a=("add",), b=("wait", "mul")), OpRule(a=("mul",), b=("nope",)))
    assert [tuple(g) for g in out.op_groups] == [(("add",), ("wait", "mul"), 0, None), (("mul",), ("nope",), 1, None)]
    assert out.usage[0].matched == 3 + 3
    assert problems(out) == [None, "the new rule in ops: b has no op 'nope'"]


def test_ignore() -> None:
    out = of(IgnoreRule(side="b", op="wait"))
    assert out.ignored_b.tolist() == [False, False, False, True, True, False, False]
    assert not out.ignored_a.any()
    assert out.usage[0].matched == 2
    assert of(IgnoreRule(op="w*")).ignored_b.sum() == 2
    out = of(IgnoreRule(match="m.?/*", op="add"))
    assert out.ignored_a.tolist() == [True, False, True, False, False, False, False]
    assert out.ignored_b.tolist() == [True, False, True, False, False, False, False]
    assert of(IgnoreRule(match="twice/op_0_x#2", side=Side.A)).ignored_a.nonzero()[0].tolist() == [6]
    assert of(IgnoreRule(match="twice/op_0_x", side="a")).ignored_a.nonzero()[0].tolist() == [5, 6]
    assert problems(of(IgnoreRule(side="a", op="wait"), IgnoreRule(match="q*", op="z"))) == [
        "the new rule in ignore: matches nothing in a: op 'wait'",
        "the new rule in ignore: matches nothing in either log: op 'z' and key 'q*'",
    ]


def test_a_key_with_a_star_means_itself() -> None:
    log = log_of(["a*/x", "ab/x"])
    assert of(IgnoreRule(match="a*/x"), a=log, b=B).ignored_a.tolist() == [True, False]


def test_tolerance_first_match_wins() -> None:
    out = of(
        ToleranceRule(match="m.0/*", rtol=1e-3),
        ToleranceRule(match="m.*", rtol=1e-5),
        ToleranceRule(match="m.0/op_0*", rtol=1.0),
        ToleranceRule(match="n/*", rtol=0.5),
        ToleranceRule(match="zzz", rtol=0.5),
    )
    rows = np.arange(7)
    assert out.rtol(rows[:5], rows[:5]).tolist() == [1e-3, 1e-3, 1e-5, 1e-5, 0.5]
    assert np.isnan(out.rtol(rows[5:], rows[5:])).all()
    assert out.rtol(rows[[4, 4, 2]], rows[[3, 5, 0]]).tolist() == pytest.approx([0.5, np.nan, 1e-3], nan_ok=True)
    assert [u.matched for u in out.usage] == [4, 3, 0, 2, 0]
    assert problems(out)[2:] == [
        "the new rule in tolerance: has no effect: the new rule in tolerance matches first",
        None,
        "the new rule in tolerance: matches nothing in either log: key 'zzz'",
    ]


def test_empty_logs() -> None:
    none = log_of([])
    rules = parse_rules(
        "pairs: [{a: x, b: y}]\ntemplates: [{a: '{x}', b: '{x}'}]\nmodules: [{a: x, b: y}]\nops: [{a: x, b: y}]\n"
        "ignore: [{op: x}, {match: '*'}]\ntolerance: [{match: '*', rtol: 1}]\napart: [{a: x, b: y}]\n"
    )
    out = resolve(rules, none, none)
    assert all(usage.problem for usage in out.usage)
    assert resolve(rules, A, none).usage


KEYS = st.lists(
    st.builds(
        "{}{}".format,
        st.sampled_from(["", "m/", "m.0/", "m.1/", "a/b/"]),
        st.sampled_from(["x", "op_1_x", "op_2_x", "y"]),
    ),
    max_size=8,
)


@settings(max_examples=examples(200), deadline=None)
@given(
    KEYS,
    KEYS,
    st.sampled_from(["{x}", "m.{i}/{x}", "{r:path}/op_{n}_x", "{x}/{y}/{z}", "m/x"]),
    st.text("mx*?/.", max_size=5),
)
def test_the_index_finds_what_a_loop_over_all_keys_finds(a: list[str], b: list[str], template: str, glob: str) -> None:
    log_a, log_b = log_of(a), log_of(b)
    out = of(TemplateRule(a=(template,), b=(template,)), a=log_a, b=log_b)
    expected = []
    for row, key in enumerate(a):
        if Pattern.of(template).match(key) is not None:
            partners = [at for at, other in enumerate(b) if other == key]
            nth = a[:row].count(key)
            if nth < len(partners):
                expected.append(((row,), (partners[nth],)))
    assert sorted(pairs(out)) == expected
    if glob:
        wanted = [key == glob or (glob not in a and fnmatch.fnmatchcase(key, glob)) for key in a]
        assert of(IgnoreRule(match=glob), a=log_a, b=log_b).ignored_a.tolist() == wanted


def test_keys_are_taken_apart_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that is made of pieces of a log finds what one made at once does."""
    keys = ["a/x", "b/x", "a/y", "x", "", "/", "a/x", "c/d/x", "b/x"]
    at_once = [[key_index.index_of(log_of(keys), []).named(key).tolist() for key in keys]]
    monkeypatch.setattr(key_index, "_AT_ONCE", 2)
    index = key_index.index_of(log_of(keys), [])
    assert at_once == [[index.named(key).tolist() for key in keys]]
    assert index.named("a/x").tolist() == [0, 6]


def test_what_is_kept_of_a_log_goes_with_it() -> None:
    log = log_of(["x", "y"])
    of(pair("x", "y"), a=log, b=log)
    kept = weakref.ref(log.keys.search)
    del log
    gc.collect()
    assert kept() is None


def test_the_same_rules_mean_the_same_again() -> None:
    """Also after other rules were in force: what is kept between calls must not leak from one set into another."""
    sets = [
        RuleSet((ADDS,)),
        RuleSet((ADDS, pair("m.0/op_0_add", "n/op_0_wait"))),
        RuleSet((ModuleRule(a="m.{i}", b="q.{i}"), ADDS)),
        RuleSet((TemplateRule(a=("twice/{x}",), b=("twice/{x}",)), ADDS)),
    ]
    fresh = [resolve(rules, log_of(list(A.keys)), log_of(list(B.keys))) for rules in sets]
    for _ in range(2):
        for rules, expected in zip(sets, fresh, strict=True):
            out = resolve(rules, A, B)
            assert (out.forced, out.modules_a, out.usage) == (expected.forced, expected.modules_a, expected.usage)


@pytest.fixture(scope="module")
def large() -> tuple[OpLog, OpLog]:
    """9,000 operations each; the counters of b are one ahead."""
    layers, ops = 126, 72
    a = [f"layers.{layer}.attention/op_{n}_add" for layer in range(layers) for n in range(ops)]
    b = [f"layers.{layer}.attention/op_{n + 1}_add" for layer in range(layers) for n in range(ops)]
    return log_of(a), log_of(b)


def test_many_rules_on_large_logs(large: tuple[OpLog, OpLog]) -> None:
    a, b = large
    warm(a)
    warm(b)
    rules = RuleSet(
        (
            TemplateRule(a=("layers.{i}.attention/op_{n}_add",), b=("layers.{i}.attention/op_{n+1}_add",)),
            ToleranceRule(match="*softmax*", rtol=1e-5),
            *(pair(a.keys[row], b.keys[row]) for row in range(0, 2000, 2)),
        )
    )
    assert len(resolve(rules, a, b).forced) > 8_000
    rules = rules.adding(pair("layers.77.attention/op_3_add", "layers.77.attention/op_9_add"))
    out = resolve(rules, a, b)
    assert out.usage[-2].matched == 1
