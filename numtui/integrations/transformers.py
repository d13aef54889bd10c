"""Capture of a Hugging Face `Trainer`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from numtui import capture

try:
    from transformers import Trainer, TrainerCallback
except ImportError as error:
    raise ImportError(f"numtui.integrations.transformers needs transformers with its Trainer: {error}") from error

__all__ = ["CaptureCallback"]


class CaptureCallback(TrainerCallback):
    """Record every operation of chosen optimizer steps.

    ::

        trainer = Trainer(model, args, train_dataset=data, callbacks=[CaptureCallback("runs/a", steps=[1])])

    Steps are counted like `state.global_step`, also in a resumed run; accumulated batches are micro-batches of their
    step, and evaluation is no part of one. No bit of the training changes.

    Args:
        dump_folder: logs go to `numerics/` in it.
        steps: steps to record, from 1; with `forward=True` calls of the model, also to evaluate or predict.
        **options: of `capture.TrainerCapture`: the fields of `capture.Settings`, and `weights`.
    """

    def __init__(self, dump_folder: str | Path = ".", steps: Sequence[int] = (1,), **options: Any) -> None:
        self._capture = capture.TrainerCapture(dump_folder, steps, **options)
        _tell_of_exceptions()

    def on_init_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Begin to count calls, with `forward=True`."""
        self._capture.calls_begin(model)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write what is left to be written of calls."""
        self._capture.calls_end()

    on_predict = on_evaluate

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **kwargs: Any
    ) -> None:
        """Begin to watch; the model and its optimizer are made and loaded."""
        self._capture.begin(model, [optimizer], completed=state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note that the first batch of a step begins."""
        self._capture.batch_begins(state.global_step + 1)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note that a step has ended."""
        self._capture.batch_ends(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write what is left to be written."""
        self._capture.training_ends()

    def on_exception(self, exception: BaseException) -> None:
        """Write a log of what the step in progress did so far."""
        self._capture.end(exception)


def _tell_of_exceptions() -> None:
    """Let `Trainer.train` call `on_exception`: the library has no such event."""
    original = Trainer.train
    if getattr(original, "tells_numtui", False):
        return

    @wraps(original)
    def train(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(trainer, *args, **kwargs)
        except BaseException as error:
            for callback in trainer.callback_handler.callbacks:
                if isinstance(callback, CaptureCallback):
                    callback.on_exception(error)
            raise

    train.tells_numtui = True  # type: ignore[attr-defined]
    Trainer.train = train
