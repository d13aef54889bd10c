"""Updates of parameters that no optimizer of torch makes: `p.data.add_`, a functional update, another library's."""

from __future__ import annotations

import weakref

import torch
from torch import nn

from .attribution import BACKWARD, GRADIENTS, OPTIMIZER
from .event import Event
from .recorder import Recorder
from .step_start import ModelState
from .step_window import upstream
from .subclasses import local_part, plain
from .tracer import StepTracer

__all__ = ["Updates", "updated_by_hand"]


class Updates:
    """Parameters of the models that are called, as they were at their first call in the step.

    Nothing announces such an update, so that the parameters' digests are compared; which reads all of them.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[nn.Module], dict[str, str]]] = {}

    def called(self, model: nn.Module) -> None:
        """Learn a model that is called."""
        self._known.setdefault(id(model), (weakref.ref(model), _digests(model)))

    def changed(self, model: nn.Module) -> bool:
        """Return True if a known model's parameters are others now."""
        known = self._known.get(id(model))
        return known is not None and known[0]() is model and known[1] != _digests(model)

    def any_changed(self) -> bool:
        """Return True if those of any known model are others now."""
        return any((model := of()) is not None and self.changed(model) for of, _ in list(self._known.values()))

    def forget(self) -> None:
        """Forget all models: a step ends."""
        self._known.clear()


def _digests(model: nn.Module) -> dict[str, str]:
    return ModelState((name, _inner(p)) for name, p in model.named_parameters() if p.requires_grad).digests()


def _inner(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor inside those that `torch.func` wraps around it for each of its transforms."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def updated_by_hand(recorder: Recorder) -> bool:
    """End the step after the operations that have written the parameters since its last backward pass.

    They get the phase of an optimizer's step, with what they are computed from; what scales or clips the gradients that
    they read gets that of `gradients`. False if there was no backward pass, or nothing has written parameters since.
    """
    tracer = recorder.tracer
    events = [] if tracer is None else tracer.events
    backward = [at for at, event in enumerate(events) if event.place.phase == BACKWARD]
    tail = events[backward[-1] + 1 :] if backward else []
    made = {id(_maker(tensor, tracer)) for _, tensor in recorder.names.parameters()} if tracer is not None else set()
    wrote = [event for event in tail if id(event) in made]
    if tracer is None or not wrote:
        return False
    among = {id(event) for event in tail}
    updates, clips = upstream(wrote, among), upstream(filter(_writes_gradient, tail), among)
    for event in tail:
        if id(event) in clips:
            event.place.phase = GRADIENTS
        elif id(event) in updates:
            event.place.phase = OPTIMIZER
    recorder.may_be_over(tracer, events.index(wrote[-1]) + 1)
    return True


def _maker(tensor: torch.Tensor, tracer: StepTracer) -> Event | None:
    """Return the operation that last wrote to a tensor's memory, None if it was not recorded."""
    part = local_part(_inner(tensor))
    state = tracer.measuring.state(part)
    return None if state is None else tracer.measuring.storages.producer(state, plain(part))


def _writes_gradient(event: Event) -> bool:
    return any(given.written and given.producer and given.producer.place.phase == BACKWARD for given in event.inputs)
