"""The point at which two runs cease to be equal, on steps small enough to follow, with digests and in print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from matchers.causes.first_difference import FirstDifference, Kind
from matchers.comparison import Comparison, compare
from matchers.explain.first_difference import first_difference_note, first_difference_reasons
from matchers.explain.sentences import explain, headline
from matchers.rules.model import IgnoreRule, RuleSet
from matchers.status import Status
from matchers.verdict.expectation import Expect, Expectation
from tests.captured import Step, captured_log, summary
from tests.matchers.causes.test_first_causes import CHAIN, changed, flow
from tests.matchers.causes.test_first_causes import compared as printed
from tests.matchers.test_comparison import compared as real

RNG = np.random.default_rng(3)
TOKENS = RNG.integers(0, 9, 16)
TABLE = RNG.normal(size=(16, 16)).astype(np.float32)
WEIGHTS = RNG.normal(size=(6, 16, 16)).astype(np.float32)
NEAR = np.float32(1 + 1e-6)


def step(
    weights: Any = WEIGHTS, *, tokens: Any = TOKENS, table: Any = TABLE, factors: Mapping[int, Any] | None = None
) -> list[Step]:
    """An embedding and six products; `factors` multiply the results of some, and what follows is computed from that."""
    x = table[tokens % 9]
    steps = [Step(key="emb/op_0_embedding", reads=[table, tokens], gives=[x])]
    for k, weight in enumerate(weights):
        y = x @ weight * (factors or {}).get(k, np.float32(1))
        steps.append(Step(key=f"layers.{k}/op_0_mm", reads=[x, weight], gives=[y], made=[steps[-1].key, ""]))
        x = y
    return steps


def compared(a: Sequence[Step], b: Sequence[Step], run_a: Any = None, run_b: Any = None) -> Comparison:
    return compare(captured_log(a, **(run_a or {})), captured_log(b, **(run_b or {})))


def first(c: Comparison) -> FirstDifference:
    assert c.first_difference is not None
    return c.first_difference


def test_equal_runs_have_none() -> None:
    c = compared(step(), step())
    assert c.first_difference is None
    assert first_difference_note(c) == ""
    assert first_difference_reasons(c) == ()


@pytest.mark.parametrize("at", range(6))
def test_equal_inputs_and_another_result_however_small(at: int) -> None:
    c = compared(step(), step(factors={at: NEAR}))
    found = first(c)
    assert (found.row, found.kind, found.by_digest) == (at + 1, Kind.OPERATION, True)
    assert Status(c.status[found.row]) == Status.CLOSE
    assert first_difference_note(c).startswith(f"First difference: row {at + 2}, ≈")
    assert first_difference_note(c).endswith(", within tolerance")
    told = headline(c, found.row)
    assert told.startswith("FIRST DIFFERENCE: ≈")
    assert told.endswith(", within tolerance; all inputs are bitwise equal")
    assert not c.red.any()
    assert not c.cause.any()


def test_other_operations_of_its_kind_tell_whether_it_matters() -> None:
    many = [*step(), Step(key="head/op_0_mm", reads=[TABLE, WEIGHTS[0]], gives=[TABLE @ WEIGHTS[0]])]
    other = [*step(factors={3: NEAR}), many[-1]]
    c = compared(many, other)
    assert first_difference_reasons(c)[1] == "repeats elsewhere: 4 of 4 other mm with equal inputs agree to the bit"
    again = [*other[:-1], Step(key="head/op_0_mm", reads=many[-1].reads, gives=[TABLE @ WEIGHTS[0] * NEAR])]
    c = compared(many, again)
    assert first_difference_reasons(c)[1] == (
        "1 of 4 other mm with equal inputs differs too: another kernel or reduction order"
    )
    assert any("the difference begins here; 1 of 4 other mm" in note for note in explain(c, len(c) - 1).notes)


RUN = {"versions": {"torch": "2.13.0"}, "device": "Processor"}
REPEATS = "repeats elsewhere: 4 of 4 other mm"


@pytest.mark.parametrize(
    ("twice", "arguments", "other", "told"),
    [
        (False, {}, RUN, (REPEATS, "no rounding: one build of torch on one machine")),
        (True, {"k": 1}, RUN, ("nondeterministic here: 1 of 4 other mm", "one build of torch on one machine: capture")),
        (True, {}, RUN, ("1 of 4 other mm",)),
        (False, {}, {**RUN, "device": "Other"}, (REPEATS, "it may be the kernel: versions, ")),
        (False, {}, {}, (REPEATS,)),
    ],
)
def test_other_bits_are_no_rounding_on_one_machine_and_perhaps_another_kernel_elsewhere(
    twice: bool, arguments: dict[str, int], other: dict[str, Any], told: tuple[str, ...]
) -> None:
    """What may be asked otherwise, in logs without arguments, is not called nondeterministic."""
    fields = {"arguments": arguments}
    heads = [Step(key="h/op_0_mm", reads=[TABLE, TABLE], gives=[TABLE @ TABLE * f], fields=fields) for f in (1, NEAR)]
    c = compared([*step(), heads[0]], [*step(factors={3: NEAR}), heads[twice]], RUN, other)
    reasons = first_difference_reasons(c)[1:]
    assert len(reasons) == len(told)
    assert all(reason.startswith(beginning) for reason, beginning in zip(reasons, told, strict=True))


def test_why_a_difference_before_the_first_cause_is_none() -> None:
    apart = [Step(key="head/op_0_mm", reads=[TABLE, WEIGHTS[0]], gives=[TABLE @ WEIGHTS[0] * f]) for f in (1, NEAR)]
    factors = {0: NEAR, 2: np.float32(1.5)}
    c = compared([apart[0], *step()], [apart[1], *step(factors={2: factors[2]})])
    assert np.flatnonzero(c.cause).tolist() == [4]
    assert first_difference_reasons(c)[-1] == "no cause: row 5, the first cause, does not follow from it"
    c = compared(step(), step(factors=factors))
    assert np.flatnonzero(c.cause).tolist() == [3]
    assert first_difference_reasons(c)[-1].startswith("no cause by its size: row 4, the first cause, is off by ")
    c = compared(step(), step(factors={2: factors[2]}))
    assert len(first_difference_reasons(c)) == 2


def test_a_difference_far_beyond_rounding_is_no_reduction_order() -> None:
    twice = [Step(key=f"m/op_{k}_mm", reads=[TABLE + k, TABLE], gives=[TABLE * (k + 1)]) for k in range(2)]
    other = [Step(key=s.key, reads=s.reads, gives=[TABLE * (k + 1) * np.float32(1.5)]) for k, s in enumerate(twice)]
    assert first_difference_reasons(compared(twice, other))[1] == "1 of 1 other mm with equal inputs differs too"


def test_a_row_that_a_rule_ignores_is_not_it_nor_what_follows_from_it() -> None:
    logs = captured_log(step()), captured_log(step(factors={1: NEAR}))
    assert first(compare(*logs)).row == 2
    rules = RuleSet((IgnoreRule(match="layers.1/op_0_mm"),))
    assert compare(*logs, rules).first_difference is None


def test_an_expectation_changes_nothing() -> None:
    logs = captured_log(step()), captured_log(step(factors={2: NEAR}))
    for preset in Expect:
        assert first(compare(*logs, expectation=Expectation(preset))).row == 3


def test_a_random_draw_is_called_one() -> None:
    draws = [Step(key="drop/op_0_rand", gives=[RNG.random((8, 8)).astype(np.float32)]) for _ in range(2)]
    c = compared([*step(), draws[0]], [*step(), draws[1]])
    assert first(c).kind == Kind.DRAW
    assert first_difference_reasons(c) == (
        "it reads nothing",
        "a random draw: another seed, or another state of the generator",
    )


def test_what_only_one_run_has_is_it_where_its_result_is_read_instead_of_another() -> None:
    plain = step()
    x: Any = plain[1].gives[0]
    flipped = Step(key="extra/op_0_neg", reads=[x], gives=[-x], made=[plain[1].key])
    reads = Step(key=plain[2].key, reads=[-x, WEIGHTS[1]], gives=[-x @ WEIGHTS[1]], made=[flipped.key, ""])
    c = compared(plain[:3], [*plain[:2], flipped, reads])
    found = first(c)
    assert found.kind == Kind.UNPAIRED
    assert (c.row_a[found.row], c.b.op_name(int(c.row_b[found.row]))) == (-1, "neg")
    assert first_difference_note(c) == f"First difference: row {found.row + 1}, only in b"
    assert first_difference_reasons(c) == ("a reads layers.0/op_0_mm, b reads extra/op_0_neg, at layers.1/op_0_mm",)


def test_an_unpaired_operation_that_changes_nothing_is_not_it() -> None:
    plain = step()
    x: Any = plain[1].gives[0]
    copied = Step(key="extra/op_0_relu", reads=[x], gives=[x], made=[plain[1].key])
    reads = Step(key=plain[2].key, reads=plain[2].reads, gives=plain[2].gives, made=[copied.key, ""])
    assert compared(plain, [*plain[:2], copied, reads, *plain[3:]]).first_difference is None


@pytest.mark.parametrize("size", [1e-7, 1e-3])
def test_other_weights_are_called_what_they_are(size: float) -> None:
    noisy = WEIGHTS * (1 + size * RNG.normal(size=WEIGHTS.shape)).astype(np.float32)
    names = [f"layers.{k}.weight" for k in range(6)]
    runs = [{"parameter_digests": {n: f"{side}{n}" for n in names}, "batch": [{"digest": "0"}]} for side in "ab"]
    for told, before in (
        (runs, "all 6 parameters differ before the step, layers.0.weight first"),
        ((None, None), "6 of 6 matrix products read other weights, layers.0/op_0_mm first"),
    ):
        c = compared(step(), step(noisy), *told)
        found = first(c)
        assert (found.row, found.kind, found.start) == (1, Kind.START, ("weights",))
        sentence = first_difference_reasons(c)[0]
        assert sentence.startswith("The runs already differ at the first row that reads other weights (row 2, ≈")
        assert sentence.endswith(f"): {before}. Capture an earlier step, or load the same weights.")
        assert before in headline(c, 1)
        assert not any("inputs agree" in headline(c, row) for row in range(1, len(c)))
    call = [run | {"coverage": {"forward": [0, 9]}} for run in runs]
    assert first_difference_reasons(compared(step(), step(noisy), *call))[0].endswith("first. Load the same weights.")


def test_another_batch_from_the_first_row() -> None:
    c = compared(step(), step(tokens=TOKENS + 1))
    assert (first(c).row, first(c).start) == (0, ("the batch",))
    sentence = first_difference_reasons(c)[0]
    assert sentence.startswith("The runs already differ at the first row (≈")
    assert sentence.endswith("): the batch differs before the step. Give both runs the same batch.")


def test_one_buffer_is_neither_weights_nor_batch() -> None:
    buffer = [Step(key="rope/op_0_mul", reads=[TABLE, TABLE * k], gives=[TABLE * TABLE * k]) for k in (1, 2)]
    c = compared([*step(), buffer[0]], [*step(), buffer[1]])
    assert (first(c).kind, first(c).position) == (Kind.GIVEN, 1)
    assert first_difference_reasons(c)[0].startswith("input 1 differs, and no captured operation made it")


@pytest.mark.parametrize("known", [True, False])
def test_a_buffer_in_another_order_is_called_that_where_the_norms_tell(known: bool) -> None:
    a, b = (
        captured_log([*step(), Step(key="rope/op_0_mul", reads=[TABLE, read], gives=[TABLE * k])])
        for k, read in enumerate((TABLE, TABLE[::-1]), 1)
    )
    if not known:
        for log in (a, b):
            log.inputs.value[:] = np.nan
    c = compare(a, b)
    assert (first(c).kind, first(c).position) == (Kind.GIVEN, 1)
    assert ("the same numbers in another order" in first_difference_reasons(c)[0]) == known


def test_a_buffer_that_the_headers_name_is_called_that() -> None:
    tables = [summary(TABLE * k) for k in (1, 2)]
    buffer = [Step(key="rope/op_0_mul", reads=[TABLE, t], gives=[TABLE * TABLE * k]) for k, t in enumerate(tables, 1)]
    runs = [
        {"parameter_digests": {"w": "0"}, "buffer_digests": {"rope.cache": f"{t.digest:016x}", "mask": "-"}}
        for t in tables
    ]
    c = compared([*step(), buffer[0]], [*step(), buffer[1]], *runs)
    assert first(c).start == ("buffers",)
    assert headline(c, len(c) - 1) == "FIRST CAUSE: the buffer differs before the step: rope.cache"


def test_what_reads_unjudged_copies_of_other_weights_is_not_to_blame() -> None:
    """What ranks gather is not judged before it is complete."""

    def gathered(weight: Any) -> list[Step]:
        copied = Step(key="norm/op_0_all_gather_copy_in", reads=[weight], gives=[weight])
        return [copied, Step(key="norm/op_1_mul", reads=[weight, TABLE], gives=[TABLE * weight], made=[copied.key, ""])]

    runs = [{"parameter_digests": {"norm.weight": side}} for side in "ab"]
    c = compared(gathered(TABLE), gathered(TABLE * 2), *runs)
    (cause,) = np.flatnonzero(c.cause)
    assert headline(c, int(cause)) == "FIRST CAUSE: the parameter differs before the step: norm.weight"


def test_the_first_operation_behind_other_weights_is_named_too() -> None:
    noisy = WEIGHTS * np.float32(1 + 1e-7)
    table = [Step(key="rope/op_0_cos", reads=[TABLE], gives=[np.cos(TABLE * k)]) for k in (1, 2)]
    c = compared([*step(), table[0]], [*step(noisy), table[1]])
    assert first(c).kind == Kind.START
    assert c.a.op_name(int(c.row_a[first(c).operation])) == "cos"
    assert first_difference_reasons(c)[1] == (
        f"the first row with equal inputs and another result: row {first(c).operation + 1}, rope/op_0_cos"
    )


def test_another_part_of_the_same_result() -> None:
    plain = step()
    x: Any = plain[1].gives[0]
    turned = Step(key=plain[2].key, reads=[x[::-1], WEIGHTS[1]], gives=[x[::-1] @ WEIGHTS[1]], made=plain[2].made)
    c = compared(plain[:3], [*plain[:2], turned])
    assert first(c).kind == Kind.OTHER_INPUT
    assert first_difference_reasons(c) == (
        "input 0 differs although layers.0/op_0_mm agrees: another part or view of its result",
    )


def test_a_swapped_pair_is_no_difference() -> None:
    """Both results exist in both runs, made from the same inputs: the pairs are wrong, not the runs."""
    pair = [Step(key="m/op_0_mm", reads=[TABLE, TABLE], gives=[TABLE * k]) for k in (1, 2)]
    assert compared(pair, pair[::-1]).first_difference is None


def test_memory_without_content_is_none() -> None:
    garbage = [Step(key="m/op_0_new_empty", gives=[RNG.normal(size=(4, 4))]) for _ in range(2)]
    assert compared([garbage[0], *step()], [garbage[1], *step()]).first_difference is None


def test_in_print_equal_means_every_printed_number() -> None:
    c = printed(flow(CHAIN), flow(changed(CHAIN, {"mm": 3.00001, "softmax": 4.00002, "bmm": 5.00003})))
    found = first(c)
    assert (c.a.op_name(int(c.row_a[found.row])), found.kind, found.by_digest) == ("mm", Kind.OPERATION, False)
    assert first_difference_reasons(c)[0] == "every printed number of its inputs is equal"
    assert headline(c, found.row).startswith("FIRST DIFFERENCE: ≥3.6e-06, within tolerance; every printed number")


def test_in_print_earlier_operations_tell_of_its_kind() -> None:
    twins = [("mm", 3.0, [1.0, 2.0]), ("neg", 9.0, [8.0])]
    a = flow([("embedding", 1.0, [50.0]), *twins])
    more = [*a, *(type(o)(**{**vars(o), "key": o.key.replace("m/", "n/")}) for o in a)]
    other = [*more[:-2], type(more[-2])(**{**vars(more[-2]), "outputs": [9.00005]}), more[-1]]
    reasons = first_difference_reasons(printed(more, other))
    assert reasons[1] == "1 of 1 earlier mm with equal printed inputs agrees in every printed digit"


def test_in_real_logs() -> None:
    c = real("bug_base", "bug_attn_scale_l2")
    assert "layers.2.attention" in c.a.keys[int(c.row_a[first(c).row])]
    assert first(c).row == int(np.flatnonzero(c.cause)[0])
    unpaired = real("bug_base", "bug_neg_attn_l2")
    assert unpaired.b.op_name(int(unpaired.row_b[first(unpaired).row])) == "neg"
    assert real("ac_none", "ac_full").first_difference is None
