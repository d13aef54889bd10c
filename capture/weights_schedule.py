"""Logs of weights for an unmodified training loop, written after each optimizer step."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from .guard import ends_no_run
from .losses import Losses
from .messages import describe, say
from .modules import holders_of, models_with
from .places import say_if_open_to_others
from .recorder import Recorder, current_rank
from .run_info import run_info
from .settings import Settings
from .weights import WeightsLog

__all__ = ["WeightsSchedule"]


class WeightsSchedule:
    """Record weights, gradients and optimizer states after chosen steps.

    Args:
        folder: the log goes to `numerics/` in it.
        steps: the steps to record, None for every one.
        settings: of the capture; decide about sketches and the ranks that write.
        place: where a log is written, by where it belongs.
    """

    def __init__(
        self,
        folder: Path,
        steps: Collection[int] | None,
        settings: Settings,
        *,
        place: Callable[[Path], Path] = lambda path: path,
    ) -> None:
        self._folder, self._steps, self._settings = folder / "numerics", steps, settings
        self._place = place
        self._log: WeightsLog | None = None
        self._failed = self._searched = False
        self._losses = Losses()
        self._of_step: list[float] = []
        self._losses.install()

    @ends_no_run
    def after_step(self, step: int, optimizer: Any, recorder: Recorder) -> None:
        """Record an optimizer that has just stepped, while its gradients still exist."""
        if self._failed or not self._settings.wants_rank(current_rank()):
            self._losses.remove()
            return
        self._of_step += self._losses.take()
        recorder.find_models(optimizer)
        if self._log is None:
            self._log = self._begin(step, recorder)
        self._log.record(step, [optimizer])

    @ends_no_run
    def after_all(self, step: int, recorder: Recorder) -> None:
        """Record what no optimizer owns, such as averaged copies, when the step is over."""
        losses, self._of_step = self._of_step, []
        if self._failed or self._log is None or not self._log.wants(step):
            return
        self._log.record_losses(step, losses)
        if not self._searched:
            # copies that are never called announce themselves in no other way
            self._searched = True
            models = [model for model in models_with(lambda _: True) if recorder.names.name(model) is None]
            for model, holder in zip(models, holders_of(models), strict=True):
                recorder.names.add_root(model, holder, trained=recorder.trained)
        self._log.record_rest(step, recorder.trained or ())

    def broken(self, error: Exception) -> None:
        """Report an error and record no more."""
        self._failed = True
        self._losses.remove()
        say(f"weights are no longer recorded: {describe(error)}")

    def close(self) -> None:
        """Finish the log at the end of the run."""
        self._losses.remove()
        if self._log is None:
            return
        paths = self._log.paths
        try:
            self._log.close()
        except OSError as error:
            say(f"the log of weights was not finished: {error}")
        else:
            say(f"weights in {', '.join(map(str, paths))}")
            for path in paths:
                say_if_open_to_others(path)

    def _begin(self, step: int, recorder: Recorder) -> WeightsLog:
        rank = current_rank()
        run = run_info(step=step, rank=rank, settings=self._settings.as_json(), models=recorder.names.roots)
        return WeightsLog(
            lambda r: self._place(self._folder / f"rank_{r}_weights.log"),
            recorder.names,
            rank=rank,
            steps=self._steps,
            sketch=self._settings.sketch,
            run=run,
        )
