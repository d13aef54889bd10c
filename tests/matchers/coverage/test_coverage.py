"""The coverage of two logs: what counts as compared, what vouches for the rest, which parts are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.coverage.cover import Cover
from matchers.coverage.coverage import Side
from matchers.logs.op_log import Phase
from matchers.rules.model import IgnoreRule, RuleSet, ToleranceRule
from matchers.status import Status
from numtui.report.evidence_basis import agreement
from tests.builders import Op, op, training_step
from tests.captured import Step, captured_log, summary
from tests.matchers.drifted_logs import made_up_log

STEP = training_step(2)


def compared(a: Sequence[Op], b: Sequence[Op], rules: RuleSet | None = None) -> Comparison:
    return compare(made_up_log(a), made_up_log(b), rules)


def chain(*names: str, read: str = "") -> list[Op]:
    """Operations each of which reads the one before; each has numbers of its own, the same in every log."""
    ops: list[Op] = []
    for name in names:
        value = 1.0 + sum(map(ord, name)) / 7
        made = ops[-1] if ops else None
        ops.append(
            op(
                f"m/op_{len(ops)}_{name}",
                value,
                inputs=made.outputs if made else [0.5],
                producers=[made.key if made else ""],
            )
        )
    return ops


def test_all_of_two_equal_logs_is_compared() -> None:
    known = compared(STEP, STEP).coverage
    assert known.a == known.b == Side(len(STEP), 0, 0, 0)
    assert known.sentence == "32 of 32 operations compared"
    assert known.enough
    assert not known.parts


def test_a_call_of_a_model_covers_the_forward_pass_of_a_training() -> None:
    """What the training does around it has no partner there, and need not have one; nor has the call all of it."""
    call = [one for one in STEP if one.phase is None]
    run = {"coverage": {"forward": [0, len(call)]}}
    c = compare(made_up_log(STEP), made_up_log(call, run=run))
    assert c.coverage.enough
    assert c.coverage.a == c.coverage.b == Side(len(call), 0, 0, 0)
    half = compare(made_up_log(STEP), made_up_log(call[:10], run=run)).coverage
    assert half.missing == "the end of a (16)"
    assert not compare(made_up_log(STEP), made_up_log(call)).coverage.enough


def test_what_is_around_a_call_needs_no_partner() -> None:
    call = chain("embedding", "mm", "silu", "mm")
    sampled = [*call, *(replace(one, key=f"sample/op_{k}_x", outputs=[k + 7.5]) for k, one in enumerate(call))]
    run = {"coverage": {"forward": [0, len(call)]}}
    c = compare(made_up_log(call, run=run), made_up_log(sampled, run=run))
    assert c.coverage.b == Side(len(call), 0, 0, 0)
    assert not compare(made_up_log(call), made_up_log(sampled)).coverage.enough


@pytest.mark.parametrize("missing", [{"shape": None}, {"min": None}, {"outputs": ()}], ids=["shape", "min", "norms"])
def test_values_that_only_one_log_has_are_said(missing: dict[str, object]) -> None:
    """An equality of what is left is not one of all; values that both logs lack are missing in neither."""
    less = [replace(one, **missing) if at == 5 else one for at, one in enumerate(STEP)]  # type: ignore[arg-type]
    for a, b in ((STEP, less), (less, STEP)):
        assert compared(a, b).coverage.sentence == "32 of 32 operations compared (1 by fewer values than one log has)"
    assert compared(less, less).coverage.sentence == "32 of 32 operations compared"


def test_a_phase_of_one_log_is_named() -> None:
    forward = [o for o in STEP if o.phase is None]
    c = compared(forward, STEP)
    (part,) = c.coverage.parts
    assert (part.name, part.side, part.operations, part.of) == ("the backward pass", "b", 6, 6)
    assert c.coverage.sentence == "26 of 32 operations compared; the backward pass of b (6) has no partner"
    assert not c.coverage.enough


@pytest.mark.parametrize(
    ("kept", "name"),
    [(slice(0, 16), "the second half"), (slice(16, None), "the first half"), (slice(0, 8), "the end")],
)
def test_half_a_log_is_named(kept: slice, name: str) -> None:
    known = compared(STEP, STEP[kept]).coverage
    assert known.parts[0].name == name
    assert known.parts[0].side == "a"
    assert known.parts[0].operations == 32 - len(STEP[kept])
    assert not known.enough


def test_a_module_of_one_log_is_named_once_with_what_is_inside() -> None:
    aside = [replace(o, key=o.key.replace("m/", "aside.m/"), phase=None) for o in chain("exp", "log")]
    aside.append(op("aside/op_0_atan", 50.0, inputs=aside[-1].outputs, producers=[aside[-1].key]))
    known = compared(STEP, [*STEP[:26], *aside, *STEP[26:]]).coverage
    assert [str(part) for part in known.parts] == ["aside of b (3)"]
    assert known.sentence == "32 of 35 operations compared; aside of b (3) has no partner"


def test_an_operation_is_covered_by_what_reads_it() -> None:
    """The detour of b leads to the result that a has, too."""
    a, b = chain("mm", "relu", "sum"), chain("mm", "relu", "sum")
    detour = op("m/op_9_tanh", 77.0, inputs=b[0].outputs, producers=[b[0].key])
    b[1:1] = [detour, replace(op("m/op_8_atanh", 78.0), inputs=detour.outputs, producers=[detour.key])]
    b[3] = replace(b[3], inputs=[*b[3].inputs, 234.0], producers=[*b[3].producers, "m/op_8_atanh"])
    known = compared(a, b).coverage
    assert known.b == Side(3, 2, 0, 0)
    assert known.sentence == "3 of 5 operations compared; what the other 2 lead to agrees"
    assert replace(known, b=replace(known.b, covered=1)).sentence.endswith("; what the other one leads to agrees")
    assert known.enough


@pytest.mark.parametrize("whole", [True, False])
def test_a_copy_of_what_agrees_is_compared(whole: bool) -> None:
    """One run copies to transpose; a copy of a part is only covered."""
    x = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    turned = np.ascontiguousarray(x.T if whole else x[:3].T)
    last = turned.sum(axis=0)
    mm = Step(key="m/op_0_mm", gives=[x])
    clone = Step(key="m/op_1_clone", reads=[turned], gives=[turned], made=["m/op_0_mm"])
    end = Step(key="m/op_2_sum", reads=[turned], gives=[last], made=["m/op_1_clone"])
    known = compare(captured_log([mm, clone, end]), captured_log([mm, replace(end, made=["m/op_0_mm"])])).coverage
    assert known.a == (Side(3, 0, 0, 0) if whole else Side(2, 1, 0, 0))


def test_an_operation_that_nothing_reads_is_not_covered() -> None:
    a, b = chain("mm", "relu", "sum"), chain("mm", "relu", "sum")
    b.append(op("m/op_9_tanh", 77.0, inputs=b[0].outputs, producers=[b[0].key]))
    known = compared(a, b).coverage
    assert known.sentence == "3 of 4 operations compared; 1 has no partner"
    assert known.enough, "a quarter of its module"
    alone = compared(a, [*b[:-1], replace(b[-1], key="other/op_0_tanh")]).coverage
    assert [str(part) for part in alone.parts] == ["other of b (1)"]


@pytest.mark.parametrize(("of", "more", "covered"), [("any", 0.0, True), ("any", 0.01, False), ("whole", 0.0, False)])
def test_a_total_that_one_run_tells_term_by_term_is_covered(of: str, more: float, covered: bool) -> None:
    """A loss of each sample against their sum; nothing reads either, a shape is no value, and a count tells nothing."""
    terms = np.random.default_rng(1).normal(size=6).astype(np.float32)
    if of == "whole":
        terms = terms - terms.mean() + np.float32(0.5)
    mm = Step(key="m/op_0_mm", gives=[terms])
    total = Step(key="told/op_0_sum", gives=[terms.sum() + np.float32(more)], reads=[terms], made=["m/op_0_mm"])
    each = Step(key="told/op_0_tanh", gives=[terms], reads=[terms], made=["m/op_0_mm"])
    ones = Step(key="m/op_1_ones_like", gives=[np.ones(6, np.float32)], reads=[terms], made=["told/op_0_tanh"])
    c = compare(captured_log([mm, total]), captured_log([mm, each, ones]))
    assert c.pair.max() == 0, "one pair"
    assert [bool(c.coverage.cover[at[1]] == Cover.COVERED) for at in (c.at_a, c.at_b)] == [covered] * 2


@pytest.mark.parametrize("shape", [(), (6,)])
def test_a_number_that_is_told_after_the_step_is_a_total(shape: tuple[int, ...]) -> None:
    """Ranks may sum up their losses then; what is no number may be a state."""
    values = np.random.default_rng(1).normal(size=6).astype(np.float32)
    mm = Step(key="m/op_0_mm", gives=[values])
    total = np.full(shape, values.sum() / max(int(np.prod(shape)), 1), np.float32)
    told = Step(key="told/op_0_sum", gives=[values.sum()], reads=[values], made=["m/op_0_mm"])
    later = Step(key="told/op_0_div_", gives=[total], reads=[total * 2], fields={"phase": "after"})
    c = compare(captured_log([mm, told]), captured_log([mm, later]))
    assert bool(c.coverage.cover[c.at_a[1]] == Cover.COVERED) is (shape == ())


def test_a_copy_that_nothing_reads_is_missing_nowhere() -> None:
    a, b = chain("mm", "relu", "sum"), chain("mm", "relu", "sum")
    b.append(replace(b[0], key="metrics/op_0_clone", inputs=b[0].outputs, producers=[b[0].key]))
    assert compared(a, b).coverage.enough


def test_one_that_reads_a_shape_vouches_for_no_values() -> None:
    a = [op("n/op_0_zeros_like", 0.0, inputs=[5.0])]
    b = [op("m/op_0_tanh", 77.0, inputs=[6.0]), replace(a[0], inputs=[231.0], producers=["m/op_0_tanh"])]
    known = compared(a, b).coverage
    assert known.b == Side(1, 0, 1, 0)


def test_a_red_reader_vouches_for_nothing() -> None:
    a, b = chain("mm", "relu", "sum"), chain("mm", "relu", "sum")
    extra = op("m/op_9_tanh", 77.0, inputs=b[0].outputs, producers=[b[0].key])
    wrong = replace(b[2], inputs=[*b[2].inputs, *extra.outputs], producers=[*b[2].producers, extra.key], outputs=[1e3])
    c = compared(a, [b[0], b[1], extra, wrong])
    assert c.red.any()
    row = int(c.at_b[2])
    assert c.cause[row] or c.coverage.cover[row] == Cover.UNCOVERED


def test_ignored_rows_are_no_missing_part() -> None:
    forward = [o for o in STEP if o.phase is None]
    known = compared(forward, STEP, RuleSet((IgnoreRule(match="*", phase=Phase.BACKWARD),))).coverage
    assert known.enough
    assert known.b == Side(26, 0, 0, 6)
    assert compared(STEP, STEP, RuleSet((IgnoreRule(match="*"),))).coverage.nothing


def test_rows_that_the_user_allows_are_no_missing_part() -> None:
    forward = [o for o in STEP if o.phase is None]
    c = compared(forward, STEP)
    assert c.coverage_but(c.status == Status.ONLY_B).enough
    assert not c.coverage_but(c.status == Status.EQUAL).enough


def test_a_part_that_only_communicates_is_missing_nowhere() -> None:
    sent = [op(f"comm/op_{k}_all_gather_into_tensor", 50.0 + k, shape=[32, 8]) for k in range(3)]
    known = compared(STEP, [*STEP[:26], *sent, *STEP[26:]]).coverage
    assert known.enough
    assert known.sentence == "32 of 35 operations compared; 3 only communicate"


def test_what_is_copied_out_of_a_bucket_is_missing_nowhere() -> None:
    """Also where the other run copies something of its own, too."""
    sent = op("comm/op_0_allreduce_", 50.0, shape=[32], phase="backward")
    fields = {"shape": [3, 3], "inputs": sent.outputs, "producers": [sent.key], "phase": "backward"}
    other = op("comm/op_0__reduce_scatter_base_", 80.0, shape=[4], phase="backward")
    a = [*STEP, other, op("comm/op_1_copy_", 70.0, shape=[5], phase="backward")]
    b = [*STEP, sent, *[op(f"train/op_{k}_copy_", 60.0 + k, **fields) for k in range(4)]]
    assert compared(a, b).coverage.enough


@pytest.mark.parametrize(("largest", "missing"), [(0.0, False), (2.0, True)])
def test_zeros_for_a_bucket_are_missing_nowhere(largest: float, missing: bool) -> None:
    """Of a gradient that a rank does not have; nothing reads them but the collective."""
    sent = op("comm/op_0_allreduce_", 50.0, shape=[32], phase="backward")
    zeros = [op(f"own/op_{k}_zero_", 0.0, max=largest, shape=[3, 3], phase="backward") for k in range(4)]
    parts = compared(STEP, [*STEP, sent, *zeros]).coverage.parts
    assert [str(part) for part in parts] == (["own of b (4)"] if missing else [])


def test_what_has_no_elements_is_not_counted() -> None:
    """One run computes with the tokens of an expert that gets none; the other skips it."""
    none = [op(f"experts.2/op_{k}_silu", 0.0, shape=[0, 8], outputs=[0.0]) for k in range(3)]
    known = compared(STEP, [*STEP[:26], *none, *STEP[26:]]).coverage
    assert known.enough
    assert known.b.operations == len(STEP)


def test_recomputed_copies_are_not_counted() -> None:
    again = [replace(o, extra={"Recompute": "true"}) for o in STEP[1:5]]
    known = compared(STEP, [*STEP[:26], *again, *STEP[26:]]).coverage
    assert known.b.operations == len(STEP)
    assert known.enough


def test_equal_inputs_compare_nothing_in_any_form_of_log() -> None:
    silent = [replace(o, outputs=[], l1=None, l2=None, min=None, max=None, mean=None) for o in STEP]
    c = compared(silent, silent)
    assert set(c.status.tolist()) == {Status.NO_VALUES}
    assert c.coverage.nothing


def test_an_operation_of_our_capture_that_wrote_nothing_is_compared() -> None:
    """The log says what was written; where it says nothing, the inputs are what is left of them."""
    x = np.arange(4.0, dtype=np.float32)
    steps = [Step(key="m/op_0_mul", reads=[x], gives=[x * 2]), Step(key="m/op_1__foreach_mul_", reads=[x, x])]
    c = compare(captured_log(steps), captured_log(steps))
    assert c.status.tolist() == [Status.EQUAL, Status.EQUAL]


def test_the_update_of_a_fused_optimizer_is_covered_by_what_it_leaves() -> None:
    """One run updates both weights at once, the other one by one."""
    w, v, g = (np.arange(4.0, dtype=np.float32) + k for k in (1, 5, 9))
    loss = Step(key="m/op_0_mm", reads=[w, v], gives=[w * v])
    names = {"parameters": ("w", "v", "w.grad", "v.grad"), "phase": "optimizer"}
    fused = Step(key="optimizer/op_0__fused_sgd_", reads=[w, v, g, g], changed={0: w - g, 1: v - g}, fields=names)
    one, other = (
        Step(
            key=f"optimizer/op_{k}_add_",
            reads=[x, g],
            gives=[x - g + wrong],
            fields={"parameters": (name, f"{name}.grad"), "phase": "optimizer"},
        )
        for k, (name, x, wrong) in enumerate((("w", w, 0), ("v", v, 0)))
    )
    c = compare(captured_log([loss, fused]), captured_log([loss, one, other]))
    assert c.coverage.enough, c.coverage.sentence
    assert c.coverage.b == Side(1, 2, 0, 0)
    unnamed = replace(fused, fields={"phase": "optimizer"})
    known = compare(captured_log([loss, unnamed]), captured_log([loss, one, other])).coverage
    assert "the optimizer step (2)" in known.sentence


def test_another_number_of_tensors_is_a_difference() -> None:
    def lists(n: int, k: int = 0) -> Op:
        values = [float(v) for v in range(1, n + 1)]
        return op(f"m/op_{k}__foreach_add", shape=[1], outputs=values, inputs=values, l2=1.0)

    c = compared([lists(28)], [lists(11)])
    assert c.status.tolist() == [Status.SHAPE]
    assert compared([lists(11)], [lists(11)]).status.tolist() == [Status.SAME_PRINT]
    # what the other run does in two operations
    rest = replace(lists(17, 1), outputs=[float(v) for v in range(12, 29)], inputs=[float(v) for v in range(12, 29)])
    assert Status.SHAPE not in compared([lists(28)], [lists(11), rest]).status.tolist()


def test_another_number_of_tensors_updated_in_place_is_a_difference() -> None:
    def update(n: int) -> Op:
        return op("m/op_1__foreach_add_", shape=None, outputs=[], inputs=[float(v) for v in range(n)])

    first = op("m/op_0_mm", 3.0)
    assert compared([first, update(28)], [first, update(11)]).status.tolist() == [Status.SAME_PRINT, Status.SHAPE]
    assert compared([first, update(28)], [first, update(27)]).status[1] == Status.NO_VALUES, "a factor may be missing"


def test_rows_within_a_tolerance_of_rules_only() -> None:
    a = chain("mm", "relu", "sum")
    b = [
        a[0],
        replace(a[1], outputs=[float(a[1].outputs[0]) * 1.05]),
        replace(a[2], outputs=[float(a[2].outputs[0]) * (1 + 4e-6)]),
    ]
    c = compared(a, b, RuleSet((ToleranceRule(match="*", rtol=0.1),)))
    assert not c.red.any()
    assert c.within_rules_only.tolist() == [False, True, False]
    assert not compared(a, a, RuleSet((ToleranceRule(match="*", rtol=0.1),))).within_rules_only.any()
    assert not compared(a, b).within_rules_only.any()


def product(last: float, phase: str = "forward", updates: bool = False) -> list[Step]:
    """A product that may be in another order, what two operations make of it, of which only one shows that."""
    x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    moved = summary(x if last == 1 else x[::-1], sketch=False)
    fields = {"phase": phase}
    end = {"phase": "optimizer"} if updates else fields
    return [
        Step(key="m/op_0_unknown", gives=[moved], reads=[x], fields=fields),
        Step(key="m/op_1_sum", gives=[x.sum()], reads=[moved], made=["m/op_0_unknown"], fields=end),
        Step(key="m/op_2_unknown", gives=[summary((x if last != 3 else x[::-1]) + 1, sketch=False)], reads=[moved],
             made=["m/op_0_unknown"], fields=end),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("last", "phase", "updates", "cover"),
    [
        (2, "forward", False, Cover.COVERED),
        (3, "forward", False, Cover.UNCOVERED),
        (2, "backward", False, Cover.COVERED),
        (2, "backward", True, Cover.UNCOVERED),
    ],
)
def test_what_differs_is_covered_if_all_that_reads_it_agrees(
    last: int, phase: str, updates: bool, cover: Cover
) -> None:
    """One reader may not see the difference; and no update sees one of a gradient."""
    c = compare(captured_log(product(1, phase, updates)), captured_log(product(last, phase, updates)))
    assert c.status[0] == Status.NOT_JUDGED
    assert not c.red.any()
    assert c.coverage.cover[0] == cover
    assert "not judged, " in agreement(c) or c.coverage.parts


@pytest.mark.parametrize(("steps", "covered"), [(1, True), (2, False)])
def test_a_counter_of_steps_that_repeats_others_is_covered(steps: int, covered: bool) -> None:
    """One run has a weight in one, and so one counter, for which the other has two."""
    x, in_step = np.ones((4, 4), np.float32), {"phase": "optimizer"}
    before, after = np.float32(0).reshape(()), np.float32(1).reshape(())

    def counter(module: str, count: np.ndarray) -> Step:
        parameters = [f"{module}.weight.step"]
        return Step(
            key=f"{module}/op_0_add_", reads=[before], gives=[count], fields={**in_step, "parameters": parameters}
        )

    one = [Step(key="m/op_0_mm", gives=[x]), counter("m", after)]
    known = compare(captured_log([*one, counter("n", np.float32(steps).reshape(()))]), captured_log(one)).coverage
    assert known.a.uncovered == (0 if covered else 1)
