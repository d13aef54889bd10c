"""Optimizers: what they hold, and names by memory, of the tensors they work on and of what is written elsewhere."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

import torch

from .arguments import arguments_json
from .attribution import BACKWARD, GRADIENTS, OPTIMIZER, PREPARE
from .event import Event
from .guard import ends_no_run
from .modules import ModuleNames

__all__ = ["OptimizerNames", "OptimizerWatch", "SteppedParameters", "makes_states", "name_written", "owned_tensors"]

_MAX_NAMES = 1000
_MAX_BETAS = 8
_FRAMES = 16
"""Between a hook and the function that lets an optimizer step: wrappers of torch and of this package."""


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


def makes_states() -> bool:
    """Return True within a step that torch takes with zero gradients and rates, for states that a checkpoint fills."""
    frame = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame.f_code.co_name == "_init_optim_state":
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False


class SteppedParameters:
    """Parameters in the optimizers that step, the ones without a gradient, and the settings; keeps no tensor."""

    def __init__(self) -> None:
        self._has_gradient: dict[int, bool] = {}
        self._groups: dict[int, list[tuple[dict[str, Any], list[int]]]] = {}

    def learn(self, optimizer: Any) -> None:
        """Note an optimizer's parameters and gradients: before it steps and, as it may compute them itself, after.

        And its settings before its first step.
        """
        if id(optimizer) not in self._groups:
            self._groups[id(optimizer)] = _settings(optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                has = self._has_gradient.get(id(parameter), False)
                self._has_gradient[id(parameter)] = has or parameter.grad is not None

    def as_json(self, parameters: Iterable[tuple[str, torch.Tensor]]) -> dict[str, Any]:
        """Return the entry of the run info, empty if no optimizer has stepped.

        Args:
            parameters: (name, parameter) of all models, without repetitions.
        """
        if not self._has_gradient:
            return {}
        trained = {id(parameter): name for name, parameter in parameters if parameter.requires_grad}
        not_held = [name for number, name in trained.items() if number not in self._has_gradient]
        without = [trained[number] for number, has in self._has_gradient.items() if number in trained and not has]
        found: dict[str, Any] = {"held": len(trained) - len(not_held)}
        if others := len(self._has_gradient.keys() - trained.keys()):
            found["others"] = others
        return found | {"not_held": not_held[:_MAX_NAMES], "no_gradient": without[:_MAX_NAMES]}

    def settings(self, parameters: Iterable[tuple[str, torch.Tensor]]) -> list[dict[str, Any]]:
        """Return the entry of the run info about what the optimizers are set to; of several groups with their names.

        Args:
            parameters: as of `as_json`.
        """
        groups = [group for groups in self._groups.values() for group in groups][:_MAX_NAMES]
        if len(groups) < 2:
            return [settings for settings, _ in groups]
        names = {id(parameter): name for name, parameter in parameters}
        return [settings | {"names": [names[of] for of in held if of in names]} for settings, held in groups]


def _settings(optimizer: Any) -> list[tuple[dict[str, Any], list[int]]]:
    """Return what an optimizer is set to: of groups that are set alike, class and settings for JSON, and parameters."""
    found: dict[tuple[tuple[str, Any], ...], list[int]] = {}
    for group in optimizer.param_groups:
        held = ((str(name), tuple(value) if isinstance(value, list) else value) for name, value in group.items())
        values = [(name, value) for name, value in held if _is_setting(value)]
        found.setdefault(tuple(values + _steps(optimizer.state, group["params"])), []).extend(map(id, group["params"]))
    name = type(optimizer).__qualname__
    return [
        ({"optimizer": name, "parameters": len(held), **arguments_json(values)}, held) for values, held in found.items()
    ]


def _steps(states: Any, parameters: Sequence[Any]) -> list[tuple[str, Any]]:
    """Return the number of updates before, if it is one for all parameters and no device has to be waited for."""
    if not isinstance(states, Mapping):
        return []
    found: set[Any] = set()
    for parameter in parameters:
        state = states.get(parameter)
        step: Any = state.get("step") if isinstance(state, Mapping) else None
        if type(step) is torch.Tensor and step.device.type == "cpu" and step.numel() == 1:
            step = step.tolist()  # which is not dispatched
        found.add(step if type(step) in (int, float) else None)
    return [("step", step) for step in found if step is not None and len(found) == 1]


def _is_setting(value: Any) -> bool:
    if isinstance(value, tuple):  # not the parameters, nor their names
        return 0 < len(value) < _MAX_BETAS and all(type(item) in (int, float) for item in value)
    return value is None or type(value) in (bool, int, float, str)


Identity = Callable[[torch.Tensor], tuple[int, int] | None]


class OptimizerNames:
    """Names for the inputs of an optimizer's operations, found by their memory.

    An optimizer creates its state in its first step, so names are looked up after the step, while its tensors still
    exist; gradients may be set to None inside the step and are noted before it as well.
    """

    def __init__(self, names: ModuleNames, optimizer: Any, identity: Identity) -> None:
        self._names, self._optimizer, self._identity = names, optimizer, identity
        self._known: dict[tuple[int, int], str] = {}
        self._learn()

    def _learn(self) -> None:
        for name, parameter in self._names.parameters():  # one that no optimizer has is clipped with the others
            identity = None if parameter.grad is None else self._identity(parameter.grad)
            if identity is not None:
                self._known[identity] = f"{name}.grad"
        for name, part, tensor in owned_tensors(self._optimizer, self._names):
            identity = self._identity(tensor)
            if identity is not None:
                self._known[identity] = f"{name}.{part}" if part else name

    def _find_clipping(self, events: Sequence[Event]) -> None:
        """Give what makes gradients, or is made of them, its phase: it looks like preparing the next pass."""
        gradients = {identity for identity, name in self._known.items() if name.endswith(".grad")}
        last = max((at for at, event in enumerate(events) if event.place.phase == BACKWARD), default=len(events))
        after = [event for event in events[last:] if event.place.phase == PREPARE]
        computed = {id(of.producer) for event in events[last:] for of in event.inputs if of.identity in gradients}
        for event in after:
            if any(given.identity in gradients or id(given.producer) in computed for given in event.inputs):
                computed.add(id(event))
        for event in reversed(after):
            if id(event) in computed:
                event.place.phase = GRADIENTS
                computed.update(id(given.producer) for given in event.inputs)

    def name_inputs(self, events: Sequence[Event]) -> None:
        """Name the inputs of the operations of one optimizer step and of the clipping before it.

        Operations of the step belong to the module of their parameters where there is only one.
        """
        self._learn()
        self._find_clipping(events)
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
        broken: told of an error.
    """

    def __init__(self, on_made: Callable[[Any], None], broken: Callable[[Exception], None]) -> None:
        self._on_made = on_made
        self.broken = broken
        # by identity: one that defines `__eq__` has no hash
        self._made: dict[int, weakref.ref[Any]] = {}
        self._original: Any = None

    def install(self) -> None:
        """Watch the constructor that all optimizers share."""
        original = self._original = torch.optim.Optimizer.__init__

        @wraps(original)
        def made(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            self._add(optimizer)

        torch.optim.Optimizer.__init__ = made

    @ends_no_run
    def _add(self, optimizer: Any) -> None:
        self._made[id(optimizer)] = weakref.ref(optimizer)
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
        return [optimizer for made in self._made.values() if (optimizer := made()) is not None]

    def parameters(self) -> set[int]:
        """Return the ids of the parameters that an optimizer trains."""
        return {id(p) for found in self.known() for group in found.param_groups for p in group["params"]}


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
