"""The expectation that a request speaks of: apart from loading, so that reports do not import the session."""

from __future__ import annotations

from matchers.comparison import Progress, noise_floor
from matchers.logs.cache import read_cached
from matchers.logs.op_log import OpLog
from matchers.verdict.expectation import Expect, Expectation
from numtui.inputs import OpenRequest

__all__ = ["expectation_of"]


def expectation_of(request: OpenRequest, a: OpLog, b: OpLog, progress: Progress | None) -> Expectation:
    """Return the expectation of a request; its third log is read and paired.

    Raises:
        LogError: the third log cannot be read.
    """
    noise = None
    if request.noise_path is not None:
        third = read_cached(request.noise_path, request.cache, progress=progress)
        noise = noise_floor(a, b, third, progress=progress)
    preset = None if request.expect is None else Expect(request.expect)
    if preset is None and request.rtol is None and noise is None and request.merges_ranks:
        preset = Expect.REDUCTION_ORDER  # ranks add up in an order of their own
    return Expectation(preset=preset, rtol=request.rtol, noise=noise)
