"""Capture of a Lightning `Trainer`, of the package `lightning` or `pytorch_lightning`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numtui import capture

__all__ = ["CaptureCallback"]


def _base() -> Any:
    """Return the class of callbacks, of the package that the script has imported, if it has imported one."""
    try:
        if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
            from pytorch_lightning import Callback
        else:
            from lightning.pytorch import Callback
    except ModuleNotFoundError:
        try:
            from pytorch_lightning import Callback
        except ModuleNotFoundError as error:
            raise ImportError(f"numtui.integrations.lightning needs lightning or pytorch_lightning: {error}") from error
    return Callback


class CaptureCallback(_base()):  # type: ignore[misc]
    """Record every operation of chosen optimizer steps.

    ::

        trainer = Trainer(callbacks=[CaptureCallback("runs/a", steps=[1])])

    Steps are counted like `trainer.global_step`, also in a resumed run; accumulated batches are micro-batches of their
    step, and validation is no part of one. Under manual optimization a step is one of all optimizers, as far as they
    take turns. No bit of the training changes.

    Args:
        dump_folder: logs go to `numerics/` in it.
        steps: steps to record, from 1; with `forward=True` calls of the model, also to validate or predict.
        **options: of `capture.TrainerCapture`: the fields of `capture.Settings`, and `weights`.
    """

    def __init__(self, dump_folder: str | Path = ".", steps: Sequence[int] = (1,), **options: Any) -> None:
        self._capture = capture.TrainerCapture(dump_folder, steps, **options)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begin to count calls, with `forward=True`."""
        self._capture.calls_begin(pl_module)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Write what is left to be written of calls."""
        self._capture.calls_end()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to watch; the model and its optimizers are made and loaded."""
        # under manual optimization every optimizer counts
        of_a_step = 1 if pl_module.automatic_optimization else max(len(trainer.optimizers), 1)
        self._capture.begin(pl_module, trainer.optimizers, completed=trainer.global_step // of_a_step)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Note that a batch begins."""
        self._capture.batch_begins(trainer.global_step + 1 if pl_module.automatic_optimization else None)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Note that a batch has ended, and its step unless more batches are accumulated."""
        self._capture.batch_ends(trainer.global_step if pl_module.automatic_optimization else None)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Write what is left to be written."""
        self._capture.training_ends()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Write a log of what the step in progress did so far."""
        self._capture.end(exception)
