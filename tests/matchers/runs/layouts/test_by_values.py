"""Logs that say nothing of ranks and batches, as torchtitan writes them: what ranks hold is told by their numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from matchers.comparison import Comparison, compare
from matchers.runs.layouts.read import layouts_differ, read_both
from matchers.runs.run import find_run
from matchers.verdict.expectation import Expect, Expectation
from tests.builders import Op, op, training_step, write_log

UPDATE = op("optimizer/op_0__foreach_add_", 7.0, shape=None, phase="optimizer")


def micro_batches(*seeds: int) -> list[Op]:
    """One process that reads these samples, one after the other."""
    steps = [[op for op in training_step(seed=seed) if op.phase != "optimizer"] for seed in seeds]
    again: dict[str, int] = {}
    out: list[Op] = []
    for step in steps:
        renamed: dict[str, str] = {}
        for one in step:
            module, _, rest = one.key.partition("/op_")
            number = again.get(module, 0)
            again[module] = number + 1
            renamed[one.key] = f"{module}/op_{number}_{rest.partition('_')[2]}"
            producers = [renamed.get(key, key) for key in one.producers]
            out.append(replace(one, key=renamed[one.key], producers=producers))
    return [*out, UPDATE]


def compared(folder: Path, one: list[Op], *ranks: list[Op]) -> Comparison:
    a = write_log(folder / "one" / "rank_0_activations.log", one)
    for rank, records in enumerate(ranks):
        write_log(folder / "run" / f"rank_{rank}_activations.log", records)
    assert layouts_differ(find_run(str(a.parent)), find_run(str(folder / "run")))
    return compare(*read_both((str(a), str(folder / "run"))), expectation=Expectation(Expect.REDUCTION_ORDER))


def noted(c: Comparison) -> list[str]:
    return [note.text for note in c.comparability.notes if note.kind == "left-out"]


def test_ranks_with_results_of_their_own_are_micro_batches(tmp_path: Path) -> None:
    """In the order in which one process reads their samples."""
    c = compared(tmp_path, micro_batches(1, 2), micro_batches(2), micro_batches(1))
    assert not c.red.any()
    assert c.coverage.a.compared >= c.coverage.a.operations - 1
    assert not noted(c)


def test_ranks_whose_samples_the_other_run_lacks_are_left_out(tmp_path: Path) -> None:
    c = compared(tmp_path, micro_batches(1, 2), micro_batches(3), micro_batches(1))
    assert not c.red.any()
    assert c.coverage.a.compared >= len(micro_batches(1)) - 1
    (told,) = noted(c)
    assert told.startswith("rank 0 of b matched nothing in the other run: other samples, or wrong values")
    part = c.coverage.parts[0]
    assert (part.name, part.side, part.ranks) == ("rank 0", "b", (0,))


def test_ranks_with_one_batch_are_not_merged_by_their_numbers_alone(tmp_path: Path) -> None:
    """The parts of a tensor have no names in such logs: the first rank stands for itself, and the other is left out."""
    c = compared(tmp_path, micro_batches(1), micro_batches(1), micro_batches(1))
    assert not c.red.any()
    assert c.b.path.endswith("rank_0_activations.log")
    assert not c.b.header.run
    (told,) = noted(c)
    assert told.startswith("rank 1 of b could not be merged: the logs do not say which parts of tensors")
    assert c.coverage.missing == f"rank 1 of b ({len(micro_batches(1)):,})"
