"""Suggestions: each family is found, its rules do what they promise, and no right pair is lost to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchers.comparison import Comparison, compare
from matchers.drift import name_families as drift_names
from matchers.drift import suggestion as drift_suggestion
from matchers.drift.suggest import suggest
from matchers.drift.suggestion import Suggestion, compatible
from matchers.drift.templates import heads
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.rules.file import parse_rules
from matchers.rules.item import new_file
from matchers.rules.model import ModuleRule, OpRule, PairRule, Rule, RuleSet, TemplateRule
from matchers.status import Status
from tests.builders import Op, op, training_step
from tests.conftest import REPOSITORY
from tests.matchers.drifted_logs import made_up_log, pairs_of_logs
from tests.needs import examples

REAL = [
    ("ac_none", "ac_selective"),
    ("ac_selective", "ac_full"),
    ("fsdp2", "fsdp2_sac"),
    ("fsdp2_sac", "fsdp2_traced"),
    ("fsdp2_traced", "fsdp2_sac"),
    ("fsdp2", "fsdp2_traced"),
    ("ac_none", "fsdp2"),
    ("ac_none", "dtype_bf16"),
    ("bug_base", "bug_neg_attn_l2"),
]


def together(c: Comparison, suggestions: Sequence[Suggestion]) -> tuple[Rule, ...]:
    """The rules of all suggestions that can be in force at once."""
    return tuple(rule for suggestion in compatible(c, suggestions) for rule in suggestion.rules)


def real(name: str) -> OpLog:
    return read_log(REPOSITORY / "tests" / "data" / f"{name}.log.gz")


def renamed(ops: Sequence[Op], name: Callable[[str], str]) -> list[Op]:
    """The records under other keys, in their producers as well."""
    return [replace(o, key=name(o.key), producers=[p and name(p) for p in o.producers]) for o in ops]


def suggested(a: Sequence[Op], b: Sequence[Op]) -> tuple[Comparison, dict[str, Suggestion]]:
    c = compare(made_up_log(a), made_up_log(b))
    found = suggest(c)
    for suggestion in found:
        keeps_its_word(c, suggestion)
    return c, {suggestion.name: suggestion for suggestion in found}


def pairs(c: Comparison) -> set[tuple[int, int]]:
    return set(zip(c.pairing.lead_a.tolist(), c.pairing.lead_b.tolist(), strict=True))


def keeps_its_word(c: Comparison, s: Suggestion) -> None:
    """The rules, read back from a file and applied, do what the suggestion says; without rules it says why."""
    assert s.name
    assert s.explanation.endswith(".")
    assert s.rows > 0
    assert s.rules or s.no_rule
    assert s.before == c.counts
    if not s.rules:
        assert s.settles == 0
        assert s.effect == {}
        return
    assert s.settles > 0
    rules = parse_rules(new_file(s.rules))
    assert rules.problems == ()
    after = compare(c.a, c.b, RuleSet((*c.rules.rules, *rules.rules)))
    assert after.counts == s.after
    assert {status: after.counts[status] - c.counts[status] for status in s.effect} == s.effect
    if all(isinstance(rule, TemplateRule) for rule in s.rules):
        assert sum(use.matched for use in after.usage[len(c.rules) :]) == s.settles
        assert [use.problem for use in after.usage if use.problem] == []
    sure = c.pairing.confidence >= 0.9
    lost = set(zip(c.pairing.lead_a[sure].tolist(), c.pairing.lead_b[sure].tolist(), strict=True)) - pairs(after)
    assert lost == set()


# Real logs


@pytest.mark.parametrize(("a", "b"), REAL)
def test_rules_for_real_logs_keep_every_pair(a: str, b: str) -> None:
    c = compare(real(a), real(b))
    found = suggest(c)
    for s in found:
        keeps_its_word(c, s)
    assert [s.settles for s in found] == sorted((s.settles for s in found), reverse=True)
    every = c.with_rules(c.rules.adding(*together(c, found)))
    sure = c.pairing.confidence >= 0.9
    kept = every.pairing.partner_of_a[c.pairing.lead_a[sure]]
    assert (kept == c.pairing.lead_b[sure]).all()
    assert int(every.red.sum()) <= int(c.red.sum())


def test_the_families_of_real_logs() -> None:
    found = {s.name: s for s in suggest(compare(real("fsdp2_sac"), real("fsdp2_traced")))}
    assert found.keys() >= {
        "lowered collectives",
        "shifted counters",
        "checkpointed names",
        "moved to or from <none>",
        "recomputed copies",
    }
    lowered = found["lowered collectives"]
    assert [(rule.a, rule.b) for rule in lowered.rules if isinstance(rule, OpRule)] == [
        (("_allgather_base_",), ("all_gather_into_tensor_out", "wait_tensor")),
        (("_reduce_scatter_base_",), ("reduce_scatter_tensor", "wait_tensor")),
    ]
    assert lowered.settles == lowered.rows == 21
    assert found["shifted counters"].settles > 100
    assert found["checkpointed names"].rows == 72
    found = {s.name: s for s in suggest(compare(real("ac_none"), real("ac_selective")))}
    assert found["recomputed copies"].rows == 96
    assert found["recomputed copies"].rules == ()


@pytest.mark.parametrize("name", ["ac_none", "fsdp2_traced"])
def test_nothing_is_suggested_for_a_log_and_itself(name: str) -> None:
    assert [s for s in suggest(compare(real(name), real(name))) if s.rules] == []
    assert suggest(compare(real("ac_none"), real("ac_none"))) == ()


def test_what_rules_settle_is_not_suggested_again() -> None:
    c = compare(real("ac_none"), real("ac_selective"))
    rules = RuleSet(together(c, suggest(c)))
    assert len(rules) > 0
    assert together(c, suggest(c.with_rules(rules))) == ()


# Families, one by one


def test_renamed_modules_are_one_rule_for_a_subtree() -> None:
    ops = training_step(4)
    _, found = suggested(ops, renamed(ops, lambda key: key.replace(".attention", ".attn")))
    rules = [(rule.a, rule.b) for rule in found["renamed modules"].rules if isinstance(rule, ModuleRule)]
    assert ("layers.{i}.attention.{rest:path}", "layers.{i}.attn.{rest}") in rules
    assert ("layers.{i}.attention", "layers.{i}.attn") in rules
    assert ("layers.{i}.attention_norm", "layers.{i}.attn_norm") in rules
    assert found["renamed modules"].settles == sum(".attention" in o.key for o in ops)


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_layer_number_that_a_name_repeats(ahead: int) -> None:
    """`stages.3.layers.3.attention` and `layers.3.attention`: one number of one side is two of the other."""
    ops = training_step(6)

    def twice(key: str) -> str:
        return re.sub(r"^layers\.(\d+)", lambda found: f"stages.{int(found[1]) + ahead}.{found[0]}", key)

    stage = "{i+2}" if ahead else "{i}"
    _, found = suggested(ops, renamed(ops, twice))
    rules = [(rule.a, rule.b) for rule in found["renamed modules"].rules if isinstance(rule, ModuleRule)]
    assert ("layers.{i}.{rest:path}", f"stages.{stage}.layers.{{i}}.{{rest}}") in rules
    assert found["renamed modules"].settles == found["renamed modules"].rows
    _, found = suggested(renamed(ops, twice), ops)
    assert found["renamed modules"].settles == found["renamed modules"].rows == 90


def test_two_numbers_of_which_neither_tells_the_other_get_no_common_rule() -> None:
    assert heads([(0, 5), (1, 5), (2, 7)], [(0,), (1,), (2,)]) is None
    assert heads([(0, 5)], [(0,)]) is None  # 5 may be anything
    assert heads([(4, 4), (6, 6)], [(4,), (6,)]) == (["{i}", "{i}"], ["{i}"])
    assert heads([(4, 5), (6, 7)], [(4,), (6,)]) == (["{i}", "{i+1}"], ["{i}"])


@pytest.mark.parametrize("broken", ["_modules", "_learned", "find_renames"])
def test_a_detector_that_fails_costs_only_its_own_family(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = training_step(4)
    other = [o for o in renamed(ops, lambda key: key.replace(".attention", ".attn")) if "bmm" not in o.key]
    other.append(op("extra/op_0_relu", 5.5))
    c = compare(made_up_log(ops), made_up_log(other))
    before = {s.name: s for s in suggest(c)}
    assert "renamed modules" in before
    assert not any(s.failed for s in before.values())

    def bug(*_: object) -> None:
        raise KeyError("i")

    monkeypatch.setattr(drift_names, broken, bug)
    after = {s.name: s for s in suggest(c)}
    failed = {name for name, s in after.items() if s.failed}
    own = {"_modules": {"renamed modules", "wrapped modules"}, "find_renames": {"drift of names"}}
    assert failed == own.get(broken, {family.name for family in drift_names._FAMILIES.values()})
    assert all("KeyError: 'i'" in after[name].explanation and not after[name].changes for name in failed)
    untouched = before.keys() - failed if broken != "find_renames" else set()
    assert {name: s for name, s in after.items() if not s.failed} == {name: before[name] for name in untouched}
    assert together(c, tuple(after.values())) == together(c, [before[name] for name in untouched])


def test_a_trial_that_fails_costs_only_its_own_family(monkeypatch: pytest.MonkeyPatch) -> None:
    ops = training_step(4)
    c = compare(made_up_log(ops), made_up_log(renamed(ops, lambda key: key.replace(".attention", ".attn"))))

    def bug(*_: object) -> None:
        raise ValueError("no such row")

    monkeypatch.setattr(drift_suggestion, "lost_pairs", bug)
    [found] = [s for s in suggest(c) if s.name == "renamed modules"]
    assert found.failed
    assert "ValueError: no such row" in found.explanation


def test_a_root_in_front_is_one_rule() -> None:
    ops = training_step(3)
    _, found = suggested(renamed(ops, lambda key: f"FSDPModel.{key}"), ops)
    assert [(rule.a, rule.b) for rule in found["wrapped modules"].rules if isinstance(rule, ModuleRule)] == [
        ("FSDPModel.{rest:path}", "{rest}")
    ]
    assert found["wrapped modules"].settles == len(ops)
    _, found = suggested(ops, renamed(ops, lambda key: key.replace("layers.", "layers._orig_mod.")))
    assert found["wrapped modules"].settles > 0


def test_shifted_counters() -> None:
    ops = training_step(4)
    one_more = [op(f"layers.{i}/op_0__allgather_base_", 7.0 + i) for i in range(4)]

    def shifted(key: str) -> str:
        head, _, tail = key.rpartition("/op_")
        counter, _, name = tail.partition("_")
        return f"{head}/op_{int(counter) + 1}_{name}" if head.count(".") == 1 and head[:2] == "la" else key

    _, found = suggested([*one_more, *renamed(ops, shifted)], ops)
    [rule] = found["shifted counters"].rules
    assert isinstance(rule, TemplateRule)
    assert (rule.a, rule.b) == (("layers.{i}/op_{n}_add",), ("layers.{i}/op_{n-1}_add",))
    assert found["shifted counters"].settles == found["shifted counters"].rows == 8


def test_the_stages_of_a_pipeline_count_layers_from_0() -> None:
    """A number that is shifted in the names of modules is shifted in the rule."""
    ops = [replace(o, producers=[]) for o in training_step(4) if o.key.startswith("layers.")]
    later = renamed(ops, lambda key: f"layers.{int(key[7]) + 4}{key[8:]}")
    _, found = suggested(later, renamed(ops, lambda key: f"stage.{key}"))
    rules = [(rule.a, rule.b) for rule in found["renamed modules"].rules if isinstance(rule, ModuleRule)]
    assert ("layers.{i}", "stage.layers.{i-4}") in rules
    assert ("layers.{i}.{rest:path}", "stage.layers.{i-4}.{rest}") in rules


def checkpointed(counters: Sequence[int]) -> dict[str, Suggestion]:
    """What is suggested where the norms of the layers lose their layer, and have these counters."""
    ops = [replace(o, producers=[]) for o in training_step(len(counters))]
    left = iter(counters)

    def short(key: str) -> str:
        return f"attention_norm/op_{next(left)}_mul" if "attention_norm" in key else key

    return suggested([replace(o, key=short(o.key)) for o in ops], ops)[1]


@pytest.mark.parametrize(
    ("counters", "a", "b"),
    [
        ((0, 1, 2, 3), "attention_norm/op_{n}_mul", "layers.{n}.attention_norm/op_0_mul"),
        ((3, 7, 11, 15), "attention_norm/op_{4k+3}_mul", "layers.{k}.attention_norm/op_0_mul"),
        ((9, 6, 3, 0), "attention_norm/op_{3k}_mul", "layers.{3-k}.attention_norm/op_0_mul"),
    ],
)
def test_checkpointed_names_that_go_from_layer_to_layer_in_equal_steps_are_a_template(
    counters: Sequence[int], a: str, b: str
) -> None:
    s = checkpointed(counters)["checkpointed names"]
    assert [(rule.a, rule.b) for rule in s.rules if isinstance(rule, TemplateRule)] == [((a,), (b,))]
    assert (s.rows, s.settles, s.no_rule, s.effect) == (4, 4, "", {})


def test_checkpointed_names_without_equal_steps_have_a_pair_each() -> None:
    """`attention_norm` does not say of which layer it is, and its counter does not either."""
    s = checkpointed((0, 1, 5, 7))["checkpointed names"]
    assert s.rows == s.settles == 4
    assert [(rule.a, rule.b) for rule in s.rules if isinstance(rule, PairRule)] == [
        ((f"attention_norm/op_{n}_mul",), (f"layers.{k}.attention_norm/op_0_mul",)) for k, n in enumerate((0, 1, 5, 7))
    ]
    assert "Each gets a pair rule: the counter does not advance in equal steps from layer to layer" in s.explanation
    assert (s.no_rule, s.effect) == ("", {})


def test_a_family_that_is_too_large_is_not_said_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift_names, "_MAX_PAIRS", 3)
    s = checkpointed((0, 1, 5, 7))["checkpointed names"]
    assert s.rules == ()
    assert "in equal steps from layer to layer" in s.no_rule


def test_steps_that_would_lead_another_operation_astray_are_no_template() -> None:
    """The fifth goes on in the same steps and is paired with something else."""
    s = checkpointed((0, 4, 8, 12, 20, 16))["checkpointed names"]
    assert s.settles == s.rows == 6
    assert not any(isinstance(rule, TemplateRule) for rule in s.rules)


def test_moved_to_none() -> None:
    ops = training_step(3)
    moved = renamed(ops, lambda key: key.replace("output/", "<none>/"))
    _, found = suggested(ops, moved)
    assert found["moved to or from <none>"].rows == 1


def test_an_operation_of_another_name() -> None:
    ops = training_step(3)
    c, found = suggested(ops, renamed(ops, lambda key: key.replace("silu", "swish")))
    s = found["equivalent ops"]
    assert [(rule.a, rule.b) for rule in s.rules if isinstance(rule, OpRule)] == [(("silu",), ("swish",))]
    assert s.settles == s.rows == 3
    assert s.effect == {Status.SAME_PRINT: 3, Status.ONLY_A: -3, Status.ONLY_B: -3}
    assert c.counts[Status.ONLY_A] == 3


@pytest.mark.parametrize("other", [{}, {"l2": 9.0, "outputs": [11.0]}], ids=["equal", "other numbers"])
def test_in_place_and_out_of_place_are_one_operation(other: dict[str, Any]) -> None:
    ops = training_step(3)
    b = [replace(o, **other) if "silu" in o.key else o for o in ops]
    c, found = suggested(ops, renamed(b, lambda key: key.replace("silu", "silu_")))
    assert not c.counts[Status.ONLY_A]
    assert "equivalent ops" not in found


def test_one_op_for_two_in_a_row() -> None:
    """`addmm` is `mm` and `add`."""
    a: list[Op] = []
    b: list[Op] = []
    for layer in range(3):
        base = f"layers.{layer}.wq"
        common = op(f"layers.{layer}.norm/op_0_mul", 10.0 + layer)
        a += [common, op(f"{base}/op_0_addmm", 20.0 + layer)]
        b += [common, op(f"{base}/op_0_mm", 30.0 + layer), op(f"{base}/op_1_add", 20.0 + layer)]
    _, found = suggested(a, b)
    assert [(rule.a, rule.b) for rule in found["equivalent ops"].rules if isinstance(rule, OpRule)] == [
        (("addmm",), ("mm", "add"))
    ]
    assert found["equivalent ops"].effect == {Status.SAME_PRINT: 3, Status.ONLY_A: -3, Status.ONLY_B: -6}


def test_fused_weights_and_kernels() -> None:
    ops = training_step(2)
    joined = [o for o in ops if ".wk/" not in o.key and ".wv/" not in o.key]
    a = [
        replace(o, key=o.key.replace(".wq/", ".wqkv/"), shape=(16, 24), producers=[]) if ".wq/op_0" in o.key else o
        for o in joined
    ]
    _, found = suggested(a, ops)
    assert "fused and separate" not in found or found["fused and separate"].rules == ()
    updates = [op(f"optimizer/op_{i}_lerp_", 3.0 + i, phase="optimizer") for i in range(4)]
    fused = op("optimizer/op_0__foreach_lerp_", 50.0, phase="optimizer")
    _, found = suggested([*ops, fused], [*ops, *updates])
    assert found["fused and separate"].rows == 1
    assert "single results" in found["fused and separate"].no_rule
    # what the other run does not do in any form is not separate there
    _, found = suggested([*ops, replace(fused, key="optimizer/op_0__fused_adamw_")], ops)
    assert "fused and separate" not in found


def test_swapped_order() -> None:
    ops = training_step(3)
    b = [*ops]
    b[3], b[4] = b[4], b[3]
    _, found = suggested(ops, b)
    assert found["swapped order"].rows == 1


def test_braces_and_numbers_in_names_stand_for_themselves() -> None:
    ops = renamed(training_step(3), lambda key: key.replace("layers", "lay{i}ers.007"))
    _, found = suggested(ops, renamed(ops, lambda key: key.replace(".attention", ".attn")))
    assert found["renamed modules"].settles > 0


@settings(max_examples=examples(30))
@given(st.data())
def test_whatever_the_logs_are_suggestions_keep_their_word(data: Any) -> None:
    a, b = data.draw(pairs_of_logs())
    c = compare(a, b)
    found = suggest(c)
    for s in found:
        keeps_its_word(c, s)
    every = c.with_rules(c.rules.adding(*together(c, found)))
    sure = c.pairing.confidence >= 0.9
    assert np.array_equal(every.pairing.partner_of_a[c.pairing.lead_a[sure]], c.pairing.lead_b[sure])


def test_micro_batches_in_logs_that_do_not_name_them() -> None:
    """The same places, twice as often."""
    once = training_step(3, seed=1)
    again = [
        replace(
            o, key=o.key.replace("/op_", "/op_9"), producers=[], outputs=[f"{x * 1.7}" for x in map(float, o.outputs)]
        )
        for o in training_step(3, seed=2)
    ]
    _, found = suggested([*[replace(o, producers=[]) for o in once], *again], [replace(o, producers=[]) for o in once])
    assert found["further micro-batches"].rows > len(again) * 0.9
    _, found = suggested(once, training_step(3, seed=2))
    assert "further micro-batches" not in found
    update = [op(f"optimizer/op_{k}__foreach_add_", 9.0 + k, phase="optimizer") for k in range(2)]
    _, found = suggested([*once, *update], [*once, update[0]])
    assert "further micro-batches" not in found, "the last update is missing, no micro-batch"


def test_communication_that_only_one_run_does() -> None:
    ops = training_step(3)
    reduced = [op(f"layers.{k}/op_9_allreduce_", 5.0 + k, phase="backward") for k in range(3)]
    c, found = suggested(ops, [*ops, *reduced])
    s = found["communication of one run"]
    assert (s.rows, s.settles) == (3, 3)
    assert s.effect == {Status.IGNORED: 3, Status.ONLY_B: -3}
    assert c.counts[Status.ONLY_B] == 3
    _, found = suggested([*ops, op("m/op_0_all_reduce", 3.0)], [*ops, *reduced])
    assert "communication of one run" not in found
