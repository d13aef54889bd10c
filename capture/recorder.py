"""Recorder of a process: one tracer per captured step, optimizer hooks, and the log on disk."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .attribution import NO_TASK
from .event import Event
from .log_writer import write_log
from .messages import say, warn
from .modules import ModuleNames, ModuleStack
from .optimizers import OptimizerNames, name_written
from .perturb import perturb
from .run_info import run_info
from .settings import Settings
from .step_log import kept_events, name_events, records
from .step_start import StepStart
from .tracer import StepTracer

__all__ = ["Recorder", "current_rank"]


def current_rank() -> int:
    """Return the rank of this process: from the process group, else from the launcher, else 0."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank())
    try:
        return int(os.environ.get("RANK", "0"))
    except ValueError:
        return 0


def _ends_no_run(hook: Callable[..., None]) -> Callable[..., None]:
    """Wrap a hook so that an error in it ends the recording and not the training run."""

    @wraps(hook)
    def guarded(self: Recorder, *args: Any) -> None:
        try:
            hook(self, *args)
        except Exception as error:  # noqa: BLE001 any error here is the capture's, not the user's
            self._broken(error)

    return guarded


def _not_compiled(hook: Callable[..., None]) -> Callable[..., None]:
    """Exclude a hook from compilation of the optimizer's step: a graph cannot begin or end a recording.

    Compiled steps have a graph break between the hooks and the update anyway.
    """
    disable: Any = torch.compiler.disable
    disabled: Callable[..., None] = disable(hook)
    return disabled


