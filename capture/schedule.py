"""Schedules: step boundaries found by the optimizer in an unmodified script, or by calls in your own loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .guard import ends_no_run
from .messages import describe, say, warn
from .mode_stack import computes_shapes, has_numbers
from .optimizers import OptimizerWatch
from .recorder import Recorder
from .settings import Settings
from .step_numbers import StepNumbers
from .step_window import split_tail
from .updates import Updates, updated_by_hand
from .weights_schedule import WeightsSchedule

__all__ = ["REFUSED", "ActivationCaptureProfiler", "AutomaticSchedule", "CaptureSchedule", "log_paths", "trace"]

REFUSED = (
    "DataParallel runs a model in several threads at once, so its operations have no order; use "
    "DistributedDataParallel. The script continues without capture."
)


def log_paths(folder: Path, steps: StepNumbers) -> Callable[[int, int], Path]:
    """Return the log's path by (step, rank): in `numerics/` for one captured step, `numerics/step_S/` for several."""
    base = folder / "numerics"
    if not steps.several:
        return lambda _step, rank: base / f"rank_{rank}_activations.log"
    return lambda step, rank: base / f"step_{step}" / f"rank_{rank}_activations.log"


@contextmanager
def trace(
    model: nn.Module | Sequence[nn.Module],
    *,
    path: str | Path,
    step: int = 1,
    settings: Settings | None = None,
    **options: Any,
) -> Iterator[Recorder]:
    """Record the operations inside the `with` block as one step.

    Args:
        model: the model, or several.
        path: the log; with simulated ranks, `{rank}` in it is the rank.
        step: its number, for the run info.
        settings: filters and switches; or the fields of `Settings` as keywords.

    An exception inside leaves a log of what ran before it, marked incomplete, and is raised again.
    """
    models = [model] if isinstance(model, nn.Module) else list(model)

    def log_path(_step: int, rank: int) -> Path:
        return Path(str(path).replace("{rank}", str(rank)))

    recorder = Recorder(log_path, settings or Settings(**options), models)
    recorder.install()
    try:
        recorder.begin(step)
        try:
            yield recorder
        except BaseException as error:
            recorder.save(incomplete=describe(error))
            raise
        recorder.save()
    finally:
        recorder.drop()
        recorder.remove()


class CaptureSchedule:
    """Record chosen steps of your own loop.

    ::

        with CaptureSchedule(model, steps=[1, 2], dump_folder="outputs/run_A") as schedule:
            for batch in batches:
                train_step(model, batch)
                schedule.step()

    Args:
        model: the model, or several.
        steps: steps to record, from 1. Step 1 shows a difference where it arises: by step 2 it has spread into every
            weight.
        dump_folder: logs go to `numerics/` in it.
        settings: filters and switches; or the fields of `Settings` as keywords.
    """

    def __init__(
        self,
        model: nn.Module | Sequence[nn.Module],
        steps: StepNumbers | Sequence[int] = (1,),
        dump_folder: str | Path = ".",
        *,
        settings: Settings | None = None,
        log_path: Callable[[int, int], Path] | None = None,
        **options: Any,
    ) -> None:
        models = [model] if isinstance(model, nn.Module) else list(model)
        self._steps = StepNumbers.of(steps)
        self._recorder = Recorder(
            log_path or log_paths(Path(dump_folder), self._steps), settings or Settings(**options), models
        )
        self._step = 0
        self._installed = False

    def __enter__(self) -> CaptureSchedule:
        self._recorder.install()
        self._installed = True
        self._arm()
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if self._recorder.tracer is not None:
            if error is not None or self._recorder.tracer.events:
                reason = "the loop ended before the step did" if error is None else describe(error)
                self._recorder.save(incomplete=reason)
            self._recorder.drop()
        if self._installed:
            self._recorder.remove()
            self._installed = False

    @property
    def written(self) -> list[Path]:
        """Logs written so far."""
        return self._recorder.written

    def step(self) -> None:
        """Mark the end of a training step."""
        self._step += 1
        if self._recorder.tracer is not None:
            self._recorder.save()
            self._recorder.drop()
        self._arm()

    def _arm(self) -> None:
        if self._installed and self._step + 1 in self._steps:
            self._recorder.begin(self._step + 1)


