"""Calls of a model as steps, whether anything is trained or not: inference, evaluation, `generate`, decode steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .guard import ends_no_run
from .messages import say, warn
from .mode_stack import computes_shapes, is_tracing
from .modules import holder_of
from .recorder import Recorder
from .schedule import REFUSED, log_paths
from .settings import Settings
from .step_numbers import StepNumbers
from .step_window import split_results

__all__ = ["ForwardSchedule"]


class ForwardSchedule:
    """Record chosen calls of the models of an unmodified script.

    A step is one outermost call of a model, with what is computed from its results before the next one begins (a loss,
    log-probabilities, the next token), and what ran since the call before it as far as this one reads it. Where only
    parts of a model are called, a step begins with each call of the part that was called first. With `Settings.of` it
    is a call of a module of that path; of one inside a running model, that call alone.

    Args:
        folder: logs go to `numerics/` in it.
        steps: calls to record, from 1.
        settings: filters and switches.
        on_begin: told of each call's number.
        place: where a log is written, by where it belongs.

    Attributes:
        step: number of calls so far.
    """

    followed = has_optimizer = saw_model = False

    def __init__(
        self,
        folder: Path,
        steps: StepNumbers,
        settings: Settings,
        *,
        on_begin: Callable[[int], None] | None = None,
        place: Callable[[Path], Path] = lambda path: path,
    ) -> None:
        self.step = 0
        self._steps, self._settings, self._on_begin = steps, settings, on_begin
        paths = log_paths(folder, steps)
        self.recorder = Recorder(
            lambda step, rank: place(paths(step, rank)), settings, on_enter=self._entered, split=split_results
        )
        self.recorder.inner_calls = bool(settings.of)
        self.broken = self.recorder.broken
        self._running: nn.Module | None = None
        self._inner = self._refused = False
        self._first: weakref.ref[nn.Module] | None = None

    def install(self) -> None:
        """Install the hooks."""
        self.recorder.modules.on_leave = self._left
        self.recorder.install()

    def follow(self, model: nn.Module, _optimizers: Iterable[Any] = (), _completed: int = 0) -> None:
        """Learn a model that was made before."""
        self.followed = True
        self.recorder.modules.learn(model)

    def batch_begins(self, step: int | None) -> None:
        """Ignore what a trainer says of its batches: each call counts."""

    def batch_ends(self, completed: int | None) -> None:
        """Ignore it likewise."""

    def step_ends(self) -> None:
        """Ignore what the program says of steps of a training."""

    @property
    def trained(self) -> bool:
        """True once there was a call."""
        return self.step > 0

    def close(self, incomplete: str | None = None) -> None:
        """Write the captured operations and remove all hooks at the end of the script."""
        if self._records:
            if self._running is None:
                self.recorder.end(None)
            else:
                self.recorder.save(incomplete or "the script ended before the call did")
        self.discard()
        if self._refused or self.recorder.written or incomplete is not None:
            return
        if not self.step:
            of = ", ".join(self._settings.of) or "a model"
            say(f"no log: no call of {of} was seen; of one inside a compiled function, use capture.trace")
        elif (missed := self._steps.following(self.step)) is not None:
            say(f"no log: call {missed} was requested, the script made {self.step}")

    def discard(self) -> None:
        """Remove all hooks; what is not written is lost."""
        self.recorder.drop()
        self.recorder.remove()
        self.recorder.modules.on_leave = None

    @property
    def _records(self) -> bool:
        """True while the last call, or what follows it, is recorded, and not only what may prepare the next."""
        return self.recorder.tracer is not None and self.recorder.step == self.step

    def _entered(self, module: nn.Module, outermost: bool, args: tuple[Any, ...]) -> bool:
        """Begin a step if this call is one; return False for a call that is no part of a step."""
        if self._running is not None:
            return outermost
        if self._refused or torch.compiler.is_compiling() or torch._C._current_graph_task_id() != -1:
            return False
        if is_tracing() or computes_shapes(args):
            return False
        if not self._begins(module, outermost):
            return outermost and self._records
        if isinstance(module, nn.DataParallel):
            self._refused = True
            self.recorder.drop()
            warn(REFUSED)
            return False
        following = self.step + 1
        if self._records:
            self.recorder.end(following if following in self._steps else None)
        if following > self._steps.last:
            self.step = following
            self.discard()  # the rest of the script costs nothing
            return False
        self.step, self._running, self._inner = following, module, not outermost
        if self._on_begin is not None:
            self._on_begin(following)
        if following in self._steps and self.recorder.tracer is None:
            self.recorder.begin(following)
        return True

    def _begins(self, module: nn.Module, outermost: bool) -> bool:
        if self._settings.of:
            names = self.recorder.names
            if outermost and names.name(module) is None:
                top = self.recorder.modules.top_of(module)
                names.add_root(top, holder_of(top))
            name = names.name(module)
            return name is not None and any(fnmatchcase(name, glob) for glob in self._settings.of)
        if not any(True for _ in module.parameters()):
            return False
        if self._first is None:
            self._first = weakref.ref(module)
        return self.recorder.modules.top_of(module) is module or self._first() is module

    @ends_no_run
    def _left(self, module: nn.Module, _output: Any) -> None:
        if module is not self._running:
            return
        self._running = None
        tracer = self.recorder.tracer
        if self._records and tracer is not None:
            self.recorder.may_be_over(tracer)
            self.recorder.save()
            if self._inner:
                self.recorder.drop()
            else:
                self.recorder.resume()
        elif not self._inner and self.step + 1 in self._steps:
            self.recorder.begin(self.step + 1)
