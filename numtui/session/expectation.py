"""The expectation that a request speaks of: apart from loading, so that reports do not import the session."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from matchers.comparison import Progress, noise_floor
from matchers.errors import InputError
from matchers.logs.cache import read_cached
from matchers.logs.op_log import OpLog
from matchers.runs.run import find_logs
from matchers.verdict.expectation import Expect, Expectation
from matchers.verdict.floor_file import floor_beside, read_floor
from matchers.verdict.noise_floor import NoiseFloor
from numtui.inputs import OpenRequest

__all__ = ["expectation_of", "floors_beside"]


def expectation_of(request: OpenRequest, a: OpLog, b: OpLog, progress: Progress | None) -> Expectation:
    """Return the expectation of a request; its third log is read and paired.

    Raises:
        LogError: the third log cannot be read.
        InputError: a floor cannot be read, or there is none and it is required.
    """
    noise = _floor(request, a, b)
    if request.noise_path is not None:
        third = read_cached(request.noise_path, request.cache, step=request.step, progress=progress)
        noise = noise_floor(a, b, third, progress=progress)
    preset = None if request.expect is None else Expect(request.expect)
    if preset is None and request.rtol is None and noise is None and request.merges_ranks:
        preset = Expect.REDUCTION_ORDER  # ranks add up in an order of their own
    return Expectation(preset=preset, rtol=request.rtol, noise=noise)


def _floor(request: OpenRequest, a: OpLog, b: OpLog) -> NoiseFloor | None:
    """Return the floor that lies beside a, else the one beside b; None where none is asked for, or there."""
    if not request.floor or (
        request.floor == "found" and (request.expect, request.rtol, request.noise_path) != (None,) * 3
    ):
        return None
    for side, path, log in (("a", request.path_a, a), ("b", request.path_b, b)):
        if floors := floors_beside(path):
            return read_floor(log, side, floors)
    if request.floor == "required":
        raise InputError("--floor: no floor lies beside either log: numtui floor -- COMMAND measures one")
    return None


def floors_beside(path: str) -> dict[str, Path]:
    """Return the floors beside a log, or all logs of a folder, by the paths of these; empty unless all have one."""
    logs = [path]
    if os.path.isdir(path):
        logs = []
        with suppress(OSError, InputError):
            logs = [str(log.path) for log in find_logs(Path(path))]
    found = {log: floor for log in logs if (floor := floor_beside(log)) is not None}
    return found if len(found) == len(logs) else {}