class ActivationCaptureProfiler(CaptureSchedule):
    """`CaptureSchedule` with the arguments of torchtitan's class of this name, as its replacement.

    Args:
        enabled: False to do nothing at all.
        model: the model.
        dump_dir: the folder of the logs.
        capture_step: the step to record, from 1.
    """

    def __init__(
        self, *, enabled: bool, model: nn.Module | Sequence[nn.Module], dump_dir: str | Path, capture_step: int = 1
    ) -> None:
        super().__init__(
            model,
            steps=(capture_step,) if enabled else (),
            log_path=lambda _step, rank: Path(dump_dir) / f"rank_{rank}_activations.log",
        )
        self._enabled = enabled

    def __enter__(self) -> ActivationCaptureProfiler:
        if self._enabled:
            super().__enter__()
        return self


class AutomaticSchedule:
    """Record chosen steps of an unmodified training loop.

    A step begins when a model is called with gradients enabled, or an optimizer steps and calls it in a closure. It
    ends when the next forward pass begins after all optimizers have stepped. Where one of them does not step every
    time, the second step of another one shows that the next step has begun: with the forward pass that followed the
    last optimizer step. The log is written after each optimizer step, and again where operations after the last one
    belong to the step. A trainer that knows its steps may say where they are: `follow`, `batch_begins`, `batch_ends`.

    Args:
        folder: logs go to `numerics/` in it.
        steps: steps to record, from 1.
        settings: filters and switches.
        weights: a log of weights to write besides.
        on_begin: called with its number when a step begins.
        place: where a log is written, by where it belongs.
    """

    def __init__(
        self,
        folder: Path,
        steps: StepNumbers,
        settings: Settings,
        *,
        weights: WeightsSchedule | None = None,
        on_begin: Callable[[int], None] | None = None,
        place: Callable[[Path], Path] | None = None,
        on_call: Callable[[], None] | None = None,
    ) -> None:
        self.steps = steps
        self.step = 1
        paths = log_paths(folder, steps)
        self.recorder = Recorder(
            paths if place is None else lambda step, rank: place(paths(step, rank)),
            settings,
            on_enter=self._entered,
            on_optimizer=self._optimizer,
            split=split_tail,
        )
        self._optimizers = OptimizerWatch(self._made, self.recorder.broken)
        self.recorder.optimizers = lambda: (len(self._stepped), len(self._stepped | self._live))
        self._weights, self._on_begin, self._on_call = weights, on_begin, on_call
        self._begun = False
        self._began_with: tuple[nn.Module, list[nn.Module], int] | None = None
        self._stepped: set[int] = set()
        self._later: set[int] = set()
        self._updates = Updates()
        self._ever_called = self.saw_model = False
        self._refused = False
        self.followed = False
        self._announced: int | None = None
        self._between: bool | None = None

    def install(self) -> None:
        """Install the hooks."""
        self.recorder.install()
        self._optimizers.install()

    def follow(self, model: nn.Module, optimizers: Iterable[Any], completed: int) -> None:
        """Take over a model and its optimizers that were made before, from a trainer that says where its steps are.

        Args:
            completed: optimizer steps before, as in a resumed run.
        """
        self.followed = True
        self.step = completed + 1
        self.recorder.modules.learn(model)
        for optimizer in optimizers:
            self._optimizers.learn(optimizer)

    def batch_begins(self, step: int | None) -> None:
        """Take what follows for a micro-batch.

        Args:
            step: of this step, from 1; None where only the optimizers tell.
        """
        self._between, self._announced = False, step
        if self._begun and not self._stepped:
            self.recorder.resume()

    def batch_ends(self, completed: int | None) -> None:
        """Take what follows for no part of a step, until the next batch begins, if the trainer says when.

        Args:
            completed: optimizer steps so far; None where only the optimizers tell.
        """
        self._between = self._between is not None
        if self._within:
            self.recorder.leave()
        if completed is None:
            return
        self._announced = completed + 1
        if self._stepped or completed < self.step:
            return
        # a step without an update: the gradients overflowed, or the batch was left out
        if self.step in self.steps:
            if self._begun:
                updated_by_hand(self.recorder)
                self.recorder.save()
            self.recorder.drop()
        self.step, self._begun = completed + 1, False
        if self.step in self.steps:
            self.recorder.begin(self.step)

    def step_ends(self) -> None:
        """End the step here, as the program says."""
        if self._begun:
            self.batch_ends(self.step)

    def close(self, incomplete: str | None = None) -> None:
        """Write the captured operations and remove all hooks at the end of the script."""
        if self._stepped:
            self.recorder.end(None)
            if self._weights is not None:
                self._weights.after_all(self.step, self.recorder)
        elif self._begun and not (incomplete is None and self._updates.any_changed() and self._update_ends()):
            self.recorder.save(incomplete or "the script ended before an optimizer stepped")
        self.discard()
        if incomplete is None:
            self.recorder.logs.forget_waiting()
        missed = self.steps.following(self._done)
        if self._refused:
            return
        if self.recorder.written or incomplete is not None:
            return
        if (when := self.recorder.when) is not None and when.seen:
            say(f"no log: --when {self.recorder.settings.when} held in none of {when.seen:,} steps")
            return
        if not self._ever_called:
            if not self.saw_model:  # else the process says more
                say("no log: no step was recognised, as no module was called with gradients enabled; see capture.trace")
        elif missed is not None:
            say(f"no log: step {missed} was requested, the script ran {self._done}")

    def discard(self) -> None:
        """Remove all hooks; what is not written is lost."""
        self.recorder.drop()
        self._optimizers.remove()
        self.recorder.remove()

    @property
    def has_optimizer(self) -> bool:
        """True if there is an optimizer, whether it has stepped or not."""
        return bool(self._optimizers.known())

    @property
    def trained(self) -> bool:
        """True once an optimizer has stepped."""
        return self.step > 1 or bool(self._stepped)

    @property
    def _done(self) -> int:
        return self.step if self._stepped or self.recorder.written else self.step - 1

    def _made(self, optimizer: Any) -> None:
        """Watch what runs before the first step: models and data are ready once there is an optimizer."""
        self.recorder.trained = self._optimizers.parameters()
        if self._stepped:
            self._later.add(id(optimizer))
        if not self._begun and self.step in self.steps and self.recorder.tracer is None and not self._refused:
            self.recorder.begin(self.step)

    def _entered(self, module: nn.Module, _outermost: bool, args: tuple[Any, ...]) -> bool:
        """Return False for a pass that prepares no step and is no part of one."""
        if self._refused or torch.compiler.is_compiling():
            return True
        if computes_shapes(args):
            return False
        if self._on_call is not None:
            self._on_call()
        self.saw_model = self.saw_model or any(True for _ in module.parameters())
        # a graph has its backward pass in it and needs no gradients
        evaluates = not torch.is_grad_enabled() and not isinstance(module, torch.fx.GraphModule)
        if evaluates or self._between:
            over = self._stepped and not self._left and self.step + 1 not in self.steps
            if over or self._within:
                self.recorder.pause()
            return evaluates and not self._within
        if isinstance(module, nn.DataParallel):
            self._refused = True
            self.recorder.drop()
            warn(REFUSED)
            return True
        self._ever_called = True
        if torch._C._current_graph_task_id() != -1 or self._inside_optimizer:
            return True
        if self._stepped and not self._goes_on:
            if self._left:
                self.recorder.mark()
            else:
                self._over()
        elif self._by_hand and (self.recorder.tracer or self.recorder.modules.top_of(module) is module):
            top = self.recorder.modules.top_of(module)
            if self._begun and self._updates.changed(top) and not self._update_ends():
                # they were initialised after a first look at the model
                self.recorder.drop()
                self.recorder.begin(self.step)
                self._updates.forget()
            self._updates.called(top)
        if not self._begun:
            self._begin()
            recorded = self.recorder.tracer
            first = 0 if recorded is None else len(recorded.events)
            self._began_with = module, list(self.recorder.names.roots), first
            self.recorder.modules.on_leave = self._returned
        return True

    @ends_no_run
    def _returned(self, module: nn.Module, output: Any) -> None:
        """Begin the step anew if the call that it began with has computed shapes alone, as Keras does for its own."""
        if self._began_with is None or module is not self._began_with[0]:
            return
        (_, roots, first), self._began_with, self.recorder.modules.on_leave = self._began_with, None, None
        tracer = self.recorder.tracer
        if output is None or tracer is None or self._stepped or has_numbers(output):
            return
        if len(tracer.events) > first and not tracer.computed_shapes:
            return
        self.recorder.drop()
        self.recorder.names.keep(roots)
        self._updates.forget()
        self._begun = False
        self.recorder.begin(self.step)

    @property
    def _by_hand(self) -> bool:
        """True if parameters may be updated by no optimizer, in a step that matters."""
        return self._announced is None and not self.has_optimizer and self.step <= self.steps.last

    def _update_ends(self) -> bool:
        """End a step whose parameters were written by no optimizer; False if they were not after a backward pass."""
        if self.recorder.tracer is not None and not updated_by_hand(self.recorder):
            return False
        self._over()
        return True

    @property
    def _within(self) -> bool:
        """True between two batches of one step."""
        return bool(self._between) and self._begun and not self._stepped

    @property
    def _goes_on(self) -> bool:
        """True if the trainer has said that this step is not over."""
        return self._announced == self.step

    @property
    def _left(self) -> bool:
        """True if an optimizer has not stepped in this step, whose end the trainer does not say."""
        return self._announced is None and bool(self._live - self._stepped)

    @property
    def _live(self) -> set[int]:
        """Ids of the optimizers that may step in this step."""
        return set(map(id, self._optimizers.known())) - self._later

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            if self._on_begin is not None:
                self._on_begin(self.step)
            if self.step in self.steps and self.recorder.tracer is None:
                self.recorder.begin(self.step)

    def _over(self) -> None:
        following = self._announced or self.step + 1
        if (when := self.recorder.when) is not None and when.met is not None:
            self.steps = StepNumbers(frozenset({when.met}))  # the others cost nothing any more
        if self.step in self.steps:
            self.recorder.end(following if following in self.steps else None)
        if self._weights is not None:
            self._weights.after_all(self.step, self.recorder)
        self.step = following
        self._updates.forget()
        self._stepped.clear()
        self._later.clear()
        self._begun = False

    _inside_optimizer = 0

    def _optimizer(self, optimizer: Any, begins: bool) -> None:
        if self._refused:
            return
        if begins:
            self._inside_optimizer += 1
            if id(optimizer) in self._stepped and not self._goes_on:
                self._over()
            elif self._stepped and self.step not in self.steps:
                # what ran since belongs to this step, which is not recorded
                self.recorder.drop()
            if self._stepped:
                self.recorder.resume()
            # the model may be called in a closure, or not at all in a way that could be seen
            self._begin()
            return
        self._inside_optimizer -= 1
        self._stepped.add(id(optimizer))
        if self._inside_optimizer:
            return
        if self.step in self.steps:
            self.recorder.save()
        if self._weights is not None:
            self._weights.after_step(self.step, optimizer, self.recorder)
        if self.step in self.steps:
            self.recorder.resume()
        elif self.step + 1 in self.steps:
            self.recorder.begin(self.step + 1)
