"""A log with several micro-batches, read as if it had one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.logs.columns import Ragged
from matchers.logs.op_log import NO_DIGEST, OF_PARTS, OpLog
from matchers.ops.batch_numbers import micro_batch_numbers
from matchers.ops.micro_batches import fold_micro_batches
from matchers.ops.values import further_output
from tests.captured import Step, captured_log
from tests.matchers.micro_batch_steps import SAMPLES, step

RNG = np.random.default_rng(2)


def row(log: OpLog, key: str) -> int:
    return list(log.keys).index(key)


@pytest.fixture(scope="module")
def folded() -> tuple[OpLog, OpLog]:
    return fold_micro_batches(captured_log(step(1)), captured_log(step(4)))


def test_activations_have_the_numbers_of_the_whole_batch(folded: tuple[OpLog, OpLog]) -> None:
    a, b = folded
    for one, last in (("lin/op_0_addmm", "lin/op_3_addmm"), ("score/op_0_mul", "score/op_3_mul")):
        i, j = row(a, one), row(b, last)
        np.testing.assert_allclose(a.stats[:, i], b.stats[:, j], rtol=1e-12)
        assert a.shape_text(i) == b.shape_text(j) == "[8, 5]"
        assert a.inputs[i] == pytest.approx(b.inputs[j])
        assert b.digests[j].tolist() == [NO_DIGEST]


def test_gradients_have_the_numbers_of_the_last_accumulation(folded: tuple[OpLog, OpLog]) -> None:
    _, b = folded
    j, last = row(b, "lin/op_3_mm"), row(b, "lin/op_6_add_")
    assert b.digests[j].tolist() == b.digests[last].tolist()
    assert b.texts("Sketch")[j] == b.texts("Sketch")[last]
    np.testing.assert_array_equal(b.stats[:, j], b.stats[:, last])


def test_accumulations_are_of_the_micro_batch_of_their_term(folded: tuple[OpLog, OpLog]) -> None:
    """A pipeline's schedule has called the model for the next one when a gradient is added up."""

    def of_the_last_call(one: Step) -> Step:
        if not one.key.endswith("_add_") or one.fields.get("phase") != "backward":
            return one
        return replace(one, fields={**one.fields, "micro_batch": min(one.fields["micro_batch"] + 1, 3)})

    _, b = fold_micro_batches(captured_log(step(1)), captured_log([of_the_last_call(one) for one in step(4)]))
    assert b.folding is not None
    assert folded[1].folding is not None
    np.testing.assert_array_equal(b.folding.into, folded[1].folding.into)


def test_parts_and_accumulations_belong_to_the_record_of_the_last_micro_batch(folded: tuple[OpLog, OpLog]) -> None:
    a, b = folded
    assert a.folding is None
    assert b.folding is not None
    into = b.folding.into
    assert [key for key, of in zip(b.keys, into, strict=True) if of == row(b, "lin/op_3_mm")] == [
        "lin/op_0_mm",
        "lin/op_1_mm",
        "lin/op_2_add_",
        "lin/op_2_mm",
        "lin/op_4_add_",
        "lin/op_6_add_",
    ]
    assert into[row(b, "lin/op_0_lerp_")] == -1


def test_parts_whose_bits_are_unknown_are_not_taken_for_equal() -> None:
    """Results of merged ranks have a mark in place of a digest, which is the same everywhere."""
    four = captured_log(step(4))
    marks = np.full_like(four.digests.value, OF_PARTS)
    a, b = fold_micro_batches(captured_log(step(1)), replace(four, digests=Ragged(four.digests.start, marks)))
    np.testing.assert_allclose(a.stats[:, row(a, "lin/op_0_addmm")], b.stats[:, row(b, "lin/op_3_addmm")], rtol=1e-12)


