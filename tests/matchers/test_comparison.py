"""Two logs compared: what holds for any two, and what is known of real ones."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings

from matchers.comparison import Comparison, compare, preview
from matchers.explain.sentences import explain
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.ops.collectives import read_by_collective, unfinished
from matchers.rules.model import ApartRule, IgnoreRule, PairRule, RuleSet, ToleranceRule
from matchers.rules.resolve import key_reference
from matchers.status import Role, Status
from tests.builders import op, training_step
from tests.conftest import DATA, EXAMPLES
from tests.matchers.drifted_logs import made_up_log, pairs_of_logs
from tests.matchers.invariants import check, same
from tests.needs import examples

REAL = (
    ("eager", "traced"),
    ("ac_none", "ac_selective"),
    ("ac_none", "ac_full"),
    ("ac_selective", "ac_full"),
    ("ac_none", "dtype_bf16"),
    ("fsdp2", "fsdp2_sac"),
    ("fsdp2", "fsdp2_traced"),
    ("fsdp2_sac", "fsdp2_traced"),
    ("bug_base", "bug_rope_theta_l3"),
    ("bug_base", "bug_attn_scale_l2"),
    ("bug_base", "bug_neg_attn_l2"),
    ("bug_base", "bug_base"),
)
"""Pairs of real logs: those of `tests/data`, and the example."""


@cache
def real(name: str) -> OpLog:
    path = EXAMPLES / name / "rank_0_activations.log" if name in ("eager", "traced") else DATA / f"{name}.log.gz"
    return read_log(path)


@cache
def compared(a: str, b: str) -> Comparison:
    return compare(real(a), real(b))


def counted(c: Comparison) -> dict[str, int]:
    """Rows per status, without zeros."""
    return {status.label: n for status, n in c.counts.items() if n}


def identity(log: OpLog, record: int) -> tuple[object, ...]:
    """What makes a partner right beyond doubt where it is equal: op, shape, output and input hashes."""
    hashes = (log.outputs[record].tobytes(), log.inputs[record].tobytes())
    return log.op_name(record), log.shape_text(record), *hashes


def found_and_wrong(c: Comparison) -> tuple[int, int, int]:
    """(partners that exist, pairs that are right, pairs that are wrong because a right partner exists)."""
    a, b = ([identity(log, record) for record in range(len(log))] for log in (c.a, c.b))
    exist = sum((Counter(a) & Counter(b)).values())
    leads = list(zip(c.pairing.lead_a.tolist(), c.pairing.lead_b.tolist(), strict=True))
    right = [a[i] == b[j] for i, j in leads]
    known = set(a) & set(b)
    wrong = sum(not ok and (a[i] in known or b[j] in known) for (i, j), ok in zip(leads, right, strict=True))
    return exist, sum(right), wrong


def causes(c: Comparison) -> list[tuple[str, str, Status, Role]]:
    """Key of a, key of b, status and role of each first cause."""
    return [
        (c.a.keys[int(c.row_a[row])], c.b.keys[int(c.row_b[row])], Status(c.status[row]), Role(c.role[row]))
        for row in np.flatnonzero(c.cause).tolist()
    ]


# ---------------------------------------------------------------------- real logs


def test_eager_and_traced_are_the_same_run() -> None:
    """Every one of the 82 differences that a comparison by name reports is a wrong pair."""
    c = compared("eager", "traced")
    assert found_and_wrong(c) == (400, 400, 0)
    # the clipping and the optimizer's two operations change values in place, of which the logs print nothing
    assert counted(c) == {"same-print": 397, "no-values": 3, "recompute": 78}
    assert not c.red.any()
    assert not c.cause.any()


@pytest.mark.parametrize(("other", "copies"), [("ac_selective", 96), ("ac_full", 114)])
def test_activation_checkpointing_only_runs_things_again(other: str, copies: int) -> None:
    c = compared("ac_none", other)
    assert found_and_wrong(c) == (408, 408, 0)
    assert counted(c) == {"same-print": 405, "no-values": 3, "recompute": copies}
    again = np.flatnonzero(c.status == Status.RECOMPUTE)
    assert (c.row_a[again] == -1).all()
    # each copy is shown with what it is a copy of: an earlier row with the same numbers
    assert (c.original[again] >= 0).all()
    assert (c.status[c.original[again]] == Status.SAME_PRINT).all()
    for row, original in zip(again.tolist(), c.original[again].tolist(), strict=True):
        copy, source = int(c.row_b[row]), int(c.row_b[original])
        assert source < copy
        assert identity(c.b, source) == identity(c.b, copy)


def test_two_kinds_of_checkpointing() -> None:
    """What both run again is a pair, of copy and copy; the first pass pairs with the first pass."""
    c = compared("ac_selective", "ac_full")
    assert not c.red.any()
    assert counted(c)["same-print"] >= 405
    phases = c.a.phase[c.pairing.lead_a] == c.b.phase[c.pairing.lead_b]
    assert phases.all()


def test_collectives_that_were_read_before_they_were_done_are_not_red() -> None:
    """All 40 differences that a comparison by name reports are buffers not yet filled; the waited values agree."""
    c = compared("fsdp2", "fsdp2_sac")
    assert not c.red.any()
    assert found_and_wrong(c)[0] == found_and_wrong(c)[1]
    assert c.counts[Status.RECOMPUTE] == 96
    assert c.counts[Status.ONLY_A] == c.counts[Status.ONLY_B] == c.counts[Status.CLOSE] == 0
    loose = np.flatnonzero(c.status == Status.UNFINISHED)
    assert 0 < len(loose) <= 40
    assert unfinished(c.a)[c.row_a[loose]].all()


def test_fsdp2_with_checkpointing_against_a_traced_graph() -> None:
    c = compared("fsdp2_sac", "fsdp2_traced")
    assert found_and_wrong(c) == (466, 466, 0)
    assert not c.red.any()


def test_collectives_of_one_row_and_of_two_are_grouped() -> None:
    """Judged at the wait: what the start of a functional collective holds is not yet the result."""
    c = compared("fsdp2_sac", "fsdp2_traced")
    groups = np.flatnonzero(c.pairing.grouped).tolist()
    assert groups
    for pair in groups:
        members_a, members_b = c.pairing.members(pair)
        assert len(members_a) == 1
        assert c.b.op_name(members_b[-1]) == "wait_tensor"
        assert int(c.pairing.lead_b[pair]) == members_b[-1]
        assert (c.a.op_name(members_a[0]), c.b.op_name(members_b[0])) in {
            ("_allgather_base_", "all_gather_into_tensor"),
            ("_allgather_base_", "all_gather_into_tensor_out"),
            ("_reduce_scatter_base_", "reduce_scatter_tensor"),
            ("allreduce_", "all_reduce"),
        }


def test_the_first_cause_of_another_rope_base_is_the_attention_that_reads_what_was_rotated() -> None:
    """The rotation is complex and not in the log: one hop later, layer 3's attention, with inputs nobody made."""
    (cause,) = causes(compared("bug_base", "bug_rope_theta_l3"))
    key = "layers.3.attention.inner_attention/op_0__scaled_dot_product_flash_attention_for_cpu"
    assert cause == (key, key, Status.DIVERGED, Role.UNKNOWN)


