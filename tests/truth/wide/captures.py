"""Runs of subjects, kept in a folder each: the log of every rank, and the values that the oracle saw.

`python -m tests.truth.wide.captures` is the ranks of runs over several (`launch`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import numpy as np

from tests.forks import Forks
from tests.truth.captures import as_ranks, launch, settled, side_by_side
from tests.truth.wide.oracle import Values, make_optimizer, observed, prepared
from tests.truth.wide.subject import Run, load

__all__ = ["capture_all", "values_of"]

_VALUES = "values.{}.npz"
"""Of a rank."""


def capture_all(runs: Iterable[Run], folder: Path, *, processes: int = 2, forked: Forks | None = None) -> None:
    """Make the runs that the folder does not have yet; `forked` starts those over several ranks.

    Raises:
        RuntimeError: a run failed; its name and the reason.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [run for run in dict.fromkeys(runs) if not (folder / run.folder / _VALUES.format(0)).exists()]
    side_by_side(_made, [run for run in missing if run.ranks == 1], folder, processes)
    # a launch for each: ranks that make groups of their own for one subject may wait forever in the next one's
    for (ranks, _), together in groupby(sorted(missing, key=_launched), key=_launched):
        if ranks > 1:
            lines = "".join(json.dumps(dataclasses.asdict(run)) + "\n" for run in together)
            launch("tests.truth.wide.captures", folder, lines, ranks, forked)


def _launched(run: Run) -> tuple[int, str]:
    return run.ranks, run.subject


def values_of(run: Run, folder: Path, rank: int = 0) -> Values:
    """The values that the oracle saw in a run, on one rank."""
    with np.load(folder / run.folder / _VALUES.format(rank)) as kept:
        return dict(kept)


def _made(run: Run, folder: Path, rank: int = 0) -> None:
    """Observe a run and capture it; it has its values only when all is written."""
    import torch

    import capture

    path = folder / run.folder
    path.mkdir(exist_ok=True)
    with settled(f"{run}"):
        values = observed(run)
        if run.dtype != "float64":
            model, data = prepared(run)
            optimizer = make_optimizer(model, run, "adamw")
            torch.manual_seed(run.seed + 2)
            # stages of one rank are models by themselves
            roots = list(model) if isinstance(model, torch.nn.ModuleList) else model
            with capture.trace(roots, path=path / f"rank_{rank}_activations.log"):
                load(run.subject).step(model, data, optimizer, run)
    part = path / f"part.{rank}.npz"
    np.savez(part, **values)  # type: ignore[arg-type]  # names are no keywords
    part.rename(path / _VALUES.format(rank))


if __name__ == "__main__":
    as_ranks(lambda run, folder, rank: _made(Run(**run), folder, rank))
