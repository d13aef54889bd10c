"""Step among the operations of its tracer, and those around it that belong to it: read before, left behind after."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field

from .attribution import FORWARD, PREPARE
from .event import Event, Input
from .optimizers import SteppedParameters
from .step_start import StepStart

__all__ = ["Split", "Window", "read_by", "split_results", "split_tail", "upstream"]

Split = Callable[[Sequence[Event], Container[int]], tuple[list[Event], list[Event]]]


@dataclass
class Window:
    """Place of a step among the events of its tracer.

    Attributes:
        forward: position of the first forward pass, None before it.
        stepped: position after the last optimizer that has stepped, None before it.
        mark: position of, and number of forward passes before, the forward pass that follows it; None if none has.
        start_at_mark: state of the models there.
        first_pass: number of forward passes before the step.
        named: position from which optimizers have named no inputs yet.
        seen: ids of the models that are taken as they were when they were first called in the step.
        left: position after a micro-batch, while the next has not begun and there was no pause.
        aside: parts of the step that are only in it as far as it reads them.
        optimizers: what the optimizers hold that have stepped.
    """

    forward: int | None = None
    stepped: int | None = None
    mark: tuple[int, int] | None = None
    start_at_mark: StepStart | None = None
    first_pass: int = 0
    named: int = 0
    seen: set[int] = field(default_factory=set)
    left: int | None = None
    aside: list[slice] = field(default_factory=list)
    optimizers: SteppedParameters = field(default_factory=SteppedParameters)

    def extent(self, events: Sequence[Event], written: Iterable[Event]) -> tuple[int, int]:
        """Return how many of the events that are written come before the step's forward pass, and before its end."""
        begin = self.forward or 0
        end = len(events) if self.stepped is None else self.stepped
        before, within = ({id(event) for event in part} for part in (events[:begin], events[begin:end]))
        numbers = [(id(event) in before, id(event) in within) for event in written]
        first = sum(early for early, _ in numbers)
        return first, first + sum(inside for _, inside in numbers)


def read_by(step: Iterable[Event], before: Sequence[Event]) -> list[Event]:
    """Return the operations of `before` whose results the step reads, directly or over others of them, in order.

    The rest (validation, saving, logging) is no part of the step.
    """
    among = {id(event) for event in before}
    found = upstream((producer for event in step for producer in _producers(event)), among)
    return [event for event in before if id(event) in found]


def split_tail(tail: Sequence[Event], of_models: Container[int]) -> tuple[list[Event], list[Event]]:
    """Split what ran between the last optimizer step and the next forward pass.

    Args:
        of_models: the numbers of the storages of all parameters and buffers.

    Returns:
        (updates: what writes in place to parameters and buffers, or to older tensors from parameters, such as averaged
        copies, with what computes the values written; the rest, which the next step may read). What a module computes,
        such as a validation loss that is added up, is no update.
    """
    among = {id(event): event for event in tail}
    writers: dict[int, list[Event]] = {}
    for event in tail:
        for given in event.inputs:
            number = _storage(given) if given.written else None
            older = given.producer is None or id(given.producer) not in among
            if number is not None and (older or number in writers):
                writers.setdefault(number, []).append(event)
    updates: set[int] = set()
    for events in writers.values():
        found = {id(event) for event in events}
        found |= upstream((producer for event in events for producer in _producers(event)), among)
        of_model = any(_storage(given) in of_models for key in found for given in among[key].inputs)
        if of_model and not any(among[key].place.running for key in found):
            updates |= found
    return [event for event in tail if id(event) in updates], [event for event in tail if id(event) not in updates]


def split_results(tail: Sequence[Event], _of_models: Container[int]) -> tuple[list[Event], list[Event]]:
    """Split what ran between a call of a model and the next.

    Returns:
        (what is computed from the call's results, such as a loss or the next token; the rest, which the next call may
        read and which then prepares it).
    """
    among = {id(event) for event in tail}
    results: set[int] = set()
    for event in tail:
        if any(id(producer) in results or id(producer) not in among for producer in _producers(event)):
            results.add(id(event))
    rest = [event for event in tail if id(event) not in results]
    for event in rest:
        if event.place.phase == FORWARD:
            event.place.phase, event.place.forward_pass = PREPARE, None
    return [event for event in tail if id(event) in results], rest


def _storage(given: Input) -> int | None:
    return None if given.identity is None else given.identity[0]


def _producers(event: Event) -> Iterable[Event]:
    return (given.producer for given in event.inputs if given.producer is not None)


def upstream(start: Iterable[Event], among: Iterable[int]) -> set[int]:
    """Return the ids of the events of `among` that are reached from `start` without leaving `among`."""
    inside: Callable[[int], bool] = frozenset(among).__contains__
    found: set[int] = set()
    waiting = [event for event in start if inside(id(event))]
    while waiting:
        event = waiting.pop()
        if id(event) not in found:
            found.add(id(event))
            waiting += [producer for producer in _producers(event) if inside(id(producer))]
    return found
