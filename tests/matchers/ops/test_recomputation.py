"""Recomputed copies that do not repeat what they did in the forward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from matchers.comparison import Comparison, compare
from matchers.explain.sentences import explain, headline
from matchers.logs.op_log import OpLog
from matchers.logs.parser import read_log
from matchers.ops.recomputation import Mismatch, Reason, recompute_mismatches
from matchers.single_run import explain_single, single_run
from matchers.status import Role, Status
from tests.builders import Op, op, write_log
from tests.captured import Step, captured_log

RNG = np.random.default_rng(3)
X = RNG.standard_normal((4, 8)).astype(np.float32)
W = RNG.standard_normal((4, 8)).astype(np.float32)
COUNT = np.arange(8, dtype=np.float32)
HITS = (X > 0).sum(0).astype(np.float32)


def layer(
    k: int, *, again: bool = False, mask: Any = None, count: Any = None, kernel: float = 0.0, hits: Any = HITS
) -> list[Step]:
    """One layer: a product, a mask of random numbers, a counter in a buffer, and what follows from them."""
    mask = MASK if mask is None else mask
    count = COUNT if count is None else count
    place: dict[str, Any] = {"phase": "backward", "recompute": True} if again else {}
    n = 10 if again else 0
    name = f"layers.{k}"
    product = X * W * (1 + k) + np.float32(kernel)
    dropped = product * mask
    counted = {**place, "parameters": [f"{name}.count", ""], "location": "model.py:3"}
    return [
        Step(key=f"{name}/op_{n}_mm", gives=[product], reads=[X, W], fields=place),
        Step(
            key=f"{name}/op_{n + 1}_bernoulli_", gives=[mask], reads=[None], fields={**place, "location": "model.py:2"}
        ),
        Step(
            key=f"{name}/op_{n + 2}_mul",
            gives=[dropped],
            reads=[product, mask],
            made=[f"{name}/op_{n}_mm", f"{name}/op_{n + 1}_bernoulli_"],
            fields=place,
        ),
        Step(key=f"{name}/op_{n + 3}_add_", gives=[count + hits], reads=[count, hits], fields=counted),
        Step(key=f"{name}/op_{n + 4}_relu", gives=[np.maximum(dropped, 0)], reads=[dropped], fields=place),
    ]


MASK = (RNG.random((4, 8)) < 0.7).astype(np.float32)
OTHER = (RNG.random((4, 8)) < 0.7).astype(np.float32)


def backward(k: int) -> Step:
    return Step(key=f"layers.{k}/op_20_threshold_backward", gives=[X * (k + 3)], fields={"phase": "backward"})


def run(*again: list[Step], later: list[Step] | None = None, layers: int = 2) -> OpLog:
    """The forward pass of all layers, then the copies of each and its backward pass, the last layer first."""
    steps = [step for k in range(layers) for step in layer(k)]
    for copies, k in zip(again, reversed(range(layers)), strict=False):
        steps += [*copies, backward(k)]
    if not again:
        steps += [backward(k) for k in reversed(range(layers))]
    return captured_log([*steps, *(later or [])])


def faithful(k: int) -> list[Step]:
    """Copies without the counter, which a faithful second pass leaves alone."""
    return [step for step in layer(k, again=True) if not step.key.endswith("add_")]


def without_counter(steps: list[Step]) -> list[Step]:
    return [step for step in steps if not step.key.endswith("add_")]


def found(log: OpLog) -> list[tuple[str, str, Reason]]:
    return [(log.keys[m.row], log.keys[m.original], m.reason) for m in recompute_mismatches(log)]


def only(log: OpLog) -> Mismatch:
    (mismatch,) = recompute_mismatches(log)
    return mismatch


class TestOneLog:
    def test_copies_that_repeat(self) -> None:
        assert found(run(faithful(1), faithful(0))) == []
        assert found(run()) == []

    def test_random_numbers(self) -> None:
        log = run(without_counter(layer(1, again=True, mask=OTHER)), faithful(0))
        assert found(log) == [("layers.1/op_11_bernoulli_", "layers.1/op_1_bernoulli_", Reason.RANDOM)]

    def test_a_counter(self) -> None:
        log = run(layer(1, again=True, count=COUNT + HITS), faithful(0))
        assert found(log) == [("layers.1/op_13_add_", "layers.1/op_3_add_", Reason.IN_PLACE)]
        assert only(log).name == "layers.1.count"
        assert only(log).undone == -1

    def test_a_kernel(self) -> None:
        log = run(without_counter(layer(1, again=True, kernel=1e-6)), faithful(0))
        assert found(log) == [("layers.1/op_10_mm", "layers.1/op_0_mm", Reason.KERNEL)]

    def test_an_input_that_has_changed(self) -> None:
        copies = faithful(1)
        copies[0] = Step(key=copies[0].key, gives=[X * W * 3], reads=[X, W * 1.5], fields=copies[0].fields)
        assert [reason for _, _, reason in found(run(copies, faithful(0)))] == [Reason.INPUT]

    @pytest.mark.parametrize("divisor", [2.0, 4.0])
    def test_a_division_undoes_it_if_it_gives_what_the_first_pass_had_left(self, divisor: float) -> None:
        zeros = np.zeros_like(COUNT)
        twice = 2 * HITS
        half = Step(key="train/op_0_div_", gives=[twice / np.float32(divisor)], reads=[twice])
        steps = [*layer(0, count=zeros), *layer(0, again=True, count=HITS), backward(0), half]
        log = captured_log(steps)
        assert (only(log).undone >= 0) == (divisor == 2.0)
        c = single_run(log)
        assert c.red.sum() == (divisor != 2.0)
        if divisor == 2.0:
            row = only(log).row
            assert explain_single(c, row).notes[0] == (
                "recompute mismatch: layers.0.count was written to in the forward pass and again in the copy; "
                "undone by train/op_0_div_ (model.py:1)"
            )

    def test_one_run_shows_it_red(self) -> None:
        c = single_run(run(without_counter(layer(1, again=True, mask=OTHER)), faithful(0)))
        (row,) = np.flatnonzero(c.red).tolist()
        assert c.status[row] == Status.DIVERGED
        assert c.role[row] == Role.ORIGIN
        assert explain_single(c, row).headline.endswith("other random numbers: the random state was not restored")


class TestTwoLogs:
    @staticmethod
    def cause(c: Comparison) -> str:
        ((row, *_),) = c.consequences.starts
        return headline(c, row)

    def test_the_copy_is_the_only_cause(self) -> None:
        other = run(layer(1, again=True, count=COUNT + HITS), layer(0, again=True, count=COUNT + HITS))
        c = compare(run(), other)
        assert self.cause(c).startswith("FIRST CAUSE: the recomputed copy differs from layers.1/op_3_add_ by ≥")
        assert c.red.sum() == 2

    def test_what_both_runs_have_alike_is_not_red(self) -> None:
        log = run(without_counter(layer(1, again=True, mask=OTHER)), faithful(0))
        c = compare(log, log)
        assert not c.red.any()
        assert [m.alike for m in c.recompute_mismatches] == [True, True]
        row = int(c.at_a[c.recompute_mismatches[0].mismatch.row])
        assert explain(c, row).notes[-1].endswith("not restored; in both runs alike")

    def test_one_run_restores_the_random_state(self) -> None:
        lost = run(without_counter(layer(1, again=True, mask=OTHER)), faithful(0))
        c = compare(run(faithful(1), faithful(0)), lost)
        assert "the random state was not restored" in self.cause(c)


class TestPlainLogs:
    """torchtitan's logs do not mark copies, and name their modules without the parents."""

    @staticmethod
    def steps(again: float | None) -> list[Op]:
        def pass_(prefix: str, count: float, phase: str | None) -> list[Op]:
            return [
                op(f"{prefix}router/op_0_mm", 3.0, inputs=[5.0, 7.0], phase=phase),
                op(f"{prefix}moe/op_1_add_", count + 8, inputs=[3 * count, 24.0], phase=phase),
                op(f"{prefix}experts/op_2_bmm", 4.0, inputs=[9.0, 7.5], phase=phase),
            ]

        copies = [] if again is None else pass_("", again, "backward")
        gradient = op("layers.0.experts/op_9_bmm", 6.5, inputs=[1.0], phase="backward")
        return [*pass_("layers.0.", 1.0, None), *copies, gradient]

    @pytest.mark.parametrize(("again", "many"), [(9.0, 1), (1.0, 0), (None, 0)])
    def test_a_counter(self, tmp_path: Any, again: float | None, many: int) -> None:
        log = read_log(str(write_log(tmp_path / "a.log", self.steps(again))))
        assert not log.tells.copies
        mismatches = recompute_mismatches(log)
        assert len(mismatches) == many
        if many:
            assert mismatches[0].reason is Reason.IN_PLACE
            assert log.keys[mismatches[0].row] == "moe/op_1_add_"