def test_losses_are_terms_and_activations_are_not(folded: tuple[OpLog, OpLog]) -> None:
    folding = folded[1].folding
    assert folding is not None
    assert folding.terms[row(folded[1], "loss/op_9_mean")]
    assert not folding.terms[row(folded[1], "score/op_3_mul")]


@pytest.mark.parametrize("batches", [(1, 1), (4, 4)])
def test_equally_divided_batches_are_left_as_they_are(batches: tuple[int, int]) -> None:
    a, b = (captured_log(step(k)) for k in batches)
    assert fold_micro_batches(a, b) == (a, b)


def test_micro_batches_of_one_size_are_left_as_they_are() -> None:
    """A rank's only micro-batch is one of those of a process that has them all."""
    a, b = captured_log(step(2)), captured_log([record for record in step(2) if record.fields.get("micro_batch") != 1])
    assert fold_micro_batches(a, b) == (a, b)


def test_both_logs_are_folded() -> None:
    a, b = fold_micro_batches(captured_log(step(2)), captured_log(step(4)))
    i, j = row(a, "score/op_1_mul"), row(b, "score/op_3_mul")
    np.testing.assert_allclose(a.stats[:, i], b.stats[:, j], rtol=1e-12)
    assert a.shape_text(i) == b.shape_text(j) == "[8, 5]"
    assert a.digests[i].tolist() != b.digests[j].tolist()


class TestExperts:
    """Each micro-batch runs the experts that its samples choose; the last results of one are read by the next."""

    CHOSEN = ((0, 2, 3), (1, 2, 3), (0, 1, 3))

    @staticmethod
    def steps(chosen: Sequence[Sequence[int]], samples: Sequence[NDArray[np.float32]]) -> list[Step]:
        """Micro-batches of these samples, and the experts that each runs."""
        out, counter = list[Step](), Counter[str]()

        def run(batch: int, module: str, op: str, given: NDArray[np.float32], *made: str) -> str:
            key = f"{module}/op_{counter[module]}_{op}"
            counter[module] += 1
            fields = {"micro_batch": batch, "location": f"moe.py:{len(op)}"}
            out.append(Step(key=key, reads=[given] * len(made), gives=[given], made=made, fields=fields))
            return key

        for k, (experts, x) in enumerate(zip(chosen, samples, strict=True)):
            last = run(k, "moe", "zeros_like", np.zeros_like(x))
            for expert in range(4):
                taken = run(k, "moe", "eq", x + expert)
                if expert in experts:
                    rows = run(k, "moe", "any", x * (2 + expert), taken)
                    result = run(k, f"moe.experts.{expert}", "tanh", x * (3 + expert), rows)
                    last = run(k, "moe", "where", x * (5 + expert), last, rows, result)
        return out

    @classmethod
    def folded(cls, chosen: Sequence[Sequence[int]]) -> tuple[OpLog, OpLog]:
        parts = np.split(SAMPLES[:6], 3)
        whole = cls.steps([range(4)], [SAMPLES[:6]])
        return fold_micro_batches(captured_log(whole), captured_log(cls.steps(chosen, parts)))

    @pytest.mark.parametrize("chosen", [CHOSEN, ((0, 1, 3), (0, 1, 3), (0, 1, 2)), ((0, 3), (1, 3), (2, 3))])
    def test_what_reads_the_same_is_one_operation(self, chosen: Sequence[Sequence[int]]) -> None:
        """Also where all run as many experts, and where the expert before is another one."""
        _, b = self.folded(chosen)
        assert b.folding is not None
        of_expert: dict[int, set[int]] = {}
        for name in ("any", "tanh", "where"):
            leads = [int(at if into < 0 else into) for at, into in enumerate(b.folding.into) if b.op_name(at) == name]
            experts = [expert for of in chosen for expert in of]
            for expert, lead in zip(experts, leads, strict=True):
                of_expert.setdefault(expert, set()).add(lead)
            assert len(set(leads)) == len(set(experts))
        assert all(len(leads) == 3 for leads in of_expert.values())

    def test_what_some_skip_has_the_shape_of_all_and_no_numbers(self) -> None:
        _, b = self.folded(self.CHOSEN)
        assert b.folding is not None
        j = row(b, "moe/op_17_any")
        assert (b.shape_text(j), b.present[j], bool(b.folding.terms[j])) == ("[6, 6]", 0, True)


