"""Tracer of one step: records every dispatched operation with its inputs and outputs.

A `StepTracer` is a `DebugMode`, so that compiled regions and DTensor report to it as to `DebugMode`; but it formats
nothing while the step runs, keeps no tensors, and reads each one once. It never changes the training code's results:
an error here is reported once and ends the recording, not the run.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from itertools import islice
from typing import Any

import torch
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_iter, tree_leaves

from . import autocast, list_reads
from .arguments import form_of, given_arguments, numbers_of
from .attribution import AFTER, FORWARD, GRADIENTS, OPTIMIZER, PREPARE, Attribution, Place
from .calls import flat_inputs, flat_tensors, is_view, place_of
from .collectives import Collectives, Pending, brought_by_writing
from .event import Event, Input, Slot
from .exchange import Exchange
from .frames import Frame, parse_traceback
from .generators import drawn_from, draws_of
from .graph_nodes import Replayed, of_meta
from .guard import pass_on
from .local_parts import dtype_name
from .measuring import Measuring
from .messages import describe, warn
from .mode_stack import compiles, insert_below, inside_compiled_call, is_tracing, never_compile, remove, run_parts
from .modules import ModuleNames, ModuleStack
from .op_kind import OpKind, kernel_kind, kind_of
from .placement import result_spec
from .process_groups import work_of
from .row_values import chosen, measure_rows
from .settings import Settings
from .step_log import module_of
from .subclasses import Handling, handling_of, local_part, local_tensor_modes, plain, runs_rank_by_rank
from .typed import typed_spec

__all__ = ["StepTracer", "active_tracer"]

_DETACH = "detach"
_NAMED = frozenset({GRADIENTS, OPTIMIZER, AFTER})
"""Phases in which all inputs get the names of what they are."""
_MAX_READS = 16
"""Numbers of one result that Python reads and that are noted, such as those of a list in a loop."""
_MAX_PENDING = 20_000
"""Limit for what runs between two steps, such as a validation."""


class StepTracer(DebugMode):
    """Record one step between `start` and `stop`; may be paused in between.

    Attributes:
        events: the dispatched operations, in order, but those on the meta device, which compute shapes alone.
        computed_shapes: there were some of these.
        excluded: counts of dispatched operations that are not recorded, by name.
        detached: counts of tensors that the forward pass detached from their gradient, by stack and graph frames.
        measuring: the statistics.
        attribution: modules, phases and stacks.
        failure: why the recording ended early, None if it did not.
        ends_process: it has ended the process, as it was asked to: its step is written whatever the process was doing.
        token_shapes: shapes of the integers (batch, tokens) that the model was given.
        pending: position from which the events may belong to no step, None if all do; these are bounded.
        forgotten: number of pending events that were dropped to bound them.
    """

    def __init__(self, names: ModuleNames, modules: ModuleStack, settings: Settings) -> None:
        _set_up(self)
        self.settings = settings
        self.measuring = Measuring(settings)
        self.attribution = Attribution(names, modules)
        self.events: list[Event] = []
        self.excluded: dict[str, int] = {}
        self.detached: Counter[tuple[int, tuple[Frame, ...] | None]] = Counter()
        self.failure: str | None = None
        self.ends_process = False
        self.computed_shapes = False
        self.token_shapes: list[tuple[int, ...]] = []
        self.pending: int | None = None
        self.forgotten = 0
        self._limit = settings.max_operations
        self._modules = modules
        self._collectives = Collectives(self.measuring)
        self._kinds: dict[Any, OpKind] = {}
        self._dtensor_op: Any = None
        self._dtensor_spec: Any = None
        self._dtensor_arguments: tuple[tuple[Any, ...], Mapping[str, Any]] | None = None
        self._deferred: tuple[Event, list[torch.Tensor], Sequence[Any]] | None = None
        self._running = self._entered = False
        self._autocast: autocast.Autocast = {}
        self._stop_listening: list[Callable[[], None]] = []

    # Start and stop

    def start(self) -> None:
        """Begin or continue recording."""
        if self._running or self.failure is not None:
            return
        if not self._entered:
            if inside_compiled_call():
                self.failure = "a step that begins inside a compiled function is not recorded"
                warn(self.failure)
                return
            insert_below(self, local_tensor_modes())
            self._entered = True
        self.attribution.begin_step()
        self._modules.active = True
        # only now: entering with these would switch on DebugMode's own, slow recording
        self.record_nn_module = self.record_stack_trace = True
        self._running = True
        self._stop_listening = [list_reads.listen(self._note_list), autocast.listen(self._note_autocast)]

    def stop(self) -> None:
        """Stop recording; `start` continues it. Call again while `is_left_behind`."""
        if self._running:
            self._running = False
            for stop in self._stop_listening:
                stop()
            self.record_nn_module = self.record_stack_trace = False
            with self._guard():
                self._flush(None)
            self._modules.active = False
        if self._entered and not inside_compiled_call():
            remove(self)
            self._entered = False

    @property
    def records(self) -> bool:
        """True between `start` and `stop`, unless an error has ended the recording."""
        return self._running and self.failure is None

    @property
    def is_left_behind(self) -> bool:
        """True after a stop inside a compiled function, where the mode cannot be removed."""
        return self._entered and not self._running

    def identity(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        """Return the identity of an `Input` with this tensor's memory; of a DTensor, its local tensor's."""
        part = local_part(tensor)
        state = self.measuring.state(part)
        return None if state is None else (state.number, plain(part).storage_offset())

    def settle(self) -> None:
        """Record the results of the last operation, if they still wait for their placement."""
        with self._guard():
            self._flush(None)

    def made(self, tensor: torch.Tensor) -> bool:
        """Return True if a recorded operation made a tensor."""
        state = self.measuring.state(local_part(tensor))
        return state is not None and bool(state.writes)

    def finish(self) -> None:
        """Read completed collectives and release pending ones."""
        with self._guard():
            self._collectives.finish()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """End the recording on an error inside the block; the training run never fails because of the capture."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 any error here is the capture's, not the user's
            pass_on(error)
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Report an error of the capture once and stop recording."""
        if self.failure is None:
            self.failure = f"capture failed: {describe(error)}"
            warn(f"{self.failure}; the training continues without it")

    # Dispatch

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self._running or self.failure is not None:
            wraps = any(handling_of(cls) is Handling.UNWRAPS_ITSELF for cls in types)
            return NotImplemented if wraps else func(*args, **kwargs)
        for cls in types:
            handling = handling_of(cls)
            if handling is Handling.UNWRAPS_ITSELF:
                with self._guard():
                    self._note_wrapper(func, args, kwargs)
                return NotImplemented
            if handling is Handling.FAKE:
                return func(*args, **kwargs)
        kind = self._kinds.get(func)
        if kind is None:
            try:
                kind = self._kinds[func] = kind_of(func)
            except Exception as error:  # noqa: BLE001 see _guard
                pass_on(error)
                self.fail(error)
                return func(*args, **kwargs)
        if kind.ignored or is_tracing():
            return func(*args, **kwargs)
        if kind.composite and torch.is_inference_mode_enabled():
            return run_parts(self, func, args, kwargs)
        if not types and runs_rank_by_rank():
            # of one rank alone, which nothing tells: the others' logs must not have it
            self._exclude(kind)
            return func(*args, **kwargs)
        if self._deferred is not None:
            with self._guard():
                self._flush(None)
        try:
            call = self._before(kind, args, kwargs)
        except Exception as error:  # noqa: BLE001 see _guard; inlined, this runs for every operation
            pass_on(error)
            self.fail(error)
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        if call is not None:
            try:
                self._after(func, kind, call, result)
            except Exception as error:  # noqa: BLE001 see above
                pass_on(error)
                self.fail(error)
        return result

    def _before(self, kind: OpKind, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Call | None:
        """Collect everything needed before the operation runs."""
        if kind.name == _DETACH:
            self._note_detached(self.attribution.place(skip=4, recorded=False))
            self._exclude(kind)
            return None
        if kind.annotated_view:
            self.attribution.notice(skip=4)
            self._exclude(kind)
            return None
        if not kind.recorded:
            if kind.read_by_python and not self.attribution.optimizer_depth:
                return _Call(None, flat_tensors(args), read_at=self.attribution.place(skip=4, recorded=False))
            self.attribution.notice(skip=4)
            return _Call(None)
        place = self.attribution.place(skip=4)
        if kind.enters and self.attribution.optimizer_depth and not self.attribution.stacks[place.stack].direct:
            self._exclude(kind)  # a counter of steps, say, in which no code of the user has a part
            return None
        module = place.module
        kept = module is None or self.settings.wants(module, kind.name)
        event = Event(kind.name, place, kind.overload, kept=kept, autocast=self._autocast)
        if kind.enters:
            event.arguments = numbers_of(args[0])
            return _Call(event)
        tensors, written, overwritten, others = flat_inputs(kind, args, kwargs)
        call = _Call(event, tensors, written, overwritten)
        if kind.random:
            event.random = draws_of(*drawn_from(tensors, [value for _, value in others]))
        if kind.collective:
            called = self._collectives.called(kind.name, {**dict(zip(kind.arguments, args, strict=False)), **kwargs})
            if called is not None:
                event.call, call.exchange = called
        if others:
            event.arguments = given_arguments(kind, others, grouped=event.call is not None)
        for position, tensor in enumerate(call.tensors):
            event.inputs.append(self._input(kind, call, position, tensor))
        if kind.collective:
            # it may never return
            self._append(event)
        return call

    def _input(self, kind: OpKind, call: _Call, position: int, tensor: torch.Tensor) -> Input:
        measuring, event, overwritten = self.measuring, call.event, position in call.overwritten
        state = measuring.state(tensor)
        if event is not None and tensor.layout is torch.sparse_coo:  # it has no storage of its own
            read = event.kept and not overwritten
            return Input(measuring.measure(tensor, None, sketch=False) if read else None, None, form_of(tensor))
        if state is None or event is None:
            return Input(None, None, form_of(tensor))
        if state.pending and not kind.is_wait:
            brought = brought_by_writing(state.pending, tensor) if overwritten and not kind.collective else []
            call.arriving += brought
            if not brought:
                self._collectives.used(state)
        if type(tensor) is torch.nn.Parameter:  # of others, annotations come after they were measured
            measuring.learn_spec(tensor, typed_spec(tensor))
        slot: Slot = None
        pieces: tuple[Slot, ...] = ()
        part = None if call.exchange is None else call.exchange.given[position]
        if event.kept and not kind.is_wait and not overwritten and not state.uninitialised:
            if part is None:
                slot = measuring.measure(tensor, state, sketch=False)
            else:
                slot = measuring.measure_part(tensor, state, part)
                pieces = measuring.measure_pieces(tensor, state, part)
        # fresh memory is no parameter, buffer or copy of one
        written = position in call.written and not state.uninitialised
        phase = event.place.phase
        named = written or phase in _NAMED or (phase == PREPARE and self.attribution.backward_seen)
        identity = (state.number, plain(tensor).storage_offset()) if named else None
        producer = measuring.storages.producer(state, plain(tensor))
        return Input(slot, producer, form_of(tensor), identity, written, part, pieces)

    def _exclude(self, kind: OpKind) -> None:
        self.excluded[kind.name] = self.excluded.get(kind.name, 0) + 1

    def _note_detached(self, place: Place) -> None:
        if place.phase == FORWARD and self._is_direct(place):
            # autograd detaches what it saves, from within the call that made it
            last = self.events[-1].place if self.events else None
            saved = last and (last.stack == place.stack or (place.frames and last.frames == place.frames))
            if not saved:
                self.detached[place.stack, place.frames] += 1

    def _after(self, func: Any, kind: OpKind, call: _Call, result: Any) -> None:
        """Record the results of an operation that has run."""
        found = flat_tensors(result)
        leaves = [leaf for leaf in found if handling_of(type(leaf)) is Handling.PLAIN]
        if len(leaves) < len(found) and any(handling_of(type(leaf)) is Handling.FAKE for leaf in found):
            return
        event = call.event
        if leaves and not kind.collective and all(leaf.is_meta for leaf in leaves):
            self.computed_shapes = True
            return
        if event is None:
            self._exclude(kind)
            if call.read_at is not None:
                self._note_read(call.tensors, result, call.read_at)
            for leaf in leaves:
                if (state := self.measuring.state(leaf)) is not None and not state.writes:
                    state.uninitialised = True
            return
        if not (kind.is_wait or kind.collective or call.written) and leaves and is_view(leaves, call.tensors):
            self._exclude(kind)
            return
        if self.settings.filters_results and event.kept:
            sizes = [(dtype_name(tensor), tensor.numel()) for tensor in leaves or call.tensors]
            event.kept = self.settings.wants_results(sizes)
        if not kind.collective:
            self._append(event)
        if kind.is_wait:
            self._waited(event, call.tensors, leaves)
        elif kind.collective:
            written = [(position, call.tensors[position]) for position in call.written]
            self._collectives.started(event, leaves, written, work_of(result), call.exchange)
        elif func is self._dtensor_op and self._dtensor_spec is None and leaves:
            # the spec of the results arrives right after this call
            self._deferred = (event, leaves, kind.states_of(result))
            self._changed(event, call, leaves)
        else:
            specs = None
            if func is self._dtensor_op:  # the next call of it may be one of plain tensors
                specs, self._dtensor_op = self._dtensor_spec, None
            self._record_outputs(event, leaves, specs, kind.states_of(result), kind.unfilled)
            self._changed(event, call, leaves)
        for pending in call.arriving:
            self._collectives.arrived(pending)

    def _note_autocast(self, on: autocast.Autocast) -> None:
        self._autocast = on

    def _note_list(self, tensor: torch.Tensor, values: Any) -> None:
        """Note the first numbers of a list that the user's code makes of a tensor."""
        if not (compiles() or self.attribution.optimizer_depth) and active_tracer() is self:
            with self._guard():
                place = self.attribution.place(skip=3, recorded=False)
                for value in islice(tree_iter(values), _MAX_READS):
                    self._note_read([tensor], value, place)

    def _note_read(self, tensors: Sequence[torch.Tensor], value: Any, place: Place) -> None:
        """Note a number that the user's code reads, not one that torch does, to print it for example."""
        if self._is_direct(place) and type(value) in (bool, int, float):
            for tensor in tensors:
                state = self.measuring.state(tensor)
                made = None if state is None else self.measuring.storages.producer(state, plain(tensor))
                if made is not None and len(made.reads) < _MAX_READS:
                    made.reads.append((value, place))

    def _is_direct(self, place: Place) -> bool:
        """Return True if no code of torch's lies between the user's and the operation."""
        return place.frames is not None or self.attribution.stacks[place.stack].direct

    def _append(self, event: Event) -> None:
        self.events.append(event)
        if len(self.events) < self._limit:
            return
        if self.pending is None:
            self.failure = f"recording stopped after {len(self.events):,} operations"
            ends = (
                "" if self.settings.forward else "; --step-at module:function or capture.step() says where a step ends"
            )
            warn(f"{self.failure} (--max-operations){ends}")
        else:
            half = (len(self.events) - self.pending) // 2
            del self.events[self.pending : self.pending + half]
            self.forgotten += half

    def wait(self) -> None:
        """Take what follows for pending: it may belong to this step, to the next, or to none."""
        self.pending = len(self.events)
        self._limit = self.pending + _MAX_PENDING

    def go_on(self) -> None:
        """Take everything for the step's own from now on."""
        self.pending, self._limit = None, self.settings.max_operations

    def restart(self, events: list[Event], *, forget_nodes: bool) -> None:
        """Begin another step with some of the events, and forget all others.

        Args:
            forget_nodes: the forward pass of that step has not begun.
        """
        keep = {id(event) for event in events}
        for event in self.events:
            for given in event.inputs if id(event) in keep else ():
                if id(given.producer) not in keep:
                    given.producer = None
        self.events = events
        self.excluded, self.forgotten = {}, 0
        self.detached.clear()
        self.measuring.restart(events)
        if forget_nodes:
            self.attribution.forget_nodes()
        self.go_on()

    def _record_outputs(
        self,
        event: Event,
        leaves: list[torch.Tensor],
        specs: Any,
        states: Sequence[Any],
        unfilled: tuple[int, ...] = (),
    ) -> None:
        for position, (leaf, spec) in enumerate(zip(leaves, _spec_list(specs, len(leaves)), strict=True)):
            state = self.measuring.state(leaf)
            if state is not None:
                self.measuring.storages.written(state, plain(leaf), event)
                if spec is not None:
                    self.measuring.learn_spec(leaf, spec)
            empty = any(leaf is each for each in states)
            output = self.measuring.leaf(leaf, state, read=event.kept and position not in unfilled and not empty)
            event.outputs.append(output)
            if empty and state is not None:
                state.uninitialised = True
            if self.settings.rows and output.slot is not None and output.spec is None:
                module = module_of(event.place, self.attribution.stacks)
                if chosen(module, event.name, self.settings.rows):
                    output.rows = measure_rows(leaf, self.measuring.statistics, self.token_shapes)

    def _changed(self, event: Event, call: _Call, leaves: list[torch.Tensor]) -> None:
        """Measure the inputs written to, unless they are outputs too."""
        returned = {place_of(leaf) for leaf in leaves} if call.written else set()
        for position in call.written:
            tensor = call.tensors[position]
            state = self.measuring.state(tensor)
            if state is not None and place_of(tensor) not in returned:
                self.measuring.storages.written(state, plain(tensor), event)
                event.mutated.append(self.measuring.leaf(tensor, state, position, read=event.kept))

    def _waited(self, event: Event, waited: list[torch.Tensor], leaves: list[torch.Tensor]) -> None:
        """Record a completed `wait_tensor`: its value goes to the collective's record and to its own."""
        for tensor in waited:
            state = self.measuring.state(tensor)
            if state is not None and state.pending:
                self._collectives.used(state)
        if any(given.producer is not None and given.producer.place.recompute for given in event.inputs):
            # what was run again may be waited for later, by the backward pass that needs it
            event.place.recompute = True
        for leaf, given in zip(leaves, event.inputs, strict=False):
            state = self.measuring.state(leaf)
            output = self.measuring.leaf(leaf, state, read=event.kept)
            given.slot = output.slot
            event.outputs.append(output)
            if state is not None:
                self.measuring.storages.passed_on(state, plain(leaf), event)

    # DTensor: specs of local tensors

    def _note_wrapper(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        for argument in tree_leaves((args, kwargs)):
            part = getattr(argument, "_local_tensor", None)
            if isinstance(part, torch.Tensor):
                self.measuring.learn_spec(part, getattr(argument, "_spec", None))
        # only now: if DTensor did not report a result's placement, the next operation that takes it does
        self._flush(None)
        self._dtensor_op, self._dtensor_spec, self._dtensor_arguments = func, None, (args, kwargs)

    def record_output_placements(self, output_spec: Any) -> None:
        """Receive from DTensor the placement of the current operation's result."""
        if not self._running or self.failure is not None:
            return
        with self._guard():
            if self._deferred is not None:
                self._flush(output_spec)
            else:
                self._dtensor_spec = output_spec

    def _flush(self, spec: Any) -> None:
        """Measure the results that were waiting for their placement."""
        if self._deferred is not None:
            (event, leaves, states), self._deferred = self._deferred, None
            if spec is None and self._dtensor_arguments is not None and not all(map(self._has_spec, leaves)):
                spec = result_spec(self._dtensor_op, *self._dtensor_arguments)
            self._record_outputs(event, leaves, spec, states)
            self._dtensor_op = None
        self._dtensor_arguments = None  # their memory is the script's

    def _has_spec(self, local: torch.Tensor) -> bool:
        state = self.measuring.state(local)
        return state is not None and self.measuring.spec(state, local) is not None

    @contextlib.contextmanager
    def record_redistribute_calls(self, *_args: Any, **_kwargs: Any) -> Iterator[None]:
        """Ignore DTensor's notice of a redistribution: its collectives are recorded as they are dispatched."""
        yield

    # Compiled regions

    def _handle_fx_nn_module_stack(
        self,
        base_stack: list[str],  # noqa: ARG002 DebugMode's interface; the module stack says it
        nn_module_stack: Mapping[str, Any] | None,
        fwd_nn_module_stack: Mapping[str, Any] | None,
    ) -> None:
        """Receive from `DebugInterpreter` the metadata of the compiled region's next node."""
        meta = {"nn_module_stack": nn_module_stack, "fwd_nn_module_stack": fwd_nn_module_stack}
        with self._guard():
            self.attribution.replayed = of_meta(meta)

    @contextlib.contextmanager
    def set_fx_stack_trace(self, stack_trace: str) -> Iterator[None]:
        """Receive from `DebugInterpreter` the stack trace of the node it runs."""
        with self._guard():
            known = self.attribution.replayed or Replayed(None, False, None)
            self.attribution.replayed = replace(known, frames=parse_traceback(stack_trace) or None)
        try:
            yield
        finally:
            self.attribution.replayed = None

    def record_triton_kernel(self, kernel_name: str, kwargs: dict[str, Any]) -> Any:
        """Record a kernel launch of a compiled region; the launcher calls `finalize` of the result afterwards."""
        call = None
        if self._running and self.failure is None:
            with self._guard():
                call = self._before(kernel_kind(kernel_name, kwargs), (), kwargs)
        return _KernelCall(self, call)

    def kernel_done(self, call: _Call) -> None:
        """Record the changes of a launched kernel, read on its stream after it."""
        if call.event is not None:
            with self._guard():
                self._append(call.event)
                self._changed(call.event, call, [])


def _set_up(mode: DebugMode) -> None:
    """Do what `DebugMode.__init__` does but for its imports of the compiler and of DTensor, which take seconds.

    What it prepares with them is for tracing `DebugMode._annotate`, and for its own dispatch.
    """
    TorchDispatchMode.__init__(mode)
    for name, parameter in signature(DebugMode.__init__).parameters.items():
        if parameter.default is not parameter.empty:
            setattr(mode, name, parameter.default)
    mode.supports_higher_order_operators = True
    mode.run_compile_with_interpreter = True  # an older torch does not ask, and runs compiled regions unchanged
    mode.reset()


_uncompiled: Any = StepTracer.__torch_dispatch__
"""As torch has wrapped it, so that nothing in it is compiled; which imports the compiler and takes some time."""
_as_it_is: Any = getattr(_uncompiled, "__wrapped__", _uncompiled)


def _dispatch(mode: StepTracer, *call: Any) -> Any:
    """Dispatch a call; wrapped only where it could be compiled, inside a compiled function."""
    return (_uncompiled if compiles() else _as_it_is)(mode, *call)


with contextlib.suppress(AttributeError):  # it keeps its own wrapper then
    never_compile(_dispatch)
    StepTracer.__torch_dispatch__ = _dispatch  # type: ignore[assignment, method-assign]


class _KernelCall:
    """The subset of `DebugMode`'s kernel call that its launcher uses."""

    def __init__(self, tracer: StepTracer, call: _Call | None) -> None:
        self._tracer, self._call = tracer, call

    def finalize(self, _device_interface: Any) -> None:
        if self._call is not None:
            self._tracer.kernel_done(self._call)


@dataclass(slots=True)
class _Call:
    """A call in progress.

    Attributes:
        written: positions in `tensors` that it writes to.
        overwritten: of those, the ones whose previous content it does not read.
        arriving: results of collectives that this call completes.
        exchange: parts of its tensors, of a collective.
        read_at: where Python reads a number of its tensors; None for other calls.
    """

    event: Event | None
    tensors: list[torch.Tensor] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    overwritten: set[int] = field(default_factory=set)
    arriving: list[Pending] = field(default_factory=list)
    exchange: Exchange | None = None
    read_at: Place | None = None


def _spec_list(specs: Any, count: int) -> list[Any]:
    """Return one spec (or None) for each of `count` results, from DTensor's output spec."""
    if isinstance(specs, list | tuple) and len(specs) == count:
        return list(specs)
    return [specs if not isinstance(specs, list | tuple) else None] * count if count == 1 else [None] * count


def active_tracer() -> StepTracer | None:
    """Return the active tracer, or None."""
    for mode in _get_current_dispatch_mode_stack():
        if isinstance(mode, StepTracer):
            return mode
    return None
