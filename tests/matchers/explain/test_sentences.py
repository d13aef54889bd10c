"""What a row says: one sentence for each kind, true of its numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.headlines import BY_REASON
from matchers.explain.reason_facts import reason_facts
from matchers.explain.sentences import Explanation, explain, format_eps, format_error
from matchers.logs.op_log import OpLog
from matchers.rules.model import IgnoreRule, OpRule, PairRule, RuleSet
from matchers.status import Status
from matchers.verdict.expectation import Expect, Expectation
from tests.builders import Op, op
from tests.matchers.causes.test_first_causes import CHAIN, NAN, changed, flow, negated
from tests.matchers.drifted_logs import made_up_log
from tests.matchers.reasons import FITS
from tests.matchers.test_comparison import REAL, compared, real

FLASH = "layers.2.attention.inner_attention/op_0__scaled_dot_product_flash_attention_for_cpu"


def explained(a: list[Op], b: list[Op], name: str, rules: RuleSet | None = None) -> Explanation:
    """What is said of the row with this op in a, or in b where a has none."""
    c = compare(made_up_log(a), made_up_log(b), rules)
    return explain(c, row_of(c, name))


def row_of(c: Comparison, name: str) -> int:
    for row in range(len(c)):
        in_a, in_b = c.members(row)
        ops = [c.a.op_name(record) for record in in_a] or [c.b.op_name(record) for record in in_b]
        if name in ops:
            return row
    raise AssertionError(name)


def first_cause(a: str, b: str) -> Explanation:
    c = compared(a, b)
    return explain(c, int(np.flatnonzero(c.cause)[0]))


# ---------------------------------------------------------------------- red rows of real logs


def test_an_origin() -> None:
    told = first_cause("bug_base", "bug_attn_scale_l2")
    assert told.headline == "FIRST CAUSE: the output differs by ≥8.4e-05 (708 ε); all inputs agree"
    assert told.reason == "reason: beyond-tolerance, limit 1.53e-05"
    assert "tolerance 1.5e-05" in told.notes
    assert "same module, op, counter, phase, location" in told.notes
    facts = {fact.name: fact for fact in told.facts}
    assert facts["L1 of output 0"] == replace(
        facts["L1 of output 0"], a="3.895632e+03", b="3.895961e+03", difference="8.4e-05", agrees=False
    )
    assert facts["min"].agrees is True
    assert facts["shape"].a == "[1, 16, 256, 16]"
    assert [fact.position for fact in told.inputs] == [0, 1, 2]
    assert all(fact.agrees for fact in told.inputs)


def test_a_receiver_names_what_it_received() -> None:
    c = compared("bug_base", "bug_attn_scale_l2")
    row = int(c.at_a[c.a.keys[:].index("layers.2.attention.wo/op_0_mm")])
    told = explain(c, row)
    assert (
        told.headline == f"CONSEQUENCE: the output differs by ≥8.7e-05 (726 ε); input 0 already differs, from {FLASH}"
    )
    assert "amplification 1: output error over input error, by norms" in told.notes


def test_an_unknown_says_where_to_look() -> None:
    told = first_cause("bug_base", "bug_rope_theta_l3")
    assert told.headline == (
        "LIKELY CAUSE: the output differs by ≥1.3e-03 (10,878 ε); inputs 0, 1 already differ: suspect an uncaptured "
        "operation just upstream"
    )


def test_a_cause_that_only_one_run_has() -> None:
    told = first_cause("bug_base", "bug_neg_attn_l2")
    assert told.headline == "FIRST CAUSE: only b has this operation; its consumers diverge"


# ---------------------------------------------------------------------- every kind of row


def test_same_in_print_says_what_norms_cannot_see() -> None:
    told = explained(flow(CHAIN), flow(CHAIN), "mm")
    assert told.headline == "same printed values"
    assert any("printed norms miss reordering" in note for note in told.notes)
    assert told.pairing.startswith("paired by values: output and inputs are unique in both logs")


def test_no_values_says_which_log_prints_no_result() -> None:
    silent = op("m/op_0_add_", outputs=[], inputs=[1.0], l2=None, min=None, max=None, mean=None)
    printed, mean = op("m/op_0_add_", inputs=[1.0]), replace(silent, mean=1.0)
    for a, b, missing in (
        (silent, silent, "neither log prints a result"),
        (printed, silent, "only a prints a result"),
        (silent, printed, "only b prints a result"),
        (replace(printed, mean=None), mean, "the logs print other numbers of the result"),
    ):
        assert explained([a], [b], "add_").headline == f"no values: {missing}"
    assert explained([printed], [printed], "add_").headline == "same printed values"


def test_equal() -> None:
    record = op("m/op_0_add", extra={"Digest": "00000000000000ff"})
    told = explained([record], [record], "add")
    assert told.headline == "equal: the digests match (bitwise)"
    assert any((fact.name, fact.a, fact.agrees) == ("digest", "00000000000000ff", True) for fact in told.facts)


def test_close() -> None:
    told = explained(flow(CHAIN), flow(changed(CHAIN, {"bmm": 5.00003})), "bmm")
    assert told.headline == (
        "FIRST DIFFERENCE: ≥6.4e-06, within tolerance; every printed number of its inputs is equal"
    )
    assert "tolerance 1.5e-05" in told.notes


@pytest.mark.parametrize(("a", "b"), REAL)
def test_what_is_called_within_the_tolerance_is(a: str, b: str) -> None:
    """Whatever limit a row was judged by, the sentence names that limit."""
    c = compared(a, b)
    for row in np.flatnonzero(c.status == Status.CLOSE).tolist():
        headline = explain(c, row).headline
        if "within the tolerance of" in headline:
            assert c.error[row] <= float(headline.rpartition(" ")[2]) * 1.05, (row, headline)


def test_nan_says_on_which_side() -> None:
    broken = changed(CHAIN, {"bmm": NAN})
    assert explained(flow(CHAIN), flow(broken), "bmm").headline == "FIRST CAUSE: NaN, only in b"
    assert explained(flow(broken), flow(CHAIN), "bmm").headline == "FIRST CAUSE: NaN, only in a"
    assert explained(flow(broken), flow(broken), "bmm").headline == "FIRST CAUSE: NaN in both runs"


def test_shape() -> None:
    other = flow(CHAIN)
    other[2].dtype = "bfloat16"
    assert explained(flow(CHAIN), other, "mm").headline == "FIRST CAUSE: dtype differs: float32 in a, bfloat16 in b"


def test_sharded() -> None:
    rules = RuleSet((PairRule(a=("m/op_0_mm",), b=("m/op_0_mm",)),))
    wait = op("m/op_1_wait_tensor", 5.0)
    told = explained([op("m/op_0_mm", shape=(8, 4)), wait], [op("m/op_0_mm", 0.7, shape=(4, 4)), wait], "mm", rules)
    assert told.headline.startswith("sharded: the sides hold different shards of one tensor")


def test_unfinished() -> None:
    told = explained([op("m/op_0_allreduce_", 1.0)], [op("m/op_0_allreduce_", 99.0)], "allreduce_")
    assert told.headline.startswith("unfinished: read before the communication completed")


def test_a_recomputed_copy_names_its_original() -> None:
    copy = op("mm/op_9_mm", 3.0, inputs=[6.0, 70.0], phase="backward")
    c = compare(made_up_log(flow(CHAIN)), made_up_log([*flow(CHAIN), copy]))
    row = len(c) - 1
    assert c.status[row] == Status.RECOMPUTE
    assert explain(c, row).headline == "recomputed copy of m/op_2_mm: run again in the backward pass"


def test_only_on_one_side() -> None:
    extra = op("other/op_0_erf", 77.0)
    assert explained(flow(CHAIN), [*flow(CHAIN), extra], "erf").headline == "only b has this operation"
    told = explained([*flow(CHAIN), extra], flow(CHAIN), "erf")
    assert told.headline == "only a has this operation"
    assert told.pairing.startswith("unpaired: ")
    assert all(fact.b == "" and fact.agrees is None for fact in told.facts)


def test_the_headline_of_a_lone_cause_names_its_side() -> None:
    told = explained(negated(), flow(CHAIN), "neg")
    assert told.headline == "FIRST CAUSE: only a has this operation; its consumers diverge"


def test_ignored() -> None:
    told = explained(flow(CHAIN), flow(changed(CHAIN, {"mm": 9.0})), "mm", RuleSet((IgnoreRule(op="mm"),)))
    assert told.headline == "ignored by a rule"


def test_paired_by_a_rule() -> None:
    rules = RuleSet((PairRule(a=("m/op_2_mm",), b=("m/op_2_mm",)),))
    assert explained(flow(CHAIN), flow(CHAIN), "mm", rules).pairing == "paired by a rule"


def test_a_group_names_its_members() -> None:
    a = [op("m/op_0_addmm", 5.0)]
    b = [op("m/op_0_mm", 4.0), op("m/op_1_add", 5.0)]
    told = explained(a, b, "addmm", RuleSet((OpRule(a=("addmm",), b=("mm", "add")),)))
    assert told.pairing.endswith("; mm + add together form this operation, compared at the last one")


def test_inputs_name_who_made_them() -> None:
    told = explained(flow(CHAIN), flow(changed(CHAIN, {"mm": 3.3})), "softmax")
    (fact,) = told.inputs
    assert (fact.a, fact.b, fact.agrees) == ("9.000000e+00", "9.900000e+00", False)
    assert (fact.producer_a, fact.producer_b) == (2, 2)


def test_a_runner_up_whose_name_repeats_can_be_told_from_the_partner() -> None:
    """`wait_tensor` occurs several times under one name; the rival is another of them."""
    c = compared("fsdp2_sac", "fsdp2_traced")
    for row in np.flatnonzero(c.pair >= 0).tolist():
        told = explain(c, row).pairing
        assert f"runner-up {c.b.keys[int(c.row_b[row])]} " not in told


# ---------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("error", "bound", "text"),
    [
        (NAN, True, "—"),
        (float("inf"), True, "∞"),
        (0.0, True, "0"),
        (0.00123, True, "≥1.2e-03"),
        (2.0, False, "≈2.0e+00"),
    ],
)
def test_errors_as_they_are_shown(error: float, bound: bool, text: str) -> None:
    assert format_error(error, bound) == text


@pytest.mark.parametrize(
    ("epsilons", "text"),
    [(0.0, ""), (0.04, "0.0 ε"), (3.94, "3.9 ε"), (147.2, "147 ε"), (99_999, "99,999 ε"), (2e6, "2e6 ε")],
)
def test_errors_in_units_of_epsilon(epsilons: float, text: str) -> None:
    assert format_eps(epsilons * 2.0**-23, 2.0**-23) == text


def test_no_epsilons_where_there_is_no_number() -> None:
    assert format_eps(NAN, 0.1) == format_eps(float("inf"), 0.1) == format_eps(0.1, NAN) == ""


# ---------------------------------------------------------------------- reasons


def test_every_reason_of_a_row_that_is_not_red_has_a_headline() -> None:
    assert BY_REASON.keys() == {reason for status, reasons in FITS.items() if not status.red for reason in reasons}


def test_a_row_that_rounding_would_explain_anyhow_says_so() -> None:
    expectation = Expectation(preset=Expect.LOW_PRECISION)
    c = compare(real("bug_base"), real("bug_neg_attn_l2"), expectation=expectation)
    told = explain(c, int(np.flatnonzero(c.status == Status.NOT_JUDGED)[0])).headline
    assert told.startswith("not judged: differs by ≥")
    assert " rounding and an input error of ≈" in told
    assert " would allow " in told


def test_the_facts_of_a_reason_are_what_it_was_judged_by() -> None:
    rules = RuleSet((IgnoreRule(match="m/op_1_mul"),))
    c = compare(
        made_up_log([op("m/op_0_mm"), op("m/op_1_mul")]), made_up_log([op("m/op_0_mm", 2.0), op("m/op_1_mul")]), rules
    )
    limit = float(c.tolerance[0])
    assert [reason_facts(c, row) for row in range(2)] == [{"limit": limit}, {"rule": 1}]


def test_two_weights_are_named_where_one_call_reads_another_than_the_other() -> None:
    weights = {"parameter_digests": {"student.weight": "0a" * 8, "teacher.weight": "0b" * 8}}

    def log(name: str, digest: str, value: float) -> OpLog:
        read = {"Inputs": "[8,8]", "Input digests": digest, "Digest": digest}
        return made_up_log([op(f"{name}/op_0_embedding", value, inputs=[3 * value], extra=read)], run=weights)

    c = compare(log("teacher", "0b" * 8, 2.0), log("student", "0a" * 8, 2.5))
    assert explain(c, 0).headline.endswith("input 0 already differs: a reads teacher.weight, b reads student.weight")
