"""(x + g) + h against x + (g + h)."""

from __future__ import annotations

import numpy as np

from matchers.comparison import Comparison, compare
from matchers.ops.dataflow import DataFlow
from matchers.rules.model import PairRule, RuleSet
from matchers.status import Status
from matchers.verdict.partial_sums import partial_sums
from tests.builders import Op, op
from tests.captured import Step as Captured
from tests.captured import captured_log
from tests.matchers.drifted_logs import made_up_log

X, G, H = 1.0, 0.3, 0.5


def summed(order: str, *, total: float = X + G + H, cast: str = "", more: tuple[Op, ...] = ()) -> list[Op]:
    """Three terms added up from the left or from the right; `cast` is the op between, `view` for one not captured."""
    left = order == "left"
    terms = [op(f"m/op_{k}_mul", value, inputs=[value + 9]) for k, value in enumerate((X, G, H))]
    made = [term.outputs[0] for term in terms]
    partial = op(
        "m/op_3_add",
        X + G if left else G + H,
        inputs=made[:2] if left else made[1:],
        producers=["m/op_0_mul", "m/op_1_mul"] if left else ["m/op_1_mul", "m/op_2_mul"],
    )
    out, read, maker = [*terms, partial], float(partial.outputs[0]), partial.key
    if cast == "_to_copy":
        out.append(op("m/op_4__to_copy", (X + G if left else G + H) * 1.001, inputs=[read], producers=[maker]))
        maker = out[-1].key
    if cast:
        read *= 1.001
    if cast == "view":
        maker = ""
    last, value = ("m/op_2_mul", made[2]) if left else ("m/op_0_mul", made[0])
    out.append(op("m/op_5_add", total, inputs=[read, value], producers=[maker, last]))
    return [*out, op("m/op_6_mm", total * 3, inputs=[out[-1].outputs[0]], producers=["m/op_5_add"]), *more]


def compared(a: list[Op], b: list[Op], *pairs: PairRule) -> Comparison:
    return compare(made_up_log(a), made_up_log(b), RuleSet(pairs))


def status(c: Comparison, key: str) -> Status:
    return Status(c.status[c.at_a[list(c.a.keys).index(key)]])


def test_the_part_is_not_red_where_the_total_agrees() -> None:
    c = compared(summed("left"), summed("right"))
    assert status(c, "m/op_3_add") == Status.PARTIAL
    assert status(c, "m/op_5_add") == Status.SAME_PRINT
    assert not c.red.any()
    assert not c.cause.any()


def test_a_sum_may_have_as_many_terms_as_a_step_has_micro_batches() -> None:
    def total(order: list[int]) -> list[Op]:
        terms = [op(f"m/op_{k}_mul", 1.0 + k * k, inputs=[k + 9.5]) for k in range(9)]
        out, last = [*terms], terms[order[0]]
        for k, (term, value) in enumerate(zip(order[1:], np.cumsum([1.0 + n * n for n in order])[1:], strict=True)):
            read, made = [last.outputs[0], terms[term].outputs[0]], [last.key, terms[term].key]
            out.append(op(f"m/op_{10 + k}_add", float(value), inputs=read, producers=made))
            last = out[-1]
        return [*out, op("m/op_30_mm", 7.0, inputs=[last.outputs[0]], producers=[last.key])]

    c = compared(total([*range(9)]), total([*range(8, -1, -1)]))
    assert not c.red.any()
    assert status(c, "m/op_10_add") == Status.PARTIAL


def test_nor_where_a_cast_came_between() -> None:
    for cast in ("_to_copy", "view"):
        assert status(compared(summed("left"), summed("right", cast=cast)), "m/op_3_add") == Status.PARTIAL
        assert status(compared(summed("left", cast=cast), summed("right")), "m/op_3_add") == Status.PARTIAL


def test_nor_where_the_total_of_each_is_paired_with_a_part_of_the_other() -> None:
    crossed = PairRule(a=("m/op_3_add",), b=("m/op_5_add",)), PairRule(a=("m/op_5_add",), b=("m/op_3_add",))
    c = compared(summed("left"), summed("right"), *crossed)
    assert {status(c, key) for key in ("m/op_3_add", "m/op_5_add")} == {Status.PARTIAL}
    c = compared(summed("left"), summed("right", total=2.0), *crossed)
    assert Status.DIVERGED in {status(c, key) for key in ("m/op_3_add", "m/op_5_add")}


