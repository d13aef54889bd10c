"""Made-up runs of many ranks: their summaries, or logs of a few of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from matchers.comparison import compare
from matchers.logs.parser import read_log
from matchers.runs.diff.comparison import RunComparison
from matchers.runs.diff.summarise import equal_by_footers, summary_of
from matchers.runs.diff.summary import Cell, Event, Outcome, RankSummary, Received, Sent
from tests.builders import Op, training_step, write_log

__all__ = ["BEGAN", "ORIGIN", "event", "logged_runs", "made_runs", "steps"]

ORIGIN, BEGAN = 2, "layers.2"
"""The rank of `made_runs` on which the divergence begins, and its layer."""

_STAGES, _LAYERS, _TP = 4, 3, 2


def steps(stage: int, stages: int = _STAGES) -> list[tuple[str, str]]:
    """The stretches of the step on a stage of a pipeline, in order."""
    layers = [f"layers.{n}" for n in range(stage * _LAYERS, (stage + 1) * _LAYERS)]
    forward = ["tok_embeddings"] * (stage == 0) + layers + ["norm", ""] * (stage == stages - 1)
    return [
        *(("forward", place) for place in forward),
        *(("backward", place) for place in reversed(forward)),
        *(("optimizer", place) for place in [*layers, ""]),
    ]


def event(phase: str, place: str, **changes: object) -> Event:
    """A first cause in a stretch."""
    made = Event(
        row=35, record=35, key=f"{place}.attention/op_0_mul", module=f"{place}.attention", op="mul", phase=phase,
        location="model.py:41", status="diverged", error=1e-2, line_a=100, line_b=102, red=50,
        text="FIRST CAUSE: the output differs by 1.0e-02; all inputs agree",
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]  # its fields, by name


def made_runs(ranks: int) -> RunComparison:
    """A pipeline of four stages: it begins on one rank of the first stage, and its optimizer brings it to the others.

    Every seventh rank is equal by its footers, and rank 9, if there is one, has no log in b.
    """
    return RunComparison(("base", "new"), {rank: _summary(rank, ranks) for rank in range(ranks)})


def _summary(rank: int, ranks: int) -> RankSummary:
    stages = min(_STAGES, max(ranks // 8, 1))
    stage, group = rank * stages // ranks, f"dp 0-{ranks - 1}"
    summary = RankSummary(
        rank=rank,
        outcome=Outcome.COMPARED,
        paths=(f"base/rank_{rank}_activations.log", f"new/rank_{rank}_activations.log"),
        rows=900,
        coordinates={"pp": stage, "dp": rank // _TP, "tp": rank % _TP},
        host=f"node{rank // 8}",
    )
    if rank == 9:
        return replace(summary, outcome=Outcome.ABSENT, why="new has no log of it", paths=("", ""))
    if rank % 7 == 3:
        return replace(summary, outcome=Outcome.EQUAL)
    origin, reached = rank == ORIGIN, stage == 0
    cells, red = [], False
    for n, (phase, place) in enumerate(steps(stage, stages)):
        red = (origin and (red or place == BEGAN)) or (reached and phase == "optimizer")
        cells.append(Cell(phase, place, "diverged" if red else "close" if n % 3 else "equal", 5 * red, 10 * n))
    if not reached:
        return replace(summary, cells=tuple(cells))
    cause = event("forward", BEGAN) if origin else event("optimizer", "layers.0", red=20, row=100, record=100)
    received = () if origin else (Received(group, 3, "all_reduce (sum)"),)
    return replace(
        summary,
        red=cause.red,
        causes=(replace(cause, received=received),),
        cause_count=1,
        sent=(Sent(group, 3, 3, 0),) if origin else (),
        channels=(group,),
        cells=tuple(cells),
        notes=(("batch", "the batch differs"),),
    )


def logged_runs(folder: Path, ranks: int = 3, *, origin: int = 1, at: int = 5) -> RunComparison:
    """Two runs with logs, compared: an operation of one rank, and all that follow it there, differ.

    The last rank has one operation more than the others, before that.
    """
    summaries = {}
    for rank in range(ranks):
        paths = tuple(
            str(_written(folder / run, rank, ranks, at if run == "new" and rank == origin else -1))
            for run in ("base", "new")
        )
        summaries[rank] = _compared(rank, paths[0], paths[1])
    return RunComparison(("base", "new"), summaries)


def _compared(rank: int, a: str, b: str) -> RankSummary:
    return equal_by_footers(rank, a, b) or summary_of(compare(read_log(a), read_log(b)), rank, (a, b))


def _written(run: Path, rank: int, ranks: int, differs: int) -> Path:
    ops: list[Op] = training_step(seed=rank)
    if differs >= 0:
        ops[differs].l2 = 2 * float(ops[differs].l2 or 1)
        ops[differs].outputs = [float(value) * 2 for value in ops[differs].outputs]
    if rank == ranks - 1:
        ops.insert(2, replace(ops[2], key="layers.0.extra/op_0_clone"))
    info = {"rank": rank, "world_size": ranks, "step": 1, "end_state": "x"}
    return write_log(run / f"rank_{rank}_activations.log", ops, run=info, footer=True)