def test_a_scaled_term_is_a_term() -> None:
    """The buckets of ranks take gradients that are scaled, of which one process shows nothing."""

    def steps(batches: int) -> list[Step]:
        out = []
        for k, x in enumerate(np.split(SAMPLES, batches)):
            fields = {"micro_batch": k, "phase": "backward"}
            total = x.sum(axis=0)
            out.append(Step(key=f"n/op_{k}_relu", reads=[x], gives=[x], fields={"micro_batch": k}))
            out.append(Step(key=f"n/op_{k}_sum", reads=[x], gives=[total], fields=fields))
            if batches > 1:
                key = f"n/op_{k}_mul"
                out.append(Step(key=key, reads=[total], gives=[total / 4], made=[f"n/op_{k}_sum"], fields=fields))
        return out

    _, b = fold_micro_batches(captured_log(steps(1)), captured_log(steps(4)))
    assert b.folding is not None
    j = row(b, "n/op_3_mul")
    assert (b.shape_text(j), bool(b.folding.terms[j])) == ("[6]", True)


def test_a_term_may_have_more_dimensions_of_length_1() -> None:
    """The bias of a layer that is given a slice: the gradient is summed over two dimensions, not over rows."""

    def steps(batches: int) -> list[Step]:
        out = []
        for k, x in enumerate(np.split(SAMPLES, batches)):
            total = x.sum(axis=0, keepdims=True)
            gives = total if batches == 1 else total[None]
            out.append(Step(key=f"n/op_{k}_relu", reads=[x], gives=[x], fields={"micro_batch": k}))
            fields = {"micro_batch": k, "phase": "backward"}
            out.append(Step(key=f"n/op_{k}_sum", reads=[x], gives=[gives], fields=fields))
        return out

    _, b = fold_micro_batches(captured_log(steps(1)), captured_log(steps(4)))
    assert b.folding is not None
    j = row(b, "n/op_3_sum")
    assert (b.shape_text(j), bool(b.folding.terms[j])) == ("[1, 1, 6]", True)


class TestFurtherOutputs:
    @pytest.fixture
    def further(self) -> tuple[OpLog, OpLog]:
        """A normalisation with a further output for each sample, and one of another size (work space)."""

        def steps(batches: int) -> list[Step]:
            out = []
            for k, x in enumerate(np.split(SAMPLES, batches)):
                norm = np.linalg.norm(x, axis=1, keepdims=True)
                gives = [x / norm, norm, RNG.normal(size=7)]
                out.append(Step(key=f"n/op_{k}_norm", reads=[x], gives=gives, fields={"micro_batch": k}))
                out.append(Step(key=f"n/op_{k}_mul", reads=[x], gives=[x * 2], fields={"micro_batch": k}))
            return out

        return fold_micro_batches(captured_log(steps(1)), captured_log(steps(4)))

    def test_those_of_each_sample_are_those_of_the_batch(self, further: tuple[OpLog, OpLog]) -> None:
        a, b = (
            further_output(log, row(log, key), 1)
            for log, key in zip(further, ("n/op_0_norm", "n/op_3_norm"), strict=True)
        )
        assert a is not None
        assert b is not None
        assert (b.shape, b.numel) == (a.shape, a.numel)
        assert (b.l1, b.l2, b.min, b.max) == pytest.approx((a.l1, a.l2, a.min, a.max))

    def test_parts_whose_bits_are_unknown_are_not_taken_for_equal(self, further: tuple[OpLog, OpLog]) -> None:
        """Of terms that merged ranks have, a mark stands for the digest."""
        raw = further[1].written
        marks = np.full_like(raw.digests.value, NO_DIGEST)
        _, b = fold_micro_batches(further[0], replace(raw, digests=Ragged(raw.digests.start, marks)))
        found = further_output(b, row(b, "n/op_3_norm"), 1)
        assert found is not None
        assert found.numel == len(SAMPLES)

    def test_others_are_unknown(self, further: tuple[OpLog, OpLog]) -> None:
        b = further[1]
        assert further_output(b, row(b, "n/op_3_norm"), 2) is None
        assert np.isnan(b.outputs[row(b, "n/op_3_norm")][2])


