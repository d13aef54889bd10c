"""Two small runs of several ranks, made up for tests of the command line."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from matchers.runs.diff.part_file import Part, read_part
from numtui.cli.main import main
from tests.builders import Op, training_step, write_log

__all__ = ["OPS", "ROW", "compared", "log_of", "red_ops", "write_runs"]

OPS = training_step()
ROW = 5
"""Row that is red on the ranks that differ, and nothing after it."""


def log_of(run: str, rank: int, step: int | None = None) -> Path:
    """The log of a rank."""
    return Path(run, *([] if step is None else [f"step_{step}"]), f"rank_{rank}_activations.log")


def red_ops(row: int = ROW) -> list[Op]:
    """The operations, one of them with another result that no later one reads."""
    ops = list(OPS)
    ops[row] = replace(ops[row], l2=7.0, outputs=[9.0])
    return ops


def write_runs(*, ranks: int = 3, red: Collection[int] = (1,), step: int | None = None, **info: Any) -> None:
    """Write the runs `a` and `b`, which differ on the ranks `red`."""
    for run in ("a", "b"):
        for rank in range(ranks):
            ops = red_ops() if run == "b" and rank in red else OPS
            told = {"rank": rank, "world_size": ranks, "step": step or 1, **info}
            write_log(log_of(run, rank, step), ops, run=told, footer=True)


def compared(*options: str) -> Part:
    """What the comparison of both runs says of each rank."""
    assert main(["diff", "a", "b", "--workers", "1", *options, "--shard", "1/1", "-o", "part.json"]) == 0
    return read_part(Path("part.json"))
