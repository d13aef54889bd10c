"""Placements of plain parameters: which parts ranks hold, from shapes and digests alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from matchers.logs.parser import read_log
from matchers.runs.layouts.inferred import with_inferred_placements
from matchers.runs.rank_logs import RankLogs
from matchers.runs.run import find_run
from tests.captured import Step, captured_log, summary, write_captured

Array = NDArray[np.float32]
RNG = np.random.default_rng(5)
WHOLE: dict[str, Array] = {
    "up.weight": RNG.normal(size=(8, 6)).astype(np.float32),
    "up.bias": np.zeros(8, np.float32),
    "down.weight": RNG.normal(size=(6, 8)).astype(np.float32),
    "norm.weight": np.ones(6, np.float32),
}
CUT = {"up.weight": 0, "up.bias": 0, "down.weight": 1}


def part(name: str, tp: int) -> Array:
    """The half of a parameter; all of one that is not divided."""
    if name not in CUT:
        return WHOLE[name]
    return np.ascontiguousarray(np.split(WHOLE[name], 2, axis=CUT[name])[tp])


def updates(tensors: dict[str, Array]) -> list[Step]:
    return [
        Step(
            key=f"{name.rpartition('.')[0]}/op_{k}_add_",
            reads=[tensor],
            gives=[tensor - 1],
            changed={0: tensor - 1},
            fields={"parameters": [name], "phase": "optimizer"},
        )
        for k, (name, tensor) in enumerate(tensors.items())
    ]


def inferred(folder: Path, wrong: bool = False) -> RankLogs:
    """Two data-parallel pairs of ranks; if `wrong`, rank 1 has loaded the part of rank 0."""
    for rank in range(4):
        own = {name: part(name, 0 if wrong and name == "down.weight" else rank % 2) for name in WHOLE}
        digests = {name: f"{summary(tensor).digest:016x}" for name, tensor in own.items()}
        info = {"world_size": 4, "rank": rank, "parameter_digests": digests}
        write_captured(folder / f"rank_{rank}_activations.log", updates(own), **info)
    run = find_run(str(folder))
    logs = {rank: read_log(path) for rank, path in run.paths.items()}
    return with_inferred_placements(RankLogs(run, logs), captured_log(updates(WHOLE)))


@pytest.mark.parametrize("wrong", [False, True])
def test_parts_are_known_by_their_shapes(tmp_path: Path, wrong: bool) -> None:
    """Zeros have the same digests on all ranks, as a part loaded twice has; they are parts all the same."""
    ranks = inferred(tmp_path, wrong)
    for rank in range(4):
        found = ranks.table(rank, "parameter_placements")
        assert {name: placed["placements"] for name, placed in found.items()} == {
            name: [f"Shard({dimension})"] for name, dimension in CUT.items()
        }
        assert found["up.weight"]["shape"] == [8, 6]
        assert found["up.weight"]["offsets"] == [4 * (rank % 2), 0]
        assert found["down.weight"]["offsets"] == [0, 4 * (rank % 2)]
