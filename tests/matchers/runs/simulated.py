"""The logs of a simulated training step as our own capture writes them, and what checking them finds."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matchers.runs.check import check_run
from matchers.runs.finding import Check, CheckedRun
from matchers.runs.run import find_run
from tests.builders import Op, write_log
from tests.matchers.runs.plan import Faults, Layout, Plan
from tests.matchers.runs.training_step import TrainingStep

__all__ = ["Faults", "Layout", "Plan", "SimulatedRun", "checked", "said", "simulate", "write_run"]


@dataclass
class SimulatedRun:
    """The logs of a step before they are written, for tests that change them further.

    Attributes:
        results: (rank, key) of each result of a collective or message.
    """

    plan: Plan
    logs: dict[int, list[Op]]
    info: dict[int, dict[str, Any]]
    results: list[tuple[int, str]]

    def parameters(self, rank: int) -> list[str]:
        """The names of the parameters that a rank holds."""
        return list(self.info[rank]["parameter_digests"])

    def keys(self, rank: int, ending: str) -> list[str]:
        """The keys of a rank's operations of this ending."""
        return [op.key for op in self.logs[rank] if op.key.endswith(ending)]

    def op(self, rank: int, key: str) -> Op:
        """The record of this key."""
        return next(op for op in self.logs[rank] if op.key == key)


def simulate(plan: Plan, faults: Faults | None = None) -> SimulatedRun:
    """Run the step."""
    step = TrainingStep(plan, faults or Faults())
    info = step.run()
    return SimulatedRun(plan, step.world.logs, info, step.world.results)


def write_run(run: SimulatedRun, folder: Path) -> Path:
    """Write the logs of a run; returns its folder."""
    for rank, ops in run.logs.items():
        records = [replace(op, extra={"Seq": str(k), **op.extra}) for k, op in enumerate(ops)]
        path = folder / f"rank_{rank}_activations.log"
        write_log(path, records, run=run.info[rank], footer="incomplete" not in run.info[rank], exact=True)
    return folder


def checked(run: SimulatedRun) -> CheckedRun:
    """Write the logs, read and check them."""
    with tempfile.TemporaryDirectory() as folder:
        return check_run(find_run(str(write_run(run, Path(folder)))))


def said(run: SimulatedRun) -> list[tuple[Check, str, tuple[int, ...]]]:
    """Check, subject and ranks of all findings, in order."""
    return [(found.check, found.subject, found.ranks) for found in checked(run).findings]