class TestNumbers:
    def test_without_numbers_a_forward_pass_after_a_backward_pass_begins_the_next(self) -> None:
        numbered, plain = captured_log(step(4)), captured_log(step(4, numbered=False))
        np.testing.assert_array_equal(micro_batch_numbers(plain), micro_batch_numbers(numbered))

    @pytest.mark.parametrize("phase", ["forward", "prepare"])
    def test_what_prepares_a_forward_pass_is_of_that_pass(self, phase: str) -> None:
        """A capture counts when a model is called; the noise that is mixed into its input comes before."""
        steps = step(2)
        at = next(k for k, record in enumerate(steps) if record.fields.get("micro_batch") == 1)
        fields = {"micro_batch": 0, "phase": phase}
        noise = Step(key="train/op_0_sin", reads=[np.ones(3)], gives=[np.ones(3)], fields=fields)
        assert micro_batch_numbers(captured_log([*steps[:at], noise, *steps[at:]]))[at] == 1

    def test_one_pass_has_no_numbers(self) -> None:
        assert (micro_batch_numbers(captured_log(step(1, numbered=False))) == -1).all()

    def test_passes_of_different_models_are_no_micro_batches(self) -> None:
        steps = step(2, numbered=False)
        second = [record.key for record in steps].index("lin/op_1_addmm")
        for record in steps[second:]:
            record.key = record.key.replace("lin/", "critic/").replace("score/", "judge/")
        assert (micro_batch_numbers(captured_log(steps)) == -1).all()


def called_twice(micro_batches: int, *, together: bool) -> OpLog:
    """A model that is called on both views of a micro-batch; or on two micro-batches before their backward passes."""
    steps, rng = list[Step](), np.random.default_rng(3)
    for batch in range(micro_batches):
        views, keys = [rng.normal(size=(4, 3)).astype(np.float32) for _ in range(2)], list[str]()
        for view, x in enumerate(views):
            keys.append(f"lin/op_{len(steps)}_relu")
            steps.append(Step(key=keys[-1], reads=[x], gives=[x], fields={"micro_batch": 2 * batch + view}))
        if together:
            key, apart = f"loss/op_{batch}_sub", views[0] - views[1]
            at = {"micro_batch": 2 * batch + 1}
            steps.append(Step(key=key, reads=views, gives=[apart], made=keys, fields=at))
        for view, x in enumerate(views):
            back = {"micro_batch": 2 * batch + view, "phase": "backward"}
            steps.append(Step(key=f"lin/op_{len(steps)}_threshold_backward", reads=[x], gives=[x], fields=back))
    return captured_log(steps)


@pytest.mark.parametrize("together", [True, False])
def test_calls_that_a_loss_reads_together_are_of_one_micro_batch(together: bool) -> None:
    number = micro_batch_numbers(called_twice(2, together=together))
    assert set(number.tolist()) == ({0, 1} if together else {0, 1, 2, 3})


