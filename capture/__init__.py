"""Record every operation of a PyTorch training step in the logs that numtui compares.

`python -m capture -o DIR -- train.py` records a script without edits. In your own loop, use `trace`,
`CaptureSchedule`, or `ActivationCaptureProfiler` in place of torchtitan's. torch is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .determinism import make_deterministic
    from .replay import FQNInterpreter
    from .schedule import ActivationCaptureProfiler, CaptureSchedule, trace
    from .settings import Settings

__all__ = [
    "ActivationCaptureProfiler",
    "CaptureSchedule",
    "FQNInterpreter",
    "Settings",
    "make_deterministic",
    "trace",
]

_HOMES = {
    "ActivationCaptureProfiler": ".schedule",
    "CaptureSchedule": ".schedule",
    "FQNInterpreter": ".replay",
    "Settings": ".settings",
    "make_deterministic": ".determinism",
    "trace": ".schedule",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
