"""Logs of a few ranks, and their comparison as two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matchers.comparison import Comparison, compare
from matchers.runs.layouts.read import read_both
from matchers.verdict.expectation import Expect, Expectation
from tests.captured import Step, write_captured


def write_ranks(
    folder: Path, ranks: Sequence[list[Step]], parameters: Mapping[str, Sequence[Mapping[str, Any]]]
) -> str:
    """Write the log of each rank of a mesh `tp`; return the folder, or the log if there is one rank.

    Args:
        parameters: the placement of each parameter on each rank; none for one rank.
    """
    folder.mkdir(parents=True)
    size, path = len(ranks), folder / "rank_0_activations.log"
    for rank, steps in enumerate(ranks):
        path = folder / f"rank_{rank}_activations.log"
        info: dict[str, Any] = (
            {}
            if size == 1
            else {
                "world_size": size,
                "rank": rank,
                "mesh": {"tp": size},
                "mesh_coordinates": {"tp": rank},
                "parameter_placements": {
                    name: {"mesh": {"tp": size}, **each[rank]} for name, each in parameters.items()
                },
            }
        )
        write_captured(path, steps, parameter_digests=dict.fromkeys(parameters, "00"), batch=[{"digest": "00"}], **info)
    return str(folder if size > 1 else path)


def compared(a: str, b: str) -> Comparison:
    """Compare two runs whose layouts differ."""
    return compare(*read_both((a, b)), expectation=Expectation(Expect.REDUCTION_ORDER))
