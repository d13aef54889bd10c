"""A log with several micro-batches, read as if it had one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

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
