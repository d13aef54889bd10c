"""One captured step: every operation that is dispatched, with what went in and what came out.

A `StepTracer` is a `DebugMode`, so that compiled regions and DTensor tell it what they tell `DebugMode`; but it
formats nothing while the step runs, keeps no tensors, and reads each one once. It never changes what the training
code computes: what goes wrong in here is said once and ends the recording, not the run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves

from capture.attribution import OPTIMIZER, Attribution
from capture.event import Event, Input, Leaf, Slot
from capture.frames import parse_traceback
from capture.graph_nodes import Replayed, of_meta
from capture.messages import warn
from capture.mode_stack import insert_below, remove
from capture.modules import ModuleNames, ModuleStack
from capture.op_kind import OpKind, kind_of
from capture.placement import Placement
from capture.process_groups import group_ranks, is_done, work_of
from capture.settings import Settings
from capture.statistics import Statistics, Unmeasurable
from capture.storages import Pending, StorageState, StorageTable, layout_of
from capture.subclasses import Handling, handling_of, local_tensor_modes, local_tensors, plain

__all__ = ["StepTracer", "active_tracer"]

_INFRA = (
    torch._C._TorchDispatchModeKey.FAKE,
    torch._C._TorchDispatchModeKey.PROXY,
    torch._C._TorchDispatchModeKey.FUNCTIONAL,
)


class StepTracer(DebugMode):
    """Records one step between `start` and `stop`; may be paused in between.

    Attributes:
        events: what was dispatched, in order.
        excluded: how often operations that are not recorded were dispatched, by name.
        failure: why the recording ended early, None when it did not.
    """

    def __init__(self, names: ModuleNames, modules: ModuleStack, settings: Settings) -> None:
        super().__init__(run_compile_with_interpreter=True, record_tensor_attributes=[])
        self.settings = settings
        self.statistics = Statistics(sketch=settings.sketch, user_hash=settings.resolve_hash())
        self.attribution = Attribution(names, modules)
        self.events: list[Event] = []
        self.excluded: dict[str, int] = {}
        self.failure: str | None = None
        self.simulated_ranks: tuple[int, ...] | None = None
        self._modules = modules
        self._storages = StorageTable()
        self._kinds: dict[Any, OpKind] = {}
        self._unmeasurable: set[str] = set()
        self._groups: dict[tuple[int, ...], int] = {}
        self._pending: list[Pending] = []
        self._dtensor_op: Any = None
        self._dtensor_spec: Any = None
        self._deferred: tuple[Event, list[torch.Tensor]] | None = None
        self._running = False

    # Start and stop

    def start(self) -> None:
        """Begin, or go on, recording."""
        if self._running or self.failure is not None:
            return
        self.attribution.begin_step()
        self._modules.active = True
        insert_below(self, local_tensor_modes())
        # only now: entering with these would switch on DebugMode's own, slow recording
        self.record_nn_module = self.record_stack_trace = True
        self._running = True

    def stop(self) -> None:
        """Stop recording; `start` goes on where it stopped."""
        if not self._running:
            return
        self._running = False
        self.record_nn_module = self.record_stack_trace = False
        with self._guard():
            self._flush(None)
        remove(self)
        self._modules.active = False

    def identity(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        """What an `Input` of this tensor's memory has as its identity."""
        state = self._state(tensor)
        return None if state is None else (state.number, plain(tensor).storage_offset())

    def finish(self) -> None:
        """Read what has come meanwhile, and let go of what was still on its way."""
        with self._guard():
            for pending in list(self._pending):
                # what nobody used may still be on its way: it is read only if it is there, and never waited for
                if is_done(pending.work):
                    self._arrived(pending)
        self._pending.clear()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """The training run never fails because of the capture: an error in here ends the recording."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 whatever it is, it is ours and not the user's
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Something in the capture broke: say so once, and record no more."""
        if self.failure is None:
            self.failure = f"capture failed: {type(error).__name__}: {error}"
            warn(f"{self.failure}; the training goes on without it")

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
            kind = self._kinds[func] = kind_of(func)
        if kind.ignored or _tracing():
            return func(*args, **kwargs)
        if self._deferred is not None:
            with self._guard():
                self._flush(None)
        try:
            call = self._before(kind, args, kwargs)
        except Exception as error:  # noqa: BLE001 see _guard; inlined, this runs for every operation
            self.fail(error)
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        if call is not None:
            try:
                self._after(func, kind, call, result)
            except Exception as error:  # noqa: BLE001 see above
                self.fail(error)
        return result

    def _before(self, kind: OpKind, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Call | None:
        """What has to be known before the operation runs."""
        if kind.annotated_view:
            self.attribution.notice(skip=4)
            self._exclude(kind)
            return None
        if not kind.recorded:
            self.attribution.notice(skip=4)
            return _Call(None)
        place = self.attribution.place(skip=4)
        module = place.module
        event = Event(kind.name, place, kept=module is None or self.settings.wants(module, kind.name))
        tensors, written, overwritten = _flat_inputs(kind, args, kwargs)
        optimizer = place.phase == OPTIMIZER
        arriving: list[Pending] = []
        for position, tensor in enumerate(tensors):
            state = self._state(tensor)
            if state is None:
                event.inputs.append(Input(None, None))
                continue
            if state.pending and not kind.is_wait:
                overwrites = position in overwritten and not kind.collective
                brought = _brought(state.pending, tensor) if overwrites else []
                arriving += brought
                if not brought:
                    self._touch(state)
            slot = None
            if event.kept and not kind.is_wait and position not in overwritten and not state.uninitialised:
                slot = self._measure(tensor, state)
            identity = (state.number, tensor.storage_offset()) if optimizer else None
            event.inputs.append(Input(slot, self._storages.producer(state, plain(tensor)), identity))
        if kind.collective:
            event.group = self._group(args, kwargs)
        return _Call(event, tensors, written, arriving)

    def _exclude(self, kind: OpKind) -> None:
        self.excluded[kind.name] = self.excluded.get(kind.name, 0) + 1

    def _after(self, func: Any, kind: OpKind, call: _Call, result: Any) -> None:
        """What is known once the operation has run."""
        found = [leaf for leaf in _leaves(result) if isinstance(leaf, torch.Tensor)]
        leaves = [leaf for leaf in found if handling_of(type(leaf)) is Handling.PLAIN]
        if len(leaves) < len(found) and any(handling_of(type(leaf)) is Handling.FAKE for leaf in found):
            return
        event = call.event
        if event is None:
            self._exclude(kind)
            for leaf in leaves:
                if (state := self._state(leaf)) is not None and not state.writes:
                    state.uninitialised = True
            return
        if kind.is_wait:
            self._waited(event, call.tensors, leaves)
            return
        if leaves and not call.written and not kind.collective and _is_view(leaves, call.tensors):
            self._exclude(kind)
            return
        if self.settings.filters_results and event.kept:
            event.kept = self.settings.wants_results([(_dtype(t), t.numel()) for t in leaves or call.tensors])
        self.events.append(event)
        if kind.collective:
            self._started(event, call, leaves, work_of(result))
        elif func is self._dtensor_op and self._dtensor_spec is None and leaves:
            # the spec of what came out arrives right after this call
            self._deferred = (event, leaves)
            self._changed(event, call, leaves)
        else:
            specs = self._dtensor_spec if func is self._dtensor_op else None
            self._record_outputs(event, leaves, specs, kind.unfilled)
            self._changed(event, call, leaves)
        for pending in call.arriving:
            self._arrived(pending)

    def _record_outputs(
        self, event: Event, leaves: list[torch.Tensor], specs: Any, unfilled: tuple[int, ...] = ()
    ) -> None:
        each = _spec_list(specs, len(leaves))
        for position, (leaf, spec) in enumerate(zip(leaves, each, strict=True)):
            state = self._state(leaf)
            if state is not None:
                self._storages.written(state, plain(leaf), event)
                spec = self._know_spec(state, leaf, spec)
            output = Leaf(tuple(leaf.shape), _dtype(leaf), None, spec)
            if event.kept and position not in unfilled:
                output.slot = self._measure(leaf, state)
            event.outputs.append(output)

    def _changed(self, event: Event, call: _Call, leaves: list[torch.Tensor]) -> None:
        """Inputs that were written to: what is in them now, unless it was returned too."""
        returned = {_identity(leaf) for leaf in leaves}
        for position in call.written:
            tensor = call.tensors[position]
            if _identity(tensor) in returned:
                continue
            state = self._state(tensor)
            if state is None:
                continue
            self._storages.written(state, plain(tensor), event)
            change = Leaf(tuple(tensor.shape), _dtype(tensor), None, self._spec(state, tensor), position)
            if event.kept:
                change.slot = self._measure(tensor, state)
            event.mutated.append(change)

    # Measuring

    def _measure(self, tensor: torch.Tensor, state: StorageState | None) -> Slot:
        """Statistics of a tensor as it is now; those that are known are not taken again."""
        if state is None:
            return self._take(tensor, None)
        base = plain(tensor)
        layout = layout_of(base)
        version = _version(base)
        known = state.measured.get(layout)
        if known is not None and known[0] == version:
            return known[1]
        slot = self._take(tensor, self._spec(state, tensor))
        state.measured[layout] = (version, slot)
        return slot

    def _take(self, tensor: torch.Tensor, spec: Any) -> Slot:
        try:
            ranks = local_tensors(tensor)
            if ranks is not None:
                self.simulated_ranks = tuple(sorted(set(self.simulated_ranks or ()) | set(ranks)))
                return {
                    rank: self.statistics.measure(part, self._positions(spec, rank)) for rank, part in ranks.items()
                }
            return self.statistics.measure(tensor, self._positions(spec, None))
        except Unmeasurable as reason:
            text = str(reason)
            if text not in self._unmeasurable:
                self._unmeasurable.add(text)
                warn(f"{text}; recorded without numbers")
            return None

    def _positions(self, spec: Any, rank: int | None) -> Any:
        if spec is None or not self.settings.sketch:
            return None
        return Placement.of(spec, rank=rank).positions()

    def _state(self, tensor: torch.Tensor) -> StorageState | None:
        return self._storages.state(plain(tensor))

    # Collectives: nothing is read before it is there

    def _started(self, event: Event, call: _Call, leaves: list[torch.Tensor], work: Any) -> None:
        targets = [(leaf, -1) for leaf in leaves]
        returned = {_identity(leaf) for leaf in leaves}
        targets += [(call.tensors[p], p) for p in call.written if _identity(call.tensors[p]) not in returned]
        for tensor, position in targets:
            leaf = Leaf(tuple(tensor.shape), _dtype(tensor), None, None, position)
            into = event.outputs if position < 0 else event.mutated
            into.append(leaf)
            state = self._state(tensor)
            if state is None:
                continue
            self._storages.written(state, plain(tensor), event)
            pending = Pending(event, leaf, tensor, work)
            self._pending.append(pending)
            state.pending = [*(state.pending or ()), pending]

    def _touch(self, state: StorageState) -> None:
        """An operation uses what a collective brings: it has been waited for, on this stream at least."""
        for pending in state.pending or ():
            self._arrived(pending)

    def _arrived(self, pending: Pending) -> None:
        self._pending = [other for other in self._pending if other is not pending]
        state = self._state(pending.tensor)
        if state is not None and state.pending:
            state.pending = [other for other in state.pending if other is not pending] or None
        if pending.event.kept:
            pending.leaf.slot = self._measure(pending.tensor, state)

    def _waited(self, event: Event, waited: list[torch.Tensor], leaves: list[torch.Tensor]) -> None:
        """`wait_tensor` returned: the value is there, for the collective's record and for the wait's own."""
        for tensor in waited:
            state = self._state(tensor)
            if state is not None and state.pending:
                self._touch(state)
        if any(given.producer is not None and given.producer.place.recompute for given in event.inputs):
            # what was run again may be waited for later, by the backward pass that needs it
            event.place.recompute = True
        self.events.append(event)
        for leaf, given in zip(leaves, event.inputs, strict=False):
            state = self._state(leaf)
            output = Leaf(tuple(leaf.shape), _dtype(leaf), None, None if state is None else self._spec(state, leaf))
            if event.kept:
                output.slot = given.slot = self._measure(leaf, state)
            event.outputs.append(output)
            if state is not None:
                self._storages.passed_on(state, plain(leaf), event)

    def _group(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[int, ...], int] | None:
        ranks = group_ranks([*args, *kwargs.values()])
        if ranks is None:
            return None
        nth = self._groups.get(ranks, 0)
        self._groups[ranks] = nth + 1
        return ranks, nth

    # DTensor: which part of which tensor a local one is

    def _note_wrapper(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        for argument in tree_leaves((args, kwargs)):
            spec = getattr(argument, "_spec", None)
            local = getattr(argument, "_local_tensor", None)
            if spec is not None and isinstance(local, torch.Tensor):
                state = self._state(local)
                if state is not None:
                    self._know_spec(state, local, spec)
        # only now: where DTensor did not say how a result is placed, the next operation that takes it does
        self._flush(None)
        self._dtensor_op, self._dtensor_spec = func, None

    def record_output_placements(self, output_spec: Any) -> None:
        """DTensor says how the result of the operation that is being dispatched is placed."""
        if not self._running or self.failure is not None:
            return
        with self._guard():
            if self._deferred is not None:
                self._flush(output_spec)
            else:
                self._dtensor_spec = output_spec

    def _flush(self, spec: Any) -> None:
        """Measure the results that waited for their placement."""
        if self._deferred is not None:
            (event, leaves), self._deferred = self._deferred, None
            self._record_outputs(event, leaves, spec)
            self._dtensor_op = None

    def _know_spec(self, state: StorageState, local: torch.Tensor, spec: Any) -> Any:
        key = (local.storage_offset(), tuple(local.shape))
        if spec is None:
            return None if state.specs is None else state.specs.get(key)
        if state.specs is None:
            state.specs = {}
        if state.specs.get(key) is not spec:
            state.specs[key] = spec
        return spec

    def _spec(self, state: StorageState, local: torch.Tensor) -> Any:
        return None if state.specs is None else state.specs.get((local.storage_offset(), tuple(local.shape)))

    @contextlib.contextmanager
    def record_redistribute_calls(self, *_args: Any, **_kwargs: Any) -> Iterator[None]:
        """DTensor redistributes: the collectives of it are recorded as they are dispatched."""
        yield

    # Compiled regions

    def _handle_fx_nn_module_stack(
        self,
        base_stack: list[str],  # noqa: ARG002 DebugMode's interface; the module stack says it
        nn_module_stack: Mapping[str, Any] | None,
        fwd_nn_module_stack: Mapping[str, Any] | None,
    ) -> None:
        """`DebugInterpreter` is about to run a node of a compiled region."""
        meta = {"nn_module_stack": nn_module_stack, "fwd_nn_module_stack": fwd_nn_module_stack}
        self.attribution.replayed = of_meta(meta)

    @contextlib.contextmanager
    def set_fx_stack_trace(self, stack_trace: str) -> Iterator[None]:
        """`DebugInterpreter` runs a node that knows where it came from."""
        known = self.attribution.replayed or Replayed(None, False, None)
        self.attribution.replayed = replace(known, frames=parse_traceback(stack_trace) or None)
        try:
            yield
        finally:
            self.attribution.replayed = None

    def record_triton_kernel(self, kernel_name: str, kwargs: dict[str, Any]) -> Any:
        """A kernel of a compiled region is about to be launched; `finalize` of what is returned follows the launch."""
        call = None
        if self._running and self.failure is None:
            with self._guard():
                kind = OpKind(kernel_name, True, False, False, frozenset(kwargs), frozenset(), False, False)
                call = self._before(kind, (), kwargs)
        return _KernelCall(self, call)

    def kernel_done(self, call: _Call) -> None:
        """The kernel was launched: what it changed is read on its stream, after it."""
        if call.event is not None:
            with self._guard():
                self.events.append(call.event)
                self._changed(call.event, call, [])


class _KernelCall:
    """What `DebugMode` returns for a kernel, as far as its launcher uses it."""

    def __init__(self, tracer: StepTracer, call: _Call | None) -> None:
        self._tracer, self._call = tracer, call

    def finalize(self, _device_interface: Any) -> None:
        if self._call is not None:
            self._tracer.kernel_done(self._call)


@dataclass(slots=True)
class _Call:
    """A call between its beginning and its end.

    Attributes:
        written: positions in `tensors`.
        arriving: what collectives bring by this very call.
    """

    event: Event | None
    tensors: list[torch.Tensor] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    arriving: list[Pending] = field(default_factory=list)


def _brought(pending: Sequence[Pending], tensor: torch.Tensor) -> list[Pending]:
    """The results of collectives that are brought by overwriting `tensor`.

    Some backends for the CPU put the result in its place while they are waited for, by an operation that is dispatched.
    There a wait blocks, so that what is not done by now was not waited for before: it means nothing yet.
    """
    if tensor.device.type != "cpu":
        return []
    place = _identity(tensor)
    return [p for p in pending if _identity(p.tensor) == place and not is_done(p.work)]


def _tracing() -> bool:
    """Whether what is dispatched is being traced, with or without values, rather than trained."""
    return any(torch._C._get_dispatch_mode(key) is not None for key in _INFRA)


def _flat_inputs(
    kind: OpKind, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[list[torch.Tensor], list[int], set[int]]:
    """The tensors among the arguments; which of them are written to, and which without being read."""
    tensors: list[torch.Tensor] = []
    written: list[int] = []
    overwritten: set[int] = set()
    for spot, argument in (*enumerate(args), *kwargs.items()):
        if isinstance(argument, torch.Tensor):
            found = [argument]
        elif isinstance(argument, list | tuple):
            found = [leaf for leaf in _leaves(argument) if isinstance(leaf, torch.Tensor)]
        else:
            continue
        if spot in kind.writes:
            positions = range(len(tensors), len(tensors) + len(found))
            written += positions
            if spot in kind.overwrites:
                overwritten.update(positions)
        tensors += found
    return tensors, written, overwritten


def _leaves(result: Any) -> list[Any]:
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, list | tuple):
        out: list[Any] = []
        for item in result:
            out += _leaves(item)
        return out
    return tree_leaves(result) if isinstance(result, dict) else []


def _is_view(leaves: list[torch.Tensor], tensors: list[torch.Tensor]) -> bool:
    """Whether all that came out is memory of what went in: a view by another name, as `reshape` often is."""
    given = {_storage(tensor) for tensor in tensors}
    return all(_storage(leaf) in given for leaf in leaves)


def _storage(tensor: torch.Tensor) -> int | None:
    try:
        return int(plain(tensor).untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return id(tensor)


def _identity(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (_storage(tensor), tensor.storage_offset() if tensor.layout is torch.strided else 0, tuple(tensor.shape))


def _version(tensor: torch.Tensor) -> int:
    """How often a tensor was changed in place; -1 for one of inference mode, which does not count."""
    return -1 if tensor.is_inference() else tensor._version


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _spec_list(specs: Any, count: int) -> list[Any]:
    """One spec (or None) for each of `count` tensors, from what DTensor says of an operation's results."""
    if isinstance(specs, list | tuple) and len(specs) == count:
        return list(specs)
    return [specs if not isinstance(specs, list | tuple) else None] * count if count == 1 else [None] * count


def active_tracer() -> StepTracer | None:
    """The tracer that is recording now, None when none is."""
    for mode in _get_current_dispatch_mode_stack():
        if isinstance(mode, StepTracer):
            return mode
    return None
