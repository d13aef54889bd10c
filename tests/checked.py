"""A checked run made up for tests: four ranks, what was found, what held, what could not be checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from matchers.runs.finding import Check, CheckedRun, Finding, Made, Place, Unmade
from matchers.runs.run import Run
from tests.builders import training_step, write_log

__all__ = ["OPS", "checked_run", "odd_run", "place", "run_of"]

OPS = training_step()
"""What the ranks log."""


def run_of(folder: str = "run_x", ranks: int = 4, **changes: Any) -> Run:
    """A run of four ranks on a mesh of two dimensions, with the logs of the first `ranks` of them."""
    numerics = Path(folder, "numerics")
    run = Run(
        name=Path(folder).name,
        paths={rank: str(numerics / f"rank_{rank}_activations.log") for rank in range(ranks)},
        step=2,
        world_size=4,
        mesh={"dp": 2, "tp": 2},
        coordinates={rank: {"dp": rank // 2, "tp": rank % 2} for rank in range(ranks)},
        missing=tuple(range(ranks, 4)),
    )
    return replace(run, **changes)


def odd_run(folder: Path, *, odd: int = 5, ranks: int = 3) -> str:
    """Writes the logs of a run whose last rank runs another operation than the others in row `odd`; -1 for none."""
    for rank in range(ranks):
        ops = list(OPS)
        if odd >= 0 and rank == ranks - 1:
            ops[odd] = replace(ops[odd], key=f"{ops[odd].key}_", l2=1.0)
        info = {"rank": rank, "world_size": ranks, "step": 2}
        write_log(folder / "numerics" / f"rank_{rank}_activations.log", ops, run=info, footer=True)
    return str(folder)


def place(rank: int, row: int = 5, location: str = "model.py:45") -> Place:
    """A record of `OPS`."""
    return Place(rank, row, OPS[row].key, 20 + 12 * row, location)


def checked_run(run: Run | None = None, **changes: Any) -> CheckedRun:
    """Two findings: a replica that differs on one rank of its group, and a NaN of one rank by itself."""
    replica = Finding(
        check=Check.REPLICAS,
        text="2 parameters differ before the step on rank 2",
        subject="layers.0.attention.wq.weight",
        more=("layers.0.attention.wk.weight",),
        ranks=(2,),
        group=(0, 2),
        dimension="dp",
        places=(place(2), place(0)),
        size=0.00123,
        notes=("they were loaded, not computed",),
    )
    nan = Finding(
        check=Check.FINITE,
        text="NaN made of finite values",
        subject=OPS[9].key,
        ranks=(1,),
        places=(place(1, 9, ""),),
    )
    checked = CheckedRun(
        run=run_of() if run is None else run,
        findings=(replica, nan),
        made=(
            Made(Check.SAME_COLLECTIVES, 120, "collectives"),
            Made(Check.REPLICAS, 44, "parameters"),
            Made(Check.REPLICAS, 1200, "buffers"),
            Made(Check.FINITE, 96, "operations"),
        ),
        unmade=(Unmade(Check.RECOMPUTE, "no operation is recomputed"),),
        notes=("head.weight gets no gradient",),
    )
    return replace(checked, **changes)
