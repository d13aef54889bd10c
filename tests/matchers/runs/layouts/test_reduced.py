"""Gradients of one operation (a norm's weight and bias) that one process adds up, and ranks reduce."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.captured import Step, write_captured
from tests.matchers.runs.layouts.ranks import compared

RNG = np.random.default_rng(2)
Gradients = list[NDArray[np.float32]]
NAMES = ("norm.weight", "norm.bias")
TERMS: list[Gradients] = [[RNG.normal(size=size).astype(np.float32) for size in ((3, 8), 8, 8)] for _ in range(3)]
"""By micro-batch, the gradients of the norm's input, weight and bias."""


def passes(number: int, terms: Gradients) -> list[Step]:
    """One micro-batch: the forward pass, and the operation with three results."""
    made, key = f"norm/op_{2 * number}_relu", f"norm/op_{2 * number + 1}_native_layer_norm_backward"
    back = {"phase": "backward", "micro_batch": number}
    return [
        Step(key=made, gives=[np.maximum(terms[0], 0)], reads=[terms[0]], fields={"micro_batch": number}),
        Step(key=key, gives=terms, reads=[np.maximum(terms[0], 0)], made=[made], fields=back),
    ]


def reduced(number: int, term: NDArray[np.float32], total: NDArray[np.float32]) -> Step:
    fields = {"phase": "backward", "group": {"ranks": [0, 1, 2], "nth": number, "op": "sum"}}
    made = ["norm/op_1_native_layer_norm_backward"]
    return Step(key=f"norm/op_{2 + number}_allreduce_", gives=[total], reads=[term], made=made, fields=fields)


def clip(totals: Gradients, makers: list[str]) -> Step:
    norms = [np.float32(np.linalg.norm(total))[()] for total in totals]
    names = [f"{name}.grad" for name in NAMES]
    fields = {"phase": "gradients", "parameters": names}
    return Step(key="clip/op_0__foreach_norm", gives=norms, reads=totals, made=makers, fields=fields)


def one_process(path: Path, scale: float = 1.0) -> None:
    """`scale`: of the last sums, which are not those of their terms then."""
    steps, sums, makers = passes(0, TERMS[0]), TERMS[0][1:], ["norm/op_1_native_layer_norm_backward"] * 2
    for number, terms in enumerate(TERMS[1:], 1):
        steps += passes(number, terms)
        for k, term in enumerate(terms[1:]):
            key, back = f"norm/op_{2 * number + k}_add_", {"phase": "backward", "micro_batch": number}
            total = (sums[k] + term) * np.float32(scale if number == len(TERMS) - 1 else 1)
            reads, made = [sums[k], term], [makers[k], steps[-1 - k].key]
            steps.append(Step(key=key, gives=[total], reads=reads, made=made, fields=back))
            sums[k], makers[k] = total, key
    write(path, [*steps, clip(sums, makers)])


def write(path: Path, steps: list[Step], rank: int = 0, ranks: int = 1) -> None:
    digests, batch = dict.fromkeys(NAMES, "00"), [{"digest": str(rank)}]
    write_captured(path, steps, world_size=ranks, rank=rank, parameter_digests=digests, batch=batch)


def ranks(folder: Path, totals: Gradients) -> None:
    folder.mkdir()
    for rank, terms in enumerate(TERMS):
        steps = passes(0, terms)
        steps += [reduced(k, term, total) for k, (term, total) in enumerate(zip(terms[1:], totals, strict=True))]
        steps.append(clip(totals, [step.key for step in steps[-2:]]))
        write(folder / f"rank_{rank}_activations.log", steps, rank, len(TERMS))


TOTALS = [TERMS[0][k] + TERMS[1][k] + TERMS[2][k] for k in (1, 2)]


@pytest.mark.parametrize("factor", [(1, 1), (1.5, 1), (1, 1.5)])
def test_each_has_a_sum_of_its_own(tmp_path: Path, factor: tuple[float, float]) -> None:
    one_process(tmp_path / "one.log")
    ranks(tmp_path / "run", [np.float32(by) * total for by, total in zip(factor, TOTALS, strict=True)])
    c = compared(str(tmp_path / "one.log"), str(tmp_path / "run"))
    sums = [row for row in range(len(c)) if c.a.op_name(int(c.row_a[row])) == "add_"]
    assert all(c.pair[row] >= 0 for row in sums)
    assert [bool(c.red[row]) for row in sums] == [False, False, factor[0] != 1, factor[1] != 1]
    assert c.coverage.a.compared == c.coverage.a.operations or factor != (1, 1)