def test_the_first_cause_of_another_softmax_scale_is_that_attention() -> None:
    (cause,) = causes(compared("bug_base", "bug_attn_scale_l2"))
    key = "layers.2.attention.inner_attention/op_0__scaled_dot_product_flash_attention_for_cpu"
    assert cause == (key, key, Status.DIVERGED, Role.ORIGIN)


def test_the_first_cause_of_a_negated_output_is_the_neg_that_only_one_run_has() -> None:
    """It leaves every norm as it was: the attention and what reads it agree in print."""
    c = compared("bug_base", "bug_neg_attn_l2")
    assert causes(c) == [("", "layers.2.attention.inner_attention/op_1_neg", Status.ONLY_B, Role.NONE)]
    assert c.red.any()


def test_another_dtype_throughout_is_a_policy() -> None:
    """Said once, and then judged at the coarser ε; a row is not red for its dtype."""
    c = compared("ac_none", "dtype_bf16")
    assert c.policy == (("float32", "bfloat16"),)
    assert c.counts[Status.SHAPE] == 0
    assert c.counts[Status.CLOSE] > 380
    # backward through a norm, three gradients are added up in another order: half of a sum is not the same number
    sums = {f"layers.{layer}.{norm}_norm" for layer in range(6) for norm in ("attention", "ffn")}
    for row in np.flatnonzero(c.red).tolist():
        assert c.a.op_name(int(c.row_a[row])) == "add"
        assert c.a.module_name(int(c.row_a[row])) in sums