def losses_added(*, trained: bool, more: int = 6) -> OpLog:
    """A model that is called on two batches: their losses are added, for the backward pass or only to be told.

    Args:
        more: what the second call computes besides.
    """
    steps, losses = list[Step](), [np.float32(3.0), np.float32(4.0)]
    for batch, loss in enumerate(losses):
        fields = {"micro_batch": batch}
        for k in range(more * batch):
            steps.append(Step(key=f"lin/op_{k}_cos", reads=[SAMPLES + k], gives=[np.cos(SAMPLES + k)], fields=fields))
        steps.append(Step(key=f"lin/op_{batch}_mean", reads=[SAMPLES], gives=[loss], fields=fields))
    total, made = losses[0] + losses[1], [step.key for step in steps if step.key.endswith("mean")]
    added = {"micro_batch": 1}
    steps.append(Step(key="train/op_0_add", reads=losses, gives=[total], made=made, fields=added))
    for batch in (1, 0):
        begins = "train/op_0_add" if trained else made[batch]
        of, back = {"micro_batch": batch}, {"micro_batch": batch, "phase": "backward"}
        if not trained or batch:
            key = f"train/op_{1 + batch}_ones_like"
            read = total if trained else losses[batch]
            steps.append(Step(key=key, reads=[read], gives=[np.float32(1)], made=[begins], fields=of))
        steps.append(
            Step(key=f"lin/op_{2 + batch}_div", reads=[np.float32(1)], gives=[SAMPLES], made=[key], fields=back)
        )
    return captured_log(steps)


@pytest.mark.parametrize("trained", [True, False])
def test_calls_whose_losses_are_trained_together_are_of_one_micro_batch(trained: bool) -> None:
    assert micro_batch_numbers(losses_added(trained=trained)).max() == (0 if trained else 1)
    assert micro_batch_numbers(losses_added(trained=trained, more=0)).max() == 1, "parts of a batch"


def sized(micro_batches: int) -> OpLog:
    """Passes without numbers: the preparation, and a forward pass that also returns the sizes of its samples."""
    steps = list[Step]()
    for number in range(micro_batches):
        size, at = 8 // micro_batches, range(3 * number, 3 * number + 3)
        x = SAMPLES[number * size : number * size + size].astype(np.float32)
        keys = [f"data/op_{at[0]}_div", f"bag/op_{at[1]}_bag", f"bag/op_{at[2]}_mm"]
        sizes = np.full(size, 4)
        steps += [
            Step(key=keys[0], gives=[x / 2], reads=[x], fields={"phase": "prepare"}),
            Step(key=keys[1], gives=[x, sizes], reads=[x / 2], made=keys[:1]),
            Step(key=keys[2], gives=[x.T @ x], reads=[x], made=keys[1:2], fields={"phase": "backward"}),
        ]
    return captured_log(steps)


def test_what_prepares_a_pass_is_of_its_micro_batch_where_none_are_numbered() -> None:
    assert micro_batch_numbers(sized(2)).tolist() == [0, 0, 0, 1, 1, 1]


def test_equal_bits_of_parts_are_no_whole_of_another_shape() -> None:
    a, b = fold_micro_batches(sized(1), sized(2))
    of = further_output(a, row(a, "bag/op_1_bag"), 1), further_output(b, row(b, "bag/op_4_bag"), 1)
    assert [None if each is None else each.shape for each in of] == [(8,), None]


def test_parts_of_which_one_has_no_known_shape_make_a_whole_of_none() -> None:
    """Of a part that ranks hold in a way that no log tells, nothing but its micro-batch is known."""
    x = SAMPLES[:6]

    def steps(parts: Sequence[NDArray[np.float32]]) -> list[Step]:
        return [
            Step(
                key=f"expert/op_{k}_tanh",
                reads=[part],
                gives=[part],
                made=[""],
                fields={"micro_batch": k, "location": "moe.py:1"},
            )
            for k, part in enumerate(parts)
        ]

    whole, parts = captured_log(steps([x])), captured_log(steps([x[:4], x[4:]]))
    shape = parts.shape.copy()
    shape[1] = -1
    _, b = fold_micro_batches(whole, replace(parts, shape=shape))
    assert b.folding is not None
    assert (b.shape_text(1), int(b.present[1]), bool(b.folding.terms[1])) == ("", 0, True)