class Recorder:
    """Record steps of one process and write their logs.

    It watches modules and optimizers; its owner decides when a step begins and ends (`begin`, `save`, `drop`). Errors
    are reported and never raised.

    Args:
        log_path: path of a log by (step, rank).
        settings: filters and switches.
        models: the models, if known; otherwise `names` learns them as they are called.
        on_enter: called before an outermost module runs.
        on_optimizer: called before (True) and after (False) an optimizer steps.
    """

    def __init__(
        self,
        log_path: Callable[[int, int], Path],
        settings: Settings,
        models: Sequence[nn.Module] = (),
        *,
        on_enter: Callable[[nn.Module], None] | None = None,
        on_optimizer: Callable[[Any, bool], None] | None = None,
    ) -> None:
        self.settings = settings
        self.names = ModuleNames(models)
        self.modules = ModuleStack(self.names, self._entered)
        self.tracer: StepTracer | None = None
        self.step = 0
        self.written: list[Path] = []
        self._log_path = log_path
        self._on_enter, self._on_optimizer = on_enter, on_optimizer
        self._optimizers: OptimizerNames | None = None
        self._handles: list[Any] = []
        self._first_event = 0
        self._start: StepStart | None = None
        self._perturbed = False
        self._started = 0.0
        self._left_behind: list[StepTracer] = []

    # Hooks

    def install(self) -> None:
        """Install the hooks on modules and optimizers."""
        self.modules.install()
        self._handles = [
            register_optimizer_step_pre_hook(_not_compiled(self._before_optimizer)),
            register_optimizer_step_post_hook(_not_compiled(self._after_optimizer)),
        ]

    def remove(self) -> None:
        """Remove all hooks and modes."""
        self._sweep()
        self.modules.remove()
        for handle in self._handles:
            handle.remove()
        self._handles = []

    @_ends_no_run
    def _entered(self, module: nn.Module, outermost: bool, args: tuple[Any, ...]) -> None:
        if not outermost:
            return
        self._sweep()
        if self._on_enter is not None:
            self._on_enter(module)
        tracer = self.tracer
        if tracer is None:
            return
        if isinstance(module, torch.fx.GraphModule):
            tracer.attribution.graphs.add(module)
        if torch._C._current_graph_task_id() != -1:
            return
        if isinstance(module, torch.fx.GraphModule) and self.names.name(module) is None:
            tracer.attribution.entered_root(module)
            return
        if self.names.name(module) is None:
            self.names.add_root(self.modules.top_of(module))
        if module in self.names.roots and any(True for _ in module.parameters()):
            tracer.attribution.entered_root(module)
            if self._start is None:
                self._perturb_once()
                self._start = self._measure_start([args, _keywords()])

    def _broken(self, error: Exception) -> None:
        if self.tracer is None:
            warn(f"step {self.step} is not recorded: {type(error).__name__}: {error}")
        else:
            self.tracer.fail(error)

    def _perturb_once(self) -> None:
        seed = self.settings.perturb
        if seed is not None and not self._perturbed:
            self._perturbed = True
            count = perturb(self.names.parameters(), seed)
            say(f"perturbed {count:,} parameters by one rounding error (--perturb {seed}): this changes the run")

    def _measure_start(self, batch: Any) -> StepStart | None:
        try:
            return StepStart(self.names.parameters(), batch)
        except Exception as error:  # noqa: BLE001 a training run does not fail because its capture does
            say(f"the start of step {self.step} was not recorded: {type(error).__name__}: {error}")
            return None

    @_ends_no_run
    def _before_optimizer(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self._on_optimizer is not None:
            self._on_optimizer(optimizer, True)
        if self.tracer is not None:
            attribution = self.tracer.attribution
            if not attribution.optimizer_depth:
                # some optimizers step in hooks of the backward pass
                attribution.optimizer_task = torch._C._current_graph_task_id()
            attribution.optimizer_depth += 1
            self.find_models(optimizer)
            self._optimizers = OptimizerNames(self.names, optimizer, self.tracer.identity)

    def find_models(self, optimizer: Any) -> None:
        """Find models that are never called because their graph is replayed: they still name the parameters."""
        parameters = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not any(id(p) in parameters for root in self.names.roots for p in root.parameters()):
            for top in self.modules.tops():
                if any(id(p) in parameters for p in top.parameters()):
                    self.names.add_root(top)

    @_ends_no_run
    def _after_optimizer(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        tracer = self.tracer
        if tracer is not None and tracer.attribution.optimizer_depth:
            tracer.attribution.optimizer_depth -= 1
            if not tracer.attribution.optimizer_depth:
                tracer.attribution.optimizer_task = NO_TASK
            if self._optimizers is not None:
                self._optimizers.name_inputs(tracer.events[self._first_event :])
                self._first_event = len(tracer.events)
        if self._on_optimizer is not None:
            self._on_optimizer(optimizer, False)

    # A step

    def begin(self, step: int) -> None:
        """Begin to record a step."""
        self.step = step
        self._start, self._started, self._first_event = None, time.perf_counter(), 0
        self.names.refresh()
        self.tracer = StepTracer(self.names, self.modules, self.settings)
        self.tracer.start()

    def pause(self) -> None:
        """Pause the recording; the step may continue."""
        if self.tracer is not None:
            self.tracer.stop()

    def resume(self) -> None:
        """Continue the paused step."""
        if self.tracer is not None:
            self.tracer.start()

    def save(self, incomplete: str | None = None) -> None:
        """Write the log of the step so far; a step may be saved again after more operations.

        Args:
            incomplete: why the step did not reach its end, None if it did.
        """
        tracer = self.tracer
        if tracer is None:
            return
        if self.settings.perturb is not None and not self._perturbed:
            say("nothing was perturbed (--perturb): the step called no model with parameters")
        try:
            tracer.stop()
            tracer.finish()
            self._write(tracer, "; ".join(filter(None, (tracer.failure, incomplete))) or None)
        except OSError as error:
            say(f"the log of step {self.step} was not written: {error}")
        except Exception as error:  # noqa: BLE001 a training run does not fail because its capture does
            say(f"the log of step {self.step} was not written: {type(error).__name__}: {error}")

    def drop(self) -> None:
        """Discard the step."""
        if self.tracer is not None:
            self.tracer.stop()
            self._left_behind.append(self.tracer)
            self.tracer = None
            self._sweep()

    def _sweep(self) -> None:
        """Remove tracers that were stopped inside a compiled function, where they could not leave."""
        for tracer in self._left_behind:
            tracer.stop()
        self._left_behind = [tracer for tracer in self._left_behind if tracer.is_left_behind]

    def _write(self, tracer: StepTracer, incomplete: str | None) -> None:
        stacks = tracer.attribution.stacks
        name_written(tracer.events, self.names, tracer.identity)
        name_events(tracer.events, stacks, self.settings.wants)
        events = kept_events(tracer.events)
        excluded = dict(tracer.excluded)
        for event in tracer.events:
            if not event.kept:
                excluded[event.name] = excluded.get(event.name, 0) + 1
        detached = _detached(tracer)
        summaries = tracer.measuring.statistics.results()
        ranks = tracer.measuring.simulated_ranks
        for rank in ranks or (current_rank(),):
            if not self.settings.wants_rank(rank):
                continue
            path = self._log_path(self.step, rank)
            run = run_info(
                step=self.step,
                rank=rank,
                settings=self.settings.as_json() | _statistics(tracer),
                models=self.names.roots,
                start=None if self._start is None else self._start.as_json(rank),
                simulated=ranks is not None,
            )
            if detached:
                run["detached"] = detached
            run["excluded"] = dict(sorted(excluded.items()))
            run["seconds"] = round(time.perf_counter() - self._started, 3)
            if incomplete:
                run["incomplete"] = incomplete
            simulated = rank if ranks is not None else None
            write_log(
                path,
                records(events, stacks, summaries, simulated),
                count=len(events),
                excluded=excluded,
                run=run,
                complete=incomplete is None,
            )
            if path not in self.written:
                self.written.append(path)
            self._tell(path, events, incomplete)

    def _tell(self, path: Path, events: Sequence[Event], incomplete: str | None) -> None:
        note = f" (incomplete: {incomplete})" if incomplete else ""
        say(f"step {self.step}: {len(events)} operations in {path}{note}")


def _detached(tracer: StepTracer) -> dict[str, int]:
    """Count the tensors that the forward pass detached from their gradient, by source line."""
    found: Counter[str] = Counter()
    for (number, of_graph), many in tracer.detached.items():
        if frames := of_graph or tracer.attribution.stacks[number].frames:
            found[frames[0].location] += many
    return dict(sorted(found.items()))


def _statistics(tracer: StepTracer) -> dict[str, Any]:
    """Return the kernel that took the statistics, and notes on missing ones."""
    out: dict[str, Any] = {"statistics": tracer.measuring.statistics.kernel_name}
    if tracer.measuring.statistics.notes:
        out["statistics_notes"] = list(tracer.measuring.statistics.notes)
    return out


def _keywords() -> dict[str, Any]:
    """Find the keyword arguments of the module call whose hook is running: a global hook does not receive them."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if (
            frame.f_code.co_name in ("inner", "_call_impl")
            and "kwargs" in frame.f_locals
            and "torch" in frame.f_code.co_filename
        ):
            found = frame.f_locals["kwargs"]
            return dict(found) if isinstance(found, dict) else {}
        frame = frame.f_back
    return {}
