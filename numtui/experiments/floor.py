"""Measure the noise floor of a run: its reference and perturbed runs, captured in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from matchers.comparison import noise_floor
from matchers.errors import InputError
from matchers.logs.cache import read_cached
from matchers.logs.head import read_head
from matchers.ops.start import table
from matchers.runs.run import find_logs
from matchers.verdict.floor_file import write_floor
from numtui.experiments.capturing import CaptureCommand
from numtui.experiments.journal import Journal

__all__ = ["measure_floor"]

_DIGESTS = {"parameters_digest": "weights", "batch_digest": "batch"}
BEFORE = "before_perturbation"
"""Entry of the run info: these digests as they were before."""


def measure_floor(
    capture: CaptureCommand,
    folder: Path,
    runs: int,
    journal: Journal,
    tell: Callable[[str], None] = lambda _: None,
) -> list[tuple[Path, int, int]]:
    """Capture a reference into a folder and perturbed runs below it; keep a floor beside each log of the reference.

    Returns:
        Of each log of the reference: the floor, the number of operations that differ in perturbed runs, and of all.

    Raises:
        UserError: a run does not start, or does not begin as the reference does; a floor cannot be written.
    """
    perturbed = [folder / f"perturbed_{number}" for number in range(1, runs + 1)]

    def captured(number: int, place: Path) -> str:
        what = f"perturbed run {number}" if number else "the reference"
        tell(f"run {number + 1} of {runs + 1}: {what}")
        if trouble := capture.run(place, Path.cwd(), ["--perturb", str(number)] if number else []):
            raise InputError(f"{what} does not run: {trouble}")
        return ""

    for number, place in enumerate([folder, *perturbed]):
        # the folder of the reference has those of the others in it
        journal.once(place.name if number else "reference", place if number else place / "numerics",
            partial(captured, number, place))  # fmt: skip
    made = []
    for found in find_logs(folder):
        log = read_cached(str(found.path), None)
        floors = []
        for place in perturbed:
            path = place / found.path.relative_to(folder)
            if not path.is_file():
                raise InputError(f"{path}: not there: the perturbed run has no log of rank {found.rank}")
            if odd := _other_start(log.header.run, read_head(str(path)).run):
                raise InputError(f"{path}: {odd} before the step, before it was perturbed: fix seeds and data order")
            floors.append(noise_floor(log, log, read_cached(str(path), None)))
        differ = sum(any(errors) for errors in zip(*((each.error > 0).tolist() for each in floors), strict=True))
        made.append((write_floor(log, floors), differ, len(log)))
    return made


def _other_start(reference: Mapping[str, Any], perturbed: Mapping[str, Any]) -> str:
    """Say what differs of what both began with; empty for nothing that is known."""
    before = table(perturbed, BEFORE)
    odd = [what for name, what in _DIGESTS.items() if before.get(name, reference.get(name)) != reference.get(name)]
    return f"{' and '.join(odd)} differ{'s' * (odd == ['batch'])}" if odd else ""
