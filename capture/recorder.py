"""Recorder of a process: one tracer per captured step, optimizer hooks, and the log on disk."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves

from .attribution import AFTER, FORWARD, NO_TASK, PHASES, PREPARE
from .autocast import autocast_changes
from .calls import keywords
from .event import Event
from .flat_parameters import NamedSlice, members_of_flat, named_slices
from .guard import ends_no_run, no_harm, pass_on
from .log_writer import write_log
from .messages import describe, say, warn
from .mode_stack import is_tracing
from .modules import ModuleNames, ModuleStack, holder_of, holders_of, models_with
from .optimizers import OptimizerNames, makes_states, name_written
from .places import say_if_open_to_others
from .privacy import without_private
from .run_info import run_info
from .settings import Settings
from .statistics import Statistics
from .step_log import kept_events, name_events, records
from .step_start import ModelState, StepStart
from .step_window import Split, Window, read_by
from .tracer import StepTracer
from .written_logs import WrittenLogs

if TYPE_CHECKING:
    from .changed_start import ChangedStart
    from .when import When

__all__ = ["Recorder", "current_rank"]

_PATIENCE = 5.0
"""Seconds that a step which was cut off waits for the devices: one that waits for another rank may never answer."""


def current_rank() -> int:
    """Return the rank of this process: from the process group, else from the launcher, else 0."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank())
    try:
        # Slurm's srun starts the ranks itself, where no launcher is between
        return int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0)
    except ValueError:
        return 0


def _not_compiled(hook: Callable[..., None]) -> Callable[..., None]:
    """Exclude a hook from compilation of the optimizer's step: a graph cannot begin or end a recording.

    Compiled steps have a graph break between the hooks and the update anyway.
    """
    disabled: Callable[..., None] = torch._disable_dynamo(partial(hook))

    def called(*call: Any) -> None:
        # the first call of what torch disables imports the compiler, for a second: only where the run has it anyway
        (disabled if "torch._dynamo" in sys.modules else hook)(*call)

    return called


