"""Where a divergence starts, on data flows small enough to follow with a finger."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import explain, headline
from matchers.logs.op_log import OpLog
from matchers.ops.dataflow import consumers, sources
from matchers.ops.laws import rows_named
from matchers.rules.model import IgnoreRule, OpRule, PairRule, RuleSet
from matchers.status import Role, Status
from tests.builders import Op, op
from tests.captured import Step as Captured
from tests.captured import as_parts, captured_log
from tests.matchers.drifted_logs import made_up_log

Step = tuple[str, float, Sequence[str | float]]
"""(op, value, inputs): an input is the op that made it, or the value of a parameter."""

NAN = float("nan")

CHAIN: tuple[Step, ...] = (
    ("embedding", 1.0, [50.0]),
    ("mul", 2.0, ["embedding", 60.0]),
    ("mm", 3.0, ["mul", 70.0]),
    ("softmax", 4.0, ["mm"]),
    ("bmm", 5.0, ["softmax", "mul"]),
)


def flow(steps: Sequence[Step], *, named: bool = True) -> list[Op]:
    """The records of some steps. `named`: the log names the producers, otherwise only the values tell."""
    made: dict[str, Op] = {}
    for name, value, reads in steps:
        made[name] = op(
            f"m/op_{len(made)}_{name}",
            value,
            inputs=[made[read].outputs[0] if isinstance(read, str) else read for read in reads],
            producers=[made[read].key if isinstance(read, str) else "" for read in reads] if named else (),
        )
    return list(made.values())


def changed(steps: Sequence[Step], values: Mapping[str, float]) -> list[Step]:
    """The steps with other values for some ops."""
    return [(name, values.get(name, value), reads) for name, value, reads in steps]


def told(c: Comparison) -> dict[str, tuple[Role, bool]]:
    """Role of each red row, and whether it is a first cause, by op."""
    out = {}
    for row in range(len(c)):
        record_a, record_b = int(c.row_a[row]), int(c.row_b[row])
        name = c.a.op_name(record_a) if record_a >= 0 else c.b.op_name(record_b)
        if c.red[row] or c.cause[row]:
            out[name] = (Role(c.role[row]), bool(c.cause[row]))
    return out


def compared(a: Sequence[Op], b: Sequence[Op]) -> Comparison:
    return compare(made_up_log(a), made_up_log(b))


ORIGIN, RECEIVER, UNKNOWN = (Role.ORIGIN, True), (Role.RECEIVER, False), (Role.UNKNOWN, True)


def test_where_nothing_is_red_nothing_is_a_cause() -> None:
    assert told(compared(flow(CHAIN), flow(CHAIN))) == {}


@pytest.mark.parametrize("named", [True, False], ids=["producers named", "by value"])
def test_the_origin_has_equal_inputs_and_another_output(named: bool) -> None:
    """What reads it receives, also by a way around; what stands before it is clean."""
    other = changed(CHAIN, {"mm": 3.3, "softmax": 4.4, "bmm": 5.5})
    c = compared(flow(CHAIN, named=named), flow(other, named=named))
    assert told(c) == {"mm": ORIGIN, "softmax": RECEIVER, "bmm": RECEIVER}


def test_a_difference_that_is_overcome_ends() -> None:
    other = changed(CHAIN, {"mm": 3.3})
    assert told(compared(flow(CHAIN), flow(other))) == {"mm": ORIGIN}


def test_noise_before_the_first_red_row_is_no_reason() -> None:
    """An input that is close agrees; after the first red row only an equal one does."""
    other = changed(CHAIN, {"embedding": 1.000005, "mul": 2.00001, "mm": 3.3, "softmax": 4.4, "bmm": 5.5})
    c = compared(flow(CHAIN), flow(other))
    assert told(c) == {"mm": ORIGIN, "softmax": RECEIVER, "bmm": RECEIVER}
    assert c.counts[Status.CLOSE] == 2


def test_two_divergences_that_know_nothing_of_each_other_are_two_causes() -> None:
    steps: list[Step] = [*CHAIN, ("conv", 7.0, [80.0]), ("relu", 8.0, ["conv"])]
    other = changed(steps, {"mm": 3.3, "softmax": 4.4, "bmm": 5.5, "conv": 7.7, "relu": 8.8})
    causes = {name for name, (_, cause) in told(compared(flow(steps), flow(other))).items() if cause}
    assert causes == {"mm", "conv"}


def test_an_input_that_differs_and_that_nobody_made_is_unknown() -> None:
    """A parameter, or an operation that the log leaves out: look one hop before."""
    other: list[Step] = [*CHAIN[:2], ("mm", 3.3, ["mul", 77.0]), *changed(CHAIN[3:], {"softmax": 4.4, "bmm": 5.5})]
    assert told(compared(flow(CHAIN), flow(other))) == {"mm": UNKNOWN, "softmax": RECEIVER, "bmm": RECEIVER}


def test_an_input_without_a_hash_is_unknown() -> None:
    steps: list[Step] = [*CHAIN[:2], ("mm", 3.0, ["mul", NAN]), *CHAIN[3:]]
    other = changed(steps, {"mm": 3.3, "softmax": 4.4, "bmm": 5.5})
    assert told(compared(flow(steps), flow(other)))["mm"] == UNKNOWN


def test_an_input_that_only_one_side_has_explains_nothing_unless_its_producer_does() -> None:
    rest = changed(CHAIN[3:], {"softmax": 4.4, "bmm": 5.5})
    fewer: list[Step] = [*CHAIN[:2], ("mm", 3.3, ["mul"]), *rest]
    c = compared(flow(CHAIN), flow(fewer))
    assert told(c)["mm"] == ORIGIN
    (row,) = np.flatnonzero(c.cause)
    assert headline(c, int(row)).endswith("; the common input agrees; a has 1 more")
    more: list[Step] = [*CHAIN[:2], ("neg", 8.0, [80.0]), ("mm", 3.3, ["mul", 70.0, "neg"]), *rest]
    roles = told(compared(flow(CHAIN), flow(more)))
    assert roles["neg"][1]
    assert roles["mm"] == RECEIVER


def test_nan_has_an_origin_too() -> None:
    other = changed(CHAIN, {"mm": NAN, "softmax": NAN, "bmm": NAN})
    c = compared(flow(CHAIN), flow(other))
    assert told(c) == {"mm": ORIGIN, "softmax": RECEIVER, "bmm": RECEIVER}
    assert c.counts[Status.NAN] == 3


def negated() -> list[Op]:
    """The chain with `softmax` reading the negated `mm`; every L1 and L2 norm stays what it was."""
    steps: list[Step] = [
        *CHAIN[:3],
        ("neg", 3.0, ["mm"]),
        ("softmax", 4.4, ["neg"]),
        ("bmm", 5.5, ["softmax", "mul"]),
    ]
    ops = flow(steps)
    ops[3].min, ops[3].max = -7.0, 1.0
    return ops


def test_an_operation_that_only_b_has_can_be_the_cause() -> None:
    c = compared(flow(CHAIN), negated())
    assert told(c) == {"neg": (Role.NONE, True), "softmax": RECEIVER, "bmm": RECEIVER}
    (row,) = np.flatnonzero(c.cause).tolist()
    assert c.status[row] == Status.ONLY_B


def test_an_operation_that_only_a_has_can_be_the_cause() -> None:
    c = compared(negated(), flow(CHAIN))
    assert told(c) == {"neg": (Role.NONE, True), "softmax": RECEIVER, "bmm": RECEIVER}
    (row,) = np.flatnonzero(c.cause).tolist()
    assert c.status[row] == Status.ONLY_A


def test_nan_begins_in_an_operation_that_only_one_run_has() -> None:
    """A softmax written out, against one operation: what reads it is the first pair that could be red."""
    written_out: list[Step] = [
        *CHAIN[:3],
        ("scale", 30.0, ["mm"]),
        ("exp", math.inf, ["scale"]),
        ("sum", math.inf, ["exp"]),
        ("div", NAN, ["exp", "sum"]),
        ("bmm", NAN, ["div", "mul"]),
        ("neg", NAN, ["bmm"]),
        ("out", NAN, ["neg"]),
    ]
    one = [*CHAIN, ("out", 5.0, ["bmm"])]
    c = compared(flow(one), flow(written_out))
    assert told(c) == {"exp": (Role.NONE, True), "bmm": RECEIVER, "out": RECEIVER}
    (row,) = np.flatnonzero(c.cause).tolist()
    assert explain(c, row).headline == "FIRST CAUSE: only b has this operation, which returns Inf"
    back = compared(flow(written_out), flow(one))
    assert told(back) == told(c)


def test_nan_that_both_runs_have_where_they_differ_blames_neither() -> None:
    """Both write the softmax out, each in its own way, and both lose it: which of them was first wrong is not known."""
    one = [*CHAIN[:3], ("exp", NAN, ["mm"]), ("bmm", NAN, ["exp", "mul"])]
    other = [*CHAIN[:3], ("pow", NAN, ["mm"]), ("bmm", NAN, ["pow", "mul"])]
    assert told(compared(flow(one), flow(other)))["bmm"][1]


def test_an_extra_operation_that_changes_nothing_is_no_cause() -> None:
    """A `clone` more is how runs differ; only what reads it and diverges makes it suspect."""
    steps: list[Step] = [*CHAIN[:3], ("clone", 3.0, ["mm"]), ("softmax", 4.0, ["clone"]), CHAIN[4]]
    assert told(compared(flow(CHAIN), flow(steps))) == {}


def test_an_extra_operation_behind_the_divergence_is_no_cause() -> None:
    steps: list[Step] = [
        *CHAIN[:2],
        ("mm", 3.3, ["mul", 70.0]),
        ("neg", 3.4, ["mm"]),
        ("softmax", 4.4, ["neg"]),
        ("bmm", 5.5, ["softmax", "mul"]),
    ]
    causes = {name for name, (_, cause) in told(compared(flow(CHAIN), flow(steps))).items() if cause}
    assert causes == {"mm"}


@pytest.mark.parametrize(("mm", "blamed"), [(3.3, {"mm"}), (3.0, {"neg"})])
def test_an_extra_operation_far_behind_the_divergence_is_no_cause_either(mm: float, blamed: set[str]) -> None:
    """Between them the runs agree again, but not to the digit. Without the divergence it is one."""
    steps = [*CHAIN[:4], ("add", 6.0, ["softmax"]), ("bmm", 5.0, ["add"])]
    close = 1.0 if mm == 3.0 else 1.000005
    other = [
        *changed(steps[:5], {"mm": mm, "softmax": 4.0 * close, "add": 6.0 * close}),
        ("neg", 6.6, ["add"]),
        ("bmm", 5.5, ["neg"]),
    ]
    c = compared(flow(steps), flow(other))
    assert {name for name, (_, cause) in told(c).items() if cause} == blamed


def test_a_row_is_a_consequence_of_what_comes_to_it_over_other_operations_in_each_run() -> None:
    """The number that it reads is the same."""
    one: list[Step] = [*CHAIN[:3], ("clone", 8.0, ["mm"]), ("bmm", 5.0, ["clone"])]
    other: list[Step] = [*changed(CHAIN[:3], {"mm": 3.3}), ("repeat", 8.0, ["mm"]), ("bmm", 5.5, ["repeat"])]
    assert told(compared(flow(one), flow(other))) == {"mm": ORIGIN, "bmm": RECEIVER}


def test_what_a_rule_ignores_stays_the_cause_of_what_follows_from_it() -> None:
    other = changed(CHAIN, {"mm": 3.3, "softmax": 4.4})
    c = compared(flow(CHAIN), flow(other)).with_rules(RuleSet((IgnoreRule(op="mm"),)))
    assert told(c) == {"mm": (Role.NONE, True), "softmax": RECEIVER}
    (row,) = np.flatnonzero(c.cause).tolist()
    assert explain(c, row).headline == (
        "FIRST CAUSE, ignored by a rule: the output differs by ≥9.7e-02 (8e5 ε); downstream rows are red"
    )
    assert [cause.red for cause in c.consequences.causes] == [1]


def test_what_a_rule_ignores_is_no_cause_where_nothing_is_red_behind_it() -> None:
    c = compared(flow(CHAIN), flow(changed(CHAIN, {"mm": 3.3}))).with_rules(RuleSet((IgnoreRule(op="mm"),)))
    assert told(c) == {}


def test_what_a_rule_ignores_is_no_cause_of_what_another_one_explains() -> None:
    """Garbage that is ignored, and is read beside something that went wrong by itself."""
    steps: list[Step] = [("empty", 1.0, []), ("mm", 3.0, [70.0]), ("add", 4.0, ["empty", "mm"])]
    other = changed(steps, {"empty": 9.0, "mm": 3.3, "add": 4.4})
    both = compared(flow(steps), flow(other))
    assert {name for name, (_, cause) in told(both).items() if cause} == {"empty", "mm"}
    assert told(both.with_rules(RuleSet((IgnoreRule(op="empty"),)))) == {"mm": ORIGIN, "add": RECEIVER}


def test_an_operation_of_one_run_stays_the_cause_though_a_rule_ignores_it() -> None:
    c = compared(flow(CHAIN), negated()).with_rules(RuleSet((IgnoreRule(op="neg"),)))
    assert told(c) == {"neg": (Role.NONE, True), "softmax": RECEIVER, "bmm": RECEIVER}
    (row,) = np.flatnonzero(c.cause).tolist()
    assert "ignored by a rule: only b has this operation" in explain(c, row).headline


def test_red_rows_that_explain_each_other_in_a_circle_still_have_a_first() -> None:
    """Two pairs that cross, by a rule: each reads, on one side, what the other made."""
    log = made_up_log(
        [
            op("m/op_0_mul", 1.0, inputs=[2.0], producers=[""]),
            op("m/op_1_mul", 2.0, inputs=[3.0], producers=["m/op_0_mul"]),
        ]
    )
    c = compare(log, log, RuleSet((PairRule(a=("m/op_0_mul",), b=("m/op_1_mul",)),)))
    assert len(c.pairing) == 2
    assert c.red.all()
    assert c.cause.any()


def test_a_group_is_not_explained_by_its_own_members() -> None:
    """The last of a chain reads what the one before it made; both are the operation that diverges."""
    a: list[Step] = [("mul", 1.0, [2.0]), ("addmm", 5.0, ["mul"]), ("sum", 7.0, ["addmm"])]
    b: list[Step] = [("mul", 1.0, [2.0]), ("mm", 4.0, ["mul"]), ("add", 5.5, ["mm"]), ("sum", 7.7, ["add"])]
    rules = RuleSet((OpRule(a=("addmm",), b=("mm", "add")),))
    c = compare(made_up_log(flow(a)), made_up_log(flow(b)), rules)
    assert c.pairing.grouped.sum() == 1
    found = told(c)
    assert found["sum"] == RECEIVER
    assert found["addmm"][1]


# ---------------------------------------------------------------------- the data flow itself


def test_producers_that_the_log_names_are_taken_at_their_word() -> None:
    log = made_up_log(flow(CHAIN))
    assert [sources(log)[row].tolist() for row in range(5)] == [[-1], [0, -1], [1, -1], [2], [3, 1]]


def test_producers_that_the_log_does_not_name_are_found_by_value() -> None:
    log = made_up_log(flow(CHAIN, named=False))
    assert [sources(log)[row].tolist() for row in range(5)] == [[-1], [0, -1], [1, -1], [2], [3, 1]]


def test_the_last_record_before_that_made_the_value_is_its_source() -> None:
    same = [op("m/op_0_add", 1.0), op("m/op_1_add", 1.0), op("m/op_2_mul", 2.0, inputs=[3.0]), op("m/op_3_add", 1.0)]
    assert sources(made_up_log(same))[2].tolist() == [1]


def test_zero_nan_and_a_buffer_not_yet_filled_are_nobodys_value() -> None:
    made = [
        op("m/op_0_add", 0.0),
        op("m/op_1_add", NAN),
        op("m/op_2__allgather_base_", 5.0),
        op("m/op_3_mul", 2.0, inputs=[0.0, NAN, 15.0]),
    ]
    assert sources(made_up_log(made))[3].tolist() == [-1, -1, -1]


def test_who_reads_a_value() -> None:
    log = made_up_log(flow(CHAIN))
    assert consumers(log, 1) == [2, 4]
    assert consumers(log, 4) == []


def test_a_wait_reads_what_the_collective_has_yet_to_fill() -> None:
    made = [
        op("m/op_0_all_reduce", 5.0, inputs=[7.0]),
        op("m/op_1_mul", 2.0, inputs=[15.0]),
        op("m/op_2_wait_tensor", 5.0, inputs=[15.0]),
    ]
    assert made[0].outputs == [15.0]
    assert [sources(made_up_log(made))[row].tolist() for row in (1, 2)] == [[-1], [0]]


def test_a_lone_wait_for_what_was_red_before_its_collective_is_no_cause() -> None:
    """The collective itself is not judged: it was logged before it was done."""
    a: list[Step] = [("mul", 1.0, [2.0]), ("all_reduce", 3.0, ["mul"]), ("wait_tensor", 4.0, ["all_reduce"])]
    a.append(("sum", 7.0, ["wait_tensor"]))
    b: list[Step] = [("mul", 1.5, [2.0]), ("all_reduce", 3.5, ["mul"]), ("sum", 7.7, ["all_reduce"])]
    found = told(compared(flow(a), flow(b)))
    assert found["mul"] == ORIGIN
    assert "wait_tensor" not in found
    assert found["sum"] == RECEIVER


# ---------------------------------------------------------------------- operations that cannot make an error


def split_of(value: float, parts: Sequence[float], reader: float) -> list[Op]:
    """A product whose L1 norm agrees, a split of it, and a `mul` that reads the split."""
    return flow(
        [
            ("embedding", 1.0, [50.0]),
            ("mm", value, ["embedding", 70.0]),
            ("split", parts[0], ["mm"]),
            ("clone", parts[1], ["split"]),
            ("mul", reader, ["clone"]),
        ]
    )


def test_a_split_is_not_to_blame_but_what_made_its_input() -> None:
    """The product agrees in every printed digit: an upstream mistake that no norm shows."""
    c = compared(split_of(3.0, (4.0, 4.1), 5.0), split_of(3.0, (4.4, 4.5), 5.5))
    assert told(c) == {"mm": (Role.NONE, True), "split": RECEIVER, "clone": RECEIVER, "mul": RECEIVER}
    row = int(np.flatnonzero(c.cause)[0])
    assert explain(c, row).headline == (
        "LIKELY CAUSE: the same printed values; but what is split, cast or copied from its result differs by more"
    )
    assert c.consequences.causes[0].red == 3
    assert c.consequences.unexplained == 0


def test_a_product_in_the_place_of_the_split_is_to_blame_itself() -> None:
    c = compared(
        flow([("embedding", 1.0, [50.0]), ("mm", 3.0, ["embedding"]), ("mul", 4.0, ["mm"])]),
        flow([("embedding", 1.0, [50.0]), ("mm", 3.0, ["embedding"]), ("mul", 4.4, ["mm"])]),
    )
    assert told(c) == {"mul": ORIGIN}


def test_a_clone_of_other_targets_stands_for_them() -> None:
    """Their digests tell that the step was given something else."""
    targets, x = np.arange(16), np.ones(16, np.float32)

    def log(given: Any) -> OpLog:
        copied = Captured(key="loss/op_0_clone", reads=[given], gives=[given])
        return captured_log(
            [copied, Captured(key="loss/op_1_mul", reads=[x, given], gives=[x * given], made=["", copied.key])]
        )

    c = compare(log(targets), log(targets[::-1] + 1))
    assert c.cause.tolist() == [True, False]


def test_a_clone_of_what_was_not_captured_leaves_the_blame_to_its_reader() -> None:
    steps: list[Step] = [("embedding", 1.0, [50.0]), ("clone", 2.0, [60.0]), ("mm", 3.0, ["embedding", "clone"])]
    other: list[Step] = [("embedding", 1.0, [50.0]), ("clone", 2.2, [66.0]), ("mm", 3.3, ["embedding", "clone"])]
    assert told(compared(flow(steps), flow(other))) == {"clone": (Role.UNKNOWN, False), "mm": UNKNOWN}


def test_a_split_that_reads_equal_bits_differs_by_its_arguments() -> None:
    x = np.arange(64.0).reshape(8, 8)
    steps = [
        [
            Captured(key="m/op_0_mul", reads=[x], gives=[x + 1]),
            Captured(key="m/op_1_slice", reads=[x + 1], gives=[part]),
        ]
        for part in (x[:4], x[4:])
    ]
    assert told(compare(captured_log(steps[0]), captured_log(steps[1]))) == {"slice": ORIGIN}


def test_a_clone_that_only_one_run_has_may_be_to_blame() -> None:
    plain: list[Step] = [("embedding", 1.0, [50.0]), ("mm", 3.0, ["embedding"])]
    extra: list[Step] = [("embedding", 1.0, [50.0]), ("clone", 9.0, ["embedding"]), ("mm", 3.3, ["clone"])]
    assert told(compared(flow(plain), flow(extra))) == {"clone": (Role.NONE, True), "mm": RECEIVER}


@pytest.mark.parametrize("known", [True, False])
def test_what_ranks_only_move_is_to_blame_where_its_norm_is_known(known: bool) -> None:
    """Of merged ranks the parts of some results cannot be put together; nothing tells that these are wrong."""
    x = np.arange(1.0, 65.0).reshape(8, 8)

    def log(factor: float, moved: float | None) -> OpLog:
        made, read, more = "m/op_0_mul", x, list[Captured]()
        if moved is not None:
            group = {"group": {"ranks": [0, 1], "nth": 0}}
            read = moved * x
            more = [Captured(key="m/op_1_scatter_", reads=[x], gives=[read], made=[made], fields=group)]
        reader = Captured(key="m/op_2_tanh", reads=[read], gives=[factor * read], made=[more[0].key if more else made])
        return captured_log([Captured(key=made, gives=[x]), *more, reader])

    b = log(1.01, moved=1.5 if known else 1.0)
    b = b if known else as_parts(b, rows_named(b, {"scatter_"}))
    c = compare(log(1.0, moved=None), b)
    assert [op for op, (_, cause) in told(c).items() if cause] == ["scatter_" if known else "tanh"]


# ---------------------------------------------------------------------- random numbers, producers that are no partners


def with_dropout(name: str) -> tuple[Step, ...]:
    """The chain, in which a mask made of `name` is multiplied into the softmax."""
    mask: tuple[Step, ...] = (("empty", 7.0, []), (name, 8.0, ["empty"]), ("div", 9.0, ["softmax", name]))
    return (*CHAIN[:4], *mask, ("bmm", 5.5, ["div", "mul"]))


def test_a_draw_that_only_one_run_makes_is_the_cause() -> None:
    c = compare(made_up_log(flow(CHAIN)), made_up_log(flow(with_dropout("bernoulli_"))))
    assert {name for name, (_, cause) in told(c).items() if cause} == {"bernoulli_"}
    (row,) = np.flatnonzero(c.cause).tolist()
    assert explain(c, row).headline == "FIRST CAUSE: only b draws random numbers here: bernoulli_ at model.py:1"


def test_what_draws_nothing_is_blamed_where_its_result_is_read() -> None:
    c = compare(made_up_log(flow(CHAIN)), made_up_log(flow(with_dropout("cos"))))
    assert {name for name, (_, cause) in told(c).items() if cause} == {"div"}


def test_an_input_of_two_operations_without_partners_names_both() -> None:
    one = (*CHAIN[:4], ("clone", 8.0, ["softmax"]), ("bmm", 5.0, ["clone", "mul"]))
    two = (*CHAIN[:4], ("repeat", 9.0, ["softmax"]), ("bmm", 5.5, ["repeat", "mul"]))
    c = compare(made_up_log(flow(one)), made_up_log(flow(two)))
    row = next(row for row in np.flatnonzero(c.red).tolist() if c.a.op_name(int(c.row_a[row])) == "bmm")
    assert "input 0 already differs: a reads m/op_4_clone, b reads m/op_4_repeat" in explain(c, row).headline


def test_an_input_of_partners_names_no_two_operations() -> None:
    c = compare(made_up_log(flow(CHAIN)), made_up_log(flow(changed(CHAIN, {"softmax": 4.5, "bmm": 5.5}))))
    assert not any("b reads" in explain(c, row).headline for row in np.flatnonzero(c.red).tolist())


# ---------------------------------------------------------------------- other operations in each run, by their numbers

ROWS = np.random.default_rng(5).normal(size=(32, 64)).astype(np.float32)


@pytest.mark.parametrize("layout", ["same", "other"])
@pytest.mark.parametrize(("noise", "factor", "blamed"), [(3e-4, 1.0, "branch"), (1e-7, 1.01, "reader")])
def test_other_operations_are_blamed_for_an_error_that_their_norms_may_hide(
    layout: str, noise: float, factor: float, blamed: str
) -> None:
    """Errors of random signs hardly change a norm. What reads them is blamed for an error beyond what can be hidden."""
    off = (ROWS * (1 + noise * np.random.default_rng(6).normal(size=ROWS.shape))).astype(np.float32)
    first = Captured(key="m/op_0_mul", reads=[ROWS * 2], gives=[ROWS], made=[""])
    made = off if layout == "same" else off.T.copy()
    one, other = (
        captured_log(
            [
                first,
                Captured(key=f"m/op_1_{name}", reads=[ROWS], gives=[given], made=["m/op_0_mul"]),
                Captured(key="m/op_2_mm", reads=[given], gives=[result], made=[f"m/op_1_{name}"]),
            ]
        )
        for name, given, result in (("tanh", ROWS, ROWS * 3), ("atan", made, off * 3 * factor))
    )
    causes = {name for name, (_, cause) in told(compare(one, other)).items() if cause}
    assert causes == ({"tanh"} if blamed == "branch" else {"mm"})


@pytest.mark.parametrize(("made_from", "blamed"), [("", "mul"), ("m/op_0_exp", "_to_copy")])
def test_a_number_that_one_run_passes_as_a_tensor_is_an_argument_of_what_reads_it(made_from: str, blamed: str) -> None:
    """Unless it is computed from a tensor."""
    first = Captured(key="m/op_0_exp", reads=[ROWS * 2], gives=[ROWS], made=[""])
    number = np.array(0.36)
    one = [first, Captured(key="m/op_1_mul", reads=[ROWS], gives=[ROWS * 0.35], made=["m/op_0_exp"])]
    other = [
        first,
        Captured(key="m/op_1__to_copy", reads=[ROWS if made_from else number], gives=[number], made=[made_from]),
        Captured(key="m/op_2_mul", reads=[ROWS, number], gives=[ROWS * 0.36], made=["m/op_0_exp", "m/op_1__to_copy"]),
    ]
    c = compare(captured_log(one), captured_log(other))
    assert {name for name, (_, cause) in told(c).items() if cause} == {blamed}
    if blamed == "mul":
        (row,) = np.flatnonzero(c.cause).tolist()
        assert explain(c, row).headline.endswith("; the common input agrees; b has 1 more")


@pytest.mark.parametrize(("stacked", "blamed"), [((0, 1), "stack"), ((0,), "mul")])
def test_what_reads_a_scalar_of_tensors_of_other_sizes_leaves_the_blame_to_these(
    stacked: tuple[int, ...], blamed: str
) -> None:
    """One run takes the mean of two balances, the other of one; the mean is not judged. Else the reader is wrong."""
    balances = (ROWS[0], ROWS[1] * 2)

    def log(rows: Sequence[int], factor: float) -> Any:
        stack = np.stack([balances[row] for row in rows])
        mean = np.abs(stack).mean(keepdims=False).astype(np.float32)
        return captured_log(
            [
                *(
                    Captured(key=f"layers.{k}/op_0_mul", reads=[balance * 3], gives=[balance], made=[""])
                    for k, balance in enumerate(balances)
                ),
                Captured(
                    key="m/op_0_stack",
                    reads=[balances[row] for row in rows],
                    gives=[stack],
                    made=[f"layers.{row}/op_0_mul" for row in rows],
                ),
                Captured(key="m/op_1_mean", reads=[stack], gives=[mean], made=["m/op_0_stack"]),
                Captured(key="m/op_2_mul", reads=[mean], gives=[mean * np.float32(factor)], made=["m/op_1_mean"]),
            ]
        )

    c = compare(log((0,), 0.1), log(stacked, 0.1 if len(stacked) > 1 else 0.2))
    assert {name for name, (_, cause) in told(c).items() if cause} == {blamed}


@pytest.mark.parametrize(("rows", "blamed"), [(24, {"index"}), (32, {"div"})])
def test_a_backward_operation_has_the_sizes_of_its_line(rows: int, blamed: set[str]) -> None:
    """No data flow shows that autograd kept them. Where the forward operations of the line agree it is wrong itself."""

    def log(taken: int, given: int) -> Any:
        at = {"location": "loss.py:7"}
        back = {"phase": "backward", **at}
        part = ROWS[:taken].copy()
        return captured_log(
            [
                Captured(key="m/op_0_exp", reads=[ROWS * 3], gives=[ROWS], made=[""]),
                Captured(key="m/op_1_index", reads=[ROWS], gives=[part], made=["m/op_0_exp"], fields=at),
                Captured(key="m/op_2_ones_like", reads=[ROWS[0, :1]], gives=[ROWS[0, :1]], made=[""], fields=back),
                Captured(
                    key="m/op_3_div",
                    reads=[ROWS[0, :1]],
                    gives=[np.ones((given, 64), np.float32) / given],
                    made=["m/op_2_ones_like"],
                    fields=back,
                ),
            ]
        )

    c = compare(log(32, 32), log(rows, 24))
    assert {name for name, (_, cause) in told(c).items() if cause} == blamed


def test_whole_numbers_of_the_same_sum_come_from_elsewhere() -> None:
    tokens = np.arange(6)
    local = Captured(key="embed/op_0_sub", gives=[tokens], reads=[tokens + 1])
    for targets, maker in ((tokens, 0), (np.roll(tokens, 1), -1)):
        log = captured_log([local, Captured(key="loss/op_1_ne", gives=[targets > 2], reads=[targets])])
        assert sources(log)[1].tolist() == [maker]


@pytest.mark.parametrize(("name", "maker"), [("w.step", -1), ("w.grad", 0), ("", 0)])
def test_a_state_comes_from_what_names_it(name: str, maker: int) -> None:
    """A step count of 1 is no gradient of the loss; a gradient may come through a view."""
    one = np.ones(1, np.float32)
    count = Captured(
        key="optimizer/op_0_add_", gives=[one + 1], reads=[one], fields={"phase": "optimizer", "parameters": [name]}
    )
    log = captured_log([Captured(key="loss/op_0_ones_like", gives=[one]), count])
    assert sources(log)[1].tolist() == [maker]


@pytest.mark.parametrize("sent", [True, False])
def test_ranks_that_send_a_buffer_as_it_was_are_no_cause(sent: bool) -> None:
    """The reader is: the buffer differs before the step. What a rank receives may be something else."""
    rng = np.random.default_rng(3)
    x, buffer, other = (rng.normal(size=(4, 8)).astype(np.float32) for _ in range(3))

    def log(turn: np.ndarray, *steps: Captured) -> OpLog:
        made = steps[-1].key if steps else ""
        y = x * turn
        reads = Captured(key="rope/op_2_mul", gives=[y], reads=[x, turn], made=["", made])
        return captured_log([*steps, reads, Captured(key="out/op_0_tanh", gives=[np.tanh(y)], reads=[y])])

    before = other if sent else buffer
    send = Captured(key="rope/op_0_broadcast_", gives=[other], reads=[before], made=[""])
    copied = Captured(key="rope/op_1_copy_", gives=[other], reads=[None, other], made=["", send.key])
    c = compare(log(buffer), log(other, send, copied))
    [row] = np.flatnonzero(c.cause).tolist()
    assert (c.b.keys[c.row_b[row]] == "rope/op_2_mul") is sent


@pytest.mark.parametrize(("line", "causes"), [(5, [0]), (6, [0, 2])])
def test_the_gradient_of_another_shape_follows_from_it(line: int, causes: list[int]) -> None:
    """It reads one number that is equal in both runs, and is divided by a size."""

    def steps(many: int) -> list[Captured]:
        mask, one = np.arange(8) < many, np.array(1, np.float32)
        rows = np.arange(many, dtype=np.float32)
        back = {"phase": "backward", "location": f"model.py:{line}"}
        return [
            Captured(key="m/op_0_ne", gives=[mask], reads=[np.arange(8) - many], fields={"location": "model.py:4"}),
            Captured(
                key="m/op_1_index", gives=[rows], reads=[mask], made=["m/op_0_ne"], fields={"location": "model.py:5"}
            ),
            Captured(key="m/op_2_div", gives=[np.full(many, one / many)], reads=[one], fields=back),
        ]

    c = compare(captured_log(steps(5)), captured_log(steps(7)))
    assert c.red.tolist() == [True] * 3
    assert np.flatnonzero(c.cause).tolist() == causes