def test_the_gradient_of_one_element_is_no_running_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of the bias of a model with one output."""
    terms = [[of[0], of[1][:1], of[2][:1]] for of in TERMS]
    totals = [terms[0][k] + terms[1][k] + terms[2][k] for k in (1, 2)]
    monkeypatch.setitem(globals(), "TERMS", terms)
    one_process(tmp_path / "one.log")
    for name, by in (("run", 1), ("red", 2)):
        ranks(tmp_path / name, [np.float32(by) * total for total in totals])
        c = compared(str(tmp_path / "one.log"), str(tmp_path / name))
        assert c.red.any() == (by != 1)
        sums = [row for row in range(len(c)) if c.b.op_name(int(c.row_b[row])) == "add_"]
        assert np.isfinite(c.b.outputs.first(c.row_b[sums[-2:]])).all()


def test_sums_that_are_not_known_are_no_nan(tmp_path: Path) -> None:
    one_process(tmp_path / "one.log", scale=3.0)
    ranks(tmp_path / "run", [np.float32(3) * total for total in TOTALS])
    c = compared(str(tmp_path / "one.log"), str(tmp_path / "run"))
    assert not c.red.any()


def test_what_ranks_reduce_after_the_passes_is_read_by_the_updates(tmp_path: Path) -> None:
    """A loop reduces gradients by hand, and copies them back: nothing of it is left without a reader."""
    one_process(tmp_path / "one.log")
    (tmp_path / "run").mkdir()
    maker, after = "norm/op_1_native_layer_norm_backward", {"phase": "gradients"}
    for rank, terms in enumerate(TERMS):
        steps = passes(0, terms)
        for k, (term, total) in enumerate(zip(terms[1:], TOTALS, strict=True)):
            keys = [f"reduce/op_{2 * k + at}_{op}" for at, op in enumerate(("allreduce_", "copy_"))]
            fields = {**after, "group": {"ranks": [0, 1, 2], "nth": k, "op": "sum"}}
            steps.append(Step(key=keys[0], gives=[total], reads=[term], made=[maker], fields=fields))
            named = {**after, "parameters": [f"{NAMES[k]}.grad", ""]}
            steps.append(Step(key=keys[1], gives=[total], reads=[term, total], made=[maker, keys[0]], fields=named))
        steps.append(clip(TOTALS, [step.key for step in steps[-3::2]]))
        write(tmp_path / "run" / f"rank_{rank}_activations.log", steps, rank, len(TERMS))
    c = compared(str(tmp_path / "one.log"), str(tmp_path / "run"))
    assert not c.red.any()
    assert c.coverage.enough, c.coverage.parts


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_one_collective_reduces_all_gradients_of_other_micro_batches(tmp_path: Path, factor: float) -> None:
    """Two micro-batches in one process, as large as those of four ranks: each gradient has its total."""
    of_ranks = [[TERMS[k % 3][n] * np.float32(k + 1) for n in range(3)] for k in range(4)]
    total = [np.sum([of[k] for of in of_ranks], axis=0) for k in (1, 2)]
    both = [[np.concatenate([x[0], y[0]]), x[1] + y[1], x[2] + y[2]] for x, y in (of_ranks[:2], of_ranks[2:])]

    def apart(number: int, terms: Gradients) -> list[Step]:
        made, x = f"norm/op_{3 * number}_relu", np.maximum(terms[0], 0)
        back = {"phase": "backward", "micro_batch": number}
        keys = [f"norm/op_{3 * number + 1}_mm", f"norm/op_{3 * number + 2}_sum"]
        return [
            Step(key=made, gives=[x], reads=[terms[0]], fields={"micro_batch": number}),
            *(Step(key=keys[k], gives=[terms[k + 1]], reads=[x], made=[made], fields=back) for k in range(2)),
        ]

    steps = [*apart(0, both[0]), *apart(1, both[1])]
    for k in range(2):
        reads, made, back = [of[k + 1] for of in both], [steps[k + 1].key, steps[k + 4].key], steps[-1].fields
        steps.append(Step(key=f"norm/op_{k + 6}_add_", gives=[total[k]], reads=reads, made=made, fields=back))
    write(tmp_path / "one.log", [*steps, clip(total, [step.key for step in steps[-2:]])])
    (tmp_path / "run").mkdir()
    read = [total[0], np.float32(factor) * total[1]]
    for rank, terms in enumerate(of_ranks):
        steps = apart(0, terms)
        fields = {"phase": "backward", "group": {"ranks": [0, 1, 2, 3], "nth": 0, "op": "sum"}}
        key, made = "norm/op_3_allreduce_", [step.key for step in steps[1:]]
        steps.append(Step(key=key, gives=[np.concatenate(read)], reads=terms[1:], made=made, fields=fields))
        write(tmp_path / "run" / f"rank_{rank}_activations.log", [*steps, clip(read, [key] * 2)], rank, 4)
    c = compared(str(tmp_path / "one.log"), str(tmp_path / "run"))
    first = [c.a.keys[int(c.row_a[row])] for row in np.flatnonzero(c.red)[:1]]
    assert first == ["norm/op_5_sum"] * (factor != 1)
