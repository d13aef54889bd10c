"""Names by memory: of the tensors an optimizer works on, and of parameters and buffers written to elsewhere."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any

import torch

from .attribution import GRADIENTS, OPTIMIZER
from .event import Event
from .modules import ModuleNames

__all__ = ["OptimizerNames", "OptimizerWatch", "name_written", "owned_tensors"]


def owned_tensors(optimizer: Any, names: ModuleNames) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Yield (parameter, part, tensor) of everything that an optimizer works on.

    The part is `""` for the parameter itself, `grad`, or the key in the optimizer's state (`exp_avg`).
    """
    for g, group in enumerate(optimizer.param_groups):
        for p, parameter in enumerate(group["params"]):
            name = names.parameter(parameter) or f"group{g}.{p}"
            yield name, "", parameter
            if parameter.grad is not None:
                yield name, "grad", parameter.grad
            for part, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    yield name, str(part), value


Identity = Callable[[torch.Tensor], tuple[int, int] | None]


class OptimizerNames:
    """Names for the inputs of an optimizer's operations, found by their memory.

    An optimizer creates its state in its first step, so names are looked up after the step, while its tensors still
    exist; gradients may be set to None inside the step and are noted before it as well.
    """

    def __init__(self, names: ModuleNames, optimizer: Any, identity: Identity) -> None:
        self._names, self._optimizer, self._identity = names, optimizer, identity
        names.refresh_parameters()
        self._known: dict[tuple[int, int], str] = {}
        self._learn()

    def _learn(self) -> None:
        for name, part, tensor in owned_tensors(self._optimizer, self._names):
            identity = self._identity(tensor)
            if identity is not None:
                self._known[identity] = f"{name}.{part}" if part else name

    def name_inputs(self, events: Sequence[Event]) -> None:
        """Name the inputs of the operations of one optimizer step and of the clipping before it.

        Operations of the step belong to the module of their parameters where there is only one.
        """
        self._learn()
        for event in events:
            if event.place.phase not in {OPTIMIZER, GRADIENTS}:
                continue
            found = [self._known.get(given.identity, "") if given.identity else "" for given in event.inputs]
            if not any(found):
                continue
            event.parameters = found
            owners = {name for name in found if name}
            if event.place.module is None and event.place.in_optimizer:
                event.place.module = _module_of(owners, self._known.values())


def name_written(events: Iterable[Event], names: ModuleNames, identity: Identity) -> None:
    """Name the parameters and buffers that operations outside an optimizer wrote to, such as running statistics."""
    written = [event for event in events if event.parameters is None and any(given.identity for given in event.inputs)]
    if not written:
        return
    known = {identity(tensor): name for name, tensor in names.tensors()}
    for event in written:
        found = [known.get(given.identity, "") if given.identity else "" for given in event.inputs]
        if any(found):
            event.parameters = found


class OptimizerWatch:
    """All optimizers of the process, told as they are made: nothing else announces them.

    Args:
        on_made: called with one that has been made.
    """

    def __init__(self, on_made: Callable[[Any], None]) -> None:
        self._on_made = on_made
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()
        self._original: Any = None

    def install(self) -> None:
        """Watch the constructor that all optimizers share."""
        original = self._original = torch.optim.Optimizer.__init__

        @wraps(original)
        def made(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            self._add(optimizer)

        torch.optim.Optimizer.__init__ = made

    def _add(self, optimizer: Any) -> None:
        self._made.add(optimizer)
        self._on_made(optimizer)

    def learn(self, optimizer: Any) -> None:
        """Learn of an optimizer that was made before, also inside of one that only calls it and has no hooks itself."""
        while not getattr(getattr(type(optimizer), "step", None), "hooked", False):
            optimizer = getattr(optimizer, "optimizer", None)
            if optimizer is None:
                return
        self._add(optimizer)

    def remove(self) -> None:
        """Leave the constructor as it was."""
        if self._original is not None:
            torch.optim.Optimizer.__init__ = self._original
            self._original = None

    def known(self) -> list[Any]:
        """Return the optimizers that still exist."""
        return list(self._made)

    def parameters(self) -> set[int]:
        """Return the ids of the parameters that an optimizer trains."""
        return {id(p) for found in self._made for group in found.param_groups for p in group["params"]}


def _module_of(names: set[str], known: Any) -> str | None:
    """Return the one module of these parameters, gradients and states; None when there are several."""
    parameters = set(known)
    modules = set()
    for name in names:
        head, _, _ = name.rpartition(".")
        # `wq.weight.exp_avg` belongs to the parameter `wq.weight`
        parameter = head if head in parameters else name
        modules.add(parameter.rpartition(".")[0])
    only = next(iter(modules)) if len(modules) == 1 else None
    return only or None
