"""Capture of a trainer that says where its steps are: what callbacks stand on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import nn

from .guard import ends_no_run
from .messages import describe, say
from .options import from_text, settings_of
from .process import Capture, is_captured
from .settings import Settings
from .step_numbers import StepNumbers

__all__ = ["TrainerCapture"]


class TrainerCapture:
    """Record chosen steps between `begin` and `end` of a training, as `numtui capture` would.

    Steps have the numbers that the trainer gives them, so that a resumed run goes on counting, and what runs between
    its batches, such as an evaluation, is no part of a step. Nothing is raised once the arguments are right. A `with`
    block ends what has begun in it, also by an exception.

    Args:
        dump_folder: logs go to `numerics/` in it. A second training overwrites those of the first.
        steps: optimizer steps to record, from 1; with `forward=True` calls of a model, counted from `begin`.
        weights: optimizer steps to record the weights after.
        **options: the fields of `Settings`.
    """

    def __init__(
        self,
        dump_folder: str | Path = ".",
        steps: Sequence[int] = (1,),
        *,
        weights: Sequence[int] | Literal["every"] = (),
        **options: Any,
    ) -> None:
        if not steps or min(steps) < 1:
            raise ValueError(f"steps={steps!r}: steps are counted from 1")
        Settings(**options)
        self._folder = Path(dump_folder)
        self._options = {
            **options,
            "steps": StepNumbers.of(steps),
            "weights": None if weights == "every" else tuple(weights),
        }
        self._last = max(steps) if weights == () else None
        self._forward = bool(options.get("forward") or options.get("of"))
        self._capture: Capture | None = None

    def __enter__(self) -> TrainerCapture:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        self.end(error)

    @ends_no_run
    def begin(self, model: nn.Module, optimizers: Iterable[Any] = (), completed: int = 0) -> None:
        """Begin with a training.

        Args:
            model: the outermost module.
            optimizers: those that exist.
            completed: optimizer steps before, of the run that is resumed.
        """
        if self._forward and self._capture is not None:
            return  # calls are counted since before
        self.end("the training began anew")
        if is_captured():
            say(f"nothing is written to {self._folder}: this process is captured already")
            return
        if self._last is not None and self._last <= completed and not self._forward:
            say(f"no log: the last step requested is {self._last}, the training goes on with {completed + 1}")
            return
        args = from_text([], self._folder)
        vars(args).update(self._options)
        self._capture = capture = Capture(lambda: (args, settings_of(args)), self._folder, inherited=False)
        capture.begin()
        if capture.schedule is not None:
            capture.schedule.follow(model, optimizers, completed)

    @ends_no_run
    def calls_begin(self, model: nn.Module) -> None:
        """Begin to count calls of a model that need not be one of a training, where `forward=True` asks for them."""
        if self._forward:
            self.begin(model)

    @ends_no_run
    def calls_end(self) -> None:
        """End if all calls that are to be recorded have been made."""
        done = self._capture is not None and self._capture.schedule is not None and self._capture.schedule.step
        if self._forward and self._last is not None and done is not False and done >= self._last:
            self.end()

    @ends_no_run
    def training_ends(self) -> None:
        """End with the training, except for calls that are still to come."""
        if self._forward:
            self.calls_end()
        else:
            self.end()

    @ends_no_run
    def batch_begins(self, step: int | None) -> None:
        """Say that a micro-batch begins.

        Args:
            step: the optimizer step that it belongs to, from 1; None if the trainer does not know.
        """
        if self._capture is not None and self._capture.schedule is not None:
            self._capture.schedule.batch_begins(step)

    @ends_no_run
    def batch_ends(self, completed: int | None) -> None:
        """Say that a micro-batch, or all of a step, has ended.

        Args:
            completed: optimizer steps so far; None if the trainer does not know.
        """
        if self._capture is not None and (schedule := self._capture.schedule) is not None:
            schedule.batch_ends(completed)
            if self._last is not None and schedule.step > self._last:
                self.end()

    @ends_no_run
    def end(self, reason: BaseException | str | None = None) -> None:
        """Write what is recorded, and remove all hooks.

        Args:
            reason: why the training ended early, None if it did not; a step in progress is then incomplete.
        """
        capture, self._capture = self._capture, None
        if capture is not None:
            capture.close(describe(reason) if isinstance(reason, BaseException) else reason)

    def broken(self, error: Exception) -> None:
        """Report an error, and capture no more of this training."""
        say(f"the training goes on without capture: {describe(error)}")
        self.end(describe(error))