@pytest.mark.parametrize("name", sorted({name for pair in REAL for name in pair}))
def test_a_log_is_the_same_as_itself(name: str) -> None:
    """Also where operations repeat to the digit; what was read too early cannot be told to be equal, but is not red."""
    log = real(name)
    c = compare(log, log)
    assert c.row_a.tolist() == c.row_b.tolist() == list(range(len(log)))
    assert c.pairing.of_a.tolist() == c.pairing.of_b.tolist()
    assert set(counted(c)) <= {"same-print", "unfinished", "no-values"}
    prints = (log.outputs.count > 0) | (log.present > 0)
    assert (c.status[~unfinished(log) & prints] == Status.SAME_PRINT).all()
    assert (c.status[~prints] == Status.NO_VALUES).all()


@pytest.mark.parametrize(("a", "b"), REAL)
def test_swapping_the_sides_mirrors_the_pairs(a: str, b: str) -> None:
    forth, back = compared(a, b), compare(real(b), real(a))
    pairs = sorted(zip(forth.pairing.lead_a.tolist(), forth.pairing.lead_b.tolist(), strict=True))
    mirrored = sorted(zip(back.pairing.lead_b.tolist(), back.pairing.lead_a.tolist(), strict=True))
    assert pairs == mirrored
    assert forth.red.sum() == back.red.sum()
    assert causes(forth) == [(x, y, MIRRORED.get(status, status), role) for y, x, status, role in causes(back)]


@pytest.mark.parametrize("a", ["fsdp2", "fsdp2_sac"])
def test_a_collective_is_paired_with_the_one_that_read_the_same_tensor(a: str) -> None:
    """Prefetching moves gathers to the module before; what was gathered is known, though the result is not."""
    c = compared(a, "fsdp2_traced")
    read_a, read_b = read_by_collective(c.a), read_by_collective(c.b)
    groups = np.flatnonzero(c.pairing.grouped).tolist()
    assert len(groups) == 21
    for pair in groups:
        rows_a, rows_b = c.pairing.members(pair)
        (left,) = [x for x in read_a[list(rows_a)].tolist() if x == x]
        (right,) = [x for x in read_b[list(rows_b)].tolist() if x == x]
        assert left == right


MIRRORED = {Status.ONLY_A: Status.ONLY_B, Status.ONLY_B: Status.ONLY_A}


def test_the_runner_up_of_one_that_two_want_is_nobody() -> None:
    """Two rows of a compete for the one row of b; the winner has no rival in b."""
    row = op("m/op_0_add", inputs=[2.0])
    c = compare(made_up_log([row, row]), made_up_log([row]))
    assert c.pairing.lead_b.tolist() == [0]
    assert c.pairing.runner_up.tolist() == [-1]


@pytest.mark.parametrize(("a", "b"), REAL)
def test_the_runner_up_is_not_the_partner(a: str, b: str) -> None:
    """It is the row of b that came second."""
    p = compared(a, b).pairing
    assert (p.runner_up != p.lead_b).all()
    assert (p.runner_up_score[p.runner_up < 0] == 0).all()


@pytest.mark.parametrize(("a", "b"), REAL)
def test_what_holds_for_any_two_logs_holds_for_real_ones(a: str, b: str) -> None:
    check(compared(a, b))


# ---------------------------------------------------------------------- any two logs


@given(pairs_of_logs())
def test_what_holds_for_any_two_logs(logs: tuple[OpLog, OpLog]) -> None:
    check(compare(*logs))


@settings(max_examples=examples(25))
@given(pairs_of_logs())
def test_the_same_logs_compare_the_same(logs: tuple[OpLog, OpLog]) -> None:
    same(compare(*logs), compare(*logs))


def test_empty_logs() -> None:
    some, none = made_up_log(training_step(1)), made_up_log([])
    for a, b in ((some, none), (none, some), (none, none)):
        c = compare(a, b)
        check(c)
        assert len(c) == len(a) + len(b)
        check(c.with_rules(RuleSet((IgnoreRule(op="mm"),))))


# ---------------------------------------------------------------------- rules on real logs


def test_a_rule_takes_effect_and_taking_it_back_undoes_it() -> None:
    before = compared("eager", "traced")
    i, j = (int(rows[200]) for rows in (before.pairing.lead_a, before.pairing.lead_b))
    wrong = next(row for row in range(j + 1, len(before.b)) if before.b.shape[row] == before.b.shape[j])
    rules = RuleSet((PairRule(a=(key_reference(before.a, i),), b=(key_reference(before.b, wrong),)),))
    forced = before.with_rules(rules)
    assert forced.pairing.partner_of_a[i] == wrong
    assert forced.red[forced.at_a[i]]
    assert [(usage.matched, usage.problem) for usage in forced.usage] == [(1, None)]
    same(forced, compare(before.a, before.b, rules))
    same(forced.with_rules(RuleSet()), before)