class Recorder:
    """Record steps of one process and write their logs.

    It watches modules and optimizers; its owner decides when a step begins and ends (`begin`, `save`, `drop`). Errors
    are reported and never raised.

    Args:
        log_path: path of a log by (step, rank).
        settings: filters and switches.
        models: the models, if known; otherwise `names` learns them as they are called.
        on_enter: called before an outermost module runs, and with `inner_calls` before any other, which then is none
            (False); False leaves its pass out.
        on_optimizer: called before (True) and after (False) an optimizer steps.
        split: splits what ran after the end of a step where the owner finds the steps itself: what ran before the
            first forward pass then belongs to the step only as far as the step reads it.
    """

    def __init__(
        self,
        log_path: Callable[[int, int], Path],
        settings: Settings,
        models: Sequence[nn.Module] = (),
        *,
        on_enter: Callable[[nn.Module, bool, tuple[Any, ...]], bool] | None = None,
        on_optimizer: Callable[[Any, bool], None] | None = None,
        split: Split | None = None,
    ) -> None:
        self.settings = settings
        self.optimizers: Callable[[], tuple[int, int]] | None = None
        self.names = ModuleNames(models)
        self.modules = ModuleStack(self.names, self._entered, self.broken)
        self.tracer: StepTracer | None = None
        self.step = 0
        self.logs = WrittenLogs(settings.keep_last)
        self._log_path = log_path
        self._on_enter, self._on_optimizer = on_enter, on_optimizer
        self._optimizers: OptimizerNames | None = None
        self._handles: list[Any] = []
        self.trained: set[int] | None = None
        self._split = split
        self.inner_calls = False
        self._window = Window()
        self._start: StepStart | None = None
        self._changed_step, self._is_broken = 0, False
        self._started = 0.0
        self._left_behind: list[StepTracer] = []
        self._keeping: Any = None
        self._make_tracer: Callable[..., StepTracer] = StepTracer
        if settings.save or settings.against is not None or settings.grafts:
            from .keeping.keeper import Keeping  # not needed otherwise

            self._keeping = Keeping(settings, self.named_so_far, lambda: (current_rank(), self.step))
            self._make_tracer = self._keeping.tracer
            self.modules.boundaries = self._keeping.boundaries(self.names, self._micro_batch)
        self._changed: ChangedStart | None = None
        if any(of is not None for of in (settings.perturb, settings.synthetic, settings.weights_from)):
            from .changed_start import ChangedStart

            self._changed = ChangedStart(settings)
        self.when: When | None = None
        if settings.when is not None:
            from .when import When

            self.when = When(settings.when, self.names.parameters)

    # Hooks

    def install(self) -> None:
        """Install the hooks on modules and optimizers."""
        self.modules.install()
        if self.when is not None:
            self.when.install()
        self._handles = [
            register_optimizer_step_pre_hook(_not_compiled(self._before_optimizer)),
            register_optimizer_step_post_hook(_not_compiled(self._after_optimizer)),
        ]

    def remove(self) -> None:
        """Remove all hooks and modes."""
        self._sweep()
        self.modules.remove()
        if self.when is not None:
            self.when.remove()
        for handle in self._handles:
            handle.remove()
        self._handles = []

    @ends_no_run
    def _entered(self, module: nn.Module, outermost: bool, args: tuple[Any, ...]) -> None:
        if not (outermost or self.inner_calls):
            return
        self._sweep()
        if self._on_enter is not None and not self._on_enter(module, outermost, args):
            return
        tracer = self.tracer
        if tracer is None:
            return
        if isinstance(module, torch.fx.GraphModule):
            tracer.attribution.graphs.add(module)
        if torch._C._current_graph_task_id() != -1:
            return
        # a graph has its backward pass in it and needs no gradients
        trains = torch.is_grad_enabled() or self.settings.forward or isinstance(module, torch.fx.GraphModule)
        if trains:
            self._forward_pass(tracer)
        if isinstance(module, torch.fx.GraphModule) and self.names.name(module) is None:
            tracer.attribution.entered_root(module)
            self._begin_values(module, self._of_batch(tracer, args))
            return
        if self.names.name(module) is None:
            top = self.modules.top_of(module)
            self.names.add_root(top, holder_of(top), trained=self.trained)
        if self._window.forward is not None and not self._window.seen.issuperset(map(id, self.names.roots)):
            self._see_models(tracer)
        if not any(True for _ in module.parameters()):
            return
        if module in self.names.roots:
            tracer.attribution.entered_root(module)
        elif trains and (top := self.modules.top_of(module)) in self.names.roots:
            tracer.attribution.entered_part(top)
        if trains:
            self._begin_values(module, [args, keywords()])

    def _begin_values(self, module: nn.Module, batch: Any) -> None:
        """Measure what the step begins with, when a model runs with values for the first time."""
        if is_tracing():
            return
        if self.settings.rows and self.tracer is not None:
            self.tracer.token_shapes = _token_shapes(batch)
        if self._changed is not None:
            self._change_start(self._changed, module, batch)
        if self._start is None:
            self._start = self._measure_start(batch)
        elif self._window.mark is not None and self._window.start_at_mark is None:
            self._window.start_at_mark = self._measure_start(batch)

    def _of_batch(self, tracer: StepTracer, args: Any) -> list[Any]:
        """Return the arguments of a graph that are no parameters or buffers, which it is given beside the batch."""
        known = {tracer.identity(tensor) for _, tensor in self.names.tensors()}
        leaves = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
        return [leaf for leaf in leaves if tracer.identity(leaf) not in known] if known else []

    def _forward_pass(self, tracer: StepTracer) -> None:
        """Note that a forward pass begins whose gradients may be wanted."""
        tracer.attribution.stage = FORWARD
        if self._window.forward is None:
            self._window.forward = len(tracer.events)
            self.names.refresh()
            tracer.go_on()

    def _see_models(self, tracer: StepTracer) -> None:
        """Take the parameters and buffers as they are: how they were made and loaded is no part of the step."""
        self._window.seen |= set(map(id, self.names.roots))
        if self._changed is not None and not self._changed.undone and self.step == self._changed_step:
            self._changed.found((self._held(), self.names.buffers()), self.names.parameters())
        if self._start is not None:
            self._start.parameters.learn(self._held())
            self._start.buffers.learn(self.names.buffers())
        before = {id(event) for event in tracer.events[: self._window.forward]}
        for _, tensor in self.names.tensors():
            tracer.measuring.forget_writes(tensor, before)

    def broken(self, error: Exception) -> None:
        """Report an error and record no more of the step."""
        if self.tracer is not None:
            self.tracer.fail(error)
        elif not self._is_broken:
            self._is_broken = True
            warn(f"step {self.step} is not recorded: {describe(error)}")

    def _change_start(self, changed: ChangedStart, module: nn.Module, batch: Any) -> None:
        """Change weights and batch where a setting asks for that, in the first recorded step alone."""
        if changed.undone:
            held, names = list(self._held()), self.names

            def measured() -> dict[str, Any]:
                return StepStart(held, names.buffers(), batch).as_json()

            changed.first(module, batch, (held, names.buffers()), names.parameters(), measured)
            self._changed_step = self.step
        elif self.step == self._changed_step and self._window.stepped is None:
            changed.further(module, batch)

    def _measure_start(self, batch: Any) -> StepStart | None:
        try:
            made = self.tracer.made if self.tracer is not None else lambda _: False
            names, sketch, rows = self.names, self.settings.sketch, self.settings.forward
            start = StepStart(self._held(), names.buffers(), batch, made, sketch=sketch, rows=rows)
            if self._keeping is not None:
                start.saved = self._keeping.weights(self.tracer, names.tensors())
            return start
        except Exception as error:  # noqa: BLE001 a training run does not fail because its capture does
            pass_on(error)
            say(f"the start of step {self.step} was not recorded: {describe(error)}")
            return None

    @ends_no_run
    def _before_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if makes_states():
            return
        self._sweep()
        if self._on_optimizer is not None:
            self._on_optimizer(optimizer, True)
        if self.tracer is not None:
            attribution = self.tracer.attribution
            if not attribution.optimizer_depth:
                # some optimizers step in hooks of the backward pass
                attribution.optimizer_task = torch._C._current_graph_task_id()
                if any(map(callable, (*args[1:], *kwargs.values()))):
                    attribution.entered_closure()
                if self.modules.boundaries is not None:
                    self.modules.boundaries.optimizer_begins()
            attribution.optimizer_depth += 1
            self.find_models(optimizer)
            self._optimizers = OptimizerNames(self.names, optimizer, self.tracer.identity)
            self._window.optimizers.learn(optimizer)

    def _micro_batch(self, forward_pass: int | None) -> int | None:
        tracer = self.tracer
        return None if tracer is None else tracer.attribution.micro_batches(self._window.first_pass).get(forward_pass)

    def find_models(self, optimizer: Any) -> None:
        """Find models that are never called because their graph is replayed: they still name the parameters."""
        parameters = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not any(id(p) in parameters for root in self.names.roots for p in root.parameters()):
            for top in self.modules.tops():
                if any(id(p) in parameters for p in top.parameters()):
                    self.names.add_root(top)

    @ends_no_run
    def _after_optimizer(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if makes_states():
            return
        tracer = self.tracer
        if tracer is not None and tracer.attribution.optimizer_depth:
            tracer.attribution.optimizer_depth -= 1
            if not tracer.attribution.optimizer_depth:
                tracer.attribution.optimizer_task = NO_TASK
            self._window.optimizers.learn(optimizer)
            if self._optimizers is not None:
                self._optimizers.name_inputs(tracer.events[self._window.named :])
                self._window.named = len(tracer.events)
            if not tracer.attribution.optimizer_depth:
                tracer.attribution.optimizer_stepped()
                if not self.settings.forward:
                    self.may_be_over(tracer)
        if self._on_optimizer is not None:
            self._on_optimizer(optimizer, False)

    def may_be_over(self, tracer: StepTracer, at: int | None = None) -> None:
        """Take what follows, or what is from `at` on, for no part of the step, except as far as `split` finds it is."""
        self._window.stepped = len(tracer.events) if at is None else at
        self._window.mark, self._window.start_at_mark = None, None
        tracer.wait()

    # A step

    @ends_no_run
    def begin(self, step: int) -> None:
        """Begin to record a step."""
        self.step = step
        self._start, self._started, self._window, self.tracer = None, time.perf_counter(), Window(), None
        self.tracer = self._make_tracer(self.names, self.modules, self.settings)
        self._begin_boundaries()
        if self._split is not None:
            self.tracer.wait()
        self.tracer.start()

    def _begin_boundaries(self) -> None:
        if self.modules.boundaries is not None and self.tracer is not None:
            self.modules.boundaries.begin(self.tracer, current_rank(), self.step)

    @ends_no_run
    def mark(self) -> None:
        """Note that a forward pass begins, which may be the first of the next step."""
        if self.tracer is not None and self._window.mark is None:
            self._window.mark = len(self.tracer.events), self.tracer.attribution.passes
            self.tracer.go_on()

    @ends_no_run
    def end(self, following: int | None) -> None:
        """End the step, at the mark if there is one: write what its last optimizer left to be done, and go on.

        Args:
            following: the next step if it is to be recorded, which what ran since may belong to; None to stop.
        """
        tracer, window = self.tracer, self._window
        if tracer is None or self._split is None:
            return
        tracer.stop()
        stepped = len(tracer.events) if window.stepped is None else window.stepped
        cut, passes = window.mark or (len(tracer.events), tracer.attribution.passes)
        identities = (tracer.identity(tensor) for _, tensor in self.names.tensors())
        of_models = {identity[0] for identity in identities if identity is not None}
        after, rest = self._split(tracer.events[stepped:cut], of_models)
        coming = rest + tracer.events[cut:]
        tracer.events[stepped:] = after
        if after and not self.settings.forward:
            self._find_updated(tracer, after)
        if after or not self.logs.unsaid:
            self.save()
        if following is None:
            self.drop()
            return
        self.logs.tell()
        for event in rest:
            if event.place.phase == AFTER:
                event.place.phase = PREPARE
        self.step, self._start, self._started = following, window.start_at_mark, time.perf_counter()
        self._window = Window(forward=None if window.mark is None else len(rest), first_pass=passes)
        tracer.restart(coming, forget_nodes=window.mark is None)
        self._begin_boundaries()
        if window.mark is None:
            tracer.attribution.begin_anew(PREPARE)
            tracer.wait()
        tracer.start()

    def _find_updated(self, tracer: StepTracer, after: Sequence[Event]) -> None:
        """Find models that are never called and whose tensors the operations write to, such as averaged copies."""
        known = {tracer.identity(tensor) for _, tensor in self.names.tensors()}
        written = {given.identity for event in after for given in event.inputs} - known - {None}
        models = models_with(lambda tensor: tracer.identity(tensor) in written) if written else []
        for model, holder in zip(models, holders_of(models), strict=True):
            self.names.add_root(model, holder, trained=self.trained)

    @ends_no_run
    def pause(self) -> None:
        """Pause the recording; the step may continue."""
        if self.tracer is not None:
            self.tracer.stop()
            if self._window.left is not None:
                self._window.aside.append(slice(self._window.left, len(self.tracer.events)))
                self._window.left = None

    def leave(self) -> None:
        """Note that a micro-batch has ended: if there is a pause before the next, it has begun here."""
        if self.tracer is not None:
            self._window.left = len(self.tracer.events)

    @ends_no_run
    def resume(self) -> None:
        """Continue the paused step."""
        if self.tracer is not None:
            self._window.left = None
            self.tracer.start()

    def save(self, incomplete: str | None = None) -> None:
        """Write the log of the step so far; a step may be saved again after more operations.

        Args:
            incomplete: why the step did not reach its end, None if it did.
        """
        tracer = self.tracer
        if tracer is None:
            return
        if self._changed is not None and self._changed.undone:
            option, _, _ = self.settings.changes_run[0].partition(" ")
            what = "perturbed" if self.settings.perturb is not None else "given values"
            say(f"nothing was {what} ({option}): the step called no model with parameters")
        with no_harm(f"the log of step {self.step} was not written"):
            tracer.stop()
            tracer.finish()
            self.logs.wait = self.when is not None and incomplete is None and not self.when.holds(self.step)
            if self.logs.wait and self.settings.keep_last == 1:
                return
            self._write(tracer, "; ".join(map(without_private, filter(None, (tracer.failure, incomplete)))) or None)

    @ends_no_run
    def drop(self) -> None:
        """Discard the step, whose log, if there is one, does not change any more."""
        self.logs.tell()
        if self.tracer is not None:
            tracer, self.tracer = self.tracer, None
            self._left_behind.append(tracer)
            self._sweep()

    @ends_no_run
    def _sweep(self) -> None:
        """Remove tracers that were stopped inside a compiled function, where they could not leave."""
        for tracer in self._left_behind:
            tracer.stop()
        self._left_behind = [tracer for tracer in self._left_behind if tracer.is_left_behind]

    def _events(self, tracer: StepTracer) -> tuple[list[Event], int]:
        """Return the operations of the step, and how many were left out that it does not read."""
        window = self._window
        begins = 0 if window.forward is None else window.forward
        for event in tracer.events[: window.stepped]:
            # what looked like the end was the time between two optimizers
            if event.place.phase == AFTER:
                event.place.phase = PREPARE
            # without a forward pass of a module there is nothing to tell what prepares it
            if event.place.phase == PREPARE and window.forward is None:
                event.place.phase = FORWARD
        if self._split is None:
            return tracer.events, 0
        aside = [event for part in (slice(begins), *window.aside) for event in tracer.events[part]]
        unsure = set(map(id, aside))
        unread = unsure - set(map(id, read_by([e for e in tracer.events if id(e) not in unsure], aside)))
        return [event for event in tracer.events if id(event) not in unread], len(unread) + tracer.forgotten

    def named_so_far(self, tracer: StepTracer) -> list[Event]:
        """Return the operations of the step with their keys; none before its first forward pass."""
        if self._window.forward is None:
            return []
        of_step, _ = self._events(tracer)
        name_events(of_step, tracer.attribution.stacks, self.settings.wants)
        return of_step

    def _write(self, tracer: StepTracer, incomplete: str | None) -> None:
        stacks = tracer.attribution.stacks
        of_step, unread = self._events(tracer)
        name_written(of_step, self.names, tracer.identity)
        name_events(of_step, stacks, self.settings.wants)
        events = kept_events(of_step)
        micro_batches = tracer.attribution.micro_batches(self._window.first_pass)
        excluded = dict(tracer.excluded)
        for event in of_step:
            if not event.kept:
                excluded[event.name] = excluded.get(event.name, 0) + 1
        detached, changes = _detached(tracer), list(autocast_changes(events))
        parameters = list(self.names.parameters())
        answers = incomplete is None or tracer.measuring.statistics.wait(_PATIENCE)
        # nothing is measured of a step that was cut off: there may be no time, and a device may not come to it
        # and nothing of a call, which updates nothing
        measures = incomplete is None and not self.settings.forward
        held = list(self._held())
        # what ranks hold of flat parameters, no record names: only sketches tell whether the whole is the same
        sketches = self.settings.sketch and any(isinstance(parameter, NamedSlice) for _, parameter in held)
        statistics = Statistics() if sketches else None
        end = ModelState([*held, *self.names.buffers()], statistics) if measures else None
        optimizer = self._window.optimizers.as_json(parameters) if answers else None
        summaries = tracer.measuring.statistics.results()
        ranks = tracer.measuring.simulated_ranks
        flat = members_of_flat(self.names)
        for rank in ranks or (current_rank(),):
            if not self.settings.wants_rank(rank):
                continue
            path = self._log_path(self.step, rank)
            run = run_info(
                step=self.step,
                rank=rank,
                settings=self.settings.as_json() | _statistics(tracer),
                models=self.names.roots,
                start=self._start.as_json(rank) if self._start is not None and answers else None,
                simulated=ranks is not None,
                keep_diff=self.settings.keep_diff,
            )
            if self._changed is not None and self._changed.before:
                run["before_perturbation"] = self._changed.before
            if self._changed is not None and self._changed.given is not None:
                run["weights_from"] = self._changed.given.as_json()
            if detached:
                run["detached"] = detached
            run["autocast_changes"] = changes
            run["excluded"] = dict(sorted(excluded.items()))
            run["phases"] = PHASES
            run["coverage"] = self._coverage(rank, end, held)
            if self.settings.forward:
                run["coverage"]["forward"] = self._window.extent(tracer.events, events)
            if end is not None:
                run["end_state"] = end.as_json(rank)
            if flat:
                run["flat_parameters"] = flat
            if optimizer:
                run["optimizer"] = optimizer
            if settings := self._window.optimizers.settings(parameters):
                run["optimizer_settings"] = settings
            if self._keeping is not None and self._keeping.grafting is not None:
                run["grafts"] = self._keeping.grafting.as_json()
            if unread:
                run["unread"] = unread
            run["seconds"] = round(time.perf_counter() - self._started, 3)
            if incomplete:
                run["incomplete"] = incomplete
            simulated = rank if ranks is not None else None
            replaces = None
            if path not in self.written and os.path.lexists(path):
                replaces = "a link, which is not followed" if path.is_symlink() else "the log of another run"
            told = records(events, stacks, summaries, micro_batches, simulated)
            write_log(
                path,
                told if self._keeping is None else self._keeping.noting(events, told, rank),
                count=len(events),
                excluded=excluded,
                run=run,
                complete=incomplete is None,
                compact=self.settings.compact,
            )
            if path not in self.written:
                self.logs.paths.append(path)
                say_if_open_to_others(path)
            note = f" (incomplete: {incomplete})" if incomplete else ""
            if self._keeping is not None:
                note += self._keeping.write(path, run, getattr(self._start, "saved", None))
            note += f" (replaces {replaces})" if replaces else ""
            self.logs.unsaid[path] = f"{self.settings.noun} {self.step}: {len(events)} operations in {path}{note}"

    @property
    def written(self) -> list[Path]:
        """The logs that were written, and stay."""
        return self.logs.paths

    def _held(self) -> Iterator[tuple[str, Any]]:
        """Yield the (path, parameter) pairs of what this rank holds of all models."""
        return named_slices(self.names.parameters(), self.names.roots)

    def _is_trained(self, parameter: Any) -> bool:
        parameter = getattr(parameter, "held", parameter)
        return id(parameter) in self.trained if self.trained else bool(parameter.requires_grad)

    def _coverage(self, rank: int, end: ModelState | None, parameters: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        """Return what the log covers: optimizers that stepped, models that ran, parameters that changed."""
        out: dict[str, Any] = {}
        if self.optimizers is not None:
            out["optimizers"] = self.optimizers()
        out["models"] = [self.names.title(root) for root in self.names.roots if any(True for _ in root.parameters())]
        if self._start is not None and end is not None:
            before, now = self._start.parameters.digests(rank), end.digests(rank)
            trained = [n for n, p in parameters if before.get(n, "-") != "-" != now[n] and self._is_trained(p)]
            out["parameters"] = sum(now[name] != before[name] for name in trained), len(trained)
        return out


def _token_shapes(batch: Any) -> list[tuple[int, ...]]:
    """Return the shapes (batch, tokens) of the integers that a model is given."""
    leaves = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
    return [tuple(leaf.shape) for leaf in leaves if leaf.dim() == 2 and not leaf.is_floating_point()]


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
