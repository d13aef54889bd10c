"""Record every operation of a PyTorch training step in the logs that numtui compares.

`python -m capture -o DIR -- train.py` records a script without edits. In your own loop, use `trace`,
`CaptureSchedule`, or `ActivationCaptureProfiler` in place of torchtitan's. torch is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capture.determinism import make_deterministic
    from capture.replay import FQNInterpreter
    from capture.schedule import ActivationCaptureProfiler, CaptureSchedule, trace
    from capture.settings import Settings

__all__ = [
    "ActivationCaptureProfiler",
    "CaptureSchedule",
    "FQNInterpreter",
    "Settings",
    "make_deterministic",
    "trace",
]

_HOMES = {
    "ActivationCaptureProfiler": "capture.schedule",
    "CaptureSchedule": "capture.schedule",
    "FQNInterpreter": "capture.replay",
    "Settings": "capture.settings",
    "make_deterministic": "capture.determinism",
    "trace": "capture.schedule",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