def test_nor_where_the_other_run_has_the_total_at_once() -> None:
    """As where an addition of (x + g) and h is paired with that of x and g, and the last one with nothing."""
    a = summed("left")
    for total, red in ((X + G + H, False), (2.0, True)):
        b = [o for o in summed("left") if o.key != "m/op_5_add"]
        b[3] = op("m/op_3_add", total, inputs=[X, G + H], producers=["m/op_0_mul", "m/op_1_mul"])
        b[4] = op("m/op_6_mm", total * 3, inputs=[total], producers=["m/op_3_add"])
        for one, other in ((a, b), (b, a)):
            c = compared(one, other, PairRule(a=("m/op_3_add",), b=("m/op_3_add",)))
            assert (status(c, "m/op_3_add") == Status.DIVERGED) == red
            assert red or status(c, "m/op_3_add") == Status.PARTIAL


def test_totals_of_gradients_whose_losses_are_scaled_agree() -> None:
    crossed = PairRule(a=("m/op_3_add",), b=("m/op_5_add",)), PairRule(a=("m/op_5_add",), b=("m/op_3_add",))
    c = compared(summed("left"), summed("right", total=2 * (X + G + H)), *crossed)
    found = [partial_sums(c.a, c.b, c.pairing, c.status, DataFlow(c.a, c.b), scale)[0] for scale in (1.0, 0.5)]
    assert [len(pairs) for pairs in found] == [0, 2]


def test_it_is_red_where_the_total_is() -> None:
    c = compared(summed("left"), summed("right", total=2.0))
    assert status(c, "m/op_3_add") == Status.DIVERGED
    assert status(c, "m/op_5_add") == Status.DIVERGED


def test_it_is_red_where_something_else_reads_it() -> None:
    read = op("m/op_7_neg", X + G, inputs=[(X + G) * 3], producers=["m/op_3_add"])
    other = op("m/op_7_neg", G + H, inputs=[(G + H) * 3], producers=["m/op_3_add"])
    c = compared(summed("left", more=(read,)), summed("right", more=(other,)))
    assert status(c, "m/op_3_add") == Status.DIVERGED


def test_infinite_parts_are_no_parts() -> None:
    """Nothing is known of them, and nothing is warned of."""
    endless = [
        op("m/op_3_add", 1.0, outputs=["inf"]) if o.key == "m/op_3_add" else o for o in summed("left", cast="view")
    ]
    c = compared(endless, summed("right"))
    assert status(c, "m/op_3_add") == Status.NAN


def test_the_loss_of_a_chunk_is_not_judged_by_that_of_the_whole() -> None:
    logits = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)

    def log(rows: int) -> list[Captured]:
        part = logits[:rows]
        op = "_log_softmax" if rows == 8 else "sub"
        scores = Captured(key=f"loss/op_0_{op}", reads=[part], gives=[part - 2])
        total = (part - 2).sum(dtype=np.float32)
        loss = Captured(key="loss/op_1_nll_loss_forward", reads=[part - 2], gives=[total], made=[scores.key])
        mean = Captured(key="loss/op_2_div", reads=[total], gives=[total / np.float32(64)], made=[loss.key])
        return [scores, loss, mean]

    c = compare(captured_log(log(8)), captured_log(log(2)))
    assert not c.red.any()
    assert [Status(each) for each in c.status[-2:]] == [Status.NOT_JUDGED] * 2


def test_a_mean_of_less_is_judged() -> None:
    """Both runs stack once: what only one of them leaves out is no chunk."""
    parts = [np.linspace(1, 2 + k, 8, dtype=np.float32) for k in range(2)]

    def log(many: int) -> list[Captured]:
        whole = np.stack(parts[:many])
        stack = Captured(key="m/op_0_stack", reads=list(parts[:many]), gives=[whole])
        return [stack, Captured(key="m/op_1_mean", reads=[whole], gives=[whole.mean()], made=[stack.key])]

    c = compare(captured_log(log(2)), captured_log(log(1)))
    assert c.status[-1] == Status.DIVERGED
    assert [c.a.keys[int(row)] for row in c.row_a[c.cause]] == ["m/op_0_stack"]


def counted(own: float, total: float) -> list[Op]:
    """The tokens of a rank's samples, and those of all ranks."""
    count = op("m/op_0_sum", own, inputs=[own + 9])
    every = op("m/op_1_allreduce_", total, inputs=[count.outputs[0]], producers=["m/op_0_sum"])
    return [count, every, op("m/op_2_div", 2 * total, inputs=[every.outputs[0]], producers=["m/op_1_allreduce_"])]


def test_a_term_of_a_rank_is_not_red_where_the_total_agrees() -> None:
    c = compared(counted(5, 12), counted(7, 12))
    assert status(c, "m/op_0_sum") == Status.PARTIAL
    assert not c.red.any()
    assert compared(counted(5, 12), counted(7, 14)).red.any()
