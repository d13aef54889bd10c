"""Boundaries of modules in a step: what each call is given and gives, forward and backward, kept and overwritten.

Kept for `--save boundary:GLOB` beside the operations of a bundle; overwritten for `--graft` and `--graft-after` by what
another run kept. Neither is imported without these options. Values alone are overwritten: of a tensor its memory, so
that dtype, gradient and aliases stay; a gradient is replaced by a copy, for autograd may share its memory.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._pytree import keystr, tree_flatten_with_path
from torch.utils.weak import WeakTensorKeyDictionary

from ..attribution import FORWARD
from ..calls import keywords
from ..generators import state_of
from ..guard import ends_no_run
from ..kernels.guards import unnoticed
from ..messages import describe, say
from ..modules import ModuleNames, is_wrapper
from ..placement import Placement
from ..statistics import Unmeasurable, check_readable
from ..subclasses import local_part, plain
from ..tracer import StepTracer
from .contents import Content, Contents, TooMuch
from .form import INPUT_GRADIENTS, INPUTS, KNOWN, OF_OPTIMIZER, OF_WEIGHTS, OUTPUT_GRADIENTS, OUTPUTS
from .given import Given

if TYPE_CHECKING:
    from .grafting import Grafting

__all__ = ["Boundaries"]


@dataclass(slots=True)
class _Call:
    """A call of a module in the step.

    Attributes:
        told: its entry in the manifest, ready for JSON.
        module: which runs; None where it has ended, or for gradients.
        kept: what is kept of it goes to the bundle.
    """

    told: dict[str, Any]
    module: nn.Module | None = None
    kept: bool = False


_Awaited = tuple[_Call, str, str]
"""A call, a side of it, and the name of a tensor there, whose gradient is waited for."""


class Boundaries:
    """Calls of the modules of a step, in the order in which they begin.

    Args:
        names: of the modules.
        wanted: returns True for the modules whose boundaries are kept.
        grafts: what another run kept, None without.
        contents: where copies are held.
        micro_batch: returns the micro-batch of a forward pass, by its number.
    """

    def __init__(
        self,
        names: ModuleNames,
        wanted: Callable[[str], bool],
        grafts: Grafting | None,
        contents: Contents,
        micro_batch: Callable[[int | None], int | None],
    ) -> None:
        self._names, self._wanted, self._grafts = names, wanted, grafts
        self._contents, self._micro_batch = contents, micro_batch
        self._tracer: StepTracer | None = None
        self._calls: list[_Call] = []
        self._running: list[_Call] = []
        self._count: Counter[tuple[Any, ...]] = Counter()
        self._held: list[Content] = []
        self._awaited: Any = WeakTensorKeyDictionary()
        self._given = Given()
        self._task = -1

    def begin(self, tracer: StepTracer, rank: int, step: int) -> None:
        """Begin a step, of which nothing is known yet."""
        self._tracer = tracer
        self._calls, self._running, self._held, self._task = [], [], [], -1
        self._count.clear()
        self._given.clear()
        if self._grafts is not None:
            self._grafts.begin(rank, step)

    def broken(self, error: Exception) -> None:
        """Say that boundaries are neither kept nor overwritten any more."""
        self._tracer = None
        say(f"no more boundaries of modules in this step: {describe(error)}")

    def entries(self) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
        """Return what is kept of the calls so far, ready for JSON, and the contents of the tensors."""
        return [call.told for call in self._calls if call.kept], {held.digest: held.data for held in self._held}

    # Forward

    @ends_no_run
    def entered(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Take the call of a module that begins."""
        tracer = self._tracer
        name = self._names.name(module)
        if tracer is None or not tracer.records or name is None or is_wrapper(module):
            return
        recompute = torch._C._current_graph_task_id() != -1
        if not (recompute or tracer.attribution.stage == FORWARD):
            return
        call = self._call(name, module, recompute=recompute)
        self._running.append(call)
        given = _named_inputs(module, args)
        random = state_of(torch.default_generator)
        state = None if self._grafts is None else self._grafts.random(call.told)
        if state is not None and state != random:
            with unnoticed():
                torch.default_generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
        if call.kept:
            call.told["random"] = {"device": "cpu", "state": self._hold(self._contents.of_bytes(random))}
        for number, (path, tensor) in enumerate(given):
            if not number and call.told["within"] is None and self._grafts is not None:
                self._grafts.batch(call.told["micro_batch"], local_part(tensor))
            self._keep(call, INPUTS, path, tensor)
            self._overwrite(call, INPUTS, path, tensor)
            if tensor.requires_grad and not isinstance(tensor, nn.Parameter):
                self._hook(call, INPUT_GRADIENTS, path, tensor)

    @ends_no_run
    def left(self, module: nn.Module, output: Any) -> None:
        """Take what the call of a module gives."""
        if not any(call.module is module for call in self._running):
            return
        while (call := self._running.pop()).module is not module:  # an exception has ended these
            call.module = None
        call.module = None
        if self._tracer is None or not self._tracer.records:
            return
        for path, tensor in _named(output):
            self._keep(call, OUTPUTS, path, tensor)
            self._overwrite(call, OUTPUTS, path, tensor)
            if tensor.requires_grad:
                self._hook(call, OUTPUT_GRADIENTS, path, tensor)

    def _call(self, name: str, module: nn.Module | None = None, *, recompute: bool = False) -> _Call:
        assert self._tracer is not None
        of_module = module is not None
        batch = self._micro_batch(self._tracer.attribution.current_pass(recompute=recompute)) if of_module else None
        key = name, batch, recompute
        told: dict[str, Any] = {"module": name, "micro_batch": batch, "recompute": recompute, "nth": self._count[key]}
        told["within"] = self._running[-1].told["module"] if self._running else None
        self._count[key] += 1
        # the batch tells which rows of it a rank has
        call = _Call(told, module, kept=self._wanted(name) or (self._wanted("") and told["within"] is None))
        self._calls.append(call)
        return call

    # Backward

    def _hook(self, call: _Call, kind: str, path: str, tensor: torch.Tensor) -> None:
        """Take the gradient of a tensor once it is complete."""
        if not (call.kept or (self._grafts is not None and self._grafts.takes(call.told["module"], kind))):
            return
        waiting: list[_Awaited] | None = None
        known = self._awaited.get(tensor)
        if known is not None and known[0] == tensor._version:
            waiting = known[1]
        if waiting is None:  # one hook of all calls that share a tensor: each is to see what autograd computed
            waiting = []
            tensor.register_hook(partial(self._hooked, waiting))
            self._awaited[tensor] = tensor._version, waiting
        waiting.append((call, kind, path))

    def _hooked(self, waiting: list[_Awaited], gradient: torch.Tensor) -> torch.Tensor | None:
        replaced: list[torch.Tensor] = []
        self._gradient(waiting, gradient, replaced)
        return replaced[0] if replaced else None

    @ends_no_run
    def _gradient(self, waiting: list[_Awaited], gradient: torch.Tensor, replaced: list[torch.Tensor]) -> None:
        if self._tracer is None or not self._tracer.records:
            return
        self._await_end()
        for call, kind, path in waiting:
            self._keep(call, kind, path, gradient)
        if waiting:
            self._observe(waiting[0], gradient)
        others = [self._grafted(call, kind, path, gradient) for call, kind, path in waiting]
        waiting.clear()  # another backward pass through the same graph has other gradients
        for other in others:
            if other is not None:
                with unnoticed():
                    copy = self._local(gradient).detach().clone()
                    copy.copy_(other)
                    spec = getattr(gradient, "_spec", None)
                    gradient = copy if spec is None else type(gradient)(copy, spec, requires_grad=False)
                replaced[:] = [gradient]

    def _observe(self, of: _Awaited, gradient: torch.Tensor) -> None:
        if self._grafts is not None:
            with suppress(Unmeasurable):
                part = self._local(gradient)
                self._grafts.observe(of[0].told, *of[1:], part, self._placement(gradient, part))

    def _await_end(self) -> None:
        """Have the end of the running backward pass told, after what others do there, such as DDP."""
        task = torch._C._current_graph_task_id()
        if task not in (-1, self._task):
            self._task = task
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: engine.queue_callback(self._backward_ended))

    @ends_no_run
    def _backward_ended(self) -> None:
        if self._tracer is not None and self._tracer.records:
            self._weight_gradients(OF_WEIGHTS)

    @ends_no_run
    def optimizer_begins(self) -> None:
        """Take the gradients that optimizers are given."""
        if self._tracer is not None and self._tracer.records:
            self._weight_gradients(OF_OPTIMIZER)

    def _weight_gradients(self, name: str) -> None:
        """Take the gradients of all weights, as if they were the inputs of a module."""
        call = self._call(name)
        call.kept = self._wanted("")
        for path, parameter in self._names.parameters():
            if (gradient := parameter.grad) is not None:
                self._keep(call, INPUTS, path, gradient)
                self._overwrite(call, INPUTS, path, gradient)

    # Tensors

    def _local(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the memory that this process has of a tensor, once it is complete."""
        part = local_part(tensor)
        if hasattr(part, "trigger_wait"):  # the result of a collective
            part = part.trigger_wait()
        elif self._tracer is not None and (state := self._tracer.measuring.state(part)) is not None and state.pending:
            raise Unmeasurable("the collective that fills it is under way")
        check_readable(part)
        return part

    def _placement(self, tensor: torch.Tensor, part: torch.Tensor) -> dict[str, Any] | None:
        spec = getattr(tensor, "_spec", None)
        if spec is None and self._tracer is not None:
            state = self._tracer.measuring.state(part)
            spec = None if state is None else self._tracer.measuring.spec(state, part)
        return None if spec is None else Placement.of(spec).as_json()

    def _keep(self, call: _Call, kind: str, path: str, tensor: torch.Tensor) -> None:
        if not call.kept:
            return
        try:
            part = self._local(tensor)
            if (dtype := str(part.dtype).removeprefix("torch.")) not in KNOWN["dtype"]:
                raise Unmeasurable(f"elements of {dtype} are not kept")
            with unnoticed():
                whole = part.detach().resolve_conj().resolve_neg().contiguous()
                if whole.untyped_storage().nbytes() != whole.numel() * whole.element_size():
                    whole = whole.clone()
            told: dict[str, Any] = {"memory": 0, "storage": self._hold(self._contents.of(whole)), "dtype": dtype}
            told |= {"shape": list(whole.shape), "strides": list(whole.stride()), "offset": 0}
            told["device"] = str(part.device)
            if (placement := self._placement(tensor, part)) is not None:
                told["placement"] = placement
            call.told.setdefault(kind, {})[path] = told
        except (TooMuch, Unmeasurable) as reason:
            call.told.setdefault("missed", {})[f"{kind} {path}"] = str(reason)

    def _hold(self, content: Content) -> str:
        self._held.append(content)
        return content.digest

    def _grafted(self, call: _Call, kind: str, path: str, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return what the other run kept in place of a tensor, None if nothing is to be done."""
        if self._grafts is None or not self._grafts.takes(call.told["module"], kind, path):
            return None
        try:
            part = self._local(tensor)
            value = self._grafts.value(call.told, kind, path, part, self._placement(tensor, part))
            if value is not None:
                call.told.setdefault("grafted", {}).setdefault(kind, []).append(path)
            return value
        except (TooMuch, Unmeasurable) as reason:
            self._grafts.refused(call.told, kind, path, str(reason))
            return None

    def _note_given(self, call: _Call, kind: str, path: str, part: torch.Tensor) -> None:
        """Note what a module is given, which a graft of another may overwrite."""
        if kind == INPUTS and call.module is not None and self._grafts is not None:
            self._given.note(call.told, path, part)

    def _overwrite(self, call: _Call, kind: str, path: str, tensor: torch.Tensor) -> None:
        """Overwrite the values of a tensor by what the other run kept."""
        value = self._grafted(call, kind, path, tensor)
        tracer = self._tracer
        if value is None or tracer is None or self._grafts is None:
            self._note_given(call, kind, path, local_part(tensor))
            return
        part = self._local(tensor)
        tracer.settle()
        state = tracer.measuring.state(part)
        if isinstance(tensor, nn.Parameter) or not ((kind == INPUTS and call.module is None) or tracer.made(part)):
            self._grafts.refused(call.told, kind, path, "it is data or a weight, which stay as they are")
            return
        with unnoticed():
            memory = plain(part).data
            for dim, (step, size) in enumerate(zip(memory.stride(), memory.shape, strict=True)):
                if step == 0 and size > 1:  # expanded: one element in memory for many
                    first = value.narrow(dim, 0, 1)
                    if not torch.equal(first.expand_as(value), value):
                        self._grafts.refused(call.told, kind, path, "its elements share memory, and differ there")
                        return
                    memory, value = memory.narrow(dim, 0, 1), first
            memory.copy_(value)
        self._given.overwritten(part)
        self._note_given(call, kind, path, part)
        if state is not None:
            state.measured.clear()


def _named_inputs(module: nn.Module, args: tuple[Any, ...]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that a module is called with, by the names of its arguments."""
    given = keywords()
    try:
        bound: Mapping[str, Any] = inspect.signature(module.forward).bind(*args, **given).arguments
    except (TypeError, ValueError):
        bound = {**{str(k): value for k, value in enumerate(args)}, **given}
    for name, value in bound.items():
        for path, tensor in _named(value):
            yield name + path, tensor


def _named(value: Any) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors in a value, by their paths in it; the path of a tensor itself is empty."""
    if isinstance(value, torch.Tensor):
        return [("", value)]
    leaves, _ = tree_flatten_with_path(value)
    return [(keystr(path), leaf) for path, leaf in leaves if isinstance(leaf, torch.Tensor)]
