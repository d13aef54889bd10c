"""Tokens whose expert rounding decides: what follows is not compared, and no divergence; a bug behind it is."""

from __future__ import annotations

import zlib
from base64 import b64encode
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.comparison import Comparison, compare
from matchers.logs.op_log import OpLog
from matchers.status import Status
from matchers.verdict.expectation import Expect, Expectation
from matchers.verdict.reason import Reason
from tests.captured import Step, captured_log

ORDER = Expectation(preset=Expect.REDUCTION_ORDER)
TOKENS, EXPERTS = 512, 4
Array = NDArray[np.float32]


def values(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def noise(x: Array, seed: int) -> Array:
    return (x * (1 + 1e-6 * values(*x.shape, seed=seed))).astype(np.float32)


def mixture(scores: Array, x: Array, factor: float = 1.0, offset: float = 0.0) -> OpLog:
    """Tokens go to their best two experts; `factor`: of the last expert's results, `offset`: of the chosen scores."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :2]
    best = np.take_along_axis(scores, order, axis=1) + np.float32(offset)
    steps = [
        Step(key="moe/op_0_mm", gives=[scores], reads=[x]),
        Step(key="moe/op_1_topk", gives=[best, order], reads=[scores], made=["moe/op_0_mm"]),
        Step(key="moe/op_2_sum", gives=[best.sum(1)], reads=[best], made=["moe/op_1_topk"]),
    ]
    total, last = np.zeros_like(x), ""
    for expert in range(EXPERTS):
        weight = values(x.shape[1], x.shape[1], seed=10 + expert)
        mask, keys = order == expert, [f"moe/op_{3 + 5 * expert + k}" for k in range(5)]
        rows = np.argwhere(mask)
        given = x[rows[:, 0]]
        made = (given @ weight * np.float32(factor if expert == EXPERTS - 1 else 1)).astype(np.float32)
        before, total = total, total.copy()
        np.add.at(total, rows[:, 0], made)
        eq, nonzero, index, mm, add = (
            f"{key}_{op}" for key, op in zip(keys, ("eq", "nonzero", "index", "mm", "index_add"), strict=True)
        )
        steps += [
            Step(key=eq, gives=[mask], reads=[order], made=["moe/op_1_topk"]),
            Step(key=nonzero, gives=[rows], reads=[mask], made=[eq]),
            Step(key=index, gives=[given], reads=[x, rows], made=["", nonzero]),
            Step(key=mm, gives=[made], reads=[given, weight], made=[index, ""]),
            Step(key=add, gives=[total], reads=[before, rows, made], made=[last, nonzero, mm]),
        ]
        last = add
    return captured_log([with_rows(step) for step in steps])


def with_rows(step: Step) -> Step:
    """The operation with the rows of its outputs."""
    outputs = [of for of in step.gives if isinstance(of, np.ndarray)]
    return replace(step, fields={"rows": [told_rows(k, of) for k, of in enumerate(outputs) if of.ndim > 1 and len(of)]})


def told_rows(output: int, values: NDArray[Any]) -> dict[str, Any]:
    """The entry of `--rows` for the rows of an output."""
    table = np.zeros(len(values), [("digest", "<u8"), ("l1", "<f8"), ("l2", "<f8"), ("mean", "<f8"), ("s", "<f4", 16)])
    wide = values.astype(np.float64)
    table["digest"] = [zlib.crc32(row.tobytes()) for row in values]
    table["l1"], table["l2"], table["mean"] = np.abs(wide).sum(1), np.sqrt((wide**2).sum(1)), wide.mean(1)
    table["s"] = wide @ np.random.default_rng(7).choice([-1.0, 1.0], (values.shape[1], 16))
    return {"output": output, "rows": [len(values)], "values": b64encode(table.tobytes()).decode()}


def tied() -> Array:
    """Scores of which eight tokens have two that only noise tells apart, of the first two experts."""
    scores = values(TOKENS, EXPERTS)
    scores[:8] = [5.0, 5.0, -5.0, 9.0]
    return scores


def compared(expectation: Expectation = ORDER, factor: float = 1.0, offset: float = 0.0) -> Comparison:
    scores, x = tied(), values(TOKENS, 16, seed=1)
    other = mixture(noise(scores, 2), noise(x, 3), factor, offset)
    return compare(mixture(scores, x), other, expectation=expectation)


def causes(c: Comparison) -> list[str]:
    return [c.a.keys[int(c.row_a[row])] for row in np.flatnonzero(c.cause)]


def test_tokens_of_other_experts_by_rounding_are_no_divergence() -> None:
    c = compared()
    assert not c.red.any()
    assert not c.cause.any()
    assert (c.reason == Reason.CHOSEN_OTHERWISE).any()
    assert not c.coverage.parts
    (note,) = [note.text for note in c.comparability.notes if note.kind == "choices"]
    assert note.startswith("2 of 512 tokens chose otherwise within rounding, moe/op_1_topk first: ")


def test_rows_of_other_tokens_are_no_other_batch() -> None:
    """Experts have other numbers of rows; operations before the choice keep their numbers."""
    c = compared()
    assert set(c.a.shapes) != set(c.b.shapes)
    assert not c.a.rows_compared
    assert (c.status != Status.NO_VALUES).all()


def test_without_rounding_they_are() -> None:
    assert compared(Expectation()).red.any()


def test_the_chosen_scores_are_compared() -> None:
    c = compared()
    status = {c.a.keys[int(i)]: Status(int(s)) for i, s in zip(c.row_a, c.status, strict=True) if i >= 0}
    assert status["moe/op_2_sum"] in (Status.CLOSE, Status.EQUAL)


@pytest.mark.parametrize(("factor", "offset", "cause"), [(1.01, 0.0, "moe/op_21_mm"), (1.0, 0.01, "moe/op_1_topk")])
def test_a_bug_behind_or_in_a_choice_is_the_first_cause(factor: float, offset: float, cause: str) -> None:
    assert causes(compared(factor=factor, offset=offset)) == [cause]


def test_other_scores_are_no_rounding() -> None:
    scores, x = tied(), values(TOKENS, 16, seed=1)
    wrong = compare(mixture(scores, x), mixture(np.roll(scores, 1, axis=0), noise(x, 3)), expectation=ORDER)
    assert causes(wrong)[0] == "moe/op_0_mm"
