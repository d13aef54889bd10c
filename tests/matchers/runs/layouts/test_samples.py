"""Ranks that read parts of a batch, in any order of its micro-batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.captured import Step, write_captured
from tests.matchers.runs.layouts.ranks import compared

SAMPLES = np.random.default_rng(0).normal(size=(4, 3, 8)).astype(np.float32)


def write(path: Path, samples: list[int], rank: int = 0, ranks: int = 1) -> None:
    """Write the log of a run that reads these samples, a micro-batch each."""
    steps = []
    for number, sample in enumerate(samples):
        fields = {"micro_batch": number}
        kept = np.maximum(SAMPLES[sample], 0)
        key, then = f"net/op_{2 * number}_relu", f"net/op_{2 * number + 1}_exp"
        steps.append(Step(key=key, gives=[kept], reads=[SAMPLES[sample]], fields=fields))
        steps.append(Step(key=then, gives=[np.exp(kept)], reads=[kept], made=[key], fields=fields))
    batch = [{"digest": str(rank)}]
    write_captured(path, steps, world_size=ranks, rank=rank, parameter_digests={"weight": "00"}, batch=batch)


@pytest.mark.parametrize("samples", [[[0, 1], [2, 3]], [[0, 2], [1, 3]], [[2, 3], [0, 1]], [[0, 3], [1, 2]]])
def test_micro_batches_of_ranks_have_the_order_of_one_process(tmp_path: Path, samples: list[list[int]]) -> None:
    (tmp_path / "run").mkdir()
    for rank, of_rank in enumerate(samples):
        write(tmp_path / "run" / f"rank_{rank}_activations.log", of_rank, rank, len(samples))
    write(tmp_path / "one.log", [0, 1, 2, 3])
    c = compared(str(tmp_path / "one.log"), str(tmp_path / "run"))
    assert not c.red.any()
    assert c.coverage.a.compared == c.coverage.a.operations == 8
    assert c.a.micro_batch[c.row_a].tolist() == c.b.micro_batch[c.row_b].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