def test_a_wrong_pair_leaves_the_others_alone() -> None:
    """The one that lost its partner is alone or finds another; nothing else turns red."""
    before = compared("eager", "traced")
    for i in (3, 77, 250, 399):
        j = int(before.pairing.partner_of_a[(i + 1) % len(before.a)])
        rule = PairRule(a=(key_reference(before.a, i),), b=(key_reference(before.b, j),))
        after = before.with_rules(RuleSet((rule,)))
        moved = np.flatnonzero(after.pairing.partner_of_a != before.pairing.partner_of_a)
        assert i in moved
        assert len(moved) <= 3
        assert after.red.sum() <= 2


def test_apart_cuts_a_pair_and_says_so() -> None:
    before = compared("eager", "traced")
    i, j = int(before.pairing.lead_a[100]), int(before.pairing.lead_b[100])
    rule = ApartRule(a=key_reference(before.a, i), b=key_reference(before.b, j))
    after = before.with_rules(RuleSet((rule,)))
    assert after.pairing.partner_of_a[i] != j
    assert after.usage[0].matched == 1


def test_ignored_rows_are_counted_and_blamed_for_what_follows_from_them_only() -> None:
    before = compared("bug_base", "bug_attn_scale_l2")
    rules = RuleSet((IgnoreRule(op="_scaled_dot_product_flash_attention_for_cpu"),))
    after = before.with_rules(rules)
    assert after.counts[Status.IGNORED] == 6
    assert not after.red[after.status == Status.IGNORED].any()
    # the planted one: nothing else explains what is red behind it
    assert np.flatnonzero(after.cause).tolist() == np.flatnonzero(before.cause).tolist()
    assert after.pairing.lead_b.tolist() == before.pairing.lead_b.tolist()


def test_a_tolerance_changes_verdicts_and_nothing_else() -> None:
    before = compared("bug_base", "bug_attn_scale_l2")
    loose = before.with_rules(RuleSet((ToleranceRule(match="*", rtol=1.0),)))
    assert not loose.red.any()
    assert (loose.tolerance[loose.pair >= 0] == 1.0).all()
    tight = before.with_rules(RuleSet((ToleranceRule(match="*", rtol=0.0),)))
    assert tight.counts[Status.CLOSE] == 0
    printed = before.a.outputs.count[before.row_a] > 0  # what prints inputs only is judged if these differ
    close = before.red | (before.status == Status.CLOSE)
    assert tight.red[printed].tolist() == close[printed].tolist()
    for after in (loose, tight):
        np.testing.assert_array_equal(after.error[printed], before.error[printed])
        same(after.pairing, before.pairing)


# ---------------------------------------------------------------------- preview, progress


def test_a_preview_shows_both_logs_row_by_row_and_judges_nothing() -> None:
    a, b = made_up_log(training_step(1)), made_up_log(training_step(2))
    c = preview(a, b)
    assert len(c) == len(b)
    assert c.row_a.tolist() == [*range(len(a)), *[-1] * (len(b) - len(a))]
    assert c.row_b.tolist() == list(range(len(b)))
    assert (c.status == Status.PENDING).all()
    assert not c.red.any()
    assert not c.cause.any()
    assert len(c.pairing) == 0
    for row in range(len(c)):
        assert explain(c, row).headline == "not paired yet"


def test_progress_is_told_and_may_cancel() -> None:
    a, b = real("eager"), real("traced")
    told: list[tuple[str, float]] = []
    compare(a, b, progress=lambda what, fraction: told.append((what, fraction)))
    fractions = [fraction for _, fraction in told]
    assert fractions == sorted(fractions)
    assert all(0 <= fraction <= 1 for fraction in fractions)
    assert all(what for what, _ in told)

    def cancel(what: str, fraction: float) -> None:
        if fraction > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(a, b, progress=cancel)


def test_rows_that_only_b_has_stand_where_b_ran_them() -> None:
    ops = training_step(1)
    extra = [op(f"new/op_{k}_erf", 77.0 + k) for k in range(3)]
    c = compare(made_up_log(ops), made_up_log([extra[0], *ops[:5], extra[1], extra[2], *ops[5:]]))
    assert np.flatnonzero(c.row_a < 0).tolist() == [0, 6, 7]
    assert c.counts[Status.ONLY_B] == 3
