"""Record every operation of a PyTorch training step in the logs that numtui compares.

`numtui capture -o DIR -- train.py` records a script without edits. In your own loop, use `trace`, `CaptureSchedule`,
or `ActivationCaptureProfiler` in place of torchtitan's; in callbacks of a trainer, `TrainerCapture`. torch is imported
on first use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .determinism import make_deterministic
    from .inherited import install
    from .process import step
    from .replay import FQNInterpreter
    from .schedule import ActivationCaptureProfiler, CaptureSchedule, trace
    from .settings import Settings
    from .trainer import TrainerCapture

__all__ = [
    "ActivationCaptureProfiler",
    "CaptureSchedule",
    "FQNInterpreter",
    "Settings",
    "TrainerCapture",
    "install",
    "make_deterministic",
    "step",
    "trace",
]

_HOMES = {
    "ActivationCaptureProfiler": ".schedule",
    "CaptureSchedule": ".schedule",
    "FQNInterpreter": ".replay",
    "Settings": ".settings",
    "TrainerCapture": ".trainer",
    "install": ".inherited",
    "make_deterministic": ".determinism",
    "step": ".process",
    "trace": ".schedule",
}
_WITHOUT_TORCH = (".inherited", ".process", ".settings")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        if _HOMES[name] not in _WITHOUT_TORCH:
            # in a captured process the import of torch begins the capture, which imports these modules too
            import_module("torch")
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ != "capture":
    from .names import OtherName

    sys.meta_path.insert(0, OtherName("capture", __name__))
